package config

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Explanation is what `config explain` prints: where the value at a path comes from.
type Explanation struct {
	FormatVersion int           `json:"format_version,omitempty"`
	Path          string        `json:"path"`
	About         string        `json:"about,omitempty"`   // what it is for
	Value         any           `json:"value"`             // what counts, with defaults, secrets masked
	Layers        []Layer       `json:"layers"`            // the places that set it, the one that counts first
	Package       string        `json:"package,omitempty"` // of [plugins.<distribution>]: what is installed of it; who prints the explanation fills it in
	Ignored       []string      `json:"ignored,omitempty"`
	Error         string        `json:"error,omitempty"`
	Inside        []Explanation `json:"inside,omitempty"` // of a table: its keys

	distribution string
}

// Distribution is the distribution whose table is explained; "" where it is another one, or a key in it.
func (e Explanation) Distribution() string { return e.distribution }

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
	if len(path) == 2 && path[0] == "plugins" {
		e.distribution = path[1]
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
	} else if s := c.fields(path); s != nil {
		for _, f := range s.Fields {
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

// fields is the schema of the table at path; nil where any name goes.
func (c *Config) fields(path []string) *doc.Schema {
	if len(path) == 0 {
		return c.schema
	}
	if f := c.field(path...); f != nil {
		return f.Type.Fields
	}
	return nil
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
