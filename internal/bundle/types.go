package bundle

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// Type is a type of environments or artifacts that a plugin adds: what its env.toml or artifact.toml may say.
type Type struct {
	Name, Doc string
	Fields    doc.Schema // its own, without type and id
	Refs      []step.Ref // fields that name stored things
}

// ReservedFields are words of every stored document, which no type may have as its own.
func ReservedFields() []string {
	return []string{"created_at_utc", "id", artifact.StoredFiles, "type", "version"}
}

// schema is that of the whole toml.
func (t *Type) schema() *doc.Schema {
	s := t.Fields
	text := doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}
	s.Fields = append(slices.Clone(s.Fields),
		doc.Field{Name: "type", Type: text, Doc: "type"}, doc.Field{Name: "id", Type: text, Doc: "id; absent: that of its folder"})
	return &s
}

// Added is a plugin's type of environments or artifacts; false for one of the program's own, and for one that nobody has.
func (o Options) Added(g Group, name string) (*Type, bool) {
	set := o.EnvTypes
	if g == Artifacts {
		set = o.ArtifactTypes
	}
	if set == nil || g == Envs && slices.Contains(env.Types(), name) || g == Artifacts && artifact.Known(name) {
		return nil, false
	}
	e, ok := set.Get(name)
	return e.Value, ok
}

// addedType resolves an entry whose type isn't the program's own.
func (r *resolver) addedType(e *Entry, set *catalog.Set[*Type], code string, known []string) {
	t, ok := r.b.options.Added(e.Group, e.Type)
	if !ok {
		what := fmt.Sprintf("%s isn't a known %s type", diag.Repr(e.Type), e.Group.One())
		why := ""
		if set != nil {
			why = set.Reason(e.Type)
		}
		if why != "" {
			what += " (" + why + ")"
		} else {
			what += "; known are " + list(known)
		}
		r.l.Add(e.problem(e.Config.Get("type"), "", code, "%s", what))
		return
	}
	for _, f := range task.RefsOf(t.Refs, e.Config) {
		x := &Reference{Where: f.Field, Pos: diag.Pos{File: e.Label, Line: line(f.Node)}, Kind: f.Kind, Type: f.Type, node: f.Node, prefix: f.Prefix}
		if r.target(x, f.Name, f.Version) {
			e.Refs = append(e.Refs, x)
		}
	}
}

// addedConfig checks a toml against a plugin's type, and answers the members that a document keeps of it: as authored, ids in place of names, defaults
// filled in.
func (p *planner) addedConfig(e *Entry, w *Write, t *Type) map[string]any {
	w.Plugin = true
	s := t.schema()
	p.accept(e, s, nil, func(n doc.Node, l *diag.List) {
		for name, v := range n.Members() {
			if name != "type" && name != "id" && slices.Contains(ReservedFields(), name) {
				l.Add(diag.Problem{Pos: v.KeyPos(), Where: name, Code: "toml.reserved", Summary: "is a word of stored documents, which set it themselves; drop it"})
			}
		}
	})
	out := map[string]any{}
	for name, v := range s.Fill(w.Config).Members() {
		if !slices.Contains(ReservedFields(), name) {
			out[name] = v
		}
	}
	for _, x := range e.Refs {
		w.pin(p, x, x.field())
	}
	return out
}

// addedEnv plans an environment whose type is a plugin's: its config, and the files of its folder, programs among them.
func (p *planner) addedEnv(e *Entry, w *Write, t *Type) {
	w.Fields = p.addedConfig(e, w, t)
	w.Files = p.files(e, false)
	for i := range w.Files {
		w.Files[i].HashMode = true
	}
}

// addedArtifact plans an artifact whose type is a plugin's: its config, and the files of its folder.
func (p *planner) addedArtifact(e *Entry, w *Write, t *Type) {
	w.Fields = p.addedConfig(e, w, t)
	w.Files = p.files(e, false)
}

// InConfig are problems of what the toml of a planned write says, with their places: those that a plugin finds.
func (p *Plan) InConfig(w *Write, l diag.List) diag.List {
	name := groups[Envs].config
	if w.Kind == ref.Artifact {
		name = groups[Artifacts].config
	}
	out := make(diag.List, 0, len(l))
	for _, f := range l {
		f.Pos = diag.Pos{File: w.Label, Line: f.Pos.Line}
		f.Where = strings.TrimSuffix(name+": "+f.Where, ": ")
		f.Prefixed = true
		out = append(out, f)
	}
	return out
}
