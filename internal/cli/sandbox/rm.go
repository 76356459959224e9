package sandbox

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

func newRemove(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:               "rm SANDBOX…",
		Short:             "End sandboxes and remove what they left",
		Example:           "  agent-env sandbox rm try",
		Args:              verb.Args("SANDBOX…"),
		ValidArgsFunction: completeIDs(p, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return remove(cmd.Context(), p, args, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// removed is what --json prints, of rm and of prune.
type removed struct {
	verb.Format
	Removed []string `json:"removed"`
}

func remove(ctx context.Context, p *verb.Program, texts []string, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	defer p.Sweep(ctx, a) // afterwards: a dead one that is named here is removed by name, and not told to be none
	out := removed{verb.V1(), []string{}}
	var errs []error
	for _, text := range texts {
		info, provider, err := a.FindBox(ctx, text)
		if err == nil {
			err = provider.Destroy(ctx, info.ID)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Removed = append(out.Removed, info.ID)
		if !asJSON {
			p.Streams.Printf("removed %s\n", info.ID)
		}
	}
	if asJSON {
		errs = append(errs, p.Streams.JSON(out))
	}
	return errors.Join(errs...)
}
