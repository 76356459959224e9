package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Resolve ties every name in the bundle to what it means, and reports all that mean nothing or the wrong thing. It covers the whole bundle, whatever
// will be selected, and reads no store: names that a store may hold are left to Plan. It is called once, after a Parse without errors.
func (b *Bundle) Resolve() diag.List {
	r := &resolver{b: b}
	b.makeIndex()
	toRun := false
	for _, e := range b.Entries {
		toRun = toRun || e.Group == Tasks || e.Group == Evals
		r.entry(e)
	}
	if !toRun && !b.Source.Part {
		r.l.Add(diag.Problem{Code: "bundle.nothing", Summary: "this bundle has no tasks or evals to run", Fix: "write tasks/<name>.json", Prefixed: true})
	}
	return r.l
}

type resolver struct {
	b *Bundle
	l diag.List
}

// entry resolves an entry, once.
func (r *resolver) entry(e *Entry) {
	if e.tied {
		return
	}
	e.tied = true
	switch e.Group {
	case Envs:
		r.env(e)
	case Agents:
		r.agent(e)
	case Artifacts:
		r.artifact(e)
	case Skills:
	case Tasks:
		r.task(e)
	case Evals:
		r.eval(e)
	}
}

func (r *resolver) artifact(e *Entry) {
	switch e.Type {
	case artifact.Environment:
		if n := e.Config.Get("file"); n.Exists() {
			r.reference(e, "file", n, ref.Artifact, artifact.File)
		}
	case artifact.EnvironmentUniverse:
		for i, n := range e.Config.Get("environment_artifacts").Items() {
			r.reference(e, fmt.Sprintf("environment_artifacts[%d]", i), n, ref.Artifact, artifact.Environment)
		}
	case artifact.DockerImage:
		r.imageArtifact(e)
	default:
		if !artifact.Known(e.Type) {
			r.addedType(e, r.b.options.ArtifactTypes, codeArtifactType, artifact.Types())
		}
	}
}

func (r *resolver) eval(e *Entry) {
	seen := map[string]string{}
	for i, n := range e.Config.Get("tasks").Items() {
		where := fmt.Sprintf("tasks[%d]", i)
		x := r.reference(e, where, n, ref.Task, "")
		if x == nil {
			continue
		}
		if first, ok := seen[x.ID]; ok {
			r.l.Add(e.problem(n, where, "eval.twice", "the same task as %s; list it once", first))
			continue
		}
		seen[x.ID] = where
	}
}

// reference resolves a field of a toml: an id or name, or a table of one and a version. It returns nil when there is a problem, which is recorded.
func (r *resolver) reference(e *Entry, where string, n doc.Node, k ref.Kind, typ string) *Reference {
	name, at, version := n, where, doc.Node{}
	if n.Kind() == doc.Object {
		if name, version = n.Get(string(k)), n.Get("version"); name.Exists() {
			at += "." + string(k)
		}
		extra, _ := unknownKeys(n, string(k), "version")
		v, isInt := version.Int()
		if extra != "" || version.Exists() && (!isInt || v < 1) {
			name = doc.Node{}
		}
	}
	text, ok := name.Str()
	if !ok || text == "" {
		r.l.Add(e.problem(n, at, "ref.form", "expected an id or { %s = \"<id>\", version = <n> }, the version optional, not %s", k, doc.Show(n)))
		return nil
	}
	x := &Reference{Where: at, Pos: diag.Pos{File: e.Label, Line: line(n)}, Kind: k, Type: typ, node: name}
	if !r.target(x, text, version) {
		return nil
	}
	e.Refs = append(e.Refs, x)
	return x
}

// target finds what text means: an entry of the bundle, or something that a store may hold.
func (r *resolver) target(x *Reference, text string, version doc.Node) bool {
	fault := func(code, format string, args ...any) bool {
		r.l.Add(diag.Problem{Pos: x.Pos, Where: x.Where, Code: code, Summary: fmt.Sprintf(format, args...), Prefixed: true})
		return false
	}
	if own := r.b.Find(x.Kind, text); own != nil {
		x.ID, x.Entry = own.ID, own
		switch {
		case version.Exists() && !version.IsNull():
			return fault("ref.pin", "%s is defined in this bundle, so it has no fixed version; drop the pin", diag.Repr(text))
		case x.Type != "" && own.Type != x.Type:
			return fault("ref.type", "%s is this bundle's %s, but this field takes %s", diag.Repr(text), diag.Clean(own.Type), x.Type)
		}
		return true
	}
	if id, ok := agent.Unstored(text); ok && x.Kind == ref.Agent {
		x.ID, x.builtin = id, true
		if version.Exists() && !version.IsNull() {
			return fault("ref.pin", "%s comes with the program, so it has no versions; drop the pin", diag.Repr(text))
		}
		return true
	}
	if why := r.b.refusal(x.Kind, text); why != "" {
		return fault("ref.unknown", "%s", why)
	}
	x.ID = ref.NFC(text)
	from, own, why := r.pull(x.Kind, x.ID)
	switch {
	case why != "":
		return fault("ref.pulled", "%s", why)
	case own != nil && version.Exists() && !version.IsNull():
		return fault("ref.pin", "%s comes with the installed bundle %s, so it has no fixed version; drop the pin", diag.Repr(text), from)
	case own != nil && x.Type != "" && own.Type != x.Type:
		return fault("ref.type", "%s is the %s of the installed bundle %s, but this field takes %s", diag.Repr(text), diag.Clean(own.Type), from, x.Type)
	case own != nil:
		x.Entry = own
		return true
	}
	if v, ok := version.Int(); ok {
		x.Version = int(v)
	}
	return true
}

// list joins words by commas.
func list(words []string) string {
	var out strings.Builder
	for i, w := range words {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(w)
	}
	return out.String()
}

// quoted are the members of a set, sorted, between quotes.
func quoted(set map[string]bool) []string {
	out := slices.Sorted(maps.Keys(set))
	for i := range out {
		out[i] = diag.Repr(out[i])
	}
	return out
}
