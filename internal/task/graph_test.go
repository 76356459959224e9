package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// diamond: 0 <- 1, 2; 3 <- 1, 2; 4 alone; 5 waits for all.
const diamond = `[
 {"id":"0","type":"review"}, {"id":"1","type":"review","depends_on":["0"]}, {"id":"2","type":"review","depends_on":["0"]},
 {"id":"3","type":"review","depends_on":["2","1"]}, {"id":"4","type":"review","depends_on":[]}, {"id":"5","type":"review"}]`

func TestGraph(t *testing.T) {
	got, l := decode(t, diamond, Options{})
	if len(l) > 0 {
		t.Fatal(l.Err())
	}
	ancestors := got.Ancestors()
	for i, want := range [][]int{nil, {0}, {0}, {0, 1, 2}, nil, {0, 1, 2, 3, 4}} {
		if have := ancestors[i].Items(); !slices.Equal(have, want) || ancestors[i].Len() != len(want) {
			t.Errorf("ancestors of %d: %v, not %v", i, have, want)
		}
	}
	for i, want := range [][]int{{1, 2, 3, 5}, {3, 5}, {3, 5}, {5}, {5}, nil} {
		if have := got.Dependents(i).Items(); !slices.Equal(have, want) {
			t.Errorf("dependents of %d: %v, not %v", i, have, want)
		}
	}
	if i, ok := got.Index("3"); !ok || i != 3 {
		t.Error("Index")
	}
	if _, ok := got.Index("9"); ok {
		t.Error("Index of no step")
	}
}

// TestGraphOfManySteps crosses the words of a Set: ancestors and dependents are each other's inverse.
func TestGraphOfManySteps(t *testing.T) {
	var b strings.Builder
	const n = 200
	for i := range n {
		deps := ""
		switch {
		case i%7 == 3: // all before
		case i < 2:
			deps = `,"depends_on":[]`
		default:
			deps = fmt.Sprintf(`,"depends_on":["s%d","s%d"]`, i/2, i*2/3)
		}
		fmt.Fprintf(&b, `,{"id":"s%d","type":"review"%s}`, i, deps)
	}
	got, l := decode(t, "["+b.String()[1:]+"]", Options{})
	if len(l) > 0 {
		t.Fatal(l.Err())
	}
	ancestors := got.Ancestors()
	for i := range n {
		dependents := got.Dependents(i)
		for j := range n {
			if dependents.Has(j) != ancestors[j].Has(i) {
				t.Fatalf("steps %d and %d", i, j)
			}
		}
	}
	if ancestors[0].Has(-1) || ancestors[0].Has(1000) {
		t.Error("members outside the task")
	}
}
