package artifact

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/term"
)

type getOptions struct {
	which  verb.Which
	target artifactstore.Target
	asJSON *bool
}

// newGet fetches an artifact of any type. what names it in the help.
func newGet(p *verb.Program, what string) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Write the files of an " + what + " to disk",
		Long: `Writes the files of one version: those of a universe, a skill, a command or a build context by their paths, a file by its name, an environment universe as
<environment>/<file> and metadata/<key>/<file>. Names, modes and links are as they were put. Every byte is checked against its digest before anything stands at its
target; when one is damaged, all damaged files are named and nothing is written.

A folder that holds files already is refused; with --force files of the same name are replaced and others stay as they are.`,
		Example:           "  agent-env artifact get @local/agentenv-framework/hello/greeting --output-dir out\n  agent-env artifact get notes/seed -o seed.json",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := o.which.ID(cmd, args)
			if err != nil {
				return err
			}
			if (o.target.Dir == "") == (o.target.File == "") {
				return verb.Usagef("%s needs --output-dir DIR, or -o FILE for an artifact of one file", cmd.CommandPath())
			}
			return get(cmd.Context(), p, id, o)
		},
	}
	o.which = p.WhichFlags(cmd, "artifact", newest)
	f := cmd.Flags()
	f.StringVar(&o.target.Dir, "output-dir", "", "write into this `DIR`, which is made when absent")
	f.StringVarP(&o.target.File, "output", "o", "", "write the one file of a file or environment to this `FILE`")
	f.BoolVar(&o.target.Force, "force", false, "replace files that are there")
	o.asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// got is what --json prints.
type got struct {
	verb.Format
	artifactstore.Got
}

func get(ctx context.Context, p *verb.Program, id string, o getOptions) error {
	_, l, err := open(ctx, p)
	if err != nil {
		return err
	}
	out, err := fetch(ctx, p, l, id, *o.which.Version, o.target)
	if err != nil {
		return err
	}
	if *o.asJSON {
		return p.Streams.JSON(got{verb.V1(), out})
	}
	wrote(p, out)
	return nil
}

// fetch is a Get that shows its progress.
func fetch(ctx context.Context, p *verb.Program, l *artifactstore.Library, id string, version int, t artifactstore.Target) (artifactstore.Got, error) {
	progress := p.Streams.NewProgress(ctx)
	defer progress.Close()
	bar := progress.Bar(id, 0, term.Bytes)
	defer bar.Fail()
	t.Progress = func(n, total int64) {
		bar.SetTotal(total)
		bar.Add(n)
	}
	out, err := l.Get(ctx, id, version, t)
	if err == nil {
		bar.Done()
	}
	return out, err
}

func wrote(p *verb.Program, out artifactstore.Got) {
	p.Streams.Printf("%s: v%d (%s, %s) in %s\n", term.Clean(out.ID), out.Version, diag.Count(out.Files, "file"), term.Size(out.Size), term.Clean(out.Path))
}

// newGetMany fetches several artifacts, each into a folder of its own.
func newGetMany(p *verb.Program) *cobra.Command {
	var ids []string
	var dir string
	var force, asJSON *bool
	cmd := &cobra.Command{
		Use:   "get-many",
		Short: "Write the files of several artifacts, each into a folder named after its id",
		Long: `Writes the latest version of each artifact into a folder below DIR: one named like the id, or, for a local id (@local/…), one that spells it in a way that every
file system takes. All problems are told; what has none is written.`,
		Example: "  agent-env artifact file-artifact-universe get-many --id mail/seeds --id crm/seeds --output-dir seeds",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(ids) == 0 || dir == "" {
				return verb.Usagef("%s needs --id ID, once or more, and --output-dir DIR", cmd.CommandPath())
			}
			return getMany(cmd.Context(), p, ids, artifactstore.Target{Dir: dir, Force: *force}, *asJSON)
		},
	}
	cmd.Flags().StringArrayVar(&ids, "id", nil, "an `ID`; repeatable")
	completeID(p, cmd)
	cmd.Flags().StringVar(&dir, "output-dir", "", "make the folders in this `DIR`")
	force = cmd.Flags().Bool("force", false, "replace files that are there")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// gotMany is what --json prints.
type gotMany struct {
	verb.Format
	Artifacts []artifactstore.Got `json:"artifacts"`
}

func getMany(ctx context.Context, p *verb.Program, ids []string, t artifactstore.Target, asJSON bool) error {
	_, l, err := open(ctx, p)
	if err != nil {
		return err
	}
	out := gotMany{verb.V1(), []artifactstore.Got{}}
	var errs []error
	for _, id := range ids {
		mine := t
		mine.Dir = filepath.Join(t.Dir, filepath.FromSlash(id))
		if ref.IsLocal(id) {
			mine.Dir = filepath.Join(t.Dir, filepath.FromSlash(ref.Key(id)))
		} else if err := ref.CheckID(id); err != nil {
			errs = append(errs, err)
			continue
		}
		one, err := fetch(ctx, p, l, id, 0, mine)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Artifacts = append(out.Artifacts, one)
		if !asJSON {
			wrote(p, one)
		}
	}
	if asJSON {
		errs = append(errs, p.Streams.JSON(out))
	}
	return errors.Join(errs...)
}
