package agent

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

type validateOptions struct {
	app.AgentTrial
	json *bool
}

func newValidate(p *verb.Program) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate AGENT",
		Short: "Deploy an agent, check it and take it down",
		Long: `Deploys an agent for itself and checks what every agent has to be able to do: its card, its settings, how it answers messages, its trajectory, and whether a system prompt
counts. With --env, a stored environment is deployed too, and the agent has to call its tools, in its role. The agent's model is asked.

Exits 1 when a check fails. agent-env conform checks an agent that runs already against every row of the protocol, without a model.`,
		Example: "  agent-env agent validate @local/desk/helper --model NAME\n  agent-env agent validate helper --env mail --json",
		Args:    verb.Args("AGENT"), ValidArgsFunction: completeAgents(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Agent = args[0]
			return validate(cmd.Context(), p, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Version, "version", 0, "the `VERSION` of a stored agent; the latest when left out")
	f.StringVar(&o.Model, "model", "", "the `MODEL`: a name that the endpoint knows, or scripted:ARTIFACT")
	f.StringVar(&o.Env, "env", "", "a stored `ENVIRONMENT` whose tools it has to call")
	f.StringVar(&o.Sandbox, "sandbox", "", "the `PROVIDER`s to try, comma-separated")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long one answer may take")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// validated is what --json prints.
type validated struct {
	verb.Format
	Agent  string      `json:"a2a_agent_id"`
	OK     bool        `json:"ok"`
	Checks []app.Check `json:"checks"`
}

func validate(ctx context.Context, p *verb.Program, o validateOptions) error {
	if o.Timeout < time.Second {
		return verb.Usagef("--timeout is at least 1s")
	}
	a, _, err := open(ctx, p)
	if err != nil {
		return err
	}
	working, end := verb.Working(ctx, p)
	o.Tell = working
	id, checks, err := a.ValidateAgent(ctx, o.AgentTrial)
	end()
	if err != nil {
		return err
	}
	return p.TellChecks(checks, id, *o.json, func(ok bool) any { return validated{verb.V1(), id, ok, checks} })
}
