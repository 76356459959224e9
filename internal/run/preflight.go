package run

import (
	"context"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// Preflight tells why steps of a task can't run here, all of them at once: types that nothing executes, and what executors find beforehand.
// label is the task as people know it ("tasks/hello.json"). A type that nothing executes is told of once, with the number of its steps.
func (r *Runner) Preflight(ctx context.Context, t *task.Task, label string) diag.List {
	var l diag.List
	missed := map[string]int{} // type -> its place in l
	more := map[string]int{}
	for i := range t.Steps {
		st := &t.Steps[i]
		e, ok := r.Executors.Get(st.Type)
		if !ok {
			if _, told := missed[st.Type]; told {
				more[st.Type]++
				continue
			}
			missed[st.Type] = len(l)
			l.Add(problem(st, label, diag.Problem{
				Pos: st.Doc.Get("type").Pos(), Code: "run.unsupported", Summary: missing(st.Type),
				Fix: "those it runs are " + strings.Join(r.Executors.Names(), ", "),
			}))
			continue
		}
		if p, ok := e.Value.(step.Preflighter); ok {
			for _, found := range p.Preflight(ctx, Filled(st.Kind, st.Doc)) {
				l.Add(problem(st, label, found))
			}
		}
	}
	for typ, n := range more {
		p := &l[missed[typ]]
		p.Summary += fmt.Sprintf(" (and %d more %s)", n, plural(n, "step", "steps"))
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

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
