package taskstore

import (
	"context"
	"fmt"
	"slices"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// CreateTask stores a list of steps as the next version of a task. With errors in the list nothing is written; the error is one of the store.
func (s *Store) CreateTask(ctx context.Context, id string, n doc.Node, o task.Options) (Written, diag.List, error) {
	return s.write(ctx, store.Task, id, func() (draft, error) {
		_, needs, l, err := s.check(ctx, id, n, o)
		return draft{list: n, needs: needs, l: l}, err
	})
}

// CheckTask reads a list of steps and finds everything that is wrong with it, and with what it names in the store. The task is nil when the
// document is no list of steps.
func (s *Store) CheckTask(ctx context.Context, id string, n doc.Node, o task.Options) (*task.Task, diag.List, error) {
	t, _, l, err := s.check(ctx, id, n, o)
	return t, l, err
}

// CheckStored is CheckTask for a task of the store.
func (s *Store) CheckStored(ctx context.Context, id string, version int, o task.Options) (Stored, *task.Task, diag.List, error) {
	x, err := s.Get(ctx, store.Task, id, version)
	if err != nil {
		return x, nil, nil, err
	}
	t, l, err := s.CheckTask(ctx, id, x.List, o)
	if t != nil {
		t.Version = x.Version
	}
	for i := range l {
		l[i].Pos.Line, l[i].Pos.Col = 0, 0 // of the stored spelling, which nobody has written
	}
	return x, t, l, err
}

func (s *Store) check(ctx context.Context, id string, n doc.Node, o task.Options) (*task.Task, []need, diag.List, error) {
	t, l := task.Decode(id, n, s.kinds, o)
	if t == nil {
		return nil, nil, l, nil
	}
	if tooDeep(n) {
		l.Add(diag.Problem{Pos: n.Pos(), Code: task.CodeShape, Summary: "has too many lists and tables within each other", Fix: "flatten it", Prefixed: true})
	}
	r := references{task: t}
	r.outputs()
	r.inputs()
	more, err := s.missing(ctx, r.needs)
	return t, r.needs, slices.Concat(l, r.l, more), err
}

// tooDeep tells whether a list could be read, but not as part of the document that would hold it.
func tooDeep(n doc.Node) bool {
	t, _ := doc.ParseJSON("", doc.Canonical(doc.Build(map[string]any{"list": n})))
	return t == nil
}

// references sorts what the steps of a task name: what other steps write, and what the store must have.
type references struct {
	task      *task.Task
	writes    []output
	ancestors []task.Set // of its steps, once needed
	needs     []need
	l         diag.List
}

// output is something that a step writes.
type output struct {
	kind    ref.Kind
	id, typ string
	step    int
}

func (r *references) fault(i int, f task.FoundRef, code, format string, args ...any) {
	r.l.Add(diag.Problem{
		Pos: r.pos(i, f), Where: r.where(i, f), Code: code, Summary: fmt.Sprintf(format, args...), Prefixed: true,
	})
}

func (r *references) where(i int, f task.FoundRef) string {
	return "step " + diag.Repr(r.task.Steps[i].ID) + ": " + f.Field
}

// pos is where a reference stands, or its step where its name is made up.
func (r *references) pos(i int, f task.FoundRef) diag.Pos {
	if f.Node.Exists() {
		return f.Node.KeyPos()
	}
	return r.task.Steps[i].Doc.Pos()
}

func (r *references) outputs() {
	for i := range r.task.Steps {
		for _, f := range task.RefsIn(&r.task.Steps[i]) {
			if !f.Out {
				continue
			}
			id := f.Name
			if !f.Node.Exists() { // made up: a stored task keeps the whole id that it is made of
				from, _ := r.task.Steps[i].Doc.Get(f.From).Str()
				id = from + f.Suffix
			}
			if why := idFault(id); why != "" {
				r.fault(i, f, "output.name", "can't name what the step writes: %s", why)
				continue
			}
			r.writes = append(r.writes, output{f.Kind, id, f.Type, i})
		}
	}
}

func (r *references) inputs() {
	for i := range r.task.Steps {
		for _, f := range task.RefsIn(&r.task.Steps[i]) {
			if _, builtin := agent.Unstored(f.Name); f.Out || r.written(i, f) || builtin && f.Kind == ref.Agent {
				continue
			}
			if n, ok := needOf(f.Kind, f.Name, f.Version, f.Type, r.where(i, f), r.pos(i, f), &r.l); ok {
				r.needs = append(r.needs, n)
			}
		}
	}
}

// written tells whether step i reads what a step of the task writes, and refuses it where that step may not have run by then.
func (r *references) written(i int, f task.FoundRef) bool {
	writer := -1
	for _, o := range r.writes {
		if o.kind != f.Kind || o.id != f.Name {
			continue
		}
		if r.ancestors == nil {
			r.ancestors = r.task.Ancestors()
		}
		switch {
		case f.Type != "" && o.typ != "" && f.Type != o.typ:
			r.fault(i, f, "ref.type", "%s is this task's %s, but this field takes %s", diag.Repr(f.Name), o.typ, f.Type)
			return true
		case f.Version.Exists():
			r.fault(i, f, "ref.pin", "%s is written by this task, so it has no fixed version; drop the pin", diag.Repr(f.Name))
			return true
		case r.ancestors[i].Has(o.step):
			return true
		}
		writer = o.step
	}
	if writer < 0 {
		return false
	}
	r.fault(i, f, "ref.order", "step %s writes %s, and this step doesn't depend on it; add it to depends_on",
		diag.Repr(r.task.Steps[writer].ID), diag.Repr(f.Name))
	return true
}
