package git

import (
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// reader takes the fields of a manifest out of its tree.
type reader struct {
	n       doc.Node
	l       *diag.List
	lenient bool // a wrong type is a warning, and the default counts
	fsys    fs.FS
	known   []string
}

func (r *reader) manifest(file string) *Manifest {
	m := &Manifest{File: file, Peer: r.lenient}
	m.ID, m.Name = r.required("id"), r.required("name")
	if m.ID != "" {
		if err := CheckID(m.ID); err != nil {
			r.fault(r.n.Get("id"), "id", err.Error(), "choose another id")
		}
	}
	m.Version = r.strOr("version", "0.0.0")
	m.Description = r.str("description")
	m.Enabled, m.Builtin, m.Test = r.flag("enabled"), r.flag("builtin"), r.flag("test")
	m.RequiresEnv = r.strs("requires_env")
	m.Capabilities, m.Config = r.object("capabilities"), r.object("config")
	m.Entrypoint = r.str("entrypoint")
	m.ConfigSection = r.strOr("config_section", m.ID)
	if slices.Contains(CoreSections(), m.ConfigSection) {
		r.warn(r.n.Get("config_section"), "config_section", fmt.Sprintf("%s is a section of the program's own and is not the plugin's", diag.Repr(m.ConfigSection)), "its settings are "+diag.Repr(m.ID))
		m.ConfigSection = m.ID
	}
	m.Secrets = r.strs("secrets")
	m.Settings, m.Tabs = r.settings(), r.tabs(m.ID)
	m.GuideURL = r.str("guide_url")
	m.Views = r.views()
	m.PublicPaths = r.paths("public_paths", m.ID)
	for _, v := range m.Views {
		p := v.Path
		if i := strings.IndexAny(p, "?#"); i >= 0 {
			p = p[:i]
		}
		if ownPath(p, m.ID) && !slices.Contains(m.PublicPaths, p) {
			m.PublicPaths = append(m.PublicPaths, p)
		}
	}
	m.FederationPaths = r.paths("federation_paths", m.ID)
	m.Emits, m.Subscribes = r.emits(), r.strs("subscribes")
	m.Requires = r.packages()
	m.Repository, m.Homepage = r.str("repository"), r.str("homepage")
	m.Supersedes = r.supersedes()
	if r.lenient {
		m.MinVersion = r.str("min_protoagent_version")
		return m
	}
	m.MinVersion = r.str("min_agentenv_version")
	m.Command, m.Bundles = r.strs("command"), r.strs("bundles")
	m.MCP = r.list("mcp")
	r.inside("bundles", m.Bundles)
	for name, v := range r.n.Members() {
		if slices.Contains(r.known, name) {
			continue
		}
		fix := "remove it"
		if near := diag.Nearest(name, r.known); near != "" {
			fix = "did you mean " + near + "?"
		}
		r.l.Add(diag.Problem{Pos: v.KeyPos(), Where: name, Code: "manifest.unknown", Severity: diag.Warning, Summary: "is no field of a plugin manifest", Fix: fix})
	}
	return m
}

func (r *reader) fault(n doc.Node, where, why, fix string) {
	r.l.Add(diag.Problem{Pos: r.pos(n), Where: where, Code: "manifest.value", Summary: why, Fix: fix})
}

func (r *reader) warn(n doc.Node, where, why, fix string) {
	r.l.Add(diag.Problem{Pos: r.pos(n), Where: where, Code: "manifest.value", Severity: diag.Warning, Summary: why, Fix: fix})
}

// pos is where a value is, or for an absent one the whole file.
func (r *reader) pos(n doc.Node) diag.Pos {
	if n.Exists() {
		return n.Pos()
	}
	return diag.Pos{File: r.n.Pos().File, Line: r.n.Pos().Line}
}

// mistyped tells of a value of a wrong type.
func (r *reader) mistyped(n doc.Node, where, want string) {
	p := diag.Problem{Pos: r.pos(n), Where: where, Code: "manifest.type", Summary: fmt.Sprintf("is %s and no %s", n.Kind(), want)}
	if r.lenient {
		p.Severity, p.Fix = diag.Warning, "it is left out"
	} else {
		p.Fix = "write a " + want
	}
	r.l.Add(p)
}

// get is a field; null counts as absent.
func (r *reader) get(name string) doc.Node {
	r.known = append(r.known, name)
	n := r.n.Get(name)
	if n.IsNull() {
		return doc.Node{}
	}
	return n
}

func (r *reader) required(name string) string {
	n := r.get(name)
	s, ok := n.Str()
	switch {
	case !n.Exists():
		r.fault(doc.Node{}, name, "is missing", "every plugin has an id and a name")
	case !ok:
		r.fault(n, name, fmt.Sprintf("is %s and no string", n.Kind()), "put it in quotes")
	case strings.TrimSpace(s) == "":
		r.fault(n, name, "is empty", "every plugin has an id and a name")
	}
	return s
}

func (r *reader) str(name string) string { return r.strOr(name, "") }

func (r *reader) strOr(name, def string) string {
	n := r.get(name)
	if !n.Exists() {
		return def
	}
	s, ok := text(n)
	if !ok {
		r.mistyped(n, name, "string")
		return def
	}
	if s == "" {
		return def
	}
	return s
}

// text is a string; numbers are taken as they are spelt, so that `version: 1.0` is "1.0".
func text(n doc.Node) (string, bool) {
	switch n.Kind() {
	case doc.String, doc.Int, doc.Float, doc.Datetime:
		return n.Text(), true
	default:
		return "", false
	}
}

func (r *reader) flag(name string) bool {
	n := r.get(name)
	if !n.Exists() {
		return false
	}
	b, ok := n.Bool()
	if !ok {
		r.mistyped(n, name, "boolean")
	}
	return b
}

func (r *reader) object(name string) doc.Node { return r.typed(name, doc.Object, "mapping") }
func (r *reader) list(name string) doc.Node   { return r.typed(name, doc.Array, "list") }

// typed is a field of one kind; absent when it has another.
func (r *reader) typed(name string, k doc.Kind, word string) doc.Node {
	n := r.get(name)
	if n.Exists() && n.Kind() != k {
		r.mistyped(n, name, word)
		return doc.Node{}
	}
	return n
}

func (r *reader) strs(name string) []string {
	var out []string
	for i, n := range r.list(name).Items() {
		s, ok := text(n)
		if !ok {
			r.mistyped(n, fmt.Sprintf("%s[%d]", name, i), "string")
			continue
		}
		out = append(out, s)
	}
	return out
}

// objects yields the mappings of a list, with their places.
func (r *reader) objects(name string) func(yield func(string, doc.Node) bool) {
	return func(yield func(string, doc.Node) bool) {
		for i, n := range r.list(name).Items() {
			where := fmt.Sprintf("%s[%d]", name, i)
			if n.Kind() != doc.Object {
				r.mistyped(n, where, "mapping")
				continue
			}
			if !yield(where, n) {
				return
			}
		}
	}
}

func (r *reader) settings() []Setting {
	var out []Setting
	for where, n := range r.objects("settings") {
		s := Setting{Key: n.Get("key").Text(), Label: n.Get("label").Text(), Type: n.Get("type").Text(), Description: n.Get("description").Text(), Node: n}
		s.Required, _ = n.Get("required").Bool()
		if s.Key == "" {
			r.warn(n, where, "has no key and is left out", "")
			continue
		}
		out = append(out, s)
	}
	return out
}

func (r *reader) tabs(id string) []Tab {
	var out []Tab
	for where, n := range r.objects("settings_tabs") {
		t := Tab{n.Get("id").Text(), n.Get("label").Text(), n.Get("path").Text()}
		if t.ID == "" || t.Path != "" && !strings.HasPrefix(t.Path, "/plugins/"+id+"/") {
			r.warn(n, where, "has no id, or a path outside /plugins/"+id+"/, and is left out", "")
			continue
		}
		out = append(out, t)
	}
	return out
}

func (r *reader) views() []View {
	var out []View
	for where, n := range r.objects("views") {
		v := View{n.Get("id").Text(), n.Get("label").Text(), n.Get("icon").Text(), n.Get("path").Text(), n.Get("slot").Text(), n}
		if v.ID == "" || v.Path == "" {
			r.warn(n, where, "has no id or no path and is left out", "")
			continue
		}
		if u, err := url.Parse(v.Path); err != nil || u.IsAbs() || u.Host != "" {
			r.warn(n.Get("path"), where+".path", "leads to another site", "a view is a page of the plugin's own")
		}
		out = append(out, v)
	}
	return out
}

// paths reads prefixes of the plugin's own routes; others are left out.
func (r *reader) paths(name, id string) []string {
	var out []string
	for i, n := range r.list(name).Items() {
		p, ok := n.Str()
		if !ok || !ownPath(p, id) {
			r.warn(n, fmt.Sprintf("%s[%d]", name, i), fmt.Sprintf("%s is not below /plugins/%s/ or /api/plugins/%s/ and is left out", diag.Repr(p), id, id), "")
			continue
		}
		out = append(out, p)
	}
	return out
}

// ownPath tells a path of a plugin's own, spelt in the only way.
func ownPath(p, id string) bool {
	if !strings.HasPrefix(p, "/plugins/"+id+"/") && !strings.HasPrefix(p, "/api/plugins/"+id+"/") || strings.ContainsAny(p, "%\\?#") {
		return false
	}
	rest := strings.TrimSuffix(p[1:], "/")
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func (r *reader) emits() []Topic {
	var out []Topic
	for i, n := range r.list("emits").Items() {
		where := fmt.Sprintf("emits[%d]", i)
		if s, ok := n.Str(); ok {
			out = append(out, Topic{Topic: s})
			continue
		}
		t := Topic{Topic: n.Get("topic").Text(), Summary: n.Get("summary").Text()}
		if n.Kind() != doc.Object || t.Topic == "" {
			r.warn(n, where, "names no topic and is left out", "")
			continue
		}
		t.Schema = r.schema(n.Get("schema"), where+".schema")
		out = append(out, t)
	}
	return out
}

// schema is a topic's: a mapping, or the name of a file of the plugin.
func (r *reader) schema(n doc.Node, where string) doc.Node {
	file, isName := n.Str()
	if ref, ok := n.Get("$ref").Str(); ok {
		file, isName = ref, true
	}
	switch {
	case n.IsNull():
		return doc.Node{}
	case !isName && n.Kind() == doc.Object:
		return n
	case !isName:
		r.warn(n, where, "is neither a schema nor the name of a file, and is left out", "")
		return doc.Node{}
	case !fs.ValidPath(file):
		r.warn(n, where, fmt.Sprintf("%s leads out of the plugin and is left out", diag.Repr(file)), "")
		return doc.Node{}
	}
	src, err := readBounded(r.fsys, file)
	if err != nil {
		r.warn(n, where, fmt.Sprintf("%s can't be read and is left out: %s", diag.Repr(file), cause(err)), "")
		return doc.Node{}
	}
	t, l := doc.Parse(file, src)
	if l.HasErrors() {
		r.warn(n, where, fmt.Sprintf("%s can't be read and is left out", diag.Repr(file)), "")
		return doc.Node{}
	}
	return t.Root()
}

func (r *reader) packages() []Package {
	var out []Package
	for i, n := range r.list("requires_pip").Items() {
		where := fmt.Sprintf("requires_pip[%d]", i)
		p := Package{Spec: n.Text(), Scope: "runtime"}
		if n.Kind() == doc.Object {
			p.Spec = n.Get("pkg").Text()
			p.Optional, _ = n.Get("optional").Bool()
			if s := n.Get("scope").Text(); s == "host" {
				p.Scope = s
			} else if s != "" && s != "runtime" {
				r.warn(n.Get("scope"), where+".scope", fmt.Sprintf("%s is no scope; it counts as runtime", diag.Repr(s)), "")
			}
		}
		if strings.TrimSpace(p.Spec) == "" {
			r.warn(n, where, "names no package and is left out", "")
			continue
		}
		out = append(out, p)
	}
	return out
}

func (r *reader) supersedes() []Source {
	var out []Source
	for i, n := range r.list("supersedes").Items() {
		s, err := ParseSource(n.Text())
		if err != nil {
			r.warn(n, fmt.Sprintf("supersedes[%d]", i), err.Error(), "")
			continue
		}
		out = append(out, s)
	}
	return out
}

// inside refuses names that lead out of the plugin.
func (r *reader) inside(name string, values []string) {
	for i, v := range values {
		if !fs.ValidPath(v) {
			r.fault(r.n.Get(name).At(i), fmt.Sprintf("%s[%d]", name, i), diag.Repr(v)+" leads out of the plugin", "name a folder in it")
		}
	}
}
