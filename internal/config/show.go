package config

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Layers of a setting, lowest first.
const (
	layerDefault = "default"
	layerFile    = "file"
	layerEnv     = "env"
)

// Layer is one place that sets something. Where is a variable, or a file and line. Secrets in Value are masked.
type Layer struct {
	Kind  string `json:"kind"`
	Where string `json:"where,omitempty"`
	Value any    `json:"value"`
}

// Section is one part of a Report.
type Section struct {
	Name     string   `json:"name"`
	Winner   *Layer   `json:"winner"`   // the highest place that sets anything of it; nil when nothing does
	Shadowed []Layer  `json:"shadowed"` // the places below it
	Impl     string   `json:"impl,omitempty"`
	Config   any      `json:"config,omitempty"`  // of a class table, with defaults
	Value    any      `json:"value,omitempty"`   // of every other section, with defaults
	Ignored  []string `json:"ignored,omitempty"` // keys that an untrusted file may not set
	Error    string   `json:"error,omitempty"`
}

// Report is what `config show` prints. It is whole also when the file is broken.
type Report struct {
	FormatVersion int       `json:"format_version"`
	ConfigPath    string    `json:"config_path,omitempty"`
	ConfigSource  string    `json:"config_source"` // env, walk-up, none or error
	SearchRoot    string    `json:"search_root"`
	StateRoot     string    `json:"state_root"`
	Trusted       bool      `json:"trusted"`
	Error         string    `json:"error,omitempty"`
	Warnings      []string  `json:"warnings"`
	Sections      []Section `json:"sections"`
	Plugins       []Section `json:"plugins"`
}

// Show reports every section; with names, those alone. An unknown name is an error that says which there are.
func (c *Config) Show(names ...string) (Report, error) {
	r := Report{
		FormatVersion: 1, ConfigPath: c.file.path, ConfigSource: c.file.source, SearchRoot: c.file.search, StateRoot: c.state,
		Trusted: c.file.doubt == "", Warnings: []string{}, Sections: []Section{}, Plugins: []Section{},
	}
	if c.list.HasErrors() {
		r.Error = c.list.Err().Error()
	}
	for _, w := range c.list.Of(diag.Warning) {
		r.Warnings = append(r.Warnings, w.String())
	}
	wanted := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	known := []string{"plugins"}
	for _, s := range sections() {
		known = append(known, s.name)
		if wanted(s.name) {
			r.Sections = append(r.Sections, c.section(s))
		}
	}
	if wanted("plugins") {
		for name := range at(c.tree, "plugins").Members() {
			r.Plugins = append(r.Plugins, c.section(section{name: name, path: []string{"plugins", name}}))
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return r, unknownSection(n, known)
		}
	}
	return r, nil
}

func unknownSection(name string, known []string) error {
	slices.Sort(known)
	fix := ""
	if near := diag.Nearest(name, known); near != "" {
		fix = fmt.Sprintf("; did you mean %s?", near)
	}
	return fmt.Errorf("no section is called %s%s; there are %s", diag.Repr(name), fix, strings.Join(known, ", "))
}

func (c *Config) section(s section) Section {
	out := Section{Name: s.name, Shadowed: []Layer{}, Error: c.errorsAt(s.path)}
	layers := c.layers(s.path)
	if len(layers) > 0 {
		out.Winner, out.Shadowed = &layers[0], append(out.Shadowed, layers[1:]...)
	}
	for _, h := range c.hidden {
		if below(h.path, s.path...) || below(s.path, h.path...) {
			out.Ignored = append(out.Ignored, h.key)
		}
	}
	if f := c.field(s.path...); f != nil && slices.Contains(f.Type.Kinds, doc.Object) && slices.Contains(f.Type.Kinds, doc.String) {
		n := c.value(s.path...)
		out.Impl = Local
		if impl := n.Get("impl").Text() + n.Text(); impl != "" {
			out.Impl = maskText(impl)
		}
		out.Config = mask(c.filled(append(slices.Clip(s.path), "config")), append(slices.Clip(s.path), "config"))
		return out
	}
	if n := c.filled(s.path); n.Exists() {
		out.Value = mask(n, s.path)
	}
	return out
}

// filled is what counts at a path, with defaults.
func (c *Config) filled(path []string) doc.Node {
	n := c.value(path...)
	if local := c.localSchema(path); local != nil {
		return local.Fill(objectOr(n))
	}
	f := c.field(path...)
	switch {
	case f == nil:
		return n
	case f.Type.Fields != nil && !slices.Contains(f.Type.Kinds, doc.String):
		return f.Type.Fields.Fill(objectOr(n))
	case !n.Exists() && f.Default != nil:
		return doc.Build(f.Default)
	default:
		return n
	}
}

// localSchema is the schema of the `config` of the program's own class; nil elsewhere, and when another class is set up.
func (c *Config) localSchema(path []string) *doc.Schema {
	if len(path) == 0 || path[len(path)-1] != "config" {
		return nil
	}
	owner := path[:len(path)-1]
	if n := c.value(owner...); n.Kind() == doc.Object && n.Get("impl").Exists() && n.Get("impl").Text() != Local {
		return nil
	}
	switch strings.Join(owner, ".") {
	case "stores.document":
		return localDocument(c.state)
	case "stores.object":
		return localObject(c.state)
	case "stores.image":
		return localImage()
	case "stores.secret":
		return localSecret()
	case "runner":
		return localRunner()
	}
	return nil
}

// layers are the places that set what is at path or below it, highest first.
func (c *Config) layers(path []string) []Layer {
	var out []Layer
	for _, s := range sections() {
		if v, ok := c.set(s.whole); s.whole != "" && ok && (below(path, s.path...) || below(s.path, path...)) {
			out = append(out, Layer{layerEnv, s.whole, maskText(v)})
		}
	}
	vars := variables()
	for _, name := range sortedKeys(vars) {
		if v, ok := c.set(name); ok && below(vars[name], path...) {
			out = append(out, Layer{layerEnv, name, mask(doc.Build(v), vars[name])})
		}
	}
	if n := at(c.kept, path...); n.Exists() {
		out = append(out, Layer{layerFile, at(c.tree, path...).KeyPos().String(), mask(n, path)})
	}
	if def, ok := c.defaults(path); ok {
		out = append(out, Layer{layerDefault, "", mask(def, path)})
	}
	return out
}

// defaults are what the program sets at path when nobody else does.
func (c *Config) defaults(path []string) (doc.Node, bool) {
	for i := range path {
		if local := c.localSchema(path[:i+1]); local != nil {
			n := at(local.Fill(doc.Build(map[string]any{})), path[i+1:]...)
			return n, n.Exists()
		}
	}
	f := c.field(path...)
	switch {
	case f == nil:
		return doc.Node{}, false
	case f.Default != nil:
		return doc.Build(f.Default), true
	case f.Type.Fields != nil:
		n := f.Type.Fields.Fill(doc.Build(map[string]any{}))
		return n, n.Len() > 0
	}
	return doc.Node{}, false
}

// errorsAt are the errors at or below a path, a line each.
func (c *Config) errorsAt(path []string) string {
	top := key(path)
	var lines []string
	for _, p := range c.list.Of(diag.Error) {
		if p.Where == top || strings.HasPrefix(p.Where, top+".") || strings.HasPrefix(p.Where, top+"[") {
			lines = append(lines, p.String())
		}
	}
	return strings.Join(lines, "\n")
}

// Explanation is what `config explain` prints: where the value at a path comes from.
type Explanation struct {
	FormatVersion int           `json:"format_version,omitempty"`
	Path          string        `json:"path"`
	About         string        `json:"about,omitempty"` // what it is for
	Value         any           `json:"value"`           // what counts, with defaults, secrets masked
	Layers        []Layer       `json:"layers"`          // the places that set it, the one that counts first
	Ignored       []string      `json:"ignored,omitempty"`
	Error         string        `json:"error,omitempty"`
	Inside        []Explanation `json:"inside,omitempty"` // of a table: its keys
}

// Explain answers for a section by its name, a key, a table, or a table of tables ("stores"), each as TOML spells it.
func (c *Config) Explain(path string) (Explanation, error) {
	names, err := split(path)
	if err != nil {
		return Explanation{}, err
	}
	for _, s := range sections() {
		if names[0] == s.name {
			names = append(slices.Clip(s.path), names[1:]...)
			break
		}
	}
	if names[0] == "plugins" && len(names) > 1 {
		for name := range at(c.tree, "plugins").Members() {
			if canonical(name) == canonical(names[1]) {
				names[1] = name
			}
		}
	}
	if err := c.known(names); err != nil {
		return Explanation{}, err
	}
	e := c.explain(names, true)
	e.FormatVersion = 1
	return e, nil
}

func (c *Config) explain(path []string, deep bool) Explanation {
	e := Explanation{Path: key(path), Layers: c.layers(path), Error: c.errorsAt(path)}
	if e.Layers == nil {
		e.Layers = []Layer{}
	}
	if f := c.field(path...); f != nil {
		e.About = f.Doc
	}
	if n := c.filled(path); n.Exists() {
		e.Value = mask(n, path)
	} else if def, ok := c.defaults(path); ok {
		e.Value = mask(def, path)
	}
	for _, h := range c.hidden {
		if below(h.path, path...) || below(path, h.path...) {
			e.Ignored = append(e.Ignored, fmt.Sprintf("%s (line %d): %s", h.key, h.pos.Line, c.file.doubt))
		}
	}
	if !deep {
		return e
	}
	for _, name := range c.members(path) {
		e.Inside = append(e.Inside, c.explain(append(slices.Clip(path), name), false))
	}
	return e
}

// members are the keys at path: those that are known, then those that are set.
func (c *Config) members(path []string) []string {
	var out []string
	if local := c.localSchema(path); local != nil {
		for _, f := range local.Fields {
			out = append(out, f.Name)
		}
	} else if f := c.field(path...); f != nil && f.Type.Fields != nil {
		for _, f := range f.Type.Fields.Fields {
			out = append(out, f.Name)
		}
	}
	for name := range c.value(path...).Members() {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// known refuses a path that neither the program nor the file knows.
func (c *Config) known(path []string) error {
	for i := range path {
		if at(c.tree, path[:i+1]...).Exists() || c.value(path[:i+1]...).Exists() || slices.Contains(c.members(path[:i]), path[i]) {
			continue
		}
		if i == 0 {
			return unknownSection(path[0], append(c.top(), "stores", "plugins"))
		}
		names := c.members(path[:i])
		slices.Sort(names)
		switch near := diag.Nearest(path[i], names); {
		case near != "":
			return fmt.Errorf("nothing is called %s in %s; did you mean %s?", diag.Repr(path[i]), key(path[:i]), near)
		case len(names) > 0:
			return fmt.Errorf("nothing is called %s in %s; there are %s", diag.Repr(path[i]), key(path[:i]), strings.Join(names, ", "))
		default:
			return fmt.Errorf("nothing is called %s in %s", diag.Repr(path[i]), key(path[:i]))
		}
	}
	return nil
}

func (c *Config) top() []string {
	var out []string
	for _, s := range sections() {
		out = append(out, s.name)
	}
	return out
}

// Source is one place that settings are read from.
type Source struct {
	Kind  string   `json:"kind"`
	Name  string   `json:"name,omitempty"` // a variable or a file
	Set   bool     `json:"set"`
	Value string   `json:"value,omitempty"` // of variables that hold no secret
	Keys  []string `json:"keys,omitempty"`  // what it sets, or which keys refer to it
}

// Sources are the places that settings are read from, lowest first: the defaults, the file, every variable that sets something, and every
// variable that the file refers to.
func (c *Config) Sources() []Source {
	out := []Source{{Kind: layerDefault, Set: true}}
	f := Source{Kind: layerFile, Name: c.file.path, Set: c.tree.Exists()}
	for name := range c.kept.Members() {
		f.Keys = append(f.Keys, name)
	}
	out = append(out, f)
	add := func(name string, secret bool, keys ...string) {
		v, ok := c.set(name)
		s := Source{Kind: layerEnv, Name: name, Set: ok, Keys: keys}
		if ok && !secret {
			s.Value = maskText(v)
		}
		out = append(out, s)
	}
	add(pathVariable, false)
	add("HOME", false)
	add("XDG_STATE_HOME", false)
	for _, s := range sections() {
		if s.whole != "" {
			add(s.whole, false, key(s.path))
		}
	}
	vars := variables()
	for _, name := range sortedKeys(vars) {
		add(name, hides(nil, name), key(vars[name]))
	}
	used := map[string][]string{}
	references(c.kept, nil, used)
	for _, name := range sortedKeys(used) {
		add(name, true, used[name]...)
	}
	return out
}

// references gathers the variables that a tree refers to, with the keys that do.
func references(n doc.Node, path []string, used map[string][]string) {
	if r, ok, err := parseReference(n.Text()); n.Kind() == doc.String && ok && err == nil && r.scheme == "env" {
		if k := key(path); !slices.Contains(used[r.name], k) {
			used[r.name] = append(used[r.name], k)
		}
	}
	for name, v := range n.Members() {
		references(v, append(slices.Clip(path), name), used)
	}
	for _, v := range n.Items() {
		references(v, path, used)
	}
}
