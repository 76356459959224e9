package task

import (
	"strconv"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
)

// Codes of what DecodeEval finds beside those of internal/doc.
const (
	CodeEvalTask  = "eval.task"           // an element is no reference to a task
	CodeEvalTwice = "eval.task.duplicate" // a task is listed twice
)

// EvalSchema is the strict schema of an authored eval.
func EvalSchema() *doc.Schema {
	return &doc.Schema{Fields: []doc.Field{
		{Name: "type", Type: doc.Type{Kinds: []doc.Kind{doc.String}, OneOf: []string{"eval"}}, Doc: "always eval"},
		{Name: "id", Type: doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}, Doc: "id of the eval; absent: that of its file"},
		{
			Name: "tasks", Required: true, Doc: "tasks, by name or id; a table of task and version pins one of the store",
			Type: doc.Type{Kinds: []doc.Kind{doc.Array}, NonEmpty: true, Elem: &doc.Type{Check: isTaskRef}},
		},
	}}
}

// isTaskRef wants "id" or { task = "id", version = 1 }.
func isTaskRef(n doc.Node, l *diag.List) {
	id := n
	if n.Kind() == doc.Object {
		id = n.Get("task")
		for name, v := range n.Members() {
			pin, ok := v.Int()
			if name != "task" && (name != "version" || !ok || pin < 1) {
				id = doc.Node{}
			}
		}
	}
	if s, ok := id.Str(); !ok || s == "" {
		l.Add(diag.Problem{Pos: n.Pos(), Code: CodeEvalTask, Summary: "expected an id or a table of task and optional version, not " + doc.Show(n)})
	}
}

// DecodeEval reads an authored eval. The references are its tasks as authored, in order; Eval.Tasks holds their names. The eval is nil
// when n is no table.
func DecodeEval(id string, n doc.Node) (*Eval, []FoundRef, diag.List) {
	var l diag.List
	EvalSchema().Check(n, "", &l)
	for i := range l {
		l[i].Prefixed = true
	}
	if n.Kind() != doc.Object {
		return nil, nil, l
	}
	e := &Eval{ID: id}
	var refs []FoundRef
	first := map[string]int{}
	for i, v := range n.Get("tasks").Items() {
		r := FoundRef{Ref: step.Ref{Path: "tasks[]", Kind: ref.Task}, Field: "tasks[" + strconv.Itoa(i) + "]", Node: v}
		if v.Kind() == doc.Object {
			r.Node, r.Version = v.Get("task"), v.Get("version")
			r.Field += ".task"
		}
		name, ok := r.Node.Str()
		if !ok || name == "" {
			continue
		}
		r.Name = name
		if at, twice := first[name]; twice {
			l.Add(diag.Problem{
				Pos: r.Node.Pos(), Where: r.Field, Code: CodeEvalTwice, Prefixed: true,
				Summary: diag.Repr(name) + " is listed twice, first at tasks[" + strconv.Itoa(at) + "]", Fix: "remove one",
			})
			continue
		}
		first[name] = i
		e.Tasks = append(e.Tasks, name)
		refs = append(refs, r)
	}
	return e, refs, l
}
