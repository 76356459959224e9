package runs

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/term"
)

type decideOptions struct {
	comment, by string
	json        *bool
}

func newDecide(p *verb.Program) *cobra.Command {
	var o decideOptions
	cmd := &cobra.Command{
		Use:   "decide RUN [STEP] continue|abort",
		Short: "Tell a review step of a run what was decided",
		Long: `Tells a review step of a run to let the task continue, or to abort it. STEP may be left out where one step waits. A step that has not started yet finds the
decision when it does; the first decision counts.

agent-env runs logs RUN --step STEP shows what is to be judged.`,
		Example: "  agent-env runs decide hello-03hyh3l6 continue\n  agent-env runs decide 03hyh3l6 look abort --comment 'the report is empty'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return verb.Args("RUN", "STEP", "continue|abort")(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return []cobra.Completion{step.Continue, step.Abort}, cobra.ShellCompDirectiveNoFileComp
			}
			return completeIDs(p)(cmd, args, text)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at, choice := "", args[len(args)-1]
			if len(args) == 3 {
				at = args[1]
			}
			if choice != step.Continue && choice != step.Abort {
				return verb.Usagef("%q is no decision; decide %s or %s", choice, step.Continue, step.Abort)
			}
			return decide(cmd.Context(), p, args[0], at, choice, o)
		},
	}
	cmd.Flags().StringVar(&o.comment, "comment", "", "why; kept with the decision")
	cmd.Flags().StringVar(&o.by, "by", "", "who decides; the `NAME` of the user when left out")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// decidedRun is what --json prints.
type decidedRun struct {
	verb.Format
	Run    string `json:"run_id"`
	Step   string `json:"step_id"`
	Choice string `json:"decision"`
}

func decide(ctx context.Context, p *verb.Program, text, at, choice string, o decideOptions) error {
	_, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	a, err := p.App()
	if err != nil {
		return err
	}
	engine, err := a.Engine(ctx)
	if err != nil {
		return err
	}
	if o.by == "" {
		o.by, _ = p.Env("USER")
	}
	out := decidedRun{Format: verb.V1(), Run: id, Choice: choice}
	if out.Step, err = engine.Decide(ctx, id, at, step.Decision{Choice: choice, Comment: o.comment, By: o.by}); err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(out)
	}
	p.Streams.Printf("%s: %s: %s\n", term.Clean(id), term.Clean(out.Step), choice)
	return nil
}
