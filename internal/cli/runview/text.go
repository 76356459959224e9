package runview

import (
	"context"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/term"
)

// reviewType is the step type that waits for a person.
const reviewType = "review"

const dryRunLine = "Dry run: nothing is written or run."

// textReporter prints what scripts rely on to stdout, and what only people need to stderr. On a terminal bars replace the lines of steps.
type textReporter struct {
	s      *term.Streams
	dryRun bool
	trials bool // tasks run more than once

	live  *live // nil where lines are printed
	shown *term.Progress
	works *verb.Works
}

func newText(ctx context.Context, p *verb.Program, o Options) *textReporter {
	r := &textReporter{s: p.Streams, dryRun: o.DryRun, trials: o.Trials, shown: p.Streams.NewProgress(ctx)}
	r.works = verb.NewWorks(r.s, r.shown)
	if name, _ := p.Env("TERM"); r.s.OutTTY && r.s.ErrTTY && r.s.Width() > 0 && name != "dumb" && !o.DryRun {
		r.live = &live{progress: r.shown, runs: map[string]*liveRun{}, standing: func() int {
			a, err := p.App()
			if err != nil {
				return 0
			}
			return len(a.Standing())
		}}
	}
	if o.DryRun {
		r.s.Println(dryRunLine)
	}
	return r
}

func (r *textReporter) Close() { r.shown.Close() }

func (r *textReporter) Problems(l diag.List) {
	for _, p := range l.Of(diag.Warning) {
		r.s.Problem("Warning: %s", p)
	}
	for _, p := range l.Of(diag.Hint) {
		r.s.Note("Hint: %s", p)
	}
}

func (r *textReporter) Wrote(l ledger.Line) {
	if !r.s.Quiet || r.dryRun {
		r.s.Printf("%s\n", term.Clean(l.String()))
	}
}

func (r *textReporter) Declared(d bundlerun.Declared) { r.s.Note("%s", d) }

func (r *textReporter) Waiting() {
	r.s.Note("waiting for another agent-env run to finish writing this bundle's ids")
}

// Holding is told to everybody: a run that stands still without a word looks like one that hangs.
func (r *textReporter) Holding(why string) { r.s.Problem("waiting for room on this machine: %s", why) }

func (r *textReporter) Resuming(ref bundlerun.RunRef, steps []run.StepPlan) {
	if r.s.Quiet {
		return
	}
	for _, st := range steps {
		r.s.Printf("%s %s\n", r.label(ref), PlanText(st))
	}
}

// PlanText is what becomes of a step of a resumed run, in one line: "box: kept: finished, its sandbox is up".
func PlanText(st run.StepPlan) string {
	what := map[string]string{run.Kept: "kept", run.Again: "runs again", run.Starts: "runs", run.Never: "doesn't run"}[st.Action]
	return fmt.Sprintf("%s: %s: %s", term.Clean(st.ID), what, term.Clean(st.Why))
}

func (r *textReporter) RunStarted(ref bundlerun.RunRef) {
	if r.live != nil {
		r.live.start(ref, r.label(ref))
	}
}

func (r *textReporter) StepStarted(ref bundlerun.RunRef, st run.StepStarted) {
	if st.Type == reviewType {
		defer r.s.Note("%s waits for a decision: agent-env runs decide %s %s continue|abort", r.label(ref), ref.ID, term.Clean(st.ID))
	}
	if r.live != nil {
		r.live.step(ref, st)
		return
	}
	again := ""
	if st.Attempt > 1 {
		again = fmt.Sprintf(", attempt %d", st.Attempt)
	}
	r.step(ref, st, fmt.Sprintf(" (%s)%s", st.Type, again))
}

func (r *textReporter) StepEnded(ref bundlerun.RunRef, st run.StepEnded) {
	switch {
	case r.live != nil:
		r.live.stepEnded(ref, st)
	case st.Status == runlog.Succeeded:
		r.step(ref, st.StepStarted, fmt.Sprintf(" done in %.1fs", st.Seconds))
	}
	if st.Failure == nil || st.Status == runlog.Cancelled {
		return
	}
	what := "failed"
	switch {
	case st.Again:
		what = "failed and runs again"
	case !st.Failure.Fatal:
		what = "failed, which the task tolerates"
	}
	r.s.Note("%s step %d/%d %s %s: %s: %s", r.label(ref), st.Number, st.Of, term.Clean(st.ID), what, st.Failure.ErrorType, term.Clean(st.Failure.Error))
}

func (r *textReporter) step(ref bundlerun.RunRef, st run.StepStarted, what string) {
	if !r.s.Quiet {
		r.s.Printf("%s step %d/%d %s%s\n", r.label(ref), st.Number, st.Of, term.Clean(st.ID), what)
	}
}

func (r *textReporter) Working(ref bundlerun.RunRef, k deploy.Work) { r.works.Show(r.label(ref), k) }

func (r *textReporter) RunEnded(res bundlerun.RunResult) {
	if r.live != nil {
		r.live.end(res.RunRef)
	}
	if !r.s.Quiet {
		r.s.Printf("%s %s in %.1fs\n", r.label(res.RunRef), r.word(res.Status), res.Seconds)
	}
}

// label is "[tasks/hello.json]", with the trial's number where there are several.
func (r *textReporter) label(ref bundlerun.RunRef) string {
	text := term.Clean(ref.Label)
	if ref.Row != "" {
		text += " " + term.Clean(ref.Row)
	}
	if ref.Trials > 1 {
		text += fmt.Sprintf(" %d/%d", ref.Trial, ref.Trials)
	}
	return "[" + text + "]"
}

// outcome is what an outcome is called in text.
func outcome(s runlog.Status) string {
	switch s {
	case runlog.Scored:
		return "scored below 1"
	case runlog.InfraFailed:
		return "could not be run"
	default:
		return string(s)
	}
}

func (r *textReporter) word(s runlog.Status) string {
	c := r.s.OutColors()
	switch s {
	case runlog.Passed:
		return c.Green(outcome(s))
	case runlog.Scored, runlog.Unscored, runlog.Cancelled:
		return c.Yellow(outcome(s))
	default:
		return c.Red(outcome(s))
	}
}

func (r *textReporter) Refused(error) {}

func (r *textReporter) Summary(s *bundlerun.Summary, _ int) {
	r.Close()
	if s.DryRun {
		r.drySummary(s)
		return
	}
	r.s.Printf("\nTasks:\n")
	for _, res := range s.Runs {
		r.s.Printf("  %s\n", r.result(res))
	}
	if len(s.Evals) > 0 {
		r.s.Printf("Evals:\n")
		for _, e := range s.Evals {
			r.s.Printf("  %s v%d: %s\n", term.Clean(e.Label), e.Version, evalText(e))
		}
	}
	if r.trials {
		r.s.Printf("Trials:\n  %s\n", statsText(s))
	}
	for _, label := range s.LeftOut {
		r.s.Printf("%s isn't named by any eval, so it didn't run; run it with --task %s\n", term.Clean(label), taskName(label))
	}
	if len(s.Kept) > 0 {
		r.kept(s)
	}
	if s.Held > 0 {
		r.s.Problem("Held back %s that would have met it too: %s", diag.Count(s.Held, "run"), term.Clean(s.Halted))
	}
	if s.TornDown > 0 {
		r.s.Printf("\nTore down %s.\n", diag.Count(s.TornDown, "sandbox"))
	}
	if len(s.StillUp) > 0 {
		r.s.Problem("Still up:")
		for _, u := range s.StillUp {
			r.s.Problem("  %s of %s; remove it with agent-env sandbox rm %s", u.ID, u.Run, u.ID)
		}
	}
}

func (r *textReporter) drySummary(s *bundlerun.Summary) {
	if len(s.Refs) > 0 {
		r.s.Printf("\nStore refs:\n")
		for _, ref := range s.Refs {
			r.s.Printf("  %s: v%d\n", term.Clean(ref.Ref), ref.Version)
		}
	}
	r.s.Printf("\nWould run:\n")
	for _, ref := range s.WouldRun {
		times := ""
		if ref.Trials > 1 {
			times = fmt.Sprintf(", %d times", ref.Trials)
		}
		r.s.Printf("  %s v%d%s\n", term.Clean(ref.Label), ref.Version, times)
	}
	if len(s.Evals) > 0 {
		r.s.Printf("Evals:\n")
		for _, e := range s.Evals {
			r.s.Printf("  %s v%d: %s\n", term.Clean(e.Label), e.Version, term.Clean(strings.Join(e.Tasks, ", ")))
		}
	}
	for _, label := range s.LeftOut {
		r.s.Printf("%s isn't named by any eval, so it wouldn't run; run it with --task %s\n", term.Clean(label), taskName(label))
	}
	r.s.Println(dryRunLine)
}

// result is one run's line: "tasks/hello.json v1: passed (hello: 1), 0.2s, instance ID".
func (r *textReporter) result(res bundlerun.RunResult) string {
	head := fmt.Sprintf("%s v%d", term.Clean(res.Label), res.Version)
	if res.Row != "" {
		head += " " + term.Clean(res.Row)
	}
	if res.Trials > 1 {
		head += fmt.Sprintf(" %d/%d", res.Trial, res.Trials)
	}
	if !res.Started && len(res.Failures) == 0 {
		return head + ": didn't start"
	}
	word := r.word(res.Status)
	if scores := verb.Scores(res.Scores); scores != "" && len(res.Failures) == 0 {
		word += " (" + term.Clean(scores) + ")"
	}
	if len(res.Failures) > 0 {
		f := res.Failures[0]
		if f.Step != "" {
			word += fmt.Sprintf(" at step '%s'", term.Clean(f.Step))
		}
		word += fmt.Sprintf(": %s: %s", f.ErrorType, term.Clean(f.Error))
	}
	line := fmt.Sprintf("%s: %s, %.1fs", head, word, res.Seconds)
	if res.TakenOver {
		line += ", " + verb.TakenOver
	}
	if res.ID != "" { // it got none when nothing could be made of it
		line += ", instance " + res.ID
	}
	return line
}

func evalText(e bundlerun.EvalResult) string {
	parts := []string{fmt.Sprintf("%d of %d passed", e.Passed, e.N)}
	for _, c := range []struct {
		n    int
		what string
	}{{e.Failed, "failed"}, {e.InfraFailed, "could not be run"}, {e.Cancelled, "cancelled"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}

// statsText is what several trials say together: "6 runs, 4 passed; mean score 0.8; pass@1 0.67, pass@3 1".
func statsText(s *bundlerun.Summary) string {
	text := fmt.Sprintf("%s, %d passed", diag.Count(s.N, "run"), s.Passed)
	if s.Mean != nil {
		text += "; mean score " + verb.Score(*s.Mean)
	}
	var at []string
	for _, p := range s.PassAt {
		at = append(at, fmt.Sprintf("pass@%d %s", p.K, verb.Score(p.Value)))
	}
	if len(at) > 0 {
		text += "; " + strings.Join(at, ", ")
	}
	return text
}

func (r *textReporter) kept(s *bundlerun.Summary) {
	labels := map[string]string{}
	for _, res := range s.Runs {
		labels[res.ID] = res.Label
	}
	r.s.Printf("\nKept up:\n")
	last := ""
	for _, k := range s.Kept {
		if k.Run != last {
			r.s.Printf("  %s\n", term.Clean(labels[k.Run]))
			last = k.Run
		}
		r.s.Printf("    %s  %s  sandbox %s\n      agent-env sandbox exec %s -- sh\n", k.Box.ID, k.Box.Provider, term.Clean(k.Name), k.Box.ID)
	}
}

// taskName is a task's name from its label.
func taskName(label string) string {
	return strings.TrimSuffix(strings.TrimPrefix(label, "tasks/"), ".json")
}
