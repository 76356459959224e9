package run

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// RegradeRequest is a run that has ended and whose verifiers are to run again. The caller owns the run.
type RegradeRequest struct {
	Run    string
	Task   *task.Task
	Events []runlog.Event // all of the run, logs apart
	Owner  runlog.Owner
	// Alive are the ids of the run's sandboxes that stand.
	Alive map[string]bool
	// Only are the steps to grade again; none: every verifier.
	Only         []string
	Trial        int
	Seed, Models map[string]string
	Fixed        map[string]map[string]string // as in Request
	// Version is the task's, where it is not the one that the run had.
	Version int
}

// Regraded is what Regrade did.
type Regraded struct {
	runlog.Regrade
	// Left says of verifiers that did not run why.
	Left []StepPlan  `json:"left,omitempty"`
	Cost runlog.Cost `json:"cost"`
}

// CodeWorld is the code of a refusal because a verifier needs a sandbox that is gone.
const CodeWorld = "run.regrade.world"

// Regrade runs verifiers again on the context that a run has left, without the steps before them, and records their ends and the run's new score in
// one append: a process that dies in between leaves the run as it was. The old scores stay on record. A verifier that needs a world that is gone is a
// diag.Refusal, and nothing has run then.
func (r *Runner) Regrade(ctx context.Context, q RegradeRequest) (Regraded, error) {
	p := &Prior{past: make([]past, len(q.Task.Steps))}
	boxes, err := p.read(ctx, q.Task, q.Events, r.Objects)
	if err != nil {
		return Regraded{}, err
	}
	g := &regrade{r: r, q: q, p: p, anc: q.Task.Ancestors(), before: runlog.Fold(runlog.Summary{}, q.Events)}
	if err := g.choose(boxes); err != nil {
		return Regraded{}, err
	}
	for i := range p.past {
		if s := &p.past[i]; s.settled() && s.status != runlog.Skipped {
			g.hist.Commit(i, s.ops)
		}
	}
	for _, i := range g.todo {
		if err := g.step(ctx, i); err != nil {
			return Regraded{}, err
		}
	}
	return g.end(ctx)
}

type regrade struct {
	r      *Runner
	q      RegradeRequest
	p      *Prior
	anc    []task.Set
	before runlog.Record
	hist   step.History
	todo   []int
	out    Regraded

	mu     sync.Mutex // executors spend and log from several goroutines
	events []runlog.Event
}

// add keeps an event for the one append.
func (g *regrade) add(e runlog.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, e)
}

func (g *regrade) spent(stepID string, attempt int, c runlog.Cost) {
	g.add(event(runlog.StepCost, stepID, attempt, c))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out.Cost = g.out.Cost.Plus(c)
}

// choose picks the steps to run.
func (g *regrade) choose(boxes []runlog.Box) error {
	var l diag.List
	for _, id := range g.q.Only {
		i, ok := g.q.Task.Index(id)
		switch {
		case !ok:
			l.Add(diag.Problem{Code: "run.regrade", Summary: "the run has no step " + diag.Repr(id)})
		case !g.scores(i):
			l.Add(diag.Problem{Code: "run.regrade", Summary: fmt.Sprintf("step '%s' is of type %s, which leaves no score", id, g.q.Task.Steps[i].Type)})
		}
	}
	for i := range g.q.Task.Steps {
		st := &g.q.Task.Steps[i]
		if !g.scores(i) || len(g.q.Only) > 0 && !slices.Contains(g.q.Only, st.ID) {
			continue
		}
		if gone := g.gone(i, boxes); gone != "" {
			l.Add(diag.Problem{
				Code: CodeWorld, Summary: fmt.Sprintf("step '%s' (%s) needs %s, which is gone", st.ID, st.Type, gone),
				Fix: "name the other verifiers with --step, or run the task with --keep",
			})
			continue
		}
		g.todo = append(g.todo, i)
	}
	if err := l.Err(); err != nil {
		return err
	}
	if len(g.todo) == 0 {
		return diag.List{{Code: "run.regrade", Summary: "the run has no verifier"}}.Err()
	}
	return nil
}

func (g *regrade) scores(i int) bool {
	k := g.q.Task.Steps[i].Kind
	return k != nil && k.Scores
}

// gone names a sandbox or environment that a step needs and that doesn't stand; "" when it needs none, or all stand.
func (g *regrade) gone(i int, boxes []runlog.Box) string {
	st := &g.q.Task.Steps[i]
	switch st.Type { // what reads the run's context alone, whatever fields it has
	case "rubrics_verifier", "agent_prompt_response_verifier", "aggregate_verifiers":
		if b := st.Kind.Fill(st.Doc).Get("use_agent_judge"); st.Type != "rubrics_verifier" || b.Text() != "true" {
			return ""
		}
	case "env_outcome_verifier": // its environment lived in the process that ran the task
		return "environment " + diag.Repr(st.Doc.Get("env_id").Text())
	}
	names, all := g.r.uses(st)
	for _, name := range names {
		stands := slices.ContainsFunc(boxes, func(b runlog.Box) bool { return b.Name == name && g.q.Alive[b.ID] })
		if !stands {
			return "sandbox " + diag.Repr(name)
		}
	}
	if all {
		for _, b := range boxes {
			if !g.q.Alive[b.ID] {
				return "sandbox " + diag.Repr(b.Name)
			}
		}
		if len(boxes) == 0 {
			return "a sandbox of the run"
		}
	}
	return ""
}

// step runs one verifier. An error is ctx's end: how the verifier ends by itself is on record.
func (g *regrade) step(ctx context.Context, i int) error {
	st, s := &g.q.Task.Steps[i], &g.p.past[i]
	for j := range g.p.past {
		if before := &g.p.past[j]; g.anc[i].Has(j) && before.status != runlog.Succeeded && g.q.Task.Steps[j].Type != "teardown_sandboxes" {
			g.out.Left = append(g.out.Left, StepPlan{ID: st.ID, Type: st.Type, Action: Never, Why: fmt.Sprintf("step '%s' before it has not succeeded", g.q.Task.Steps[j].ID)})
			return nil
		}
	}
	s.attempt++
	call := &step.Call{
		Run: g.q.Run, Step: st.ID, Attempt: s.attempt, Trial: max(1, g.q.Trial), State: g.hist.View(g.anc[i].Has), Out: &step.Diff{},
		Seed: g.q.Seed, Models: over(g.q.Models, g.q.Fixed[st.ID]), OnSpend: func(c step.Cost) { g.spent(st.ID, s.attempt, runlog.Cost(c)) },
	}
	lines := &regradeLog{g: g, step: st.ID, attempt: s.attempt}
	call.Log = slog.New(lines)
	g.add(event(runlog.StepStarted, st.ID, s.attempt, runlog.StepStart{Type: st.Type}))
	began := time.Now()
	err := g.r.exec(ctx, st, call)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	end := runlog.StepEnd{Status: runlog.Succeeded, Seconds: seconds(time.Since(began))}
	g.hist.Drop(i)
	s.ops = nil
	if err == nil || step.IsKept(err) {
		ops := call.Out.Ops()
		for k := range ops {
			ops[k].Path, ops[k].Value = g.r.Redact.String(ops[k].Path), g.r.Redact.JSON(ops[k].Value)
		}
		diff, kept := saveOps(ctx, g.r.Objects, g.q.Run, ops)
		if kept != nil {
			return kept
		}
		s.ops, end.Diff = ops, diff
		g.hist.Commit(i, ops)
	}
	if err != nil {
		f := g.r.failure(st, err)
		end.Status, end.Error, end.ErrorType, end.Fatal = runlog.Failed, f.Error, f.ErrorType, !st.Tolerated
		if f.Infra {
			end.Status = runlog.InfraFailed
		}
	}
	s.status, s.end = end.Status, end
	g.out.Steps = append(g.out.Steps, st.ID)
	g.add(event(runlog.StepEnded, st.ID, s.attempt, end))
	return nil
}

// end records what came of it.
func (g *regrade) end(ctx context.Context) (Regraded, error) {
	if len(g.out.Steps) == 0 {
		return g.out, diag.List{{Code: "run.regrade", Summary: "no verifier could run: " + g.out.Left[0].Why}}.Err()
	}
	d := &g.out.Regrade
	d.OldStatus, d.OldScores, d.Version = g.before.Status, g.before.Scores, g.q.Version
	d.OldVerified = g.replaced()
	var err error
	if d.Status, d.Scores, d.Error, err = g.status(); err != nil {
		return g.out, err
	}
	g.add(event(runlog.RunRegraded, "", 0, g.out.Regrade))
	if err := g.q.Owner.Append(context.WithoutCancel(ctx), g.events...); err != nil {
		return g.out, fmt.Errorf("record the new scores: %w", err)
	}
	return g.out, nil
}

// replaced are the verifications that the steps that ran had left.
func (g *regrade) replaced() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, v := range g.before.Verified {
		var of struct {
			Step string `json:"step"`
		}
		if json.Unmarshal(v, &of) == nil && (of.Step == "" || slices.Contains(g.out.Steps, of.Step)) {
			out[name] = v
		}
	}
	return out
}

// status is how the run stands now.
func (g *regrade) status() (runlog.Status, map[string]float64, string, error) {
	scores, unscored, err := Scores(g.hist.View(func(int) bool { return true }))
	if err != nil {
		return "", nil, "", err
	}
	var failed, infra *runlog.StepEnd
	never := false
	for i := range g.p.past {
		s := &g.p.past[i]
		switch {
		case s.status == runlog.InfraFailed:
			infra = &s.end
		case s.status == runlog.Failed && failed == nil:
			failed = &s.end
		case s.status == runlog.Skipped || s.status == "":
			never = never || !g.scores(i) && g.q.Task.Steps[i].Type != "teardown_sandboxes" || g.scores(i) && len(g.q.Only) == 0
		}
	}
	switch {
	case infra != nil:
		return runlog.InfraFailed, nil, infra.Error, nil
	case failed != nil:
		return runlog.Failed, scores, failed.Error, nil
	case never && g.before.Status != runlog.Passed && g.before.Status != runlog.Scored && g.before.Status != runlog.Unscored:
		return g.before.Status, nil, g.before.Error, nil // steps are left that never ran
	default:
		return outcome(scores, unscored), scores, "", nil
	}
}

// regradeLog keeps a step's log lines with the other events, which are recorded together.
type regradeLog struct {
	g       *regrade
	step    string
	attempt int
	attrs   []slog.Attr
}

// Enabled takes what a run's log takes.
func (l *regradeLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

// Handle keeps a line.
func (l *regradeLog) Handle(_ context.Context, rec slog.Record) error {
	line := runlog.LogLine{Level: levelName(rec.Level), Message: clip(l.g.r.Redact.String(rec.Message))}
	put := func(a slog.Attr) bool {
		if line.Attrs == nil {
			line.Attrs = map[string]any{}
		}
		line.Attrs[a.Key] = clip(l.g.r.Redact.String(a.Value.String()))
		return true
	}
	for _, a := range l.attrs {
		put(a)
	}
	rec.Attrs(put)
	l.g.add(event(runlog.StepLog, l.step, l.attempt, line))
	return nil
}

// WithAttrs adds attributes.
func (l *regradeLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *l
	n.attrs = append(slices.Clone(l.attrs), attrs...)
	return &n
}

// WithGroup keeps names as they are: executors don't group.
func (l *regradeLog) WithGroup(string) slog.Handler { return l }
