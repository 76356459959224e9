package pyhost

import (
	"bytes"
	"testing"
)

// What a process of plugins writes is read without a crash, and never answers more than was asked.
func FuzzFollow(f *testing.F) {
	for _, s := range []string{
		`{"begin":0}` + "\n" + `{"index":0,"loaded":{"group":"g","name":"n","value":"v","status":"active","type":{"name":"n"}}}` + "\n",
		`{"begin":0}`, `{"loaded":null}`, "null\n[]\n", "\xff", `{"loaded":{"type":1}}`, "",
	} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		n &= 7
		done, _, _ := follow(bytes.NewReader(b), n, func() {})
		if len(done) > n {
			t.Errorf("%d answers to %d entries", len(done), n)
		}
	})
}
