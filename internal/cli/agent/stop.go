package agent

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

func newStop(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use: "stop INSTANCE…", Short: "Take deployed agents down", Example: "  agent-env agent stop loop",
		Long: "Takes deployed agents down: by their instance, or by the agent's id where it is deployed once. What they are being asked is cancelled.",
		Args: verb.Args("INSTANCE…"), ValidArgsFunction: completeDeployed(p),
		RunE: func(cmd *cobra.Command, args []string) error { return stop(cmd.Context(), p, args, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func stop(ctx context.Context, p *verb.Program, names []string, asJSON bool) error {
	_, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	return p.StopDeployed(names, asJSON, func(text string) (string, error) {
		r, err := f.Find(text)
		if err != nil {
			return "", err
		}
		c := f.Client(r)
		defer c.Close()
		return r.Instance, c.Stop(ctx)
	})
}
