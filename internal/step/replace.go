package step

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// replacement is the value of an op that changes one element of a list: the first that is Old becomes New, or goes where there is no New.
type replacement struct {
	Old json.RawMessage `json:"old"`
	New json.RawMessage `json:"new,omitempty"`
}

// Replace changes the first element of the list at path that is old: it becomes now, or goes when now is nil. Other elements stay as others make them.
func (d *Diff) Replace(path string, old, now json.RawMessage) error {
	return d.add(opReplace, path, replacement{old, now})
}

// replaced is list after an op of Replace. An element that isn't there is left alone: see History.Lost.
func replaced(list []json.RawMessage, value json.RawMessage) []json.RawMessage {
	var r replacement
	if json.Unmarshal(value, &r) != nil {
		return list
	}
	for i, have := range list {
		if !sameJSON(have, r.Old) {
			continue
		}
		out := append([]json.RawMessage{}, list[:i]...)
		if r.New != nil {
			out = append(out, r.New)
		}
		return append(out, list[i+1:]...)
	}
	return list
}

// sameJSON tells whether two values are the same document.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var values [2]any
	for i, raw := range []json.RawMessage{a, b} {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// SetList is what makes now of the list was at path, without what steps that run at the same time do to other elements: elements that changed in their places,
// went or came at the end. What is none of that sets the list as a whole.
func (d *Diff) SetList(path string, was, now []json.RawMessage) error {
	kept := 0 // elements of was that are now still there, when nothing else happened
	for _, e := range now {
		for kept < len(was) && !sameJSON(was[kept], e) {
			kept++
		}
		if kept == len(was) {
			kept = -1
			break
		}
		kept++
	}
	switch {
	case len(now) < len(was) && kept >= 0: // some went
		at := 0
		for _, e := range was {
			if at < len(now) && sameJSON(e, now[at]) {
				at++
			} else if err := d.Replace(path, e, nil); err != nil {
				return err
			}
		}
		return nil
	case len(now) < len(was):
		return d.Set(path, now)
	}
	for i, e := range was {
		if sameJSON(e, now[i]) {
			continue
		}
		if err := d.Replace(path, e, now[i]); err != nil {
			return err
		}
	}
	for _, e := range now[len(was):] {
		if err := d.Append(path, e); err != nil {
			return err
		}
	}
	return nil
}

// Lost is a path at which ops, of a step that sees the steps for which in answers true, would undo what others did there meanwhile: a list that is set or
// removed as a whole though others changed it, or an element that others have changed too. by is such a step. "" when nothing is lost.
func (h *History) Lost(ops []Op, in func(step int) bool) (path string, by int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, op := range ops {
		for _, e := range h.byPath[op.Path] {
			if !in(e.step) && clash(op, e.op) {
				return op.Path, e.step
			}
		}
	}
	return "", 0
}

// clash tells whether op undoes what another one did to the same list.
func clash(op, other Op) bool {
	list := func(o Op) bool {
		return o.Op == opAppend || o.Op == opReplace || o.Op == opSet && bytes.HasPrefix(bytes.TrimSpace(o.Value), []byte("["))
	}
	switch op.Op {
	case opSet:
		return list(op) && list(other) && !sameJSON(op.Value, other.Value)
	case opUnset:
		return list(other)
	case opReplace:
		if other.Op == opReplace {
			var a, b replacement
			return json.Unmarshal(op.Value, &a) == nil && json.Unmarshal(other.Value, &b) == nil && sameJSON(a.Old, b.Old) && !sameJSON(op.Value, other.Value)
		}
		return other.Op == opSet || other.Op == opUnset
	default:
		return false
	}
}
