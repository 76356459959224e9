package doc

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// Edit is one change of a document. A path leads to a value by names (string) and by places in lists (int).
type Edit struct {
	op    op
	path  []any
	value any
}

type op uint8

const (
	opSet op = iota
	opInsert
	opRemove
)

// Set makes v, as Build takes it, the value at path. Tables that the path names and that are missing are made; elements of lists are not.
func Set(v any, path ...any) Edit { return Edit{opSet, path, v} }

// Insert puts v, as Build takes it, before the element of a list that path leads to; the list's length as last place means its end.
func Insert(v any, path ...any) Edit { return Edit{opInsert, path, v} }

// Remove takes away the member or element at path. Nothing there is no fault.
func Remove(path ...any) Edit { return Edit{op: opRemove, path: path} }

// Splice changes the source of t and answers the new one. Every byte that an edit doesn't concern stays: order, comments, blank lines.
// The result is parsed again and must differ in the edited place alone; where that can't be reached, the error says what to write by hand.
// t must have parsed without errors.
func Splice(t *Tree, edits ...Edit) ([]byte, error) {
	if t.root == nil || t.format == nil {
		return nil, t.refuse(nil, "there is no source to edit", "")
	}
	for _, e := range edits {
		var err error
		if t, err = t.splice(e); err != nil {
			return nil, err
		}
	}
	if t.bom {
		return append([]byte(bom), t.Src...), nil
	}
	return bytes.Clone(t.Src), nil
}

// CodeEdit is the code of an edit that Splice refuses.
const CodeEdit = "doc.edit"

func (t *Tree) splice(e Edit) (*Tree, error) {
	v := build(e.value, &Tree{})
	if t.format == jsonSyntax {
		v = datesAsStrings(v)
	}
	e.path, v = t.existing(e, v)
	steps, err := t.edits(e, v)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		want := change(t.root, s.path, s.op, s.v)
		next, ok := t.apply(s)
		if !ok || !equal(next.root, want) {
			return nil, t.byHand(s)
		}
		t = next
	}
	return t, nil
}

// existing cuts the path of Set behind its first member that is missing and wraps the value in the rest.
func (t *Tree) existing(e Edit, v *node) ([]any, *node) {
	if e.op != opSet {
		return e.path, v
	}
	n := t.root
	for i, p := range e.path {
		name, isName := p.(string)
		if !isName || n.kind != Object {
			if n = step(n, p); n == nil {
				return e.path, v
			}
			continue
		}
		if n = n.get(name); n != nil {
			continue
		}
		for _, p := range slices.Backward(e.path[i+1:]) {
			name, ok := p.(string)
			if !ok {
				return e.path, v
			}
			o := &node{kind: Object, off: -1, end: -1, keyOff: -1}
			o.add(name, v)
			v = o
		}
		return e.path[:i+1], v
	}
	return e.path, v
}

// oneSplice is: of a value that is there (set, remove) or at a place that is free (set of a member, insert).
type oneSplice struct {
	op   op
	path []any
	v    *node
}

// edits turns an edit into splices. A table or list set to another one becomes edits of what differs in it.
func (t *Tree) edits(e Edit, v *node) ([]oneSplice, error) {
	if len(e.path) == 0 {
		if e.op == opSet && t.root.kind == v.kind && len(t.root.kids) > 0 {
			return t.differences(nil, t.root, v), nil
		}
		return nil, t.refuse(e.path, "the whole document can't be changed", "write a new file")
	}
	holder, last := t.holder(e.path), e.path[len(e.path)-1]
	if e.op == opRemove && (holder == nil || step(holder, last) == nil) {
		return nil, nil
	}
	i, isPlace := last.(int)
	_, isName := last.(string)
	switch {
	case holder == nil, !isPlace && !isName, isPlace && holder.kind != Array, !isPlace && holder.kind != Object:
		return nil, t.refuse(e.path, "there is no such place", "")
	case e.op == opInsert && (!isPlace || i < 0 || i > len(holder.kids)):
		return nil, t.refuse(e.path, "there is no such place", "")
	case e.op == opSet && isPlace && step(holder, i) == nil:
		return nil, t.refuse(e.path, "there is no such element", "")
	case t.format == tomlSyntax && e.op != opRemove && hasNull(v):
		return nil, t.refuse(e.path, "TOML has no null", "remove the key instead")
	case e.op != opSet:
		return []oneSplice{{e.op, e.path, v}}, nil
	}
	return t.differences(e.path, step(holder, last), v), nil
}

// differences are the splices that turn old into v.
func (t *Tree) differences(path []any, old, v *node) []oneSplice {
	if old == nil {
		return []oneSplice{{opSet, path, v}}
	}
	if equal(old, v) {
		return nil
	}
	other := old.kind != v.kind || len(old.kids) == 0 || len(v.kids) == 0 || old.kind != Object && old.kind != Array
	if old.kind == Array && old.form == formHeader { // a list of tables takes nothing else
		other = other || slices.ContainsFunc(v.kids, func(k *node) bool { return k.kind != Object })
	}
	if other {
		if t.format != tomlSyntax || old.form == formFlow {
			return []oneSplice{{opSet, path, v}}
		}
		again := opSet // sections go before something else comes
		if _, isPlace := path[len(path)-1].(int); isPlace {
			again = opInsert
		}
		return []oneSplice{{op: opRemove, path: path}, {again, path, v}}
	}
	var out []oneSplice
	sub := func(p any) []any { return append(slices.Clip(path), p) }
	if old.kind == Object {
		for i, name := range v.names {
			out = append(out, t.differences(sub(name), old.get(name), v.kids[i])...)
		}
		for _, name := range old.names {
			if v.get(name) == nil {
				out = append(out, oneSplice{op: opRemove, path: sub(name)})
			}
		}
		return out
	}
	n := min(len(old.kids), len(v.kids))
	for i := range n {
		out = append(out, t.differences(sub(i), old.kids[i], v.kids[i])...)
	}
	for i := n; i < len(v.kids); i++ {
		out = append(out, oneSplice{opInsert, sub(i), v.kids[i]})
	}
	for i := len(old.kids) - 1; i >= n; i-- {
		out = append(out, oneSplice{op: opRemove, path: sub(i)})
	}
	return out
}

// step is the part of n that one step of a path leads to, or nil.
func step(n *node, p any) *node {
	switch p := p.(type) {
	case string:
		if n.kind == Object {
			return n.get(p)
		}
	case int:
		if n.kind == Array && p >= 0 && p < len(n.kids) {
			return n.kids[p]
		}
	}
	return nil
}

// holder is what holds the last step of path, or nil.
func (t *Tree) holder(path []any) *node {
	n := t.root
	for _, p := range path[:len(path)-1] {
		if n = step(n, p); n == nil {
			return nil
		}
	}
	return n
}

// change is n after an edit, made without a source.
func change(n *node, path []any, o op, v *node) *node {
	c := *n
	c.kids, c.names, c.index = slices.Clone(n.kids), slices.Clone(n.names), nil
	i, isPlace := path[0].(int)
	if !isPlace {
		i = slices.Index(c.names, path[0].(string))
	}
	switch {
	case len(path) > 1:
		c.kids[i] = change(c.kids[i], path[1:], o, v)
	case o == opRemove:
		c.kids = slices.Delete(c.kids, i, i+1)
		if !isPlace {
			c.names = slices.Delete(c.names, i, i+1)
		}
	case o == opInsert:
		c.kids = slices.Insert(c.kids, i, v)
	case i < 0:
		c.names, c.kids = append(c.names, path[0].(string)), append(c.kids, v)
	default:
		c.kids[i] = v
	}
	return &c
}

// apply makes the new source of one splice and parses it.
func (t *Tree) apply(c oneSplice) (*Tree, bool) {
	s := splicer{t: t, src: t.Src, nl: "\n", holder: t.holder(c.path), oneSplice: c}
	if bytes.Contains(t.Src, []byte("\r\n")) {
		s.nl = "\r\n"
	}
	var ok bool
	switch t.format {
	case tomlSyntax:
		ok = s.toml()
	case yamlSyntax:
		ok = s.yaml()
	default:
		ok = s.flow()
	}
	if !ok {
		return nil, false
	}
	next, l := t.read(t.Name, s.result())
	if next == nil || l.HasErrors() {
		return nil, false
	}
	next.bom = t.bom
	return next, true
}

func datesAsStrings(n *node) *node {
	if n.kind == Datetime {
		return &node{kind: String, text: isoformat(n.text), off: -1, end: -1, keyOff: -1}
	}
	return mapKids(n, func(i int) *node { return datesAsStrings(n.kids[i]) })
}

func hasNull(n *node) bool { return n.kind == Null || slices.ContainsFunc(n.kids, hasNull) }

func (t *Tree) refuse(path []any, summary, fix string) error {
	return diag.List{{Pos: diag.Pos{File: t.Name}, Where: placeOf(path), Code: CodeEdit, Summary: summary, Fix: fix}}.Err()
}

// byHand refuses a splice with the text to write.
func (t *Tree) byHand(c oneSplice) error {
	last := c.path[len(c.path)-1]
	text := "remove it"
	if c.op != opRemove {
		text = t.format.spell(c.v)
		if name, ok := last.(string); ok {
			text = t.format.name(name) + t.format.colon + text
		}
		text = "write this there: " + text
	}
	p := diag.Problem{Where: placeOf(c.path), Code: CodeEdit, Summary: "can't be changed without touching more of the file", Fix: diag.Clean(text)}
	p.Pos = Node{t, t.holder(c.path)}.Pos()
	return diag.List{p}.Err()
}

// placeOf is a path in words: plugins.x[2].
func placeOf(path []any) string {
	var b strings.Builder
	for _, p := range path {
		switch p := p.(type) {
		case string:
			b.WriteString(member(p))
		case int:
			b.WriteString("[" + strconv.Itoa(p) + "]")
		default:
			fmt.Fprintf(&b, "[%v]", p)
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}
