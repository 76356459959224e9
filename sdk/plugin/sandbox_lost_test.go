package plugin

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
)

type nobody struct{ Sandbox }

func (nobody) Close() error { return nil }

// A command of a sandbox that is destroyed finds its connection closed, or its sandbox dead, whichever comes first: it is gone either way.
func TestLost(t *testing.T) {
	in := SandboxParams{ID: "a", Entry: Entry{Name: "p"}}
	key := boxKey{"p", "a"}
	b := &boxServer{boxes: map[boxKey]Sandbox{key: nobody{}}}
	closed := fmt.Errorf("exec: %w", net.ErrClosed)
	if err := b.lost(in, closed); !errors.Is(err, closed) || errors.Is(err, ErrSandboxGone) {
		t.Errorf("of a sandbox that is here: %v", err)
	}
	if err := b.leave(key); err != nil {
		t.Fatal(err)
	}
	if f := FaultOf(b.lost(in, closed)); !errors.Is(f, ErrSandboxGone) {
		t.Errorf("of one that was destroyed: %+v", f)
	}
	if err := b.lost(in, io.EOF); !errors.Is(err, io.EOF) || errors.Is(err, ErrSandboxGone) {
		t.Errorf("another fault: %v", err)
	}
	if err := b.lost(in, nil); err != nil {
		t.Error(err)
	}
}
