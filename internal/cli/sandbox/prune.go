package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

func newPrune(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what dead sandboxes left",
		Long: `Removes the folders and control groups that sandboxes left whose processes are gone. A live sandbox is never touched.
Every command that uses sandboxes does this first, so it is seldom needed.`,
		Args: verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return prune(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func prune(ctx context.Context, p *verb.Program, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	ids, err := a.SweepBoxes(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(removed{verb.V1(), append([]string{}, ids...)})
	}
	for _, id := range ids {
		p.Streams.Printf("removed %s\n", id)
	}
	if len(ids) == 0 {
		p.Streams.Note("Nothing was left.")
	}
	return nil
}
