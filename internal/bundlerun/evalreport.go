package bundlerun

import (
	"context"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/eval"
	"agentenv.internal/agentenv/internal/eval/report"
	"agentenv.internal/agentenv/internal/runlog"
)

// EvalReport is what an eval run says now: text is what EvalRun takes. Of a trial that ran several times the newest run counts, and one that never
// ran is there too, as cancelled.
func (e *Engine) EvalReport(ctx context.Context, text string) (report.Report, error) {
	x, stored, err := e.EvalRun(ctx, text)
	if err != nil {
		return report.Report{}, err
	}
	runs, err := e.newest(ctx, x.ID, x.Eval)
	if err != nil {
		return report.Report{}, err
	}
	r := report.Report{ID: x.ID, Eval: x.Eval, Version: x.Version, K: x.K, Stored: stored > 0, Created: x.Created, Program: x.Program, Sandbox: strings.Join(x.Options.Sandbox, ",")}
	var levels []string
	for _, task := range x.Tasks {
		for trial := 1; trial <= x.K; trial++ {
			t := report.Trial{Task: task.ID, Number: trial, Status: runlog.Cancelled, Error: "it never ran"}
			k := trialKey{task.ID, trial}
			if sum, ran := runs[k]; ran {
				delete(runs, k)
				var level string
				if t, level, err = e.trial(ctx, t, sum); err != nil {
					return r, err
				}
				levels = append(levels, level)
			}
			r.Trials = append(r.Trials, t)
		}
	}
	// What the group holds beside: trials of a task that its eval listed when it was run.
	for _, k := range slices.SortedFunc(maps.Keys(runs), func(a, b trialKey) int { return strings.Compare(a.task, b.task) }) {
		t, _, err := e.trial(ctx, report.Trial{Task: k.task, Number: k.trial}, runs[k])
		if err != nil {
			return r, err
		}
		r.Trials = append(r.Trials, t)
	}
	r.Isolation = weakestOf(levels)
	r.Sum()
	return r, nil
}

// trial is a run of the log as a report has it.
func (e *Engine) trial(ctx context.Context, t report.Trial, sum runlog.Summary) (_ report.Trial, isolation string, err error) {
	rec, err := runlog.Load(ctx, e.Runs, sum.ID)
	if err != nil {
		return t, "", err
	}
	t.Run, t.Version, t.Inputs, t.Status = sum.ID, rec.TaskVersion, sum.Options.Inputs, rec.Status
	t.TakenOver = rec.TakenOver
	t.Scores, t.Cost, t.Error, t.Models, t.Start, t.End = rec.Scores, rec.Cost, rec.Error, rec.Models, rec.Started, rec.Ended
	if !t.Start.IsZero() && t.End.After(t.Start) {
		t.Seconds = t.End.Sub(t.Start).Seconds()
	}
	for role, name := range sum.Options.Models { // what was asked, where no step recorded what it used
		if len(t.Models[role]) == 0 && role == "agent" && len(t.Models["solver"]) == 0 {
			t.Models = maps.Clone(t.Models)
			if t.Models == nil {
				t.Models = map[string][]string{}
			}
			t.Models["solver"] = []string{name}
		}
	}
	return t, rec.Isolation, nil
}

// weakestOf is the weakest of isolation levels; "" for those of runs without sandboxes.
func weakestOf(levels []string) string {
	for _, l := range []string{"none", "namespaces", "container"} {
		if slices.Contains(levels, l) {
			return l
		}
	}
	return ""
}

// EvalComparison is one eval run beside another.
type EvalComparison struct {
	A report.Report
	B report.Report
	eval.Comparison
}

// CompareEvals sets the eval run b beside a.
func (e *Engine) CompareEvals(ctx context.Context, a, b string) (out EvalComparison, err error) {
	if out.A, err = e.EvalReport(ctx, a); err != nil {
		return out, err
	}
	if out.B, err = e.EvalReport(ctx, b); err != nil {
		return out, err
	}
	out.Comparison = eval.Compare(out.A.Evals(), out.B.Evals())
	return out, nil
}
