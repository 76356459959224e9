package doc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// Codes of what Check finds.
const (
	CodeUnknown = "doc.unknown" // a member that the schema lacks
	CodeMissing = "doc.missing" // a required member
	CodeKind    = "doc.kind"    // another kind of value is wanted
	CodeChoice  = "doc.choice"  // not one of the strings allowed
	CodeRange   = "doc.range"   // a number too small or too large
	CodeEmpty   = "doc.empty"   // something is wanted
	CodeQuote   = "doc.quote"   // a warning: a YAML scalar without quotes taken as a string
)

// Check adds every fault of n against the schema to l. at is where n is, in words ("step 'box'"); places inside n follow it: "step 'box': a[2].b".
func (s *Schema) Check(n Node, at string, l *diag.List) {
	c := checker{at: at, l: l}
	if n.Kind() != Object {
		c.kind(n, nil, &Type{Kinds: []Kind{Object}})
		return
	}
	c.object(n, nil, s)
}

type checker struct {
	at string
	l  *diag.List
	quota
}

// fault reports one at a place inside the checked value.
func (c *checker) fault(pos diag.Pos, path []string, code, summary, fix string) {
	c.put(diag.Problem{Pos: pos, Code: code, Summary: summary, Fix: fix}, strings.Join(path, ""))
}

func (c *checker) put(p diag.Problem, path string) {
	p.Where = join(c.at, path)
	c.quota.add(c.l, p)
}

// join puts a place after the words before it.
func join(at, path string) string {
	path = strings.TrimPrefix(path, ".")
	switch {
	case at == "":
		return path
	case path == "":
		return at
	default:
		return at + ": " + path
	}
}

// member is the step of a path to a member: .name, or ['name'] where the name is no plain word.
func member(name string) string {
	plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	})
	if plain {
		return "." + name
	}
	return "[" + diag.Repr(short(name)) + "]"
}

// within is path with one step more, never shared with another.
func within(path []string, step string) []string { return append(slices.Clip(path), step) }

func (c *checker) object(n Node, path []string, s *Schema) {
	for name, v := range n.Members() {
		if f := s.field(name); f != nil {
			c.value(v, within(path, member(name)), &f.Type)
		} else if !s.Open {
			c.unknown(name, v, path, s)
		}
	}
	for i := range s.Fields {
		if f := &s.Fields[i]; f.Required && !n.Get(f.Name).Exists() {
			c.fault(n.Pos(), path, CodeMissing, f.Name+" is missing", "write it"+f.Type.hint())
		}
	}
}

func (c *checker) unknown(name string, v Node, path []string, s *Schema) {
	names := make([]string, 0, len(s.Fields))
	for i := range s.Fields {
		names = append(names, s.Fields[i].Name)
	}
	slices.Sort(names)
	fix := "remove it: nothing is known here"
	if len(names) > 0 {
		fix = "known here: " + strings.Join(names, ", ")
		if near := diag.Nearest(name, names); near != "" {
			fix = fmt.Sprintf("did you mean %s? %s", diag.Repr(near), fix)
		}
	}
	c.fault(v.KeyPos(), path, CodeUnknown, "unknown key "+diag.Repr(short(name)), fix)
}

func (c *checker) value(n Node, path []string, t *Type) {
	if n.Kind() == Null && t.Null {
		return
	}
	if !t.takes(n) {
		c.kind(n, path, t)
		return
	}
	before := c.n[diag.Error]
	switch n.Kind() {
	case Array:
		if t.Elem != nil {
			for i, e := range n.Items() {
				c.value(e, within(path, "["+strconv.Itoa(i)+"]"), t.Elem)
			}
		}
	case Object:
		switch {
		case t.Fields != nil:
			c.object(n, path, t.Fields)
		case t.Elem != nil:
			for name, v := range n.Members() {
				c.value(v, within(path, member(name)), t.Elem)
			}
		}
	default:
		c.scalar(n, path, t)
	}
	if t.NonEmpty && t.empty(n) {
		c.fault(n.Pos(), path, CodeEmpty, "must not be empty", "")
	}
	if t.Check == nil || c.n[diag.Error] > before {
		return
	}
	var more diag.List
	t.Check(n, &more)
	for _, p := range more {
		if p.Pos.File == "" {
			p.Pos = n.Pos()
		}
		c.put(p, strings.Join(path, "")+inner(p.Where))
	}
}

// inner puts a dot before a place that begins with a name.
func inner(where string) string {
	if where == "" || where[0] == '[' || where[0] == '.' {
		return where
	}
	return "." + where
}

func (c *checker) scalar(n Node, path []string, t *Type) {
	if !slices.Contains(t.Kinds, n.Kind()) && t.plain(n) {
		c.put(diag.Problem{Pos: n.Pos(), Code: CodeQuote, Severity: diag.Warning, Summary: t.show(n) + " is read as text", Fix: "put it between quotes"},
			strings.Join(path, ""))
	}
	if n.Kind() == Int || n.Kind() == Float {
		v, _ := n.Float()
		switch {
		case t.Min != nil && v < *t.Min, t.Max != nil && v > *t.Max:
			c.fault(n.Pos(), path, CodeRange, "must be "+t.limits()+", not "+t.show(n), "")
		}
	}
	if text := n.Text(); len(t.OneOf) > 0 && (n.Kind() == String || t.plain(n)) && !slices.Contains(t.OneOf, text) {
		fix := ""
		if near := diag.Nearest(text, t.OneOf); near != "" {
			fix = "did you mean " + diag.Repr(near) + "?"
		}
		c.fault(n.Pos(), path, CodeChoice, "must be one of "+strings.Join(t.OneOf, ", ")+", not "+t.show(n), fix)
	}
}

func (c *checker) kind(n Node, path []string, t *Type) {
	fix := ""
	if k := n.Kind(); slices.Contains(t.Kinds, String) && (k == Bool || k == Int || k == Float || k == Datetime) {
		fix = "put it between quotes"
	}
	c.fault(n.Pos(), path, CodeKind, "must be "+t.want()+", not "+t.show(n), fix)
}

func (s *Schema) field(name string) *Field {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return &s.Fields[i]
		}
	}
	return nil
}

// takes tells whether the kind of n is allowed. A boolean is never a number, an integer is a number too, and no Kinds take every value but null.
func (t *Type) takes(n Node) bool {
	k := n.Kind()
	if len(t.Kinds) == 0 {
		return k != Null || t.Null
	}
	return slices.Contains(t.Kinds, k) || k == Int && slices.Contains(t.Kinds, Float) || t.plain(n)
}

// plain tells whether n is a scalar without quotes that counts as a string.
func (t *Type) plain(n Node) bool {
	return t.Plain && n.n != nil && n.n.form == formPlain && n.Kind() != Null && n.Kind() != String && slices.Contains(t.Kinds, String)
}

func (t *Type) empty(n Node) bool {
	switch n.Kind() {
	case Array, Object:
		return n.Len() == 0
	case String:
		return n.Text() == ""
	default:
		return false
	}
}

// want is what t takes, in words: "a string or a list".
func (t *Type) want() string {
	if len(t.Kinds) == 0 {
		return "a value"
	}
	words := make([]string, 0, len(t.Kinds)+1)
	for _, k := range t.Kinds {
		words = append(words, k.String())
	}
	if t.Null && !slices.Contains(t.Kinds, Null) {
		words = append(words, Null.String())
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// hint says what a missing value would be.
func (t *Type) hint() string {
	switch {
	case len(t.OneOf) > 0:
		return ": one of " + strings.Join(t.OneOf, ", ")
	case len(t.Kinds) > 0:
		return ": " + t.want()
	default:
		return ""
	}
}

func (t *Type) limits() string {
	num := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	switch {
	case t.Max == nil:
		return "at least " + num(*t.Min)
	case t.Min == nil:
		return "at most " + num(*t.Max)
	default:
		return "from " + num(*t.Min) + " to " + num(*t.Max)
	}
}

// show is the value in JSON, cut, on one line.
func (t *Type) show(n Node) string {
	if t.Secret {
		return n.Kind().String()
	}
	return Show(n)
}

// Show is a value as messages show it: JSON on one line, control characters escaped, cut after 60 characters.
func Show(n Node) string {
	if !n.Exists() {
		return Absent.String()
	}
	w := writer{limit: 4 * 60}
	w.node(n.n, 0)
	return diag.Clean(short(w.String()))
}
