package sandbox

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/term"
)

func newDiff(p *verb.Program) *cobra.Command {
	var file string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "diff SANDBOX",
		Short: "Tell what a sandbox has changed since it began",
		Long: `Prints one line for each path that is different from what the sandbox began with, its image, snapshot or this machine's system: A for what was added, M for what
was modified, D for what was deleted (with all that was below it). With -o the files themselves go into a tar, deleted ones as character devices 0,0.`,
		Example: "  agent-env sandbox diff try\n  agent-env sandbox diff try -o changes.tar",
		Args:    verb.Args("SANDBOX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return diff(cmd.Context(), p, args[0], file, *asJSON)
		},
		ValidArgsFunction: completeIDs(p, false),
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write a tar of the changes to this `FILE`")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// changed is what --json prints.
type changed struct {
	verb.Format
	Sandbox string           `json:"sandbox_id"`
	Changes []sandbox.Change `json:"changes"`
	File    string           `json:"file,omitempty"`
}

func diff(ctx context.Context, p *verb.Program, text, file string, asJSON bool) error {
	_, info, f, err := forker(ctx, p, text)
	if err != nil {
		return err
	}
	r, err := f.Diff(ctx, info.ID, file == "")
	if err != nil {
		return err
	}
	defer r.Close()
	var changes []sandbox.Change
	if file == "" {
		changes, err = sandbox.ReadChanges(r)
	} else {
		err = atomicfile.Write(file, 0o600, func(w io.Writer) error {
			tee := io.TeeReader(r, w)
			if changes, err = sandbox.ReadChanges(tee); err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, tee) // what follows the last entry belongs to the tar
			return err
		})
	}
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(changed{verb.V1(), info.ID, append([]sandbox.Change{}, changes...), file})
	}
	for _, c := range changes {
		p.Streams.Printf("%s %s\n", c.Kind, term.Clean(c.Path))
	}
	if len(changes) == 0 {
		p.Streams.Note("Nothing has changed.")
	}
	return nil
}
