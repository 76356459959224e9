package export

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// eval writes an eval and its tasks.
func (x *exporter) eval(ctx context.Context, d store.Doc, n doc.Node) error {
	name := x.names.give(bundle.Evals, d.ID, "")
	label := bundle.Evals.String() + "/" + name + ".toml"
	var list []any
	seen := map[key]bool{}
	for i, t := range n.Get("tasks").Items() {
		where := fmt.Sprintf("%s: tasks[%d]", label, i)
		id, _ := t.Get("task_id").Str()
		version, _ := t.Get("task_version").Int()
		td, a, err := x.read(ctx, ref.Task, id, int(version))
		if err != nil {
			return err
		}
		if a.why != "" {
			x.problem(where, "export.missing", "%s", a.why)
			continue
		}
		if at := (key{ref.Task, td.ID, td.Version}); seen[at] {
			x.leftOut(where, "dropped: task %s v%d is listed before", td.ID, td.Version)
			continue
		} else {
			seen[at] = true
		}
		taskName, err := x.task(ctx, td, a.doc)
		if err != nil {
			return err
		}
		list = append(list, taskName)
	}
	text, err := tomlText(doc.Build(map[string]any{"tasks": list}))
	if err != nil {
		return fmt.Errorf("write %s: %w", label, err)
	}
	x.files[label] = content{text: text}
	x.report.Tasks = append(x.report.Tasks, Written{label, ref.Eval, string(ref.Eval), d.ID, d.Version})
	return nil
}

// exportedTask is a task being written.
type exportedTask struct {
	*exporter
	label   string // "tasks/hello.json"
	id      string
	task    *task.Task
	outputs map[key]string // names of what its steps write
	pins    map[string][]int
}

// task writes a task and what it references. It answers the task's name in the new bundle.
func (x *exporter) task(ctx context.Context, d store.Doc, n doc.Node) (string, error) {
	name := x.names.give(bundle.Tasks, d.ID, "")
	label := bundle.Tasks.String() + "/" + name + ".json"
	x.report.Tasks = append(x.report.Tasks, Written{label, ref.Task, string(ref.Task), d.ID, d.Version})
	decode := func(steps doc.Node) (*task.Task, diag.List) {
		return task.Decode(d.ID, steps, x.options.Bundle.Kinds, task.Options{AllowUnknownFields: true})
	}
	t, l := decode(n.Get("steps"))
	if l.HasErrors() {
		for _, p := range l.Of(diag.Error) {
			p.Pos, p.Prefixed = diag.Pos{File: label}, true
			x.problems.Add(p)
		}
		return name, nil
	}
	e := &exportedTask{exporter: x, label: label, id: d.ID, outputs: map[key]string{}, pins: map[string][]int{}}
	own := make([]any, len(t.Steps))
	for i := range t.Steps {
		own[i] = e.prune(&t.Steps[i])
	}
	if e.task, l = decode(doc.Build(own)); l.HasErrors() { // a field that steps need was the user's
		for _, p := range l.Of(diag.Error) {
			p.Pos, p.Prefixed = diag.Pos{File: label}, true
			p.Fix = "--include-scope user keeps the fields that belong to who runs a task"
			x.problems.Add(p)
		}
		return name, nil
	}
	e.look()
	steps := make([]any, len(e.task.Steps))
	for i := range e.task.Steps {
		s, err := e.step(ctx, i)
		if err != nil {
			return "", err
		}
		steps[i] = s
	}
	x.files[label] = content{text: append(doc.JSONIndent(doc.Build(steps)), '\n')}
	return name, nil
}

// where is step i, and a field of it.
func (e *exportedTask) where(i int, field string) string {
	return strings.TrimSuffix(e.label+": step "+diag.Repr(e.task.Steps[i].ID)+": "+field, ": ")
}

// prune is a step without the fields that belong to who runs the task.
func (e *exportedTask) prune(s *task.Step) doc.Node {
	if e.from.User || s.Kind == nil {
		return s.Doc
	}
	user := map[string]bool{}
	userFields(s.Kind.Schema(), "", user)
	return s.Doc.Map(func(path string, v doc.Node) (doc.Node, bool) {
		if !user[unindexed(path)] {
			return v, true
		}
		if !v.IsNull() {
			e.leftOut(e.label+": step "+diag.Repr(s.ID)+": "+path, "dropped: it belongs to who runs the task; --include-scope user keeps it")
		}
		return v, false
	})
}

// userFields are the paths of the fields of a schema that belong to who runs a task.
func userFields(s *doc.Schema, under string, out map[string]bool) {
	for _, f := range s.Fields {
		path := under + f.Name
		if f.User {
			out[path] = true
			continue
		}
		for t := &f.Type; t != nil; t = t.Elem {
			if t.Fields != nil {
				userFields(t.Fields, path+".", out)
			}
		}
	}
}

// unindexed is a path without places in lists.
func unindexed(path string) string {
	var b strings.Builder
	for path != "" {
		before, after, ok := strings.Cut(path, "[")
		b.WriteString(before)
		if !ok {
			break
		}
		_, path, _ = strings.Cut(after, "]")
	}
	return b.String()
}

// look finds what the task's steps write, and the versions that they name envs at.
func (e *exportedTask) look() {
	for i := range e.task.Steps {
		for _, r := range task.RefsIn(&e.task.Steps[i]) {
			at := key{kind: r.Kind, id: ref.NFC(r.Name)}
			if v, ok := r.Version.Int(); ok && r.Kind == ref.Env && !slices.Contains(e.pins[at.id], int(v)) {
				e.pins[at.id] = append(e.pins[at.id], int(v))
			}
			if !r.Out || e.outputs[at] != "" {
				continue
			}
			g := bundle.Artifacts
			if r.Kind == ref.Env {
				g = bundle.Envs
			}
			if name, below := strings.CutPrefix(at.id, e.id+"/"); below && ref.CheckAuthored(ref.Join(e.id, name)) == nil && e.names.take(g, name, e.label) {
				e.outputs[at] = name
			} else {
				e.outputs[at] = e.names.give(g, at.id, e.label)
			}
		}
	}
}

// step is step i as the new bundle has it.
func (e *exportedTask) step(ctx context.Context, i int) (doc.Node, error) {
	s := &e.task.Steps[i]
	e.needs(i)
	fixed := map[string]bool{}
	names := map[string]any{} // by path: a new value, or nil to leave the member out
	for _, r := range task.RefsIn(s) {
		if !r.Node.Exists() {
			continue
		}
		fixed[r.Field] = true
		if _, builtin := agent.Unstored(r.Name); builtin && r.Kind == ref.Agent {
			continue
		}
		version := beside(r.Field, r.Ref.Version)
		at := key{kind: r.Kind, id: ref.NFC(r.Name)}
		if name, ok := e.outputs[at]; ok {
			names[r.Field] = r.Prefix + name
			continue
		}
		from, err := e.comesWith(ctx, at, r.Version.Exists())
		if err != nil {
			return doc.Node{}, err
		}
		if from != "" {
			e.floats(e.where(i, r.Field), r.Kind, at.id, from, r.Version.Exists())
			if r.Version.Exists() {
				names[version] = nil
			}
			continue
		}
		o, err := e.local(ctx, e.where(i, r.Field), r.Kind, at.id, e.version(i, r), r.Type)
		if err != nil {
			return doc.Node{}, err
		}
		switch {
		case o.fate == written:
			names[r.Field] = r.Prefix + o.name
			if r.Version.Exists() {
				names[version] = nil
			}
		case o.fate == stays && r.Ref.Version != "":
			names[version] = o.version
		case o.fate == stays:
			e.report.Floating = append(e.report.Floating, Floats{e.where(i, r.Field), r.Kind, at.id, "the field takes no version, so a run reads the latest"})
		}
	}
	n := put(s.Doc, names)
	n = e.masker.scrub(n, fixed, func(path, why string) { e.leftOut(e.where(i, path), "%s", why) })
	return ordered(n, s.Kind), nil
}

// comesWith is the installed bundle that a name leads to, by an id or by an alias that the bundle gives; an entity of the store that is called like
// the alias comes first.
func (e *exportedTask) comesWith(ctx context.Context, at key, pinned bool) (string, error) {
	alias := e.options.Bundle.Alias(at.kind, at.id)
	if alias == "" || pinned {
		return e.pulled(at.kind, at.id), nil
	}
	_, a, err := e.read(ctx, at.kind, at.id, 0)
	if err != nil || a.why == "" {
		return "", err
	}
	return e.pulled(at.kind, alias), nil
}

// version is the one that a reference means: its own; for an env that is named without one, that which the task names elsewhere, since such a step
// means the env that another one deployed, and the folder holds it once.
func (e *exportedTask) version(i int, r task.FoundRef) int {
	if v, ok := r.Version.Int(); ok {
		return int(v)
	}
	if pins := e.pins[ref.NFC(r.Name)]; r.Kind == ref.Env && len(pins) == 1 {
		e.leftOut(e.where(i, r.Field), "pinned: it names no version, and takes v%d, which the task names elsewhere", pins[0])
		return pins[0]
	}
	return 0
}

// needs notes what step i needs beyond the program, and the agents that it leaves to configuration.
func (e *exportedTask) needs(i int) {
	s := &e.task.Steps[i]
	if s.Kind == nil {
		return
	}
	if c, ok := e.options.Bundle.Kinds.Get(s.Type); ok && c.Origin.Kind != catalog.Builtin {
		by := c.Origin.Package
		if by == "" || c.Origin.Kind == catalog.Config {
			by = "configuration"
		}
		e.need(by, s.Type, stepType, e.where(i, ""))
		if len(s.Kind.Refs) == 0 && mentionsIDs(s.Doc) {
			e.report.Floating = append(e.report.Floating, Floats{
				e.where(i, ""), ref.Artifact, "(not declared)",
				"steps of type " + s.Type + " don't say which of their fields name stored entities, so the ids in it stay as they are",
			})
		}
	}
	for _, r := range s.Kind.Refs {
		if r.Kind != ref.Agent || r.Out || strings.ContainsAny(r.Path, ".[") || !s.Doc.Get(r.Path).IsNull() {
			continue
		}
		required := slices.ContainsFunc(s.Kind.Schema().Fields, func(f doc.Field) bool { return f.Name == r.Path && f.Required })
		if !required {
			e.report.Floating = append(e.report.Floating, Floats{Where: e.where(i, r.Path), Kind: ref.Agent, Why: "the step names none, so a run takes the configured default"})
		}
	}
}

// mentionsIDs tells whether a step holds a string that looks like a stored entity's id.
func mentionsIDs(n doc.Node) bool {
	found := false
	n.MapStrings(func(v doc.Node) (string, bool) {
		found = found || ref.IsLocal(v.Text())
		return "", false
	})
	return found
}

// beside is the path of a field's sibling.
func beside(path, name string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i+1] + name
	}
	return name
}

// put is n with the values that at has by path: replaced, added to the table that holds them, or, with nil, left out.
func put(n doc.Node, at map[string]any) doc.Node {
	done := map[string]bool{}
	n = n.Map(func(path string, v doc.Node) (doc.Node, bool) {
		now, ok := at[path]
		if !ok {
			return v, true
		}
		done[path] = true
		return doc.Build(now), now != nil
	})
	for path, v := range at {
		if done[path] || v == nil {
			continue
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			n = n.With(path, v)
			continue
		}
		n = n.Map(func(holder string, h doc.Node) (doc.Node, bool) {
			if holder == path[:i] {
				return h.With(path[i+1:], v), true
			}
			return h, true
		})
	}
	return n
}

// ordered is a step with its members in the order that people write, which a store doesn't keep: what it is and waits for, its kind's own fields, then
// those that every step has. Of tables within, what they are comes first.
func ordered(n doc.Node, k *step.Kind) doc.Node {
	order := []string{"id", "type", "depends_on"}
	if k != nil {
		for _, f := range k.Fields.Fields {
			order = append(order, f.Name)
		}
		for _, f := range k.Schema().Fields {
			order = append(order, f.Name)
		}
	}
	return reordered(n, order).Map(func(_ string, v doc.Node) (doc.Node, bool) {
		if v.Kind() == doc.Object && (v.Get("id").Exists() || v.Get("type").Exists()) {
			if first, _ := firstMember(v); first != "id" && first != "type" {
				return ordered(v, nil), true
			}
		}
		return v, true
	})
}

// reordered is a table with the members of order first, in that order.
func reordered(n doc.Node, order []string) doc.Node {
	out := doc.Build(map[string]any{})
	add := func(name string) {
		if v := n.Get(name); v.Exists() && !out.Get(name).Exists() {
			out = out.With(name, v)
		}
	}
	for _, name := range order {
		add(name)
	}
	for name := range n.Members() {
		add(name)
	}
	return out
}

func firstMember(n doc.Node) (string, doc.Node) {
	for name, v := range n.Members() {
		return name, v
	}
	return "", doc.Node{}
}
