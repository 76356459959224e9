// Package tools makes one table of the tools of several environment servers: under which name each is served, and which can't be.
//
// A served name is legal for every model and unique. A tool's entry is its server's own bytes but for the name. The package is pure: it knows no server and no role's rules.
package tools

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/rawjson"
)

// MaxName is the length of the longest name that every model takes.
const MaxName = 64

var legal = lazyregexp.New(`^[a-zA-Z0-9_-]{1,64}$`)

// Source is a server and the entries of its tools/list.
type Source struct {
	Server  string
	Entries [][]byte
}

// Tool is one tool as it is served.
type Tool struct {
	Name     string // as served
	Own      string // as its server calls it
	Server   string
	Entry    []byte // of tools/list, with Name
	Step     []byte // {"name","description","parameters"}
	Hidden   bool   // by default
	ReadOnly bool   // it says that it changes nothing
}

// Aside is a tool that isn't served.
type Aside struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
	Why    string `json:"why"`
}

// Set is the table. It isn't changed once built.
type Set struct {
	Tools   []*Tool // in the order of sources and entries
	Aside   []Aside
	Clashes map[string][]string // a tool's own name -> the servers that have it
	byName  map[string]*Tool
}

// Names remembers which name each tool is served under, so that a tool which comes later never takes or changes another's. The zero value remembers nothing.
type Names struct {
	served map[[2]string]string // server, own name -> served
	taken  map[string][2]string
}

// Get finds a tool by the name it is served under; nil when there is none.
func (s *Set) Get(name string) *Tool {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// Build makes the table. Names that are reserved go to none of the tools. Names that are remembered stay; Remember keeps those of a table.
func Build(sources []Source, reserved []string, names *Names) *Set {
	set := &Set{Clashes: map[string][]string{}, byName: map[string]*Tool{}}
	owners := map[string][]string{}
	for _, src := range sources {
		seen := map[string]bool{}
		for i, entry := range src.Entries {
			t, err := read(src.Server, entry)
			if err == nil && seen[t.Own] {
				err = fmt.Errorf("the server lists two tools of this name; the first is served")
			}
			if err != nil {
				set.Aside = append(set.Aside, Aside{src.Server, cmp.Or(t.Own, fmt.Sprintf("#%d", i+1)), err.Error()})
				continue
			}
			seen[t.Own] = true
			owners[t.Own] = append(owners[t.Own], src.Server)
			set.Tools = append(set.Tools, t)
		}
	}
	for name, servers := range owners {
		if slices.Contains(reserved, name) {
			servers = append([]string{"gateway"}, servers...)
		}
		if len(servers) > 1 {
			set.Clashes[name] = servers
		}
	}
	set.name(reserved, names)
	return set
}

// name gives every tool its name: remembered ones first, then those that may keep their own, then the rest.
func (s *Set) name(reserved []string, names *Names) {
	taken := map[string]bool{}
	for _, r := range reserved {
		taken[r] = true
	}
	if names != nil {
		for n := range names.taken {
			taken[n] = true
		}
	}
	var rest []*Tool
	for _, t := range s.Tools {
		if names != nil && names.served[t.key()] != "" {
			t.Name = names.served[t.key()]
			continue
		}
		if s.Clashes[t.Own] == nil && legal().MatchString(t.Own) && !taken[t.Own] {
			t.Name, taken[t.Own] = t.Own, true
			continue
		}
		rest = append(rest, t)
	}
	for _, t := range rest {
		want := t.Own
		if s.Clashes[t.Own] != nil || legal().MatchString(t.Own) {
			want = t.Server + "__" + t.Own
		}
		t.Name = Legal(want, "")
		for n := 0; taken[t.Name]; n++ {
			t.Name = Legal(want, fmt.Sprint(t.Server, "\x00", t.Own, "\x00", n))
		}
		taken[t.Name] = true
	}
	for _, t := range s.Tools {
		s.byName[t.Name] = t
		t.finish()
	}
}

func (t *Tool) key() [2]string { return [2]string{t.Server, t.Own} }

// Remember keeps the names of a table for those that are built later.
func (n *Names) Remember(s *Set) {
	if n.served == nil {
		n.served, n.taken = map[[2]string]string{}, map[string][2]string{}
	}
	for _, t := range s.Tools {
		n.served[t.key()], n.taken[t.Name] = t.Name, t.key()
	}
}

// Legal is a name that every model takes, made of another. With a salt, or when something had to be changed, it ends in a hash, so that different names
// stay different.
func Legal(name, salt string) string {
	if salt == "" && legal().MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name + "\x00" + salt))
	tail := "_" + hex.EncodeToString(sum[:4])
	out := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	return out[:min(len(out), MaxName-len(tail))] + tail
}

// read looks at one entry. The tool it gives has no served name yet.
func read(server string, entry []byte) (*Tool, error) {
	t := &Tool{Server: server, Entry: entry}
	if rawjson.Kind(entry) != '{' || !json.Valid(entry) {
		return t, fmt.Errorf("its entry is no JSON object")
	}
	var ok bool
	if t.Own, ok = rawjson.Text(rawjson.Get(entry, "name")); !ok || t.Own == "" {
		return t, fmt.Errorf("it has no name")
	}
	if err := CheckSchema(rawjson.Get(entry, "inputSchema")); err != nil {
		return t, fmt.Errorf("its inputSchema %w", err)
	}
	if out := rawjson.Get(entry, "outputSchema"); !rawjson.IsNull(out) {
		if err := CheckSchema(out); err != nil {
			return t, fmt.Errorf("its outputSchema %w", err)
		}
	}
	t.Hidden = string(rawjson.Get(rawjson.Get(entry, "_meta"), "agentenv.io/hiddenByDefault")) == "true"
	t.ReadOnly = string(rawjson.Get(rawjson.Get(entry, "annotations"), "readOnlyHint")) == "true"
	return t, nil
}

// finish writes the entries under the served name. A schema without a type gets the one that it must have.
func (t *Tool) finish() {
	out, step := []byte{'{'}, []byte(`{"name":`)
	step = rawjson.AppendString(step, t.Name)
	description, schema := []byte(`""`), []byte(`{}`)
	for m := range rawjson.Members(t.Entry) {
		value := m.Value
		switch m.Name {
		case "name":
			value = rawjson.AppendString(nil, t.Name)
		case "description":
			if !rawjson.IsNull(value) {
				description = value
			}
		case "inputSchema":
			value = typed(value)
			schema = value
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(rawjson.AppendString(out, m.Name), ':'), value...)
	}
	t.Entry = append(out, '}')
	step = append(append(step, `,"description":`...), description...)
	t.Step = append(append(append(step, `,"parameters":`...), schema...), '}')
}

func typed(schema []byte) []byte {
	if rawjson.Get(schema, "type") != nil {
		return schema
	}
	inner := bytes.TrimSpace(bytes.TrimSpace(schema)[1:])
	if inner[0] == '}' {
		return []byte(`{"type":"object"}`)
	}
	return append([]byte(`{"type":"object",`), inner...)
}

const maxSchemaDepth = 64

// CheckSchema tells why bytes are no schema of an object that models and clients take; nil when they are.
func CheckSchema(schema []byte) error {
	if schema == nil {
		return fmt.Errorf("is missing")
	}
	var root any
	if rawjson.Kind(schema) != '{' || json.Unmarshal(schema, &root) != nil {
		return fmt.Errorf("is no JSON object")
	}
	obj, _ := root.(map[string]any)
	if t, ok := obj["type"]; ok && t != "object" {
		return fmt.Errorf("has type %s where only \"object\" is taken", compact(t))
	}
	return check(root, root, "", 0)
}

func compact(v any) string {
	b, _ := json.Marshal(v) // decoded from JSON: it can't fail
	return string(b[:min(len(b), 80)])
}

// check walks one schema and those within it.
func check(root, v any, at string, depth int) error {
	if _, isBool := v.(bool); isBool && at != "" {
		return nil
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("has %s, which is no schema", place(at))
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("is nested deeper than %d schemas", maxSchemaDepth)
	}
	if ref, ok := obj["$ref"]; ok {
		if err := checkRef(root, ref, at); err != nil {
			return err
		}
	}
	if r, ok := obj["required"]; ok {
		list, ok := r.([]any)
		if !ok || slices.ContainsFunc(list, func(v any) bool { _, isText := v.(string); return !isText }) {
			return fmt.Errorf("has %s, which is no list of names", place(at+"/required"))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		if err := checkMember(root, k, obj[k], at, depth); err != nil {
			return err
		}
	}
	return nil
}

func checkMember(root any, key string, v any, at string, depth int) error {
	at += "/" + key
	switch key {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		m, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("has %s, which is no object", place(at))
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if err := check(root, m[k], at+"/"+k, depth+1); err != nil {
				return err
			}
		}
	case "allOf", "anyOf", "oneOf", "prefixItems":
		list, ok := v.([]any)
		if !ok || len(list) == 0 && key != "prefixItems" {
			return fmt.Errorf("has %s, which is no list of schemas", place(at))
		}
		for i, e := range list {
			if err := check(root, e, fmt.Sprintf("%s/%d", at, i), depth+1); err != nil {
				return err
			}
		}
	case "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems":
		if list, isList := v.([]any); isList && key == "items" { // the older spelling of prefixItems
			return checkMember(root, "prefixItems", list, strings.TrimSuffix(at, "/items"), depth)
		}
		return check(root, v, at, depth+1)
	}
	return nil
}

// checkRef refuses references within the schema that lead nowhere; others are the reader's.
func checkRef(root, ref any, at string) error {
	s, ok := ref.(string)
	if !ok {
		return fmt.Errorf("has %s, which is no text", place(at+"/$ref"))
	}
	path, local := strings.CutPrefix(s, "#/")
	if !local {
		return nil
	}
	v := root
	for p := range strings.SplitSeq(path, "/") {
		p = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
		switch node := v.(type) {
		case map[string]any:
			if v, ok = node[p]; ok {
				continue
			}
		case []any:
			var i int
			if _, err := fmt.Sscanf(p, "%d", &i); err == nil && i >= 0 && i < len(node) {
				v = node[i]
				continue
			}
		}
		return fmt.Errorf("refers to %s, which it doesn't hold", s)
	}
	return nil
}

func place(at string) string {
	if at == "" {
		return "a value"
	}
	return at
}
