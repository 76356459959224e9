package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// Preflight tells why steps of a task can't run here, all of them at once: types that nothing executes, and what executors find beforehand.
// label is the task as people know it ("tasks/hello.json"). What several steps have in common is told of at the first one, with the number of the
// others.
func (r *Runner) Preflight(ctx context.Context, t *task.Task, label string, plan step.Plan) diag.List {
	var l diag.List
	type same struct{ code, where, summary, fix string }
	told := map[same]int{} // its place in l
	more := map[int]int{}
	for i := range t.Steps {
		st := &t.Steps[i]
		for _, found := range r.preflight(ctx, st, plan) {
			key := same{found.Code, found.Where, found.Summary, found.Fix}
			if at, ok := told[key]; ok {
				more[at]++
				continue
			}
			told[key] = len(l)
			l.Add(problem(st, label, found))
		}
	}
	for at, n := range more {
		l[at].Summary += " (and " + diag.Count(n, "more step") + ")"
	}
	return slices.Concat(l, r.names(t, label), stepNames(t, label))
}

// PreflightScores is Preflight of the steps that leave scores, of those with these ids where there are any.
func (r *Runner) PreflightScores(ctx context.Context, t *task.Task, label string, plan step.Plan, only []string) diag.List {
	var l diag.List
	for i := range t.Steps {
		st := &t.Steps[i]
		if st.Kind == nil || !st.Kind.Scores || len(only) > 0 && !slices.Contains(only, st.ID) {
			continue
		}
		for _, found := range r.preflight(ctx, st, plan) {
			l.Add(problem(st, label, found))
		}
	}
	return l
}

func (r *Runner) preflight(ctx context.Context, st *task.Step, plan step.Plan) diag.List {
	e, ok := r.Executors.Get(st.Type)
	if !ok {
		if why := r.Executors.Reason(st.Type); why != "" {
			return diag.List{{Pos: st.Doc.Get("type").Pos(), Code: "run.unsupported", Summary: st.Type + " steps can't be run: " + why}}
		}
		return diag.List{{
			Pos: st.Doc.Get("type").Pos(), Code: "run.unsupported", Summary: missing(st.Type),
			Fix: "those it runs are " + strings.Join(r.Executors.Names(), ", "),
		}}
	}
	l := r.unresolved(ctx, st)
	plan.Models = over(plan.Models, plan.Fixed[st.ID])
	if p, ok := e.Value.(step.Preflighter); ok {
		l = append(l, p.Preflight(ctx, st.Kind.Fill(st.Doc), plan)...)
	}
	return l
}

// problem puts what an executor found, with the field as its place, in the shape of bundle problems.
func problem(st *task.Step, label string, p diag.Problem) diag.Problem {
	where := fmt.Sprintf("step '%s'", st.ID)
	if p.Where != "" {
		where += ": " + p.Where
	}
	p.Where, p.Prefixed = where, true
	if p.Pos.Line == 0 {
		p.Pos = st.Doc.Pos()
	}
	p.Pos.File = label
	return p
}
