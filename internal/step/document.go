package step

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Document is the context document as a whole.
func (v view) Document() (json.RawMessage, error) {
	v.h.mu.RLock()
	var all []entry
	for _, es := range v.h.byPath {
		for _, e := range es {
			if v.in(e.step) {
				all = append(all, e)
			}
		}
	}
	v.h.mu.RUnlock()
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.seq, b.seq) })
	root := &tree{kids: map[string]*tree{}}
	for _, e := range all {
		root.apply(e.op)
	}
	return json.Marshal(root)
}

// tree is a value of the document: a table, a list, or JSON that nobody has looked into yet.
type tree struct {
	kids map[string]*tree
	list []json.RawMessage
	raw  json.RawMessage
}

// MarshalJSON writes the value.
func (t *tree) MarshalJSON() ([]byte, error) {
	switch {
	case t.kids != nil:
		return json.Marshal(t.kids)
	case t.raw != nil:
		return t.raw, nil
	default:
		return json.Marshal(t.list)
	}
}

// open makes a table of a value: what is none gives way.
func (t *tree) open() {
	if t.kids != nil {
		return
	}
	t.kids = map[string]*tree{}
	var m map[string]json.RawMessage
	if t.raw != nil && json.Unmarshal(t.raw, &m) == nil {
		for name, raw := range m {
			t.kids[name] = &tree{raw: raw}
		}
	}
	t.raw, t.list = nil, nil
}

func (t *tree) apply(op Op) {
	at := t
	names := strings.Split(op.Path, "/")
	for _, name := range names[:len(names)-1] {
		at.open()
		name = Unchild(name)
		next := at.kids[name]
		if next == nil {
			if op.Op == opUnset {
				return
			}
			next = &tree{kids: map[string]*tree{}}
			at.kids[name] = next
		}
		at = next
	}
	at.open()
	last := Unchild(names[len(names)-1])
	switch op.Op {
	case opSet:
		at.kids[last] = &tree{raw: op.Value}
	case opUnset:
		delete(at.kids, last)
	default:
		have := at.kids[last]
		if have == nil {
			have = &tree{}
			at.kids[last] = have
		}
		if have.kids != nil || have.raw != nil {
			var list []json.RawMessage
			_ = json.Unmarshal(have.raw, &list) // what is no list gives way
			*have = tree{list: list}
		}
		if op.Op == opReplace {
			have.list = replaced(have.list, op.Value)
			return
		}
		have.list = append(have.list, op.Value)
	}
}
