package agent

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

type shown struct {
	verb.Format
	app.AgentInfo
}

func newShow(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "show AGENT|INSTANCE",
		Short: "Show a deployment with its address, or an agent and whether it can be deployed here",
		Long: `Shows a deployment by its instance, with the address that it is asked at by A2A: whoever knows that may ask it. When no instance of that name is deployed, an agent is
shown, and whether it can be deployed here.`,
		Example:           "  agent-env agent show loop",
		Args:              verb.Args("AGENT"),
		ValidArgsFunction: completeAgents(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func show(ctx context.Context, p *verb.Program, text string, asJSON bool) error {
	a, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	r, ok, err := instance(f, text)
	if err != nil {
		return err
	}
	if ok {
		c := f.Client(r)
		defer c.Close()
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		return printStarted(p, s, asJSON)
	}
	x, err := a.AgentInfo(ctx, text)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(shown{verb.V1(), x})
	}
	p.Streams.Printf("%s\n", x.ID)
	if x.Version > 0 {
		p.Streams.Printf("  version     v%d\n", x.Version)
	}
	p.Streams.Printf("  started as  %s\n", x.Kind)
	if len(x.Command) > 0 {
		p.Streams.Printf("  command     %s\n", strings.Join(x.Command, " "))
	}
	if x.Model != "" {
		p.Streams.Printf("  model       %s\n", x.Model)
	}
	state := "can be deployed"
	if x.Problem != "" {
		state = "can't be deployed: " + x.Problem
	}
	p.Streams.Printf("  here        %s\n", state)
	return nil
}
