package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/term"
)

// place is where an exported snapshot goes.
type place struct {
	artifact, file string
}

func (o *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.artifact, "as", "", "also store it as the file `ARTIFACT` of this id")
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "also write it to this `FILE`, a tar")
}

func newSnapshot(p *verb.Program) *cobra.Command {
	var o place
	var name string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "snapshot SANDBOX",
		Short: "Keep what a sandbox holds, for others to begin with",
		Long: `Keeps all files that a sandbox wrote, and prints the snapshot's id. The sandbox stands still meanwhile, then goes on. Its processes are not kept.
Sandboxes begin with the snapshot by agent-env sandbox start --from ID, and share nothing with each other. It stays until agent-env sandbox snapshot rm.`,
		Example: "  agent-env sandbox snapshot try --name seeded\n  agent-env sandbox snapshot try --as worlds/seeded",
		Args:    verb.Args("SANDBOX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return takeSnapshot(cmd.Context(), p, args[0], name, o, *asJSON)
		},
		ValidArgsFunction: completeIDs(p, false),
	}
	cmd.Flags().StringVar(&name, "name", "", "a `NAME` for people")
	o.flags(cmd)
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	cmd.AddCommand(newSnapshotList(p), newSnapshotRemove(p), newSnapshotExport(p), newSnapshotImport(p))
	return cmd
}

// snapped is what --json prints, of snapshot, export and import.
type snapped struct {
	verb.Format
	Snapshot sandbox.Snapshot      `json:"snapshot"`
	Artifact *artifactstore.Stored `json:"artifact,omitempty"`
	File     string                `json:"file,omitempty"`
}

func takeSnapshot(ctx context.Context, p *verb.Program, text, name string, o place, asJSON bool) error {
	if err := checkName(name); err != nil {
		return err
	}
	a, info, f, err := forker(ctx, p, text)
	if err != nil {
		return err
	}
	s, err := f.Snapshot(ctx, info.ID, sandbox.SnapshotOptions{Name: name})
	if err != nil {
		return err
	}
	return tellSnapshot(ctx, p, a, f, s, o, asJSON)
}

// tellSnapshot exports s where o says and prints it.
func tellSnapshot(ctx context.Context, p *verb.Program, a *app.App, f sandbox.Forker, s sandbox.Snapshot, o place, asJSON bool) error {
	out := snapped{Format: verb.V1(), Snapshot: s, File: o.file}
	err := export(ctx, a, f, s, o, &out)
	if asJSON {
		return errors.Join(err, p.Streams.JSON(out))
	}
	p.Streams.Printf("%s\n", s.ID)
	if err != nil {
		return err
	}
	p.Streams.Note("It holds %s (%s new). Begin with it: agent-env sandbox start --from %s", term.Size(s.Bytes), term.Size(s.Added), s.ID)
	if out.Artifact != nil {
		p.Streams.Note("Stored as %s v%d.", term.Clean(out.Artifact.ID), out.Artifact.Version)
	}
	return nil
}

func export(ctx context.Context, a *app.App, f sandbox.Forker, s sandbox.Snapshot, o place, out *snapped) error {
	if o.file != "" {
		if err := atomicfile.Write(o.file, 0o600, func(w io.Writer) error { return f.ExportSnapshot(ctx, s.ID, w) }); err != nil {
			return err
		}
	}
	if o.artifact == "" {
		return nil
	}
	scratch, err := atomicfile.NewScratch("agent-env-snapshot")
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Remove() }()
	file := filepath.Join(scratch.Dir, s.ID+".tar")
	if err := atomicfile.Write(file, 0o600, func(w io.Writer) error { return f.ExportSnapshot(ctx, s.ID, w) }); err != nil {
		return err
	}
	stored, err := storeFile(ctx, a, o.artifact, file, "snapshot "+s.ID+" of sandbox "+s.Box)
	if err == nil {
		out.Artifact = &stored
	}
	return err
}

// storeFile stores a file as the next version of an artifact.
func storeFile(ctx context.Context, a *app.App, id, file, description string) (artifactstore.Stored, error) {
	l, err := a.Artifacts(ctx)
	if err != nil {
		return artifactstore.Stored{}, err
	}
	return l.Put(ctx, artifactstore.Put{Type: artifact.File, ID: id, Paths: []string{file}, Description: description})
}

func newSnapshotExport(p *verb.Program) *cobra.Command {
	var o place
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "export SNAPSHOT",
		Short:   "Write a snapshot to a file, or store it as an artifact",
		Example: "  agent-env sandbox snapshot export seeded -o seeded.tar",
		Args:    verb.Args("SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.artifact == "" && o.file == "" {
				return verb.Usagef("%s needs --as ARTIFACT or -o FILE", cmd.CommandPath())
			}
			a, err := open(cmd.Context(), p)
			if err != nil {
				return err
			}
			s, f, err := a.FindSnapshot(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return tellSnapshot(cmd.Context(), p, a, f, s, o, *asJSON)
		},
		ValidArgsFunction: completeSnapshots(p, false),
	}
	o.flags(cmd)
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func newSnapshotImport(p *verb.Program) *cobra.Command {
	var from, name, chain string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Keep a snapshot that was exported here or elsewhere",
		Long: `Keeps an exported snapshot, from a FILE or from an artifact (--from). One that needs what this machine lacks is refused: another processor, the
distribution that its sandbox's root was of, or owners of files that an ordinary user can't give.`,
		Example: "  agent-env sandbox snapshot import seeded.tar\n  agent-env sandbox snapshot import --from worlds/seeded",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (from != "") {
				return verb.Usagef("%s needs a FILE or --from ARTIFACT", cmd.CommandPath())
			}
			return importSnapshot(cmd.Context(), p, append(args, "")[0], from, chain, name, *asJSON)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the `ARTIFACT` to read")
	cmd.Flags().StringVar(&name, "name", "", "a `NAME` for people; the exported one's when left out")
	cmd.Flags().StringVar(&chain, "sandbox", "", "the `PROVIDER` to keep it for")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func importSnapshot(ctx context.Context, p *verb.Program, file, from, chain, name string, asJSON bool) error {
	if err := checkName(name); err != nil {
		return err
	}
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	f, err := a.ImportingForker(ctx, chain)
	if err != nil {
		return err
	}
	if from != "" {
		scratch, err := atomicfile.NewScratch("agent-env-snapshot")
		if err != nil {
			return err
		}
		defer func() { _ = scratch.Remove() }()
		file = filepath.Join(scratch.Dir, "snapshot.tar")
		l, err := a.Artifacts(ctx)
		if err != nil {
			return err
		}
		if _, err := l.Get(ctx, from, 0, artifactstore.Target{File: file}); err != nil {
			return err
		}
	}
	r, err := os.Open(file)
	if err != nil {
		return err
	}
	defer r.Close()
	s, err := f.ImportSnapshot(ctx, r, sandbox.SnapshotOptions{Name: name})
	if err != nil {
		return err
	}
	return tellSnapshot(ctx, p, a, f, s, place{}, asJSON)
}

func newSnapshotList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List snapshots, newest first",
		Args:  verb.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return listSnapshots(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// snapshotListing is what --json prints.
type snapshotListing struct {
	verb.Format
	Snapshots []sandbox.Snapshot `json:"snapshots"`
}

func listSnapshots(ctx context.Context, p *verb.Program, asJSON bool) error {
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	all, err := a.Snapshots(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(snapshotListing{verb.V1(), append([]sandbox.Snapshot{}, all...)})
	}
	if len(all) == 0 {
		p.Streams.Note("There are no snapshots.")
		return nil
	}
	t := term.NewTable("SNAPSHOT", "PROVIDER", "NAME", "SIZE", "OF", "AGE")
	for _, s := range all {
		t.Row(s.ID, s.Provider, s.Name, term.Size(s.Bytes), s.Box, time.Since(s.Created).Round(time.Second).String())
	}
	return t.Print(p.Streams)
}

func newSnapshotRemove(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:               "rm SNAPSHOT…",
		Short:             "Remove snapshots; sandboxes that began with them live on",
		Args:              verb.Args("SNAPSHOT…"),
		RunE:              func(cmd *cobra.Command, args []string) error { return removeSnapshots(cmd.Context(), p, args, *asJSON) },
		ValidArgsFunction: completeSnapshots(p, true),
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func removeSnapshots(ctx context.Context, p *verb.Program, texts []string, asJSON bool) error {
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	out := removed{verb.V1(), []string{}}
	var errs []error
	for _, text := range texts {
		s, f, err := a.FindSnapshot(ctx, text)
		if err == nil {
			err = f.RemoveSnapshot(ctx, s.ID)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Removed = append(out.Removed, s.ID)
		if !asJSON {
			p.Streams.Printf("removed %s\n", s.ID)
		}
	}
	if asJSON {
		errs = append(errs, p.Streams.JSON(out))
	}
	return errors.Join(errs...)
}

// completeSnapshots offers snapshots to the shell.
func completeSnapshots(p *verb.Program, many bool) cobra.CompletionFunc {
	find := func(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
		all, err := a.Snapshots(ctx)
		var out []cobra.Completion
		for _, s := range all {
			out = append(out, cobra.CompletionWithDesc(s.ID, s.Name))
		}
		return out, err
	}
	if many {
		return p.Complete(find, cobra.ShellCompDirectiveNoFileComp)
	}
	return p.CompleteFirst(find, cobra.ShellCompDirectiveNoFileComp)
}
