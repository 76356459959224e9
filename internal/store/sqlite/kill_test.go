package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// A process that is killed at any moment leaves each of its stages whole or not at all, and nothing that stays.
func TestKilledWriter(t *testing.T) {
	root, sources := filepath.Join(t.TempDir(), "store"), t.TempDir()
	committed := 0
	for i := range 8 {
		c := start(t, command(t, nil, "loop", root, sources))
		if i%2 == 1 { // half of them in the middle of their work, half of them early
			c.line(t)
		}
		time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.cmd.Wait()
		last := committed
		for l := range c.lines {
			if _, err := fmt.Sscanf(l, "committed %d", &last); err != nil {
				t.Fatal(l)
			}
		}
		n := checkWhole(t, root, sources)
		if n <= last {
			t.Fatalf("stage %d was committed, and the store ends with %d", last, n-1)
		}
		committed = n
	}
}

// Of twelve first writers of one id on one new folder, one writes, and all find it written.
func TestRacingProcesses(t *testing.T) {
	root, sources := filepath.Join(t.TempDir(), "a b", "store"), t.TempDir()
	var all []*child
	for range 12 {
		all = append(all, start(t, command(t, nil, "race", root, sources)))
	}
	wrote := 0
	for _, c := range all {
		switch l := c.line(t); l {
		case "wrote":
			wrote++
		case "unchanged":
		default:
			t.Error(l)
		}
	}
	if wrote != 1 {
		t.Errorf("%d processes wrote, want 1", wrote)
	}
	for _, c := range all {
		if err := c.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := checkWhole(t, root, sources); n != 2 {
		t.Errorf("stage %d, want 2", n)
	}
}

func makeRun(t *testing.T, s *sqlite.Store, id string) {
	t.Helper()
	if err := s.Runs().Create(t.Context(), runlog.Meta{ID: id}); err != nil {
		t.Fatal(err)
	}
}

// A run whose owner was killed is free at once, long before its claim would lapse.
func TestKilledOwner(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s := open(t, root)
	makeRun(t, s, "r")
	c := start(t, command(t, nil, "own", root, "r"))
	c.wantLine(t, "epoch 1")
	if got, err := s.Runs().Get(t.Context(), "r"); err != nil || got.Owner == nil || got.Owner.PID != c.cmd.Process.Pid || got.Status != runlog.Queued {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := s.Runs().Claim(t.Context(), "r"); !errors.Is(err, runlog.ErrOwned) {
		t.Fatal(err)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range c.lines { // it is ending, though nobody has waited for it
	}
	for end := time.Now().Add(runlog.OwnerTTL / 3); ; time.Sleep(time.Millisecond) {
		got, err := s.Runs().Get(t.Context(), "r")
		if err == nil && got.Owner == nil && got.Status == runlog.Interrupted {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	_ = c.cmd.Wait()
	o, err := s.Runs().Claim(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if o.Epoch() != 2 {
		t.Errorf("epoch %d", o.Epoch())
	}
	if err := o.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// An owner that is stopped past its time, and replaced, learns so when it goes on.
func TestStoppedOwner(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s := open(t, root)
	makeRun(t, s, "r")
	c := start(t, command(t, nil, "own", root, "r"))
	c.wantLine(t, "epoch 1")
	say(t, c, "append note")
	c.wantLine(t, "done")
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Runs().Claim(t.Context(), "r"); !errors.Is(err, runlog.ErrOwned) {
		t.Fatal(err) // stopped, but not for long enough
	}
	later := openWith(t, root, sqlite.Options{Now: func() time.Time { return time.Now().Add(runlog.OwnerTTL) }})
	o, err := later.Runs().Claim(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	say(t, c, "append note")
	say(t, c, "renew")
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.wantLine(t, "fenced")
	c.wantLine(t, "fenced")
	if err := o.Append(t.Context(), runlog.Event{Kind: runlog.Note}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range s.Runs().Events(t.Context(), "r", 0) {
		if n++; err != nil || e.Epoch != uint64(n) {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func say(t *testing.T, c *child, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// What one process appends another follows, and what one asks reaches the other.
func TestTwoProcesses(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s := open(t, root)
	makeRun(t, s, "r")
	c := start(t, command(t, nil, "own", root, "r"))
	c.wantLine(t, "epoch 1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var kinds strings.Builder
	say(t, c, "append first")
	c.wantLine(t, "done")
	for e, err := range s.Runs().Follow(ctx, "r", 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds.WriteString(e.Kind + " ")
		switch e.Kind {
		case "first":
			if err := s.Runs().Ask(ctx, "r", runlog.Request{Kind: "cancel"}); err != nil {
				t.Fatal(err)
			}
			c.wantLine(t, "asked cancel")
			say(t, c, "append second")
			c.wantLine(t, "done")
		case "second":
			say(t, c, "end")
			c.wantLine(t, "done")
		}
	}
	if kinds.String() != "first second run.ended " {
		t.Errorf("followed %q", kinds.String())
	}
}
