package local_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// causeOf is what the list tells of a dead box.
func causeOf(t *testing.T, p sandbox.Provider, id string) string {
	t.Helper()
	infos, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if info.ID == id && info.State == sandbox.StateDead {
			return info.Cause
		}
	}
	return "not dead"
}

// A command that a box's end stops is told why, and so is whoever lists the box or connects to it later.
func TestCauseOfDeath(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	p := openAt(t, root)
	for _, c := range []struct {
		cause string
		lease time.Duration
		end   func(id string)
		swept bool
	}{
		{sandbox.CauseLease, 400 * time.Millisecond, func(string) {}, false},
		{sandbox.CauseSignal, time.Minute, func(id string) { syscall.Kill(pid1Of(t, root, id), syscall.SIGKILL) }, false},
		{sandbox.CauseRemoved, time.Minute, func(id string) { p.Destroy(t.Context(), id) }, true},
	} {
		info, box := create(t, p, sandbox.Spec{Lease: c.lease})
		running := make(chan error)
		go func() {
			_, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sleep", "60"}}, guest.Limits{})
			running <- err
		}()
		time.Sleep(50 * time.Millisecond)
		c.end(info.ID)
		if err := <-running; !errors.Is(err, guest.ErrGone) || !strings.Contains(err.Error(), sandbox.Why(c.cause)) {
			t.Errorf("%s: the command's error is %v", c.cause, err)
		}
		if _, err := box.Stat(t.Context(), "/tmp"); !errors.Is(err, guest.ErrGone) || !strings.Contains(err.Error(), sandbox.Why(c.cause)) {
			t.Errorf("%s: a later call's error is %v", c.cause, err)
		}
		if c.swept {
			continue
		}
		if got := causeOf(t, p, info.ID); got != c.cause {
			t.Errorf("%s: the list says %q", c.cause, got)
		}
		if _, err := p.Connect(t.Context(), info.ID); !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), sandbox.Why(c.cause)) {
			t.Errorf("%s: connecting later: %v", c.cause, err)
		}
	}
	o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{{Tied: true}}})
	id := o.ids(t, 1)[0]
	o.kill()
	within(t, hang, "the box is dead", func() bool { return pid1Of(t, root, id) == 0 })
	if got := causeOf(t, p, id); got != sandbox.CauseOwner {
		t.Errorf("its owner was killed: the list says %q", got)
	}
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// Removing is legal in every state, and as often as one likes.
func TestRemoveInEveryState(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	p, q := openAt(t, root), openAt(t, root)
	states := map[string]func(id string){
		"running":   func(string) {},
		"stopped":   func(id string) { syscall.Kill(pid1Of(t, root, id), syscall.SIGSTOP) },
		"killed":    func(id string) { syscall.Kill(pid1Of(t, root, id), syscall.SIGKILL) },
		"swept":     func(id string) { syscall.Kill(pid1Of(t, root, id), syscall.SIGKILL); p.Sweep(t.Context()) },
		"destroyed": func(id string) { p.Destroy(t.Context(), id) },
	}
	for name, put := range states {
		info, err := p.Create(t.Context(), sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		put(info.ID)
		failed := make(chan error)
		for _, by := range []sandbox.Provider{p, q, p, q} {
			go func() { failed <- by.Destroy(t.Context(), info.ID) }()
		}
		for range 4 {
			if err := <-failed; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		nothingLeft(t, root, []string{info.ID})
	}
}
