package artifact

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

func newPut(p *verb.Program) *cobra.Command {
	var put artifactstore.Put
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "put TYPE ID [PATH…]",
		Short: "Store files as the next version of an artifact",
		Long: `Stores an artifact of a type under an id, whole or not at all. Every call makes a new version; puts of one id that come at once all get through. All problems are
told at once, and nothing is stored while there is one.

  file                     one file
  file_artifact_universe   what one folder holds; or several files and folders, each under its name; or stored files (--file-artifact)
  skill                    a folder with SKILL.md at its top
  cli                      a folder with a command: --entrypoint and --command-name
  docker_image             a folder to build from (--dockerfile), less what its .dockerignore names; or --ref, an image of a registry with its digest
  environment              one file, a folder packed into one (--tree), or a stored file (--file): --environment-name says which environment it is for
  environment_universe     a folder laid out as <environment>/<file> and metadata/<key>/<file>, stored environments (--environment-artifact), or both

Modes, links that stay inside, and empty folders are kept. What file managers and interpreters leave behind (.DS_Store, Thumbs.db, desktop.ini, __pycache__) is left out.
A reference to something stored is ID or ID:VERSION; without a version the latest is pinned. ID is a local id (@local/…) or a bare one (mail/seed).`,
		Example: "  agent-env artifact put file notes/seed seed.json\n  agent-env artifact put environment notes/data seed.json --environment-name notes\n" +
			"  agent-env artifact put cli tools/grep ./grep --entrypoint bin/grep --command-name grep",
		Args: func(cmd *cobra.Command, args []string) error {
			return verb.Args("TYPE", "ID")(cmd, args[:min(len(args), 2)])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			put.Type, put.ID, put.Paths = args[0], args[1], args[2:]
			return store(cmd.Context(), p, put, *asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&put.Description, "description", "", "what it is, as `TEXT`: of a file, an environment's file, an image")
	f.StringVar(&put.Entrypoint, "entrypoint", "", "the `FILE` of a cli that its command runs")
	f.StringVar(&put.Command, "command-name", "", "the `NAME` of a cli's command")
	f.StringVar(&put.Env, "env-id", "", "the environment that a cli was made from, as `ID[:VERSION]`")
	f.StringVar(&put.Dockerfile, "dockerfile", "", "the `FILE` of a folder to build from; Dockerfile when left out")
	f.StringVar(&put.Ref, "ref", "", "an image of a registry as `HOST/NAME[:TAG]@DIGEST`, in place of a folder")
	f.StringVar(&put.EnvironmentName, "environment-name", "", "the `NAME` of the environment that the data is for")
	f.StringVar(&put.File, "file", "", "a stored file as `ID[:VERSION]`, in place of a path")
	f.StringVar(&put.Tree, "tree", "", "a `DIR` that is packed into one file, in place of a path")
	f.StringArrayVar(&put.Environments, "environment-artifact", nil, "a stored environment of a universe as `ID[:VERSION]`; repeatable")
	f.StringArrayVar(&put.Metadata, "metadata", nil, "a file of a universe's metadata as `KEY=FILE`; repeatable")
	f.StringArrayVar(&put.Members, "file-artifact", nil, "a stored file of a universe as `ID[:VERSION]`, in place of paths; repeatable")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	cmd.ValidArgsFunction = completePut(p)
	return cmd
}

// completePut offers types, then ids, then files.
func completePut(p *verb.Program) cobra.CompletionFunc {
	ids := completeIDs(p)
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return artifact.Types(), cobra.ShellCompDirectiveNoFileComp
		case 1:
			return ids(cmd, nil, prefix)
		default:
			return nil, cobra.ShellCompDirectiveDefault
		}
	}
}

// put is what --json prints. A refusal has no version.
type putResult struct {
	verb.Format
	OK       bool           `json:"ok"`
	ID       string         `json:"id"`
	Version  int            `json:"version,omitempty"`
	Type     string         `json:"type"`
	Files    int            `json:"files,omitempty"`
	Size     int64          `json:"size"`
	Problems []verb.Problem `json:"problems"`
}

// store puts an artifact and prints what came of it.
func store(ctx context.Context, p *verb.Program, put artifactstore.Put, asJSON bool) error {
	a, l, err := open(ctx, p)
	if err != nil {
		return err
	}
	if put.Type, err = a.ArtifactType(put.Type); err != nil {
		return err
	}
	progress := p.Streams.NewProgress(ctx)
	defer progress.Close()
	bar := progress.Bar(put.ID, 0, term.Count)
	defer bar.Fail()
	put.Progress = func(done, total int) {
		bar.SetTotal(int64(total))
		bar.Add(int64(done))
	}
	out, err := l.Put(ctx, put)
	if err == nil {
		bar.Done()
	}
	problems, told := diag.From(err)
	if err != nil && !told {
		return err
	}
	if asJSON {
		r := putResult{verb.V1(), err == nil, put.ID, out.Version, put.Type, out.Files, out.Size, verb.Problems(problems)}
		if jerr := p.Streams.JSON(r); jerr != nil {
			return jerr
		}
	} else if err == nil {
		p.Streams.Printf("%s: v%d (%s, %s, %s)\n", term.Clean(out.ID), out.Version, out.Type, diag.Count(out.Files, "file"), term.Size(out.Size))
	}
	return err
}
