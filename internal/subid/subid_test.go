package subid

import (
	"strings"
	"testing"
)

// The largest of a user's ranges counts, by name or number; lines that can't be meant don't.
func TestLargest(t *testing.T) {
	for text, want := range map[string][2]int{
		"a:100000:65536\n":                          {100000, 65536},
		"b:1:2\na:5:6\n7:10:20\n":                   {10, 20},
		"a:0:65536\n":                               {0, 0}, // would give away the machine's root
		"a:100000:-1\na:x:1\na:\na\n:1:2\n":         {0, 0},
		"a:4294967000:65536\n":                      {0, 0}, // past the last id
		"aa:100000:65536\n #a:1:2\na:200000:1000\n": {200000, 1000},
		"": {0, 0},
	} {
		if first, count := largest(strings.NewReader(text), "a", 7); first != want[0] || count != want[1] {
			t.Errorf("%q: %d %d, want %v", text, first, count, want)
		}
	}
}

// FuzzLargest: a range never holds an id that is nobody's or the machine's root.
func FuzzLargest(f *testing.F) {
	f.Add("a:100000:65536\nb:1:1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if first, count := largest(strings.NewReader(text), "a", 7); count != 0 && (first < 1 || count < 1 || first+count > 1<<32) {
			t.Errorf("%d, %d", first, count)
		}
	})
}
