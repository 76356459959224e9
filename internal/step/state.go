package step

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// What an Op does.
const (
	opSet    = "set"
	opAppend = "append"
	opUnset  = "unset"
	// opReplace changes one element of a list; its Value is a replacement.
	opReplace = "replace"
)

// Op is one change of the context document. Path is "/"-separated: "metadata/verifications/hello", "deployed_sandboxes".
type Op struct {
	Op    string          `json:"op"` // "set", "append", "unset", "replace"
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
	// Object is where a record keeps a long value, in place of Value. Executors and views never see it.
	Object json.RawMessage `json:"object,omitempty"`
}

// Diff is what one step changes. The zero value is ready to use; it may be filled from several goroutines.
type Diff struct {
	mu  sync.Mutex
	ops []Op
}

// Set replaces the value at path.
func (d *Diff) Set(path string, v any) error { return d.add(opSet, path, v) }

// Append adds v to the list at path.
func (d *Diff) Append(path string, v any) error { return d.add(opAppend, path, v) }

// Unset removes what is at path.
func (d *Diff) Unset(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, Op{Op: opUnset, Path: path})
}

func (d *Diff) add(op, path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, Op{Op: op, Path: path, Value: b})
	return nil
}

// Ops is what was gathered, in order.
func (d *Diff) Ops() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ops)
}

// View reads the context document as some steps left it.
type View interface {
	// Get decodes the value at exactly path into v and tells whether there is one: what the last step to end set there, with what was
	// appended to it since.
	Get(path string, v any) (bool, error)
	// List is the elements at path, in the order in which their steps ended.
	List(path string) []json.RawMessage
	// Under lists the names directly below path at which something was set or appended, sorted and as they stand in paths: see Unchild.
	Under(path string) []string
	// Document is the whole context document: every change of the view's steps, applied in the order in which the steps ended.
	Document() (json.RawMessage, error)
}

// History holds the diffs of a run's ended steps and answers views of them. The zero value is ready to use; it is safe for concurrent use.
// A commit costs what its own diff costs, a view what it reads, however long the run.
type History struct {
	mu     sync.RWMutex
	byPath map[string][]entry
	names  map[string][]string // path -> names below it, sorted
	of     map[int][]string    // step -> paths of its diff
	count  int                 // of ops committed so far
}

type entry struct {
	step int
	seq  int // of all ops, in the order of commits
	op   Op
}

// Commit adds the diff of the step with this index. A step's earlier diff, from an attempt before, is dropped.
func (h *History) Commit(step int, ops []Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(step)
	if len(ops) == 0 {
		return
	}
	if h.byPath == nil {
		h.byPath, h.names, h.of = map[string][]entry{}, map[string][]string{}, map[int][]string{}
	}
	for _, op := range ops {
		if _, seen := h.byPath[op.Path]; !seen {
			dir, name := "", op.Path
			if i := strings.LastIndexByte(op.Path, '/'); i >= 0 {
				dir, name = op.Path[:i], op.Path[i+1:]
			}
			at, _ := slices.BinarySearch(h.names[dir], name)
			h.names[dir] = slices.Insert(h.names[dir], at, name)
		}
		h.byPath[op.Path] = append(h.byPath[op.Path], entry{step, h.count, op})
		h.count++
		h.of[step] = append(h.of[step], op.Path)
	}
}

// Drop forgets the diffs of steps that will run again.
func (h *History) Drop(steps ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range steps {
		h.drop(s)
	}
}

func (h *History) drop(step int) {
	for _, path := range h.of[step] {
		h.byPath[path] = slices.DeleteFunc(h.byPath[path], func(e entry) bool { return e.step == step })
	}
	delete(h.of, step)
}

// View sees the steps for which in answers true; in must be pure.
func (h *History) View(in func(step int) bool) View { return view{h, in} }

type view struct {
	h  *History
	in func(int) bool
}

func (v view) Get(path string, into any) (bool, error) {
	v.h.mu.RLock()
	defer v.h.mu.RUnlock()
	for _, e := range slices.Backward(v.h.byPath[path]) {
		if !v.in(e.step) {
			continue
		}
		switch e.op.Op {
		case opSet:
			return true, json.Unmarshal(e.op.Value, into)
		case opAppend, opReplace:
			whole, err := json.Marshal(v.list(path))
			if err != nil {
				return false, err
			}
			return true, json.Unmarshal(whole, into)
		default:
			return false, nil
		}
	}
	return false, nil
}

func (v view) List(path string) []json.RawMessage {
	v.h.mu.RLock()
	defer v.h.mu.RUnlock()
	return v.list(path)
}

func (v view) list(path string) []json.RawMessage {
	var out []json.RawMessage
	for _, e := range v.h.byPath[path] {
		if !v.in(e.step) {
			continue
		}
		switch e.op.Op {
		case opAppend:
			out = append(out, e.op.Value)
		case opReplace:
			out = replaced(out, e.op.Value)
		case opSet:
			out = nil
			_ = json.Unmarshal(e.op.Value, &out) // what is no list has no elements
		default:
			out = nil
		}
	}
	return out
}

func (v view) Under(path string) []string {
	v.h.mu.RLock()
	defer v.h.mu.RUnlock()
	var out []string
	for _, name := range v.h.names[path] {
		full := name
		if path != "" {
			full = path + "/" + name
		}
		for _, e := range slices.Backward(v.h.byPath[full]) {
			if v.in(e.step) {
				if e.op.Op != opUnset {
					out = append(out, name)
				}
				break
			}
		}
	}
	return out
}
