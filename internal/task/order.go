package task

import (
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// graph reads what the steps wait for and where they go back to, and holds the rules: ids are unique, edges point backwards, a retry goes
// back to the step itself or to an ancestor. Positions count from 0, as depends_on and the peers' messages do.
func (d *decoder) graph() {
	d.index = make(map[string]int, len(d.t.Steps))
	before := make([]int, len(d.t.Steps)) // 0, 1, 2, …: what a step without depends_on waits for is a prefix of it
	for i := range d.t.Steps {
		before[i] = i
		id := d.t.Steps[i].ID
		if id == "" {
			continue
		}
		if first, taken := d.index[id]; taken {
			d.fault(d.t.Steps[i].Doc.Get("id").Pos(), CodeDuplicate, "give each step an id of its own",
				"Duplicate step id %s at position %d; the step at position %d has it already", diag.Repr(id), i, first)
			continue
		}
		d.index[id] = i
	}
	for i := range d.t.Steps {
		n := d.t.Steps[i].Doc.Get("depends_on")
		if n.Kind() == doc.Array {
			d.t.Steps[i].Deps = d.deps(i, n)
		} else {
			d.t.Steps[i].Deps = before[:i:i]
		}
	}
	d.retries()
}

// deps are the steps that a depends_on names, ascending.
func (d *decoder) deps(i int, n doc.Node) []int {
	deps := make([]int, 0, n.Len())
	for _, e := range n.Items() {
		name := e
		if e.Kind() == doc.Object {
			name = e.Get("task_step_id")
		}
		id, ok := name.Str()
		if !ok || id == "" {
			continue // the schema has told
		}
		j, known := d.index[id]
		switch {
		case !known:
			d.rule(i, name, CodeDepends, d.meant(id, "it may wait for the steps before it alone", d.t.Steps[:i]), "depends on "+diag.Repr(id)+", which names no step of this task")
		case j == i:
			d.rule(i, name, CodeDepends, "remove it", "depends on itself")
		case j > i:
			d.rule(i, name, CodeDepends, "move that step up, or remove the dependency",
				"depends on "+diag.Repr(id)+", which doesn't come before it")
		default:
			deps = append(deps, j)
		}
	}
	slices.Sort(deps)
	return slices.Compact(deps)
}

// rule adds a problem of step i against the rules of the graph.
func (d *decoder) rule(i int, n doc.Node, code, fix, what string) {
	id := ""
	if d.t.Steps[i].ID != "" {
		id = diag.Repr(d.t.Steps[i].ID) + " "
	}
	d.fault(n.Pos(), code, fix, "Step %sat position %d %s", id, i, what)
}

// maxMeant is for how many wrong names of one task the right one is looked for.
const maxMeant = 50

// meant is what to do about a name that no step has: the near one of steps, or else.
func (d *decoder) meant(id, otherwise string, steps []Step) string {
	if d.looked++; d.looked > maxMeant {
		return otherwise
	}
	ids := make([]string, 0, len(steps))
	for _, s := range steps {
		ids = append(ids, s.ID)
	}
	if near := diag.Nearest(id, ids); near != "" {
		return "did you mean " + diag.Repr(near) + "?"
	}
	return otherwise
}

func (d *decoder) retries() {
	var ancestors []Set
	for i := range d.t.Steps {
		n := d.t.Steps[i].Doc.Get("retry_config")
		name := n.Get("retry_from_step_id")
		if name.IsNull() {
			name = n.Get("go_to_step_id")
		}
		id, ok := name.Str()
		if !ok || id == "" {
			continue
		}
		r := &Retry{Max: 1, Backoff: duration(n.Get("backoff_seconds"))}
		if most, ok := n.Get("max_retries").Int(); ok {
			r.Max = int(min(most, 1<<30))
		}
		from, known := d.index[id]
		if !known || from != i {
			if ancestors == nil {
				ancestors = d.t.Ancestors()
			}
			if !known || !ancestors[i].Has(from) {
				d.badRetry(i, name, known)
				continue
			}
		}
		r.From = from
		d.t.Steps[i].Retry = r
	}
}

func (d *decoder) badRetry(i int, name doc.Node, known bool) {
	what := "goes back to " + diag.Repr(name.Text())
	fix := "name the step itself, or one that it depends on"
	if known {
		what += ", which it doesn't depend on"
	} else {
		what += ", which names no step of this task"
		fix = d.meant(name.Text(), fix, d.t.Steps[:i+1])
	}
	d.rule(i, name, CodeRetry, fix, what)
}
