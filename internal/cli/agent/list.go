package agent

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/agentowner"
	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

type listing struct {
	verb.Format
	Agents []app.AgentInfo `json:"agents"`
}

type deployedListing struct {
	verb.Format
	Deployments []agentowner.Record `json:"deployments"`
}

func newList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var deployed bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List agents: those that come with the program and stored ones, or deployments",
		Long:    "Lists the agents that tasks can deploy: those that come with the program, and stored ones. With --deployed, the deployments that stand, newest first.",
		Example: "  agent-env agent list\n  agent-env agent list --deployed",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if deployed {
				return listDeployed(cmd.Context(), p, *asJSON)
			}
			return list(cmd.Context(), p, *asJSON)
		},
	}
	cmd.Flags().BoolVar(&deployed, "deployed", false, "list deployments that stand")
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

func listDeployed(ctx context.Context, p *verb.Program, asJSON bool) error {
	_, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	all, err := f.List()
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(deployedListing{verb.V1(), append([]agentowner.Record{}, all...)})
	}
	if len(all) == 0 {
		p.Streams.Note("No agent is deployed.")
		return nil
	}
	t := term.NewTable("INSTANCE", "STARTED AS", "STATE", "LIVES", "OWNER")
	for _, r := range all {
		t.Row(r.Instance, r.Kind, r.State, max(time.Until(r.Expires).Round(time.Second), 0).String(), strconv.Itoa(r.PID))
	}
	return t.Print(p.Streams)
}
