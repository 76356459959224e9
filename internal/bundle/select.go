package bundle

import (
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// selected are the tasks to run and the evals to run them for, in bundle order.
func (p *planner) selected(sel Selection) (tasks, evals []*Entry) {
	if sel.All {
		for _, e := range p.b.Entries {
			switch e.Group {
			case Tasks:
				tasks = append(tasks, e)
			case Evals:
				evals = append(evals, e)
			default: // not to run
			}
		}
		return tasks, evals
	}
	all := len(sel.Tasks) == 0 && len(sel.Evals) == 0
	haveEvals := slices.ContainsFunc(p.b.Entries, func(e *Entry) bool { return e.Group == Evals })
	want := map[*Entry]bool{}
	p.names(want, Tasks, "--task", sel.Tasks)
	p.names(want, Evals, "--eval", sel.Evals)
	for _, e := range p.b.Entries {
		if e.Group == Evals && (all || want[e]) {
			evals = append(evals, e)
			p.evalTasks(want, e)
		}
	}
	for _, e := range p.b.Entries {
		switch {
		case e.Group != Tasks:
		case want[e] || all && !haveEvals:
			tasks = append(tasks, e)
		case all:
			p.plan.LeftOut = append(p.plan.LeftOut, e.Label)
		}
	}
	return tasks, evals
}

// names marks the entries that a flag names, and reports those that it can't name.
func (p *planner) names(want map[*Entry]bool, g Group, flag string, names []string) {
	one := groups[g].one
	for _, name := range names {
		if e := p.b.Find(g.Kind(), name); e != nil {
			want[e] = true
			continue
		}
		why := p.b.refusal(g.Kind(), name)
		if !strings.Contains(why, "case-sensitive") {
			var have []string
			for _, e := range p.b.Entries {
				if e.Group == g {
					have = append(have, diag.Repr(e.Name))
				}
			}
			switch len(have) {
			case 0:
				why = "this bundle has no " + g.String()
			case 1:
				why = "this bundle has no " + one + " with that name or id; its only one is " + have[0]
			default:
				why = "this bundle has no " + one + " with that name or id; its " + g.String() + " are " + strings.Join(have, ", ")
			}
		}
		p.l.Add(diag.Problem{Where: flag + " " + diag.Repr(name), Code: "select", Summary: why, Prefixed: true})
	}
}

// evalTasks marks the tasks of an eval. A stored task can't be run with a bundle.
func (p *planner) evalTasks(want map[*Entry]bool, e *Entry) {
	for _, x := range e.Refs {
		if x.Entry != nil {
			want[x.Entry] = true
		}
	}
}
