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

// stopped is what --json prints.
type stopped struct {
	verb.Format
	Instances []string `json:"stopped"`
}

func stop(ctx context.Context, p *verb.Program, names []string, asJSON bool) error {
	out := stopped{verb.V1(), []string{}}
	for _, text := range names {
		c, r, err := client(ctx, p, text)
		if err != nil {
			return err
		}
		err = c.Stop(ctx)
		c.Close()
		if err != nil {
			return err
		}
		out.Instances = append(out.Instances, r.Instance)
		if !asJSON {
			p.Streams.Printf("Stopped %s\n", r.Instance)
		}
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	return nil
}
