package step

import (
	"encoding/json"
	"testing"
)

func elements(t *testing.T, text string) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestListsSetWhole: what a step makes of a list keeps what others did to it meanwhile, and what it would undo is told.
func TestListsSetWhole(t *testing.T) {
	for _, c := range []struct {
		name, was, now, meanwhile string // meanwhile: what another step makes of it
		want, lost                string
	}{
		{"an element changes", `[{"id":1},{"id":2}]`, `[{"id":1,"x":true},{"id":2}]`, `[{"id":1},{"id":2},{"id":3}]`, `[{"id":1,"x":true},{"id":2},{"id":3}]`, ""},
		{"two elements", `[1,2]`, `[1,20]`, `[10,2]`, `[10,20]`, ""},
		{"one goes", `[1,2,3]`, `[1,3]`, `[1,2,3,4]`, `[1,3,4]`, ""},
		{"all go", `[1,2]`, `[]`, `[1,2,3]`, `[3]`, ""},
		{"both add", `[1]`, `[1,2]`, `[1,3]`, `[1,3,2]`, ""},
		{"both begin", `[]`, `[2]`, `[3]`, `[3,2]`, ""},
		{"one element, twice", `[1,2]`, `[1,5]`, `[1,6]`, "", "l"},
		{"one element, twice the same", `[1,2]`, `[1,5]`, `[1,5]`, `[1,5]`, ""},
		{"fewer, and others", `[1,2,3]`, `[7]`, `[1,2,3,4]`, "", "l"},
		{"spelled otherwise", `[{"a":1,"b":2}]`, `[{"b":2,"a":1},5]`, `[{"a":1,"b":2},6]`, `[{"a":1,"b":2},6,5]`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h History
			h.Commit(0, diff(func(d *Diff) {
				for _, e := range elements(t, c.was) {
					noError(t, d.Append("l", e))
				}
			}))
			change := func(now string) []Op {
				return diff(func(d *Diff) { noError(t, d.SetList("l", elements(t, c.was), elements(t, now))) })
			}
			h.Commit(1, change(c.meanwhile))
			ops := change(c.now)
			lost, by := h.Lost(ops, only(0, 2))
			if lost != c.lost || lost != "" && by != 1 {
				t.Fatalf("lost %q by %d, want %q", lost, by, c.lost)
			}
			if lost != "" {
				return
			}
			h.Commit(2, ops)
			v := h.View(everything)
			b, err := json.Marshal(v.List("l"))
			if err != nil || string(b) != c.want {
				t.Errorf("list: %s, %v; want %s", b, err, c.want)
			}
			whole, err := v.Document()
			if err != nil || string(whole) != `{"l":`+c.want+`}` {
				t.Errorf("document: %s, %v; want %s", whole, err, c.want)
			}
			var got []any
			if ok, err := v.Get("l", &got); !ok || err != nil {
				t.Errorf("get: %v, %v", ok, err)
			}
		})
	}
}

// TestLost: what belongs to one step alone is never lost.
func TestLost(t *testing.T) {
	var h History
	h.Commit(0, diff(func(d *Diff) {
		noError(t, d.Set("a", 1))
		noError(t, d.Set("b", []int{1}))
		noError(t, d.Append("c", 1))
	}))
	for path, ops := range map[string][]Op{
		"": diff(func(d *Diff) {
			noError(t, d.Set("a", 2))
			noError(t, d.Append("c", 2))
			noError(t, d.Set("b", []int{1}))
		}),
		"b": diff(func(d *Diff) { noError(t, d.Set("b", []int{2})) }),
		"c": diff(func(d *Diff) { d.Unset("c") }),
	} {
		if got, _ := h.Lost(ops, only(1)); got != path {
			t.Errorf("lost %q, want %q", got, path)
		}
		if got, _ := h.Lost(ops, everything); got != "" {
			t.Errorf("an ancestor's %q is lost", got)
		}
	}
}
