package store

import (
	"errors"
	"testing"
)

func TestCursor(t *testing.T) {
	for _, c := range []Cursor{{}, {1, 2}, {1<<63 - 1, 1<<63 - 1}} {
		if got, err := ParseCursor(c.String()); err != nil || got != c {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("1.2")
	f.Add("-1.zz")
	f.Add(".")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err != nil {
			return
		}
		if again, err := ParseCursor(c.String()); err != nil || again != c {
			t.Errorf("%q: %+v, %v", s, again, err)
		}
	})
}

func TestNotFound(t *testing.T) {
	for version, want := range map[int]string{0: "task t: not in the store", 3: "task t version 3: not in the store"} {
		if err := NotFound(Task, "t", version); err.Error() != want || !errors.Is(err, ErrNotFound) {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
