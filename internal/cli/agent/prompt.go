package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

type promptOptions struct {
	app.AgentPrompt
	json *bool
}

// answer is what an agent replied.
type answer struct {
	verb.Format
	Agent      string          `json:"a2a_agent_id"`
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
		Use:   "prompt AGENT TEXT",
		Short: "Deploy an agent, ask it one thing, and take it down",
		Long: `Deploys an agent, asks it one thing, prints what it replies, and takes it down. It has a sandbox of its own and no environment: a task gives it one.

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
	f.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "how long it may take")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func prompt(ctx context.Context, p *verb.Program, o promptOptions) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	p.Sweep(ctx, a)
	id, r, err := a.PromptAgent(ctx, o.AgentPrompt)
	if err != nil {
		return err
	}
	if r.ErrorType != "" {
		return fmt.Errorf("the agent failed (%s): %s", r.ErrorCode, r.ErrorMessage)
	}
	if !*o.json {
		p.Streams.Println(r.Text)
		return nil
	}
	out := answer{
		Format: verb.V1(), Agent: id, Model: r.Model, Reply: r.Text, Structured: r.Structured, ToolCalls: r.ToolCalls, Input: r.Usage.Input, Output: r.Usage.Output,
	}
	if r.Usage.Priced {
		out.USD = &r.Usage.USD
	}
	return p.Streams.JSON(out)
}
