package pid1

import (
	"maps"
	"slices"
	"testing"
)

func TestParseStat(t *testing.T) {
	const tail = " 7 7 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 %T 0 4242 2301952 200"
	line := func(head, threads string) []byte {
		return []byte(head + " 7 7 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 " + threads + " 0 4242 2301952 200\n")
	}
	for _, c := range []struct {
		name string
		in   []byte
		want process
		ok   bool
	}{
		{"running", line("12 (sh) R 7", "1"), process{7, "4242", true}, true},
		{"a name of everything", line("12 (a) Z 1 (b) c) S 7", "1"), process{7, "4242", true}, true},
		{"a name of lines", line("12 (a\nb) S 7", "1"), process{7, "4242", true}, true},
		{"zombie", line("12 (sh) Z 7", "1"), process{7, "4242", false}, true},
		{"zombie whose threads live", line("12 (sh) Z 7", "3"), process{7, "4242", true}, true},
		{"half", []byte("12 (sh) R 7"), process{}, false},
		{"no name", []byte("12 sh R 7" + tail), process{}, false},
		{"empty", nil, process{}, false},
	} {
		if got, ok := parseStat(c.in); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v", c.name, got, ok)
		}
	}
}

func TestBelow(t *testing.T) {
	all := table{
		1: {parent: 0, alive: true}, 5: {parent: 1, alive: true}, 6: {parent: 5, alive: true}, 7: {parent: 6, alive: false}, 8: {parent: 7, alive: true},
		9: {parent: 1, alive: true}, 10: {parent: 9, alive: true},
	}
	got := slices.Sorted(maps.Keys(all.below(map[int]bool{5: true})))
	if !slices.Equal(got, []int{6, 8}) {
		t.Errorf("below 5: %v", got)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) R 7 7 7 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 4242 2301952 200\n"))
	f.Add([]byte(" () "))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parseStat(b); ok && p.start == "" {
			t.Errorf("%q: %+v", b, p)
		}
	})
}
