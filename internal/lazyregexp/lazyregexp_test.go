package lazyregexp

import "testing"

func TestNew(t *testing.T) {
	word := New(`^\w+$`)
	if !word().MatchString("word") || word().MatchString("two words") || word() != word() {
		t.Error("not the expression that was given, or compiled twice")
	}
	broken := New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("a broken expression was compiled")
		}
	}()
	broken()
}
