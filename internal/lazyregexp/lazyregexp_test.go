package lazyregexp

import "testing"

func TestNew(t *testing.T) {
	word := New(`^\w+$`)
	if !word().MatchString("word") || word().MatchString("two words") {
		t.Error("not the expression that was given")
	}
	if first, again := word(), word(); first != again {
		t.Error("compiled twice")
	}
	broken := New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("a broken expression was compiled")
		}
	}()
	broken()
}
