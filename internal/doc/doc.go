// Package doc reads TOML, YAML and JSON into one kind of tree that knows where each value stands, checks trees against schemas,
// and edits files by splicing bytes.
//
// A Tree holds the source and a line index; a Node is a small handle into it. A zero Node is "absent": every accessor works on it.
// Canonical writes the JSON that digests are taken of. A Schema checks a tree (every fault at once), fills in defaults and becomes JSON Schema.
// Splice edits a source and leaves every other byte as it is.
// Nothing here reads files, resolves names or knows what a document means.
package doc

import (
	"iter"
	"sort"
	"strconv"
	"sync"

	"agentenv.internal/agentenv/internal/diag"
)

// Kind is what a value is. Numbers and date-times keep their spelling (Node.Text).
type Kind uint8

const (
	Absent Kind = iota
	Null
	Bool
	Int
	Float
	String
	Datetime
	Array
	Object
)

var kindNames = [...]string{"nothing", "null", "a boolean", "an integer", "a number", "a string", "a date-time", "a list", "a table"}

func (k Kind) String() string { return kindNames[k] }

// Tree is one parsed document.
type Tree struct {
	Name string // shown in problems
	Src  []byte
	root *node
	bom  bool // the file began with a byte order mark, which Src lacks

	read   reader  // what parsed Src; nil for Build
	format *syntax // how edits spell values; nil for Build

	linesOnce sync.Once
	lines     []int // offsets of line starts
}

// reader is one of the three parsers.
type reader func(name string, src []byte) (*Tree, diag.List)

// form is how a source spells a value, where splicing or a schema must know.
type form uint8

const (
	formFlow   form = iota // every JSON value, TOML's inline values, YAML's flow collections and quoted scalars
	formPlain              // YAML: a scalar without quotes
	formBlock              // YAML: a collection by indentation, a literal or folded scalar
	formHeader             // TOML: a table with a [header] of its own; a list of [[header]] tables
	formSuper              // TOML: a table that only longer headers name
	formDotted             // TOML: a table that dotted keys name
)

// node offsets are -1 for values that no source holds (Build).
type node struct {
	kind     Kind
	form     form
	off, end int32 // value, in Src
	keyOff   int32 // its name in the holding object, in Src; -1 for none
	text     string
	names    []string // of kids, for objects
	kids     []*node
	index    map[string]int // for objects of more than 8 members
}

// Node is a value in a Tree, or absent.
type Node struct {
	t *Tree
	n *node
}

// Root is the document's value; absent for a nil tree.
func (t *Tree) Root() Node {
	if t == nil {
		return Node{}
	}
	return Node{t, t.root}
}

// Pos turns an offset of Src into a position. Columns count bytes.
func (t *Tree) Pos(off int) diag.Pos {
	if off < 0 {
		return diag.Pos{File: t.Name}
	}
	t.linesOnce.Do(func() {
		t.lines = append(t.lines, 0)
		for i, c := range t.Src {
			if c == '\n' {
				t.lines = append(t.lines, i+1)
			}
		}
	})
	line := sort.SearchInts(t.lines, off+1)
	return diag.Pos{File: t.Name, Line: line, Col: off - t.lines[line-1] + 1}
}

func (n Node) Kind() Kind {
	if n.n == nil {
		return Absent
	}
	return n.n.kind
}

// Exists tells a value, null included, from an absent one.
func (n Node) Exists() bool { return n.n != nil }

// IsNull is true for null and for an absent value.
func (n Node) IsNull() bool { return n.Kind() == Absent || n.Kind() == Null }

// Text is a string's value, or a scalar's spelling in the source; "" for everything else, null too, which reads as absent.
func (n Node) Text() string {
	if n.n == nil || n.n.kind == Null {
		return ""
	}
	return n.n.text
}

// Str is the value of a string, with false for anything else.
func (n Node) Str() (string, bool) {
	if n.Kind() != String {
		return "", false
	}
	return n.n.text, true
}

// Int is the value of an integer that fits, with false for anything else (a float, a bool).
func (n Node) Int() (int64, bool) {
	if n.Kind() != Int {
		return 0, false
	}
	v, err := strconv.ParseInt(n.n.text, 10, 64)
	return v, err == nil
}

// Float is the value of an integer or a float.
func (n Node) Float() (float64, bool) {
	if k := n.Kind(); k != Int && k != Float {
		return 0, false
	}
	v, err := strconv.ParseFloat(n.n.text, 64)
	return v, err == nil
}

// Bool is the value of a boolean; ok is false for anything else.
func (n Node) Bool() (v, ok bool) {
	if n.Kind() != Bool {
		return false, false
	}
	return n.n.text == "true", true
}

// Len counts members of an object or elements of an array.
func (n Node) Len() int {
	if n.n == nil {
		return 0
	}
	return len(n.n.kids)
}

// At is element i of an array, or the value of member i of an object.
func (n Node) At(i int) Node {
	if n.n == nil || i < 0 || i >= len(n.n.kids) {
		return Node{}
	}
	return Node{n.t, n.n.kids[i]}
}

// Get is the member called name, or absent.
func (n Node) Get(name string) Node {
	if n.Kind() != Object {
		return Node{}
	}
	if kid := n.n.get(name); kid != nil {
		return Node{n.t, kid}
	}
	return Node{}
}

// Members yields an object's members in source order.
func (n Node) Members() iter.Seq2[string, Node] {
	return func(yield func(string, Node) bool) {
		if n.Kind() != Object {
			return
		}
		for i, name := range n.n.names {
			if !yield(name, Node{n.t, n.n.kids[i]}) {
				return
			}
		}
	}
}

// Items yields an array's elements.
func (n Node) Items() iter.Seq2[int, Node] {
	return func(yield func(int, Node) bool) {
		if n.Kind() != Array {
			return
		}
		for i, k := range n.n.kids {
			if !yield(i, Node{n.t, k}) {
				return
			}
		}
	}
}

// Pos is where the value begins; without a line when no source holds it.
func (n Node) Pos() diag.Pos {
	if n.t == nil {
		return diag.Pos{}
	}
	if n.n == nil {
		return diag.Pos{File: n.t.Name}
	}
	return n.t.Pos(int(n.n.off))
}

// KeyPos is where the value's name begins, or the value's own position in an array.
func (n Node) KeyPos() diag.Pos {
	if n.n != nil && n.n.keyOff >= 0 {
		return n.t.Pos(int(n.n.keyOff))
	}
	return n.Pos()
}

// Raw is the value as the source spells it, from its first part to its last; nil when no source holds it.
func (n Node) Raw() []byte {
	if n.n == nil || n.n.off < 0 {
		return nil
	}
	return n.t.Src[n.n.off:n.n.end]
}

// Same tells whether two handles are the same value of the same tree.
func (n Node) Same(m Node) bool { return n.n == m.n }

// get is the member of a name, or nil.
func (n *node) get(name string) *node {
	if n.index != nil {
		if i, ok := n.index[name]; ok {
			return n.kids[i]
		}
		return nil
	}
	for i, have := range n.names {
		if have == name {
			return n.kids[i]
		}
	}
	return nil
}

// add appends a member; the caller has checked that the name is new.
func (n *node) add(name string, kid *node) {
	n.names = append(n.names, name)
	n.kids = append(n.kids, kid)
	if n.index != nil {
		n.index[name] = len(n.kids) - 1
	} else if len(n.kids) > manyMembers {
		n.reindex()
	}
}

// manyMembers is from where on a map finds members faster than looking at each.
const manyMembers = 8

func (n *node) reindex() {
	n.index = make(map[string]int, 2*len(n.names))
	for i, name := range n.names {
		n.index[name] = i
	}
}
