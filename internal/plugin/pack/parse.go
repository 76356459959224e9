package pack

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/plugin/git"
)

// Parse reads a manifest. It is nil where the text holds no mapping; entries that can't be meant are left out, and the list says why.
func Parse(name string, src []byte) (*Manifest, diag.List) {
	t, l := doc.ParseYAML(name, src)
	if t == nil {
		return nil, l
	}
	if t.Root().Kind() != doc.Object {
		l.Add(diag.Problem{Pos: diag.Pos{File: name, Line: 1}, Code: "pack.kind", Summary: "is no mapping", Fix: "write id and plugins, a line each"})
		return nil, l
	}
	r := &reader{root: t.Root(), l: &l}
	m := &Manifest{File: name}
	m.ID = r.id()
	m.Name, m.Description, m.VerifiedAgainst = r.text("name"), r.text("description"), r.text("verified_against")
	m.Members = r.members()
	for i, n := range r.list("enabled") {
		id, ok := n.Str()
		if !ok || git.CheckID(id) != nil {
			r.fault(n, fmt.Sprintf("enabled[%d]", i), diag.Clean(doc.Show(n))+" is no id of a plugin", "name members of plugins")
			continue
		}
		m.Enabled = append(m.Enabled, id)
	}
	m.Config, m.ConfigNode = r.config(), r.root.Get("config")
	m.Servers, m.ServersNode = Servers(r.root.Get("mcp"), "mcp", &l), r.root.Get("mcp")
	m.Secrets, m.SecretsNode = r.secrets(), r.root.Get("secrets")
	m.Inputs, m.InputsNode = r.inputs(), r.root.Get("config_inputs")
	m.Archetype, m.ArchetypeNode = r.archetype(), r.root.Get("archetype")
	r.unknown(r.root, "", "id", "name", "description", "plugins", "enabled", "config", "mcp", "secrets", "config_inputs", "archetype", "verified_against")
	return m, l
}

type reader struct {
	root doc.Node
	l    *diag.List
}

func (r *reader) add(s diag.Severity, n doc.Node, where, why, fix string) {
	pos := n.Pos()
	if !n.Exists() {
		pos = diag.Pos{File: r.root.Pos().File, Line: 1}
	}
	r.l.Add(diag.Problem{Pos: pos, Where: where, Code: "pack.value", Severity: s, Summary: why, Fix: fix})
}

func (r *reader) fault(n doc.Node, where, why, fix string) { r.add(diag.Error, n, where, why, fix) }
func (r *reader) warn(n doc.Node, where, why, fix string)  { r.add(diag.Warning, n, where, why, fix) }

// unknown warns of members that nobody reads.
func (r *reader) unknown(n doc.Node, at string, known ...string) {
	for name, v := range n.Members() {
		if slices.Contains(known, name) {
			continue
		}
		fix := "it is not read"
		if near := diag.Nearest(name, known); near != "" {
			fix = "did you mean " + near + "?"
		}
		r.warn(v, at+diag.Clean(name), "is no field of a plugin bundle", fix)
	}
}

// scalar is a text; numbers are taken as they are spelt, so that `ref: 1.0` is "1.0".
func scalar(n doc.Node) (string, bool) {
	switch n.Kind() {
	case doc.String, doc.Int, doc.Float, doc.Datetime:
		return n.Text(), true
	default:
		return "", false
	}
}

func (r *reader) text(name string) string { return r.textOf(r.root, name, name) }

func (r *reader) textOf(n doc.Node, name, where string) string {
	v := n.Get(name)
	s, ok := scalar(v)
	if v.Exists() && !v.IsNull() && !ok {
		r.fault(v, where, fmt.Sprintf("is %s and no text", v.Kind()), "write a text")
	}
	return s
}

func (r *reader) flagOf(n doc.Node, name, where string) bool {
	v := n.Get(name)
	b, ok := v.Bool()
	if v.Exists() && !v.IsNull() && !ok {
		r.fault(v, where, fmt.Sprintf("is %s and no boolean", v.Kind()), "write true or false")
	}
	return b
}

// list is a list's elements; none when the member is absent or null.
func (r *reader) list(name string) []doc.Node { return r.listOf(r.root, name, name) }

func (r *reader) listOf(n doc.Node, name, where string) []doc.Node {
	v := n.Get(name)
	if !v.IsNull() && v.Kind() != doc.Array {
		r.fault(v, where, fmt.Sprintf("is %s and no list", v.Kind()), "write a list")
		return nil
	}
	var out []doc.Node
	for _, e := range v.Items() {
		out = append(out, e)
	}
	return out
}

// objects yields the mappings of a list with their places.
func (r *reader) objects(name string) func(func(string, doc.Node) bool) {
	return func(yield func(string, doc.Node) bool) {
		for i, n := range r.list(name) {
			where := fmt.Sprintf("%s[%d]", name, i)
			if n.Kind() != doc.Object {
				r.fault(n, where, fmt.Sprintf("is %s and no mapping", n.Kind()), "write its keys and values")
				continue
			}
			if !yield(where, n) {
				return
			}
		}
	}
}

func (r *reader) id() string {
	n := r.root.Get("id")
	s, ok := n.Str()
	switch {
	case n.IsNull():
		r.fault(n, "id", "is missing", "every plugin bundle has an id")
	case !ok:
		r.fault(n, "id", fmt.Sprintf("is %s and no string", n.Kind()), "put it in quotes")
	case slices.Contains(git.CoreSections(), strings.ToLower(s)):
		r.fault(n, "id", diag.Repr(s)+" is a section of the program's own", "choose another id")
	default:
		if err := git.CheckID(s); err != nil {
			r.fault(n, "id", err.Error(), "choose another id")
			return ""
		}
		return s
	}
	return ""
}

// members reads plugins. One that is there twice, from one source at one ref, counts once.
func (r *reader) members() []Member {
	n := r.root.Get("plugins")
	if n.IsNull() {
		r.fault(n, "plugins", "is missing", "list its members; an empty list is [] ")
		return nil
	}
	var out []Member
	for where, n := range r.objects("plugins") {
		m, ok := r.member(where, n)
		if !ok {
			continue
		}
		i := slices.IndexFunc(out, func(o Member) bool { return o.ID == m.ID })
		switch {
		case i < 0:
			out = append(out, m)
		case out[i].Builtin != m.Builtin || !out[i].Source.Same(m.Source):
			r.fault(n, where, fmt.Sprintf("%s is there already, from another source (line %d)", diag.Repr(m.ID), out[i].Pos.Line), "give each plugin one line")
		case out[i].Ref != m.Ref:
			r.fault(n, where, fmt.Sprintf("%s is there already, at another ref (line %d)", diag.Repr(m.ID), out[i].Pos.Line), "give each plugin one line")
		}
	}
	return out
}

func (r *reader) member(where string, n doc.Node) (Member, bool) {
	before := len(r.l.Of(diag.Error))
	m := Member{Pos: n.Pos(), Builtin: r.flagOf(n, "builtin", where+".builtin")}
	idNode := n.Get("id")
	id, ok := idNode.Str()
	if err := git.CheckID(id); !ok || err != nil {
		why := "is missing"
		if idNode.Exists() {
			why = diag.Clean(doc.Show(idNode)) + " is no id of a plugin"
		}
		r.fault(idNode, where+".id", why, "write the id of the plugin's own manifest")
	}
	m.ID = id
	ref := n.Get("ref")
	text, ok := scalar(ref)
	switch {
	case !ref.Exists():
	case !ok:
		r.fault(ref, where+".ref", fmt.Sprintf("is %s and names no branch, tag or commit", ref.Kind()), "write it in quotes, or leave it out for the default branch")
	default:
		if err := git.CheckRef(text); err != nil {
			r.fault(ref, where+".ref", err.Error(), "")
		}
		m.Ref = text
	}
	url := n.Get("url")
	m.URL, ok = url.Str()
	switch {
	case m.Builtin && url.IsNull():
	case !ok || m.URL == "":
		r.fault(n, where+".url", "is missing", "write where the plugin's repository is, or builtin: true where it comes with the program")
	default:
		var err error
		if m.Source, err = git.ParseSource(m.URL); err != nil {
			r.fault(url, where+".url", err.Error(), "")
		}
	}
	r.unknown(n, where+".", "id", "url", "ref", "builtin")
	return m, len(r.l.Of(diag.Error)) == before
}

// config reads sections; those of the program itself are refused, and so is what isn't a mapping.
func (r *reader) config() doc.Node {
	n := r.root.Get("config")
	if n.IsNull() {
		return doc.Build(map[string]any{})
	}
	if n.Kind() != doc.Object {
		r.fault(n, "config", fmt.Sprintf("is %s and no mapping", n.Kind()), "write section: {key: value}")
		return doc.Build(map[string]any{})
	}
	return n.Map(func(path string, v doc.Node) (doc.Node, bool) {
		if strings.ContainsAny(path, ".[") { // inside of a section
			return v, true
		}
		where := "config." + diag.Clean(path)
		switch {
		case slices.Contains(git.CoreSections(), strings.ToLower(path)):
			r.fault(v, where, "is a section of the program's own, which no bundle may set", "remove it; config holds the settings of the bundle's members")
		case git.CheckID(path) != nil:
			r.fault(v, where, "is no name of a section", "name a member, or its config_section")
		case v.Kind() != doc.Object:
			r.warn(v, where, fmt.Sprintf("is %s and no mapping, and is not read", v.Kind()), "write key: value")
		default:
			return v, true
		}
		return doc.Node{}, false
	})
}

var secretKey = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_-]*$`)

func (r *reader) secrets() []Secret {
	var out []Secret
	for where, n := range r.objects("secrets") {
		s := Secret{
			Key: n.Get("key").Text(), Label: r.textOf(n, "label", where+".label"), Placeholder: r.textOf(n, "placeholder", where+".placeholder"),
			Required: r.flagOf(n, "required", where+".required"), Pos: n.Pos(),
		}
		switch {
		case !secretKey().MatchString(s.Key):
			r.fault(n, where+".key", diag.Repr(s.Key)+" is no key", "write letters, digits, dashes and underscores")
			continue
		case slices.ContainsFunc(out, func(o Secret) bool { return o.Key == s.Key }):
			r.fault(n, where+".key", diag.Repr(s.Key)+" is there twice", "remove one")
			continue
		}
		if s.Label == "" {
			s.Label = s.Key
		}
		out = append(out, s)
	}
	return out
}

func (r *reader) archetype() Archetype {
	n := r.root.Get("archetype")
	if n.IsNull() {
		return Archetype{}
	}
	if n.Kind() != doc.Object {
		r.fault(n, "archetype", fmt.Sprintf("is %s and no mapping", n.Kind()), "write label: …")
		return Archetype{}
	}
	t := func(name string) string { return r.textOf(n, name, "archetype."+name) }
	a := Archetype{Label: t("label"), Icon: t("icon"), Blurb: t("blurb"), Soul: t("soul"), SoulPreset: t("soul_preset"), Tier: t("tier")}
	if a.SoulPreset != "" && git.CheckID(a.SoulPreset) != nil {
		r.warn(n.Get("soul_preset"), "archetype.soul_preset", diag.Repr(a.SoulPreset)+" is no name of a soul and is not read", "write the text as soul")
		a.SoulPreset = ""
	}
	if a.Tier != "" && a.Tier != "standard" && a.Tier != "advanced" {
		r.warn(n.Get("tier"), "archetype.tier", diag.Repr(a.Tier)+" is neither standard nor advanced", "standard counts")
		a.Tier = ""
	}
	if a.Tier == "" {
		a.Tier = "standard"
	}
	strs := func(name string) (out []string) {
		for i, v := range r.listOf(n, name, "archetype."+name) {
			s, ok := v.Str()
			if !ok {
				r.fault(v, fmt.Sprintf("archetype.%s[%d]", name, i), fmt.Sprintf("is %s and no text", v.Kind()), "write a text")
				continue
			}
			out = append(out, s)
		}
		return out
	}
	a.Requires, a.RequiresTools = strs("requires"), strs("requires_tools")
	r.unknown(n, "archetype.", "label", "icon", "blurb", "soul", "soul_preset", "tier", "requires", "requires_tools")
	return a
}
