package sandbox

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
)

func newRenew(p *verb.Program) *cobra.Command {
	lease := verb.Duration(sandbox.DefaultLease)
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "renew SANDBOX",
		Short:   "Let a sandbox live on from now",
		Example: "  agent-env sandbox renew try --lease 1h",
		Args:    verb.Args("SANDBOX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lease <= 0 {
				return verb.Usagef("--lease must be longer than nothing")
			}
			return renew(cmd.Context(), p, args[0], lease, *asJSON)
		},
		ValidArgsFunction: completeIDs(p, false),
	}
	cmd.Flags().Var(&lease, "lease", "how long it lives from now: 90s, 15m, 2h")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func renew(ctx context.Context, p *verb.Program, text string, lease verb.Duration, asJSON bool) error {
	a, info, box, err := connect(ctx, p, text)
	if err != nil {
		return err
	}
	defer box.Close()
	if err := box.Renew(ctx, time.Duration(lease)); err != nil {
		return err
	}
	if !asJSON {
		p.Streams.Printf("%s lives for %s\n", info.ID, lease.String())
		return nil
	}
	if info, _, err = a.FindBox(ctx, info.ID); err != nil {
		return err
	}
	return p.Streams.JSON(started{verb.V1(), info})
}
