// Package sandboxtest is the suite that every sandbox provider passes.
//
// A provider's test calls Run with a way to open a fresh provider. What a provider can't do is named in Features, so that nothing is
// skipped silently.
package sandboxtest

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// Features tells which parts of the suite a provider can pass.
type Features struct {
	// Real: boxes run real programs, a POSIX shell among them, and real processes die.
	Real bool
	// Dir is where commands run that name no folder; "" is their user's home.
	Dir string
	// Minded: between PID 1 and each command is a process that minds it.
	Minded bool
	// NoTerminals: commands can't have a terminal, and Exec refuses them.
	NoTerminals bool
	// Egress: allow_all reaches public addresses alone.
	Egress bool
	// Spec is the least that a box of the provider needs; the suite sets the other fields.
	Spec sandbox.Spec
}

// Run runs the suite. open makes a provider whose boxes no other test sees; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) sandbox.Provider, f Features) {
	s := &suite{open: open, f: f}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *suite)
		real bool
	}{
		{"Lifecycle", lifecycle, false},
		{"DestroyIsIdempotent", destroyIsIdempotent, false},
		{"UnknownBox", unknownBox, false},
		{"KeyGivesTheSameBox", keyGivesTheSameBox, false},
		{"ConcurrentCreatesOfOneKey", concurrentCreatesOfOneKey, false},
		{"ConcurrentCreates", concurrentCreates, false},
		{"RefusesWhatItCannotDo", refusesWhatItCannotDo, false},
		{"CancelledCreateLeavesNothing", cancelledCreate, false},
		{"SweepLeavesTheLiving", sweepLeavesTheLiving, false},
		{"LeaseEndsTheBox", leaseEndsTheBox, false},
		{"RenewMovesTheLease", renewMovesTheLease, false},
		{"CloseEndsTiedBoxes", closeEndsTiedBoxes, false},
		{"ClosedHandle", closedHandle, false},
		{"DeadBox", deadBox, false},
		{"Exec", execBasics, false},
		{"ExecTimeout", execTimeout, false},
		{"ExecCancel", execCancel, false},
		{"ReadFile", readFile, false},
		{"Stat", stat, false},
		{"TreeAndExtract", treeAndExtract, false},
		{"OddNames", oddNames, false},
		{"ExtractRefusesEscapes", extractRefusesEscapes, false},
		{"ExtractReplaces", extractReplaces, false},
		{"DialAndListen", dialAndListen, false},
		{"DialRefused", dialRefused, false},
		{"Shell", shell, true},
		{"Signals", signals, true},
		{"EveryByte", everyByte, true},
		{"BigOutput", bigOutput, true},
		{"StdinBytes", stdinBytes, true},
		{"DaemonHoldsOutput", daemonHoldsOutput, true},
		{"TimeoutKillsDescendants", timeoutKillsDescendants, true},
		{"CancelKillsDescendants", cancelKillsDescendants, true},
		{"KillTree", killTree, true},
		{"ConcurrentExecs", concurrentExecs, true},
		{"TimeoutSparesOthers", timeoutSparesOthers, true},
		{"TreeKeepsEverything", treeKeepsEverything, true},
		{"ServerInside", serverInside, true},
		{"Networks", networks, true},
		{"Published", published, true},
		{"DialBeforeAndAfterDeath", dialAfterDeath, true},
		{"ForkKeepsEverything", forkKeepsEverything, true},
		{"ForksAreApart", forksAreApart, true},
		{"ForkOfForks", forkOfForks, true},
		{"ForkPauses", forkPauses, true},
		{"SnapshotOutlivesItsBox", snapshotOutlivesItsBox, true},
		{"SnapshotTravels", snapshotTravels, true},
		{"Diff", diff, true},
		{"UploadRace", uploadRace, true},
		{"DownloadRace", downloadRace, true},
		{"User", user, true},
		{"Terminal", terminal, true},
		{"TerminalOfAUser", terminalOfAUser, true},
		{"TerminalTimeout", terminalTimeout, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.real && !f.Real {
				t.Skip("the provider's boxes run no real programs")
			}
			t.Parallel()
			c.run(t, s)
		})
	}
}

type suite struct {
	open func(t *testing.T) sandbox.Provider
	f    Features
}

// provider opens one and closes it with the test.
func (s *suite) provider(t *testing.T) sandbox.Provider {
	t.Helper()
	p := s.open(t)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return p
}

// spec is the provider's least spec, tied unless change says otherwise.
func (s *suite) spec(change ...func(*sandbox.Spec)) sandbox.Spec {
	spec := s.f.Spec
	spec.Tied = true
	for _, c := range change {
		c(&spec)
	}
	return spec
}

// create makes a box that the test destroys.
func create(t *testing.T, p sandbox.Provider, spec sandbox.Spec) sandbox.Info {
	t.Helper()
	info, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Destroy(context.WithoutCancel(t.Context()), info.ID); err != nil {
			t.Errorf("destroy %s: %v", info.ID, err)
		}
	})
	return info
}

func connect(t *testing.T, p sandbox.Provider, id string) guest.Box {
	t.Helper()
	box, err := p.Connect(t.Context(), id)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { box.Close() })
	return box
}

// box is a fresh box.
func (s *suite) box(t *testing.T) guest.Box {
	t.Helper()
	p := s.provider(t)
	return connect(t, p, create(t, p, s.spec()).ID)
}

func output(t *testing.T, b guest.Box, c guest.Command, l guest.Limits) guest.Result {
	t.Helper()
	r, err := guest.Output(t.Context(), b, c, l)
	if err != nil {
		t.Fatalf("run %q: %v", c.Argv, err)
	}
	return r
}

func argv(words ...string) guest.Command { return guest.Command{Argv: words} }

func find(t *testing.T, p sandbox.Provider, id string) (sandbox.Info, bool) {
	t.Helper()
	infos, err := p.List(t.Context())
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	i := slices.IndexFunc(infos, func(i sandbox.Info) bool { return i.ID == id })
	if i < 0 {
		return sandbox.Info{}, false
	}
	return infos[i], true
}

// hang is how long nothing takes, on the busiest machine, but what hangs: what is waited for without end lasts a minute or more.
const hang = 45 * time.Second

// eventually waits for ok, at most for a time that no healthy machine needs.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(hang); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func lifecycle(t *testing.T, s *suite) {
	p := s.provider(t)
	before := time.Now().Add(-time.Second)
	info := create(t, p, s.spec(func(s *sandbox.Spec) {
		s.Name, s.Run, s.Lease, s.Labels = "mine", "run-1", time.Hour, map[string]string{"step": "deploy"}
	}))
	switch {
	case info.ID == "", info.Provider == "", info.Name != "mine", info.Run != "run-1", !info.Tied, info.State != sandbox.StateRunning, info.Labels["step"] != "deploy":
		t.Errorf("create answered %+v", info)
	case info.Created.Before(before) || info.Created.After(time.Now().Add(time.Second)):
		t.Errorf("created at %s", info.Created)
	}
	if left := time.Until(info.Expires); left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("the lease ends in %s, want an hour", left)
	}
	if info.Isolation.Level == "" || len(info.Isolation.Probes) == 0 {
		t.Errorf("the isolation in force is not recorded: %+v", info.Isolation)
	}
	for _, r := range []string{"cpu", "disk", "memory", "pids"} {
		if info.Isolation.Limits[r] == "" {
			t.Errorf("what limits %s is not recorded", r)
		}
	}
	listed, ok := find(t, p, info.ID)
	if !ok || listed.Name != "mine" || listed.State != sandbox.StateRunning || listed.Labels["step"] != "deploy" || !listed.Created.Equal(info.Created) {
		t.Errorf("list answered %+v, %v", listed, ok)
	}
	box := connect(t, p, info.ID)
	if r := output(t, box, argv("echo", "hello"), guest.Limits{}); r.Stdout.String() != "hello\n" || !r.Exit.OK() {
		t.Errorf("echo: %+v", r)
	}
	if err := box.Close(); err != nil {
		t.Errorf("close the box: %v", err)
	}
	// The provider holds a tied box: closing a handle ends nothing.
	output(t, connect(t, p, info.ID), argv("true"), guest.Limits{})
	if err := p.Destroy(t.Context(), info.ID); err != nil {
		t.Fatalf("destroy: %v", err)
	}
	if i, ok := find(t, p, info.ID); ok {
		t.Errorf("after destroy the list has %+v", i)
	}
	if _, err := p.Connect(t.Context(), info.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("connect after destroy: %v, want ErrNotFound", err)
	}
}

func destroyIsIdempotent(t *testing.T, s *suite) {
	p := s.provider(t)
	info := create(t, p, s.spec())
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := p.Destroy(t.Context(), info.ID); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	wg.Wait()
	if err := p.Destroy(t.Context(), info.ID); err != nil {
		t.Errorf("destroy again: %v", err)
	}
}

func unknownBox(t *testing.T, s *suite) {
	p := s.provider(t)
	for _, id := range []string{"nobody", "", ".", "..", "../..", "a/b", strings.Repeat("x", 300)} {
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Errorf("destroy %q: %v", id, err)
		}
		if _, err := p.Connect(t.Context(), id); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("connect %q: %v, want ErrNotFound", id, err)
		}
	}
	if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("list of nothing: %v, %v", infos, err)
	}
	if swept, err := p.Sweep(t.Context()); err != nil || len(swept) != 0 {
		t.Errorf("sweep of nothing: %v, %v", swept, err)
	}
}

func keyGivesTheSameBox(t *testing.T, s *suite) {
	p := s.provider(t)
	keyed := s.spec(func(s *sandbox.Spec) { s.Key = "run-1/env" })
	a := create(t, p, keyed)
	if b := create(t, p, keyed); b.ID != a.ID || b.Key != "run-1/env" {
		t.Errorf("the same key made %s and %s", a.ID, b.ID)
	}
	if c := create(t, p, s.spec(func(s *sandbox.Spec) { s.Key = "run-2/env" })); c.ID == a.ID {
		t.Errorf("another key gave the same box")
	}
	if err := p.Destroy(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	d := create(t, p, keyed)
	output(t, connect(t, p, d.ID), argv("true"), guest.Limits{})
}

func concurrentCreatesOfOneKey(t *testing.T, s *suite) {
	p := s.provider(t)
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			info, err := p.Create(t.Context(), s.spec(func(s *sandbox.Spec) { s.Key = "one" }))
			if err != nil {
				t.Errorf("create: %v", err)
			}
			ids[i] = info.ID
		})
	}
	wg.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		t.Errorf("one key made %d boxes: %v", len(slices.Compact(ids)), ids)
	}
	if infos, err := p.List(t.Context()); err != nil || len(infos) != 1 {
		t.Errorf("list: %d boxes, %v", len(infos), err)
	}
}

func concurrentCreates(t *testing.T, s *suite) {
	p := s.provider(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			info, err := p.Create(t.Context(), s.spec())
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			box, err := p.Connect(t.Context(), info.ID)
			if err != nil {
				t.Errorf("connect: %v", err)
				return
			}
			defer box.Close()
			if r, err := guest.Output(t.Context(), box, argv("echo", info.ID), guest.Limits{}); err != nil || r.Stdout.String() != info.ID+"\n" {
				t.Errorf("echo: %q, %v", r.Stdout.String(), err)
			}
			if err := p.Destroy(t.Context(), info.ID); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	wg.Wait()
	if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("left: %v, %v", infos, err)
	}
}

func refusesWhatItCannotDo(t *testing.T, s *suite) {
	p := s.provider(t)
	if _, err := p.Create(t.Context(), s.spec(func(s *sandbox.Spec) { s.Isolation = "no such level" })); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("an unknown isolation level: %v, want ErrUnsupported", err)
	}
	if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("a refused box is listed: %v, %v", infos, err)
	}
}

func cancelledCreate(t *testing.T, s *suite) {
	p := s.provider(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Create(ctx, s.spec()); !errors.Is(err, context.Canceled) {
		t.Errorf("create: %v, want context.Canceled", err)
	}
	// At any moment of a start the end of its context leaves nothing.
	for after := time.Duration(0); after < 12*time.Millisecond; after += 3 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		info, err := p.Create(ctx, s.spec())
		cancel()
		if err == nil {
			if err := p.Destroy(t.Context(), info.ID); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("create with %s: %v, want context.DeadlineExceeded", after, err)
		}
	}
	if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("left: %+v, %v", infos, err)
	}
}

func sweepLeavesTheLiving(t *testing.T, s *suite) {
	p := s.provider(t)
	alive := create(t, p, s.spec())
	dead := create(t, p, s.spec(func(s *sandbox.Spec) { s.Lease = 50 * time.Millisecond }))
	eventually(t, "dead at its lease", func() bool { i, ok := find(t, p, dead.ID); return ok && i.State == sandbox.StateDead })
	swept, err := p.Sweep(t.Context())
	if err != nil || !slices.Equal(swept, []string{dead.ID}) {
		t.Errorf("swept %v, %v; want %s", swept, err, dead.ID)
	}
	if i, ok := find(t, p, alive.ID); !ok || i.State != sandbox.StateRunning {
		t.Errorf("the living box: %+v, %v", i, ok)
	}
	if _, ok := find(t, p, dead.ID); ok {
		t.Error("the dead box is still listed")
	}
}

func leaseEndsTheBox(t *testing.T, s *suite) {
	p := s.provider(t)
	for _, tied := range []bool{true, false} {
		info := create(t, p, s.spec(func(s *sandbox.Spec) { s.Tied, s.Lease = tied, 300*time.Millisecond }))
		box := connect(t, p, info.ID)
		start := time.Now()
		_, err := guest.Output(t.Context(), box, argv("sleep", "60"), guest.Limits{})
		if !errors.Is(err, guest.ErrGone) {
			t.Errorf("a command at its box's end: %v, want ErrGone", err)
		}
		if took := time.Since(start); took > hang {
			t.Errorf("the box lived %s", took)
		}
		// Its connections end a moment before it does.
		eventually(t, "listed as dead", func() bool { i, ok := find(t, p, info.ID); return !ok || i.State == sandbox.StateDead })
		if _, err := p.Connect(t.Context(), info.ID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("connect to a dead box: %v, want ErrNotFound", err)
		}
	}
}

func renewMovesTheLease(t *testing.T, s *suite) {
	p := s.provider(t)
	info := create(t, p, s.spec(func(s *sandbox.Spec) { s.Lease = 400 * time.Millisecond }))
	box := connect(t, p, info.ID)
	for range 4 {
		time.Sleep(150 * time.Millisecond)
		if err := box.Renew(t.Context(), 400*time.Millisecond); err != nil {
			t.Fatalf("renew: %v", err)
		}
	}
	if err := box.Renew(t.Context(), time.Hour); err != nil {
		t.Fatalf("renew: %v", err)
	}
	if i, _ := find(t, p, info.ID); time.Until(i.Expires) < 59*time.Minute {
		t.Errorf("after a renewal by an hour the lease ends at %s", i.Expires)
	}
	if err := box.Renew(t.Context(), 50*time.Millisecond); err != nil { // shorter counts too
		t.Fatalf("renew: %v", err)
	}
	eventually(t, "dead", func() bool { i, ok := find(t, p, info.ID); return !ok || i.State == sandbox.StateDead })
	if err := box.Renew(t.Context(), time.Hour); !errors.Is(err, guest.ErrGone) {
		t.Errorf("renew of a dead box: %v, want ErrGone", err)
	}
}

func closeEndsTiedBoxes(t *testing.T, s *suite) {
	p := s.open(t)
	tied, err := p.Create(t.Context(), s.spec())
	if err != nil {
		t.Fatal(err)
	}
	box, err := p.Connect(t.Context(), tied.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := box.Stat(t.Context(), "/tmp"); !errors.Is(err, guest.ErrGone) {
		t.Errorf("a tied box after its provider's close: %v, want ErrGone", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

func closedHandle(t *testing.T, s *suite) {
	p := s.provider(t)
	id := create(t, p, s.spec()).ID
	box := connect(t, p, id)
	other := connect(t, p, id)
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Stat(t.Context(), "/tmp"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("stat through a closed handle: %v, want net.ErrClosed", err)
	}
	if err := box.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	if _, err := other.Stat(t.Context(), "/tmp"); err != nil {
		t.Errorf("the other handle: %v", err)
	}
}

func deadBox(t *testing.T, s *suite) {
	p := s.provider(t)
	id := create(t, p, s.spec()).ID
	box := connect(t, p, id)
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"exec":    func() error { _, err := box.Exec(t.Context(), argv("true"), [3]*os.File{}); return err },
		"dial":    func() error { _, err := box.Dial(t.Context(), "tcp", "127.0.0.1:1"); return err },
		"listen":  func() error { _, err := box.Listen(t.Context(), "tcp", "127.0.0.1:0"); return err },
		"read":    func() error { _, err := box.ReadFile(t.Context(), "/etc/hostname", 100); return err },
		"stat":    func() error { _, err := box.Stat(t.Context(), "/"); return err },
		"tree":    func() error { _, err := box.Tree(t.Context(), "/tmp"); return err },
		"extract": func() error { return box.Extract(t.Context(), "/tmp/x", strings.NewReader("")) },
		"renew":   func() error { return box.Renew(t.Context(), time.Hour) },
	} {
		if err := call(); !errors.Is(err, guest.ErrGone) {
			t.Errorf("%s in a dead box: %v, want ErrGone", name, err)
		}
	}
}
