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
	Package  string   `json:"package,omitempty"` // of [plugins.<distribution>]: what is installed of it; who prints the report fills it in
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
		if impl := n.Get("impl").Text(); impl != "" {
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
