package task

import (
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// FoundRef is one reference that a document holds.
type FoundRef struct {
	step.Ref
	Field   string   // where it is: "artifacts[0].id"
	Name    string   // as authored, without the prefix; of an output whose field is absent, the name that it gets
	Node    doc.Node // the string that holds it; absent where Name is made up
	Version doc.Node // the version beside it; absent for none
}

// RefsIn are the references of a step, in the order of its kind's table and then of the document. A kind that declares none, and a step
// of unknown type, have none.
func RefsIn(s *Step) []FoundRef {
	if s.Kind == nil {
		return nil
	}
	return RefsOf(s.Kind.Refs, s.Doc)
}

// RefsOf are the references of a document whose type has these.
func RefsOf(refs []step.Ref, n doc.Node) []FoundRef {
	var out []FoundRef
	for _, r := range refs {
		w := walker{ref: r}
		w.walk(n, "", r.Path)
		if r.Out && len(w.found) == 0 && r.From != "" {
			if name := derived(n, r); name != "" {
				w.found = append(w.found, FoundRef{Ref: r, Field: r.Path, Name: name})
			}
		}
		out = append(out, w.found...)
	}
	return out
}

// derived is the name of an output whose field is absent.
func derived(n doc.Node, r step.Ref) string {
	from, _ := n.Get(r.From).Str()
	if from == "" {
		return ""
	}
	return from[strings.LastIndexByte(from, '/')+1:] + r.Suffix
}

type walker struct {
	ref   step.Ref
	found []FoundRef
}

// walk follows path from holder, which stands at where.
func (w *walker) walk(holder doc.Node, where, path string) {
	seg, rest, more := strings.Cut(path, ".")
	name, star := strings.CutSuffix(seg, "*")
	name, many := strings.CutSuffix(name, "[]")
	if star {
		w.walk(holder, where, rest)
	}
	v := holder.Get(name)
	field := name
	if where != "" {
		field = where + "." + name
	}
	each := func(v doc.Node, field string) {
		switch {
		case star:
			w.walk(v, field, path)
		case more:
			w.walk(v, field, rest)
		default:
			w.take(holder, v, field)
		}
	}
	if !many {
		each(v, field)
		return
	}
	for i, e := range v.Items() {
		each(e, fmt.Sprintf("%s[%d]", field, i))
	}
}

// take takes the string at the end of a path.
func (w *walker) take(holder, v doc.Node, field string) {
	s, ok := v.Str()
	s, prefixed := strings.CutPrefix(s, w.ref.Prefix)
	if !ok || !prefixed || s == "" {
		return
	}
	f := FoundRef{Ref: w.ref, Field: field, Name: s, Node: v}
	if w.ref.Version != "" {
		if pin := holder.Get(w.ref.Version); !pin.IsNull() {
			f.Version = pin
		}
	}
	w.found = append(w.found, f)
}

// Rewrite is the task with the references of its steps replaced by what f answers, in Doc and Config. Outputs whose names were made up are
// written into their fields. The task itself stays as it is.
func (t *Task) Rewrite(f func(step int, r FoundRef) string) *Task {
	out := *t
	out.Steps = append([]Step(nil), t.Steps...)
	config := make([]any, len(t.Steps))
	for i := range out.Steps {
		s := &out.Steps[i]
		ids := map[doc.Node]string{}
		for _, r := range RefsIn(s) {
			if r.Node.Exists() {
				ids[r.Node] = r.Prefix + f(i, r)
			} else {
				s.Doc = s.Doc.With(r.Field, f(i, r))
			}
		}
		if len(ids) > 0 {
			s.Doc = s.Doc.MapStrings(func(n doc.Node) (string, bool) { id, ok := ids[n]; return id, ok })
		}
		config[i] = s.Doc
	}
	out.Config = doc.Build(config)
	return &out
}
