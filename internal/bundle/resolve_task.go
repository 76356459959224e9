package bundle

import (
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/task"
)

// task decodes a task and resolves the references of its steps.
func (r *resolver) task(e *Entry) {
	t, l := task.Decode(e.ID, e.Config, r.b.options.Kinds, task.Options{AllowUnknownFields: r.b.options.AllowUnknownFields})
	r.l.Add(l...)
	if t == nil {
		return
	}
	e.task = t
	x := steps{resolver: r, e: e}
	for i := range t.Steps {
		for _, f := range task.RefsIn(&t.Steps[i]) {
			if f.Out {
				x.output(i, f)
			}
		}
	}
	for i := range t.Steps {
		x.opaque(i)
		for _, f := range task.RefsIn(&t.Steps[i]) {
			if !f.Out {
				x.input(i, f)
			}
		}
	}
}

// steps resolves the steps of one task.
type steps struct {
	*resolver
	e         *Entry
	ancestors []task.Set // of its steps, once needed
}

func (x *steps) where(i int, field string) string {
	return "step " + diag.Repr(x.e.task.Steps[i].ID) + ": " + field
}

func (x *steps) fault(i int, f task.FoundRef, code, format string, args ...any) {
	n := f.Node
	if !n.Exists() {
		n = x.e.task.Steps[i].Doc
	}
	x.l.Add(x.e.problem(n, x.where(i, f.Field), code, format, args...))
}

// output notes an entity that step i writes: it is named under the task.
func (x *steps) output(i int, f task.FoundRef) {
	name := ref.NFC(f.Name)
	name = strings.TrimPrefix(name, x.e.ID+"/")
	id := ref.Join(x.e.ID, name)
	if strings.HasPrefix(name, "@") {
		x.fault(i, f, "output.name", "%s can't name what the step writes; give it a plain name, which is kept under the task", diag.Repr(f.Name))
		return
	}
	if err := ref.CheckAuthored(id); err != nil {
		x.fault(i, f, "output.name", "%s can't name what the step writes: %s", diag.Repr(f.Name), err)
		return
	}
	if own := x.b.Find(f.Kind, name); own != nil {
		x.fault(i, f, "output.name", "%s is also the name of %s; rename one", diag.Repr(f.Name), own.Label)
		return
	}
	for _, o := range x.e.outputs {
		if o.id == id && o.kind == f.Kind {
			x.fault(i, f, "output.twice", "%s is also written by step %s; give each a name of its own", diag.Repr(f.Name), diag.Repr(x.e.task.Steps[o.step].ID))
			return
		}
	}
	o := &output{name: name, id: id, kind: f.Kind, typ: f.Type, task: x.e, step: i}
	x.e.outputs = append(x.e.outputs, o)
	x.b.outputs = append(x.b.outputs, o)
}

// input resolves what step i reads: an output of the task, an entry of the bundle, or something that a store may hold.
func (x *steps) input(i int, f task.FoundRef) {
	for _, o := range x.e.outputs {
		if o.kind == f.Kind && (o.name == ref.NFC(f.Name) || o.id == ref.NFC(f.Name)) {
			x.read(i, f, o)
			return
		}
	}
	n := f.Node
	target := &Reference{
		Where: x.where(i, f.Field), Pos: diag.Pos{File: x.e.Label, Line: line(n)}, Kind: f.Kind, Type: f.Type, node: n, prefix: f.Prefix,
	}
	if !x.target(target, f.Name, f.Version) {
		return
	}
	if target.Entry == nil && target.Version == 0 && !target.builtin {
		target.alias = x.b.options.Alias(f.Kind, target.ID)
		var why string
		if _, target.pulled, why = x.pull(f.Kind, target.alias); why != "" {
			x.fault(i, f, "ref.pulled", "%s", why)
			return
		}
	}
	x.e.Refs = append(x.e.Refs, target)
}

// read ties step i to an output, which a step that it depends on must write.
func (x *steps) read(i int, f task.FoundRef, o *output) {
	switch {
	case f.Version.Exists():
		x.fault(i, f, "ref.pin", "%s is written by this task, so it has no fixed version; drop the pin", diag.Repr(f.Name))
		return
	case f.Type != "" && o.typ != "" && f.Type != o.typ:
		x.fault(i, f, "ref.type", "%s is this task's %s, but this field takes %s", diag.Repr(f.Name), o.typ, f.Type)
		return
	}
	if x.ancestors == nil {
		x.ancestors = x.e.task.Ancestors()
	}
	if x.ancestors[i].Has(o.step) {
		x.e.Refs = append(x.e.Refs, &Reference{
			Where: x.where(i, f.Field), Kind: f.Kind, Type: f.Type, ID: o.id, Output: o, node: f.Node, prefix: f.Prefix,
		})
		return
	}
	x.fault(i, f, "ref.order", "step %s writes %s, and this step doesn't depend on it; add it to depends_on",
		diag.Repr(x.e.task.Steps[o.step].ID), diag.Repr(f.Name))
}

// opaque refuses a plugin's step whose type declares no references and that yet names an entry: the name couldn't be replaced by its id.
func (x *steps) opaque(i int) {
	s := &x.e.task.Steps[i]
	if s.Kind == nil || len(s.Kind.Refs) > 0 {
		return
	}
	if c, ok := x.b.options.Kinds.Get(s.Type); !ok || c.Origin.Kind == catalog.Builtin {
		return
	}
	for name, v := range s.Doc.Members() {
		if name == "id" || name == "type" || name == "depends_on" {
			continue
		}
		strings := 0
		v.MapStrings(func(n doc.Node) (string, bool) {
			text := n.Text()
			for _, e := range x.b.Entries {
				if e.Name == text && strings == 0 {
					strings++
					x.l.Add(x.e.problem(n, x.where(i, name), "ref.opaque",
						"%s is the name of %s, and steps of type %s don't say which of their fields are names; write the id %s",
						diag.Repr(text), e.Label, s.Type, diag.Repr(e.ID)))
				}
			}
			return "", false
		})
	}
}

// authored is the config of a task or toml with its references written as ids.
func (e *Entry) authored() doc.Node {
	ids := make(map[doc.Node]string, len(e.Refs))
	for _, x := range e.Refs {
		ids[x.node] = x.prefix + x.ID
	}
	n := e.Config
	if len(ids) > 0 {
		n = n.MapStrings(func(n doc.Node) (string, bool) { id, ok := ids[n]; return id, ok })
	}
	for _, img := range e.images {
		if img.role != "" {
			n = n.With(img.role, img.id)
		}
	}
	return n
}

// resolved is the task with its references written as ids.
func (e *Entry) resolved() *task.Task {
	ids := make(map[doc.Node]string, len(e.Refs))
	for _, x := range e.Refs {
		ids[x.node] = x.ID
	}
	return e.task.Rewrite(func(_ int, f task.FoundRef) string {
		if f.Out {
			return ref.Join(e.ID, strings.TrimPrefix(ref.NFC(f.Name), e.ID+"/"))
		}
		if id, ok := ids[f.Node]; ok {
			return id
		}
		return f.Name
	})
}

// String names a reference for people: "artifact '@local/x'".
func (x *Reference) String() string { return fmt.Sprintf("%s %s", x.Kind, diag.Repr(x.ID)) }
