package eval

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	evals "agentenv.internal/agentenv/internal/eval"
	"agentenv.internal/agentenv/internal/term"
)

func newCompare(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Set one eval run beside another",
		Long: `Compares eval run B with eval run A by the tasks that both have scores of, paired, so that their difficulty falls out. The verdict is "better" or "worse" only where
the 95 % interval of the difference leaves 0 out; else it is "no difference found", and "not enough repeats" where a side has fewer than two values.

A and B are ids of eval runs or their beginnings, or ids of evals, whose latest runs are meant.

Exit codes: 0 told; 1 there is no such eval run; 2 the command line can't be meant.`,
		Example: "  agent-env eval compare 3fa9 77b0\n  agent-env eval compare mail/nightly 77b0 --json",
		Args:    verb.Args("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return compare(cmd.Context(), p, args[0], args[1], *asJSON)
		},
		ValidArgsFunction: completeRuns(p),
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// compared is what --json prints.
type compared struct {
	verb.Format
	RunA      string              `json:"eval_run_a"`
	RunB      string              `json:"eval_run_b"`
	EvalA     string              `json:"eval_a,omitempty"`
	EvalB     string              `json:"eval_b,omitempty"`
	ModelsA   map[string][]string `json:"models_a,omitempty"`
	ModelsB   map[string][]string `json:"models_b,omitempty"`
	ScriptedA bool                `json:"scripted_a"`
	ScriptedB bool                `json:"scripted_b"`
	evals.Comparison
}

func compare(ctx context.Context, p *verb.Program, a, b string, asJSON bool) error {
	engine, err := openEngine(ctx, p)
	if err != nil {
		return err
	}
	c, err := engine.CompareEvals(ctx, a, b)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(compared{verb.V1(), c.A.ID, c.B.ID, c.A.Eval, c.B.Eval, c.A.Models, c.B.Models, c.A.Scripted, c.B.Scripted, c.Comparison})
	}
	s := p.Streams
	s.Printf("A: %s %s: %s\nB: %s %s: %s\n", term.Clean(c.A.Eval), c.A.ID, meanText(&c.A.Stats), term.Clean(c.B.Eval), c.B.ID, meanText(&c.B.Stats))
	if c.A.Scripted || c.B.Scripted {
		s.Note("A scripted model played a written dialogue: these figures say nothing of any model.")
	}
	t := term.NewTable("TASK", ">A", ">B", ">DIFFERENCE", ">N OF A", ">N OF B")
	for _, x := range c.Tasks {
		t.Row(x.Task, verb.Score(x.A), verb.Score(x.B), fmt.Sprintf("%+.3g", x.B-x.A), fmt.Sprint(x.NA), fmt.Sprint(x.NB))
	}
	if len(c.Tasks) > 0 {
		s.Println()
		if err := t.Print(s); err != nil {
			return err
		}
	}
	for _, only := range []struct {
		who   string
		tasks []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		for _, task := range only.tasks {
			s.Printf("%s is in %s alone\n", term.Clean(task), only.who)
		}
	}
	s.Printf("\n%s\n", verdictText(&c.Comparison))
	return nil
}

func meanText(s *evals.Stats) string {
	text := fmt.Sprintf("%s, %d passed", diag.Count(s.N, "trial"), s.Passed)
	if s.Mean != nil {
		text += ", mean " + verb.Score(*s.Mean)
	}
	if s.InfraFailed > 0 {
		text += fmt.Sprintf(", %d could not be run", s.InfraFailed)
	}
	return text
}

// verdictText is the verdict with what it stands on.
func verdictText(c *evals.Comparison) string {
	text := c.Verdict
	switch c.Verdict {
	case evals.Better, evals.Worse:
		text = "B is " + c.Verdict
	}
	if c.Difference != nil {
		text += fmt.Sprintf(": the difference is %+.3g, 95 %%: %+.3g to %+.3g", *c.Difference, c.Interval.Low, c.Interval.High)
	}
	return text
}
