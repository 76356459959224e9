package agent

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

type listing struct {
	verb.Format
	Agents []app.AgentInfo `json:"agents"`
}

func newList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the agents that tasks can deploy: those that come with the program, and stored ones",
		Example: "  agent-env agent list",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func list(ctx context.Context, p *verb.Program, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	all, err := a.Agents(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(listing{verb.V1(), all})
	}
	t := term.NewTable("AGENT", "VERSION", "STARTED AS", "DEFAULT")
	for _, x := range all {
		version, def := "", ""
		if x.Version > 0 {
			version = "v" + strconv.Itoa(x.Version)
		}
		if x.Default {
			def = "default"
		}
		t.Row(x.ID, version, x.Kind, def)
	}
	return t.Print(p.Streams)
}
