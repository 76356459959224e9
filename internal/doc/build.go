package doc

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Build makes a tree without a source from nil, bool, int, int64, uint64, float64, string, Node, []any, []string and map[string]any
// (members in the order of their names). It panics on anything else: a programmer's mistake.
func Build(v any) Node {
	t := &Tree{}
	t.root = build(v, t)
	return t.Root()
}

// build makes a value of tree t; a Node of another tree loses its positions, which would be wrong there.
func build(v any, t *Tree) *node {
	n := &node{off: -1, end: -1, keyOff: -1}
	switch v := v.(type) {
	case nil:
		n.kind, n.text = Null, "null"
	case bool:
		n.kind, n.text = Bool, strconv.FormatBool(v)
	case int:
		n.kind, n.text = Int, strconv.Itoa(v)
	case int64:
		n.kind, n.text = Int, strconv.FormatInt(v, 10)
	case uint64:
		n.kind, n.text = Int, strconv.FormatUint(v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			panic("doc.Build: not a finite number")
		}
		n.kind, n.text = Float, strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		n.kind, n.text = String, v
	case Node:
		if v.n == nil {
			n.kind, n.text = Null, "null"
			return n
		}
		if v.t == t {
			return v.n
		}
		return detached(v.n)
	case []any:
		n.kind = Array
		for _, e := range v {
			n.kids = append(n.kids, build(e, t))
		}
	case []string:
		n.kind = Array
		for _, e := range v {
			n.kids = append(n.kids, build(e, t))
		}
	case map[string]any:
		n.kind = Object
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			n.add(name, build(v[name], t))
		}
	default:
		panic(fmt.Sprintf("doc.Build: %T", v))
	}
	return n
}

// detached is a deep copy without positions.
func detached(n *node) *node {
	c := *n
	c.off, c.end, c.keyOff = -1, -1, -1
	c.kids = make([]*node, len(n.kids))
	for i, k := range n.kids {
		c.kids[i] = detached(k)
	}
	return &c
}

// Any turns a value into nil, bool, int64 (float64 when it does not fit), float64, string, []any or map[string]any. A date-time becomes its spelling.
func (n Node) Any() any {
	switch n.Kind() {
	case Bool:
		b, _ := n.Bool()
		return b
	case Int:
		if v, ok := n.Int(); ok {
			return v
		}
		f, _ := n.Float()
		return f
	case Float:
		f, _ := n.Float()
		return f
	case String, Datetime:
		return n.Text()
	case Array:
		out := make([]any, 0, n.Len())
		for _, e := range n.Items() {
			out = append(out, e.Any())
		}
		return out
	case Object:
		out := make(map[string]any, n.Len())
		for name, v := range n.Members() {
			out[name] = v.Any()
		}
		return out
	default:
		return nil
	}
}

// MapStrings is the value with every string replaced by what f answers; f's second result false keeps it. Positions stay.
// Subtrees without a change are shared with the original.
func (n Node) MapStrings(f func(Node) (string, bool)) Node {
	if n.n == nil {
		return n
	}
	return Node{n.t, mapStrings(n.t, n.n, f)}
}

func mapStrings(t *Tree, n *node, f func(Node) (string, bool)) *node {
	if n.kind == String {
		s, ok := f(Node{t, n})
		if !ok || s == n.text {
			return n
		}
		c := *n
		c.text = s
		return &c
	}
	return mapKids(n, func(i int) *node { return mapStrings(t, n.kids[i], f) })
}

// With is an object with member name set to v (as Build takes it), in the member's place or at the end.
func (n Node) With(name string, v any) Node {
	t := n.t
	if t == nil {
		t = &Tree{}
	}
	c := &node{kind: Object, off: -1, end: -1, keyOff: -1}
	if n.Kind() == Object {
		c.off, c.end, c.keyOff = n.n.off, n.n.end, n.n.keyOff
	}
	done := false
	for have, kid := range n.Members() {
		if have == name {
			c.add(name, build(v, t))
			done = true
			continue
		}
		c.add(have, kid.n)
	}
	if !done {
		c.add(name, build(v, t))
	}
	return Node{t, c}
}

// MarshalJSON is JSON, for documents that hold nodes; an absent node is null.
func (n Node) MarshalJSON() ([]byte, error) {
	if !n.Exists() {
		return []byte("null"), nil
	}
	return JSON(n), nil
}
