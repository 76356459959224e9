package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/agentowner"
	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

type promptOptions struct {
	app.AgentPrompt
	context string
	json    *bool
}

// answer is what an agent replied.
type answer struct {
	verb.Format
	Agent      string          `json:"a2a_agent_id"`
	Instance   string          `json:"instance_id,omitempty"` // of a deployed one
	Context    string          `json:"context_id,omitempty"`
	Model      string          `json:"model,omitempty"`
	Reply      string          `json:"reply"`
	Structured json.RawMessage `json:"structured_output,omitempty"`
	ToolCalls  int             `json:"tool_call_count"`
	Input      int64           `json:"input_tokens"`
	Output     int64           `json:"output_tokens"`
	USD        *float64        `json:"cost_usd,omitempty"`
}

func newPrompt(p *verb.Program) *cobra.Command {
	var o promptOptions
	cmd := &cobra.Command{
		Use:   "prompt AGENT|INSTANCE TEXT",
		Short: "Ask an agent one thing: a deployed one, or one that is deployed for it and taken down",
		Long: `Asks an agent one thing and prints what it replies. An instance that agent-env agent deploy left is asked as it stands, and --context goes on with a conversation; an agent
is deployed for the question and taken down after it. It has a sandbox of its own and no environment: a task gives it one.

Exit codes: 0 it replied; 1 it failed, or could not be deployed or asked.`,
		Example:           "  agent-env agent prompt loop 'What is 6 times 7? Use bash.' --model NAME",
		Args:              verb.Args("AGENT", "TEXT"),
		ValidArgsFunction: completeAgents(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Agent, o.Text = args[0], args[1]
			return prompt(cmd.Context(), p, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Model, "model", "", "the `MODEL`: a name that the endpoint knows, or scripted:ARTIFACT")
	f.StringVar(&o.System, "system", "", "a system prompt, as `TEXT`")
	f.StringVar(&o.Sandbox, "sandbox", "", "the `PROVIDER`s to try, comma-separated")
	f.StringVar(&o.context, "context", "", "go on with the conversation of this `ID`, of a deployed agent")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "how long it may take")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func prompt(ctx context.Context, p *verb.Program, o promptOptions) error {
	a, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	d, ok, err := instance(f, o.Agent)
	if err != nil {
		return err
	}
	if ok {
		return promptDeployed(ctx, p, f, d, o)
	}
	if o.context != "" {
		return verb.Usagef("--context is for a deployed agent; no instance %q is deployed", o.Agent)
	}
	working, end := verb.Working(ctx, p)
	o.Tell = working
	id, r, err := a.PromptAgent(ctx, o.AgentPrompt)
	end()
	if err != nil {
		return err
	}
	return tell(p, id, "", agentowner.ReplyOf("", r), *o.json)
}

// tell prints what an agent answered; instance is that of a deployed one.
func tell(p *verb.Program, id, instance string, r agentowner.Reply, asJSON bool) error {
	if r.ErrorType != "" {
		return fmt.Errorf("the agent failed (%s): %s", r.ErrorCode, r.ErrorMessage)
	}
	if asJSON {
		return p.Streams.JSON(answer{
			Format: verb.V1(), Agent: id, Instance: instance, Context: r.Context, Model: r.Model, Reply: r.Text, Structured: r.Structured,
			ToolCalls: r.ToolCalls, Input: r.Input, Output: r.Output, USD: r.USD,
		})
	}
	p.Streams.Println(r.Text)
	return nil
}

// promptDeployed asks an agent that stands.
func promptDeployed(ctx context.Context, p *verb.Program, f *agentowner.Folder, d agentowner.Record, o promptOptions) error {
	if o.Sandbox != "" {
		return verb.Usagef("--sandbox is chosen when an agent is deployed")
	}
	c := f.Client(d)
	defer c.Close()
	r, err := c.Prompt(ctx, agentowner.Question{Text: o.Text, Context: o.context, Model: o.Model, System: o.System, Timeout: o.Timeout})
	if err != nil {
		return err
	}
	if err := tell(p, d.Agent, d.Instance, r, *o.json); err != nil {
		return err
	}
	if o.context == "" && !*o.json {
		p.Streams.Note("Go on with: agent-env agent prompt %s TEXT --context %s", d.Instance, r.Context)
	}
	return nil
}
