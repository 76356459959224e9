package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	evals "agentenv.internal/agentenv/internal/eval"
	"agentenv.internal/agentenv/internal/eval/report"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/term"
)

type reportOptions struct {
	json             *bool
	csv, junit, html bool
	output           string
	failUnder        float64
	gated            bool
}

func newReport(p *verb.Program) *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report EVALRUN",
		Short: "Tell what an eval run says: scores, pass@k, intervals, cost, time",
		Long: `Tells what an eval run amounts to now: for each task how many trials there are and how many passed, the mean score with its 95 % interval, pass@k (unbiased) and pass^k,
cost and time; and what could not be run, apart from it. EVALRUN is an eval run's id or the beginning of it, or an eval's id, whose latest run is meant.

N = passed + scored + unscored + failed + infra_failed + cancelled. Trials that never ran count as cancelled, those whose end is not on record as infra_failed.

Exit codes: 0 told; 1 there is no such eval run, or nothing has a score where --fail-under asks for one; 2 the command line can't be meant; 3 the mean score is below
--fail-under.`,
		Example: "  agent-env eval report mail/nightly\n  agent-env eval report 3fa9 --html --output report.html\n  agent-env eval report 3fa9 --junit > junit.xml",
		Args:    verb.Args("EVALRUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.gated = cmd.Flags().Changed("fail-under")
			return o.run(cmd.Context(), p, args[0])
		},
		ValidArgsFunction: completeRuns(p),
	}
	f := cmd.Flags()
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	f.BoolVar(&o.csv, "csv", false, "print one line a trial, as CSV")
	f.BoolVar(&o.junit, "junit", false, "print JUnit XML: a suite a task, a case a trial")
	f.BoolVar(&o.html, "html", false, "print one HTML page with plots, which needs nothing beside it")
	f.StringVar(&o.output, "output", "", "write into this `FILE` in place of standard output")
	f.Float64Var(&o.failUnder, "fail-under", 0, "exit with 3 when the mean score is below `F`")
	return cmd
}

func (o *reportOptions) run(ctx context.Context, p *verb.Program, text string) error {
	n := 0
	for _, on := range []bool{*o.json, o.csv, o.junit, o.html} {
		if on {
			n++
		}
	}
	if n > 1 {
		return verb.Usagef("--json, --csv, --junit and --html exclude each other")
	}
	if o.gated && !(o.failUnder >= 0 && o.failUnder <= 1) {
		return verb.Usagef("--fail-under takes a score from 0 to 1, not %g", o.failUnder)
	}
	engine, err := openEngine(ctx, p)
	if err != nil {
		return err
	}
	r, err := engine.EvalReport(ctx, text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	switch {
	case *o.json:
		err = json.NewEncoder(&b).Encode(reported{verb.V1(), r})
	case o.csv:
		err = r.CSV(&b)
	case o.junit:
		err = r.JUnit(&b)
	case o.html:
		err = r.HTML(&b)
	default:
		reportText(&b, &r)
	}
	if err != nil {
		return err
	}
	if o.output == "" {
		p.Streams.Printf("%s", b.String())
	} else if err := atomicfile.Write(o.output, 0o644, func(w io.Writer) error { _, err := w.Write(b.Bytes()); return err }); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if !o.gated {
		return nil
	}
	g := report.Judge(&r.Stats, o.failUnder)
	if text := g.Text(&r.Stats); text != "" {
		p.Streams.Problem("%s", text)
	}
	switch {
	case r.Mean == nil:
		return verb.Exit(bundlerun.ExitFailed)
	case g.Below:
		return verb.Exit(bundlerun.ExitBelow)
	}
	return nil
}

// reported is what --json prints.
type reported struct {
	verb.Format
	report.Report
}

// reportText is the report for people.
func reportText(w *bytes.Buffer, r *report.Report) {
	name := r.Eval
	if r.Version > 0 {
		name += fmt.Sprintf(" v%d", r.Version)
	}
	fmt.Fprintf(w, "%s, eval run %s, %s × %d\n", term.Clean(strings.TrimSpace(name)), r.ID, diag.Count(len(r.Tasks), "task"), r.K)
	if r.Scripted {
		fmt.Fprintln(w, "A scripted model played a written dialogue: these figures say nothing of any model.")
	}
	for _, role := range slices.Sorted(maps.Keys(r.Models)) {
		fmt.Fprintf(w, "  %s: %s\n", term.Clean(role), term.Clean(strings.Join(r.Models[role], ", ")))
	}
	t := term.NewTable("TASK", ">N", ">PASSED", ">MEAN", ">95 %", ">PASS@K", ">PASS^K", ">NOT RUN", ">NO SCORE", ">COST", ">TIME")
	for i := range r.Tasks {
		x := &r.Tasks[i]
		row(t, term.Clean(x.ID), &x.Stats, tookText(x.MeanSeconds))
	}
	if len(r.Tasks) > 1 {
		row(t, "all", &r.Stats, tookText(r.Wall))
	}
	fmt.Fprintln(w)
	_ = t.Text(w) // into a buffer
	fmt.Fprintf(w, "\n%s: %s\n", diag.Count(r.N, "trial"), countsText(&r.Counts))
	if r.Detectable != nil {
		fmt.Fprintf(w, "Smallest difference to another such eval run that would be found: %s\n", verb.Score(*r.Detectable))
	}
	if r.TakenOver > 0 {
		fmt.Fprintf(w, "In %s a person took over a computer: what they scored isn't the agent's alone\n", diag.Count(r.TakenOver, "trial"))
	}
	if r.Missing > 0 {
		how := "agent-env runs resume goes on with single runs"
		if r.Stored {
			how = fmt.Sprintf("agent-env eval run --resume %s goes on", r.ID)
		}
		fmt.Fprintf(w, "%s no end on record; %s\n", haveNo(r.Missing), how)
	}
}

// tookText spells seconds: "0.02s", "3.4s", "12m".
func tookText(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.2fs", s)
	case s < 600:
		return fmt.Sprintf("%.1fs", s)
	default:
		return fmt.Sprintf("%.0fm", s/60)
	}
}

func haveNo(n int) string {
	if n == 1 {
		return "1 trial has"
	}
	return fmt.Sprintf("%d trials have", n)
}

func row(t *term.Table, name string, s *evals.Stats, took string) {
	mean, in := "-", "-"
	if s.Mean != nil {
		mean = verb.Score(*s.Mean)
	}
	if s.Interval != nil {
		in = fmt.Sprintf("%.2f-%.2f", s.Interval.Low, s.Interval.High)
	}
	t.Row(name, fmt.Sprint(s.N), fmt.Sprint(s.Passed), mean, in, passText(s.PassAt), passText(s.PassHat), fmt.Sprint(s.InfraFailed+s.Cancelled), fmt.Sprint(s.Unscored), costText(s.Cost), took)
}

// passText is the figure of the largest k: "0.75 (4)".
func passText(ps []evals.PassAt) string {
	if len(ps) == 0 {
		return "-"
	}
	p := ps[len(ps)-1]
	return fmt.Sprintf("%s (%d)", verb.Score(p.Value), p.K)
}

func costText(c runlog.Cost) string {
	switch {
	case c.USD > 0:
		return fmt.Sprintf("$%.4f", c.USD)
	case c.InputTokens+c.OutputTokens > 0:
		return fmt.Sprintf("%d tok", c.InputTokens+c.OutputTokens)
	default:
		return "-"
	}
}

// countsText is "3 passed, 1 scored below 1".
func countsText(c *evals.Counts) string {
	var out []string
	for _, x := range []struct {
		n    int
		what string
	}{
		{c.Passed, "passed"}, {c.Scored, "scored below 1"}, {c.Unscored, "unscored"}, {c.Failed, "failed"}, {c.InfraFailed, "could not be run"}, {c.Cancelled, "cancelled"},
	} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
