package taskstore

import (
	"context"
	"fmt"
	"strconv"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// TaskRef is a task of an eval; version 0 is the latest.
type TaskRef struct {
	ID      string `json:"task_id"`
	Version int    `json:"task_version,omitempty"`
}

// Tasks are those that a stored eval lists, in its order.
func (s Stored) Tasks() []TaskRef {
	out := make([]TaskRef, 0, s.List.Len())
	for _, e := range s.List.Items() {
		v, _ := e.Get("task_version").Int()
		out = append(out, TaskRef{e.Get("task_id").Text(), int(v)})
	}
	return out
}

// CreateEval stores a list of tasks as the next version of an eval: a list of ids and of tables {task_id, task_version}, or the table that a
// bundle's evals/<name>.toml is, with ids of the store. With errors in it nothing is written; the error is one of the store.
func (s *Store) CreateEval(ctx context.Context, id string, n doc.Node) (Written, diag.List, error) {
	return s.write(ctx, store.Eval, id, func() (draft, error) {
		tasks, d := readEval(id, n)
		d.list = listOf(tasks)
		return s.found(ctx, d)
	})
}

// Added is what AddTasks did.
type Added struct {
	Written
	Added, Replaced []string // ids of tasks
}

// AddTasks stores the tasks of an eval's version (0: the latest) and those of n as the next version of the eval. A task that the eval lists already
// keeps its place and gets the version that n says.
func (s *Store) AddTasks(ctx context.Context, id string, version int, n doc.Node) (Added, diag.List, error) {
	var out Added
	w, l, err := s.write(ctx, store.Eval, id, func() (draft, error) {
		tasks, d := readEval(id, n)
		base, err := s.Get(ctx, store.Eval, id, version)
		if err != nil {
			return d, err
		}
		out = Added{}
		all := base.Tasks()
		place := make(map[string]int, len(all))
		for i, t := range all {
			place[t.ID] = i
		}
		for _, t := range tasks {
			if i, ok := place[t.ID]; ok {
				all[i] = t
				out.Replaced = append(out.Replaced, t.ID)
				continue
			}
			all = append(all, t)
			out.Added = append(out.Added, t.ID)
		}
		d.list = listOf(all)
		return s.found(ctx, d)
	})
	out.Written = w
	return out, l, err
}

// found adds what the store lacks to a draft's problems.
func (s *Store) found(ctx context.Context, d draft) (draft, error) {
	more, err := s.missing(ctx, d.needs)
	d.l.Add(more...)
	return d, err
}

// listOf is the list of an eval's document.
func listOf(tasks []TaskRef) doc.Node {
	out := make([]any, len(tasks))
	for i, t := range tasks {
		m := map[string]any{"task_id": t.ID}
		if t.Version > 0 {
			m["task_version"] = t.Version
		}
		out[i] = m
	}
	return doc.Build(out)
}

// elementSchema is of one element of an eval's JSON list.
func elementSchema() *doc.Schema {
	least := 1.0
	return &doc.Schema{Fields: []doc.Field{
		{Name: "task_id", Required: true, Type: doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}, Doc: "id of the task"},
		{Name: "task_version", Type: doc.Type{Kinds: []doc.Kind{doc.Int}, Null: true, Min: &least}, Doc: "its version; absent: the latest"},
	}}
}

// readEval reads an authored list of tasks with everything that is wrong with its form.
func readEval(id string, n doc.Node) ([]TaskRef, draft) {
	r := evalReader{first: map[string]string{}}
	if n.Kind() == doc.Object {
		r.table(id, n)
	} else {
		r.list(n)
	}
	return r.tasks, draft{needs: r.needs, l: r.l}
}

type evalReader struct {
	tasks []TaskRef
	needs []need
	l     diag.List
	first map[string]string // where a task is listed first
}

func (r *evalReader) fault(n doc.Node, where, code, summary, fix string) {
	r.l.Add(diag.Problem{Pos: n.Pos(), Where: where, Code: code, Summary: summary, Fix: fix, Prefixed: true})
}

// table reads a bundle's form.
func (r *evalReader) table(id string, n doc.Node) {
	_, refs, l := task.DecodeEval(id, n)
	r.l.Add(l...)
	if own, ok := n.Get("id").Str(); ok && own != "" && own != id {
		r.fault(n.Get("id"), "id", "eval.id", diag.Repr(own)+" is another id than "+diag.Repr(id)+", which was asked for", "drop one of them")
	}
	for _, f := range refs {
		r.add(f.Name, f.Version, f.Field, f.Node)
	}
}

// list reads the form of the store.
func (r *evalReader) list(n doc.Node) {
	const want = `an eval is a list of tasks: ["<id>", {"task_id": "<id>", "task_version": 2}]`
	switch {
	case n.Kind() != doc.Array:
		r.fault(n, "", task.CodeEvalTask, "must be a list of tasks, not "+n.Kind().String(), want)
		return
	case n.Len() == 0:
		r.fault(n, "", task.CodeEvalTask, "lists no tasks", want)
	case n.Len() > task.MaxSteps:
		r.fault(n, "", task.CodeEvalTask, fmt.Sprintf("lists %d tasks; %d is the most", n.Len(), task.MaxSteps), "split the eval")
		return
	}
	s := elementSchema()
	for i, e := range n.Items() {
		where := "task " + strconv.Itoa(i)
		if id, ok := e.Str(); ok && id != "" {
			r.add(id, doc.Node{}, where, e)
			continue
		}
		if e.Kind() != doc.Object {
			r.fault(e, where, task.CodeEvalTask, "must be an id or a table of task_id and optional task_version, not "+doc.Show(e), "")
			continue
		}
		var l diag.List
		s.Check(e, where, &l)
		r.l.Add(l.Prefixed()...)
		if id, ok := e.Get("task_id").Str(); ok && id != "" {
			r.add(id, e.Get("task_version"), where+": task_id", e.Get("task_id"))
		}
	}
}

// add takes one task. DecodeEval tells of a repeated one itself.
func (r *evalReader) add(id string, pin doc.Node, where string, n doc.Node) {
	if first, twice := r.first[id]; twice {
		r.fault(n, where, task.CodeEvalTwice, diag.Repr(id)+" is listed twice, first at "+first, "remove one")
		return
	}
	r.first[id] = where
	if want, ok := needOf(ref.Task, id, pin, "", where, n.Pos(), &r.l); ok {
		r.needs = append(r.needs, want)
		r.tasks = append(r.tasks, TaskRef{id, want.version})
	}
}
