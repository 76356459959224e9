package bundle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/task"
)

// Plan works out what the selection writes and runs. Rules about ids and loops cover the whole bundle, everything else what the selection reaches.
// With a nil View no store is read: references that only a store can hold count as good. It is called after a Resolve without errors; the error is
// one of reading the store.
func (b *Bundle) Plan(ctx context.Context, v View, sel Selection) (*Plan, diag.List, error) {
	p := newPlanner(b, v)
	if err := p.aliases(ctx); err != nil {
		return nil, nil, err
	}
	p.writers()
	p.loops()
	tasks, evals := p.reachSelected(sel)
	for _, e := range b.Entries {
		if p.state[e] == reached {
			if err := p.visit(ctx, e); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, e := range tasks {
		if err := p.loadedBy(ctx, e); err != nil {
			return nil, nil, err
		}
	}
	if p.l.HasErrors() {
		return nil, p.l, nil
	}
	for _, t := range tasks {
		p.plan.Run = append(p.plan.Run, p.writes[t])
	}
	for _, e := range evals {
		run := &EvalRun{Write: p.writes[e]}
		for _, x := range e.Refs {
			run.Tasks = append(run.Tasks, p.writes[x.Entry])
		}
		p.plan.Evals = append(p.plan.Evals, run)
	}
	return p.plan, p.l, nil
}

type visit uint8

const (
	unreached visit = iota
	reached
	done
)

type planner struct {
	b      *Bundle
	view   View
	plan   *Plan
	l      diag.List
	state  map[*Entry]visit
	writes map[*Entry]*Write // of planned entries
	stored map[storedKey]storedAnswer
}

func newPlanner(b *Bundle, v View) *planner {
	return &planner{
		b: b, view: v, plan: &Plan{Root: b.Root, IDRoot: b.IDRoot},
		state: map[*Entry]visit{}, writes: map[*Entry]*Write{}, stored: map[storedKey]storedAnswer{},
	}
}

// reachSelected marks what a selection needs.
func (p *planner) reachSelected(sel Selection) (tasks, evals []*Entry) {
	tasks, evals = p.selected(sel)
	for _, e := range p.b.Entries { // bundle order: entities come before the tasks and evals that reach them
		if sel.All || slices.Contains(tasks, e) || slices.Contains(evals, e) {
			p.reach(e)
		}
	}
	return tasks, evals
}

// reach marks an entry and everything that it needs.
func (p *planner) reach(e *Entry) {
	if p.state[e] != unreached {
		return
	}
	p.state[e] = reached
	for _, x := range e.Refs {
		if x.Entry != nil {
			p.reach(x.Entry)
		}
	}
}

// visit plans an entry's writes after those of what it needs.
func (p *planner) visit(ctx context.Context, e *Entry) error {
	if p.state[e] != reached {
		return nil
	}
	p.state[e] = done
	for _, x := range e.Refs {
		if x.Entry == nil {
			continue
		}
		if err := p.visit(ctx, x.Entry); err != nil {
			return err
		}
	}
	if err := p.storeRefs(ctx, e); err != nil {
		return err
	}
	w := &Write{Bundle: e.bundle.IDRoot, Kind: e.Store(), ID: e.ID, Type: e.Type, Label: e.Label}
	p.describe(e, w)
	p.writes[e] = w
	p.plan.Writes = append(p.plan.Writes, w)
	return nil
}

// describe fills in a write as its entry's type needs. Problems are recorded.
func (p *planner) describe(e *Entry, w *Write) {
	switch e.Group {
	case Envs:
		p.env(e, w)
	case Agents:
		p.agent(e, w)
	case Artifacts:
		p.artifact(e, w)
	case Skills:
		p.skill(e, w)
	case Tasks:
		w.Task = e.resolved()
		w.Config = w.Task.Config
	case Evals:
		w.Config = e.authored()
		w.Eval = &task.Eval{ID: e.ID}
		for _, x := range e.Refs {
			w.Eval.Tasks = append(w.Eval.Tasks, x.ID)
		}
	}
}

// pin adds a reference that the document keeps with a version.
func (w *Write) pin(p *planner, x *Reference, field string) {
	pin := Pin{Field: field, Kind: x.Kind, ID: x.ID, Type: x.Type}
	if x.Entry != nil {
		pin.Write, pin.Type = p.writes[x.Entry], x.Entry.Type
		w.need(pin.Write)
	} else {
		s := p.stored[storedKey{x.Kind, x.ID, x.Version}]
		pin.Version, pin.Type = s.Version, s.Type
		if x.Version == 0 {
			if w.StoreRefs == nil {
				w.StoreRefs = map[string]int{}
			}
			w.StoreRefs[string(x.Kind)+" "+x.ID] = s.Version
		}
	}
	w.Pins = append(w.Pins, pin)
}

func (w *Write) need(n *Write) {
	if n != nil && !slices.Contains(w.Needs, n) {
		w.Needs = append(w.Needs, n)
	}
}

// writers finds ids that more than one thing is written to.
func (p *planner) writers() {
	type place struct {
		kind ref.Kind
		id   string
	}
	type writer struct{ label, what string }
	first := map[place]writer{}
	add := func(k ref.Kind, id, label, where, what string) {
		at := place{k, id}
		other, taken := first[at]
		if !taken {
			first[at] = writer{label, what}
			return
		}
		p.l.Add(diag.Problem{
			Pos: diag.Pos{File: label}, Where: where, Code: "bundle.writers", Prefixed: true,
			Summary: fmt.Sprintf("the id %s is also written by %s; rename one", diag.Repr(id), other.what),
		})
	}
	all := p.b.withPulled()
	for _, e := range all {
		add(e.Store(), e.ID, e.Label, "", e.Label)
		for _, img := range e.images {
			if img.role != "" {
				add(ref.Artifact, img.id, e.Label, "", "the image built for "+e.Label)
			}
		}
	}
	for _, e := range all {
		for _, c := range e.bundle.children(e) {
			add(ref.Artifact, c.id, c.label, "", c.label)
		}
	}
	for _, o := range p.b.outputs {
		step := "step " + diag.Repr(o.task.task.Steps[o.step].ID)
		add(o.kind, o.id, o.task.Label, step, step+" of "+o.task.Label)
	}
}

// loops finds entries that need themselves, by way of others. Typed fields keep most out; images of images don't.
func (p *planner) loops() {
	const (
		fresh = iota
		open
		closed
	)
	state := map[*Entry]int{}
	var path []*Entry
	var follow func(e *Entry)
	follow = func(e *Entry) {
		switch state[e] {
		case closed:
			return
		case open:
			var text strings.Builder
			for _, x := range path[slices.Index(path, e):] {
				text.WriteString(x.Label + " needs ")
			}
			p.l.Add(diag.Problem{
				Pos: diag.Pos{File: e.Label}, Code: "bundle.loop", Prefixed: true,
				Summary: "a loop of references: " + text.String() + e.Label + "; remove one",
			})
			return
		}
		state[e] = open
		path = append(path, e)
		for _, x := range e.Refs {
			if x.Entry != nil {
				follow(x.Entry)
			}
		}
		path = path[:len(path)-1]
		state[e] = closed
	}
	for _, e := range p.b.Entries {
		follow(e)
	}
}
