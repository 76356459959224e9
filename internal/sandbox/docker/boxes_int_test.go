//go:build integration && linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// sameState is another provider over a provider's state root, as another process has.
func sameState(t *testing.T, p *Provider) *Provider {
	t.Helper()
	q, err := New(p.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return q
}

func state(t *testing.T, p *Provider, id string) sandbox.Info {
	t.Helper()
	infos, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(infos, func(i sandbox.Info) bool { return i.ID == id })
	if i < 0 {
		return sandbox.Info{}
	}
	return infos[i]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(15 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// A leased box is found, renewed and removed by a later process, and its image's words are kept for who runs its program.
func TestFoundAgain(t *testing.T) {
	p := openEngineProvider(t)
	built, err := p.Build(t.Context(), sandbox.Build{
		Context: buildContext(t, "FROM "+testTag+"\nENV GREETING=hello\nWORKDIR /srv\nUSER 1000:1001\nCMD [\"/bin/sh\"]\n", nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	info := start(t, p, sandbox.Spec{Image: built.ID, Key: "k", Name: "Kept One", Run: "r1", Env: []string{"GREETING=ho", "MINE=1"}})
	if e := info.Entry; e == nil || e.User != "1000:1001" || e.WorkingDir != "/srv" || !slices.Equal(e.Cmd, []string{"/bin/sh"}) || !slices.Contains(e.Env, "GREETING=hello") {
		t.Errorf("the image's entry is %+v", info.Entry)
	}
	if !strings.Contains(info.Image, "sha256:") || info.Network != sandbox.NetNone {
		t.Errorf("made of %s with network %s", info.Image, info.Network)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	q := sameState(t, p)
	again, err := q.Create(t.Context(), sandbox.Spec{Image: built.ID, Key: "k"})
	if err != nil || again.ID != info.ID {
		t.Fatalf("the key gave %s, %v; want %s", again.ID, err, info.ID)
	}
	if got := run(t, q, info.ID, "echo $GREETING $MINE; hostname; id -u; id -g; pwd"); got != "ho 1\nkept-one\n1000\n1001\n/srv\n" {
		t.Errorf("inside: %q", got)
	}
	if err := q.Destroy(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	if l := left(t, q); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}

// What an image of nothing lacks a box doesn't need: the program inside is static.
func TestImageOfNothing(t *testing.T) {
	p := openEngineProvider(t)
	built, err := p.Build(t.Context(), sandbox.Build{Context: buildContext(t, "FROM scratch\nCOPY note /note\n", map[string]string{"note": "hi"})})
	if err != nil {
		t.Fatal(err)
	}
	info := start(t, p, sandbox.Spec{Tied: true, Image: built.ID})
	box, err := p.Connect(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if b, err := box.ReadFile(t.Context(), "/note", 10); err != nil || string(b) != "hi" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh"}}, guest.Limits{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that isn't there: %v", err)
	}
	if info.Isolation.Level != sandbox.LevelContainer {
		t.Errorf("isolation %+v", info.Isolation)
	}
}

func TestLimits(t *testing.T) {
	p := openEngineProvider(t)
	info := start(t, p, sandbox.Spec{Tied: true, CPU: 0.5, MemoryMB: 64, Pids: 20, DiskMB: 64})
	for name, want := range map[string]string{"cpu": "cgroup", "memory": "cgroup", "pids": "cgroup"} {
		if info.Isolation.Limits[name] != want {
			t.Errorf("%s is held by %s, want %s", name, info.Isolation.Limits[name], want)
		}
	}
	if d := info.Isolation.Limits["disk"]; d != "none" && d != "storage driver" {
		t.Errorf("disk is held by %q", d)
	}
	box, err := p.Connect(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	sh := func(text string) guest.Result {
		r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", text}, Timeout: 20 * time.Second, KillTree: true}, guest.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return r
	}
	if r := sh("tail -c 200m /dev/zero >/dev/null; head -c 200m /dev/zero | tail"); !r.Exit.OOM {
		t.Errorf("memory: %+v %s", r.Exit, r.Stderr.String())
	}
	// PID 1 shares the container's group: where it needs a thread while the limit is reached, the whole box ends, which contains the bomb too.
	bomb := "i=0; while [ $i -lt 300 ]; do sleep 5 & i=$((i+1)); done 2>&1; ls -d /proc/[0-9]* | wc -l"
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", bomb}, Timeout: 20 * time.Second, KillTree: true}, guest.Limits{})
	if errors.Is(err, guest.ErrGone) {
		t.Log("the box ended with the bomb in it")
		return
	}
	if err != nil || r.Exit.Left > 20+reserve {
		t.Errorf("processes: %+v, %v", r.Exit, err)
	}
	if r := sh("echo lives"); r.Stdout.String() != "lives\n" {
		t.Errorf("after the limits: %+v", r)
	}
}

// A command's minder may be killed or stopped by a root of the box. Nothing gets away by it, and other commands are spared.
func TestNobodyLeavesAMinder(t *testing.T) {
	p := openEngineProvider(t)
	info := start(t, p, sandbox.Spec{Tied: true})
	box, err := p.Connect(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	bystander := make(chan error, 1)
	go func() {
		r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "sleep 3; echo fine"}}, guest.Limits{})
		if err == nil && r.Stdout.String() != "fine\n" {
			err = fmt.Errorf("%+v", r)
		}
		bystander <- err
	}()
	for _, text := range []string{
		"(setsid sleep 91 &) ; kill -9 $PPID; sleep 91",
		"setsid sleep 91 & kill -STOP $PPID; sleep 91",
		"trap '' TERM; setsid sh -c 'while :; do sleep 91; done' & sleep 0.1; kill -TERM $PPID; sleep 91",
	} {
		r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", text}, Timeout: 700 * time.Millisecond}, guest.Limits{})
		if err != nil || r.Exit.OK() {
			t.Errorf("%s: %+v, %v", text, r.Exit, err)
		}
		if got := strings.TrimSpace(run(t, p, info.ID, "ps | grep -c '[s]leep 91'")); got != "0" {
			t.Errorf("%s: %s processes are left", text, got)
		}
	}
	if err := <-bystander; err != nil {
		t.Errorf("a command beside it: %v", err)
	}
}

// Signals to everybody in the box leave it standing.
func TestSignalStorm(t *testing.T) {
	p := openEngineProvider(t)
	info := start(t, p, sandbox.Spec{Tied: true})
	for _, text := range []string{"kill -TERM -1; kill -INT -1; kill -HUP -1; echo alive", "kill -KILL 1; kill -SEGV 1; echo alive"} {
		if got := run(t, p, info.ID, text); !strings.Contains(got, "alive") {
			t.Errorf("%s: %q", text, got)
		}
	}
	run(t, p, info.ID, "kill -9 -1; true") // its own minder too: it ends
	if got := run(t, p, info.ID, "echo alive"); got != "alive\n" {
		t.Errorf("after a kill of all: %q", got)
	}
}

// A box that is paused, removed behind the program's back, or out of memory as a whole is destroyed like any other.
func TestDestroyInEveryState(t *testing.T) {
	p := openEngineProvider(t)
	e, err := p.engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		do   func(name string) error
		dead string // the cause that is told then
	}{
		{"paused", func(n string) error {
			_, err := e.ContainerPause(t.Context(), n, client.ContainerPauseOptions{})
			return err
		}, ""},
		{"killed", func(n string) error {
			_, err := e.ContainerKill(t.Context(), n, client.ContainerKillOptions{})
			return err
		}, sandbox.CauseSignal},
		{"removed", func(n string) error {
			_, err := e.ContainerRemove(t.Context(), n, client.ContainerRemoveOptions{Force: true})
			return err
		}, ""},
	} {
		info := start(t, p, sandbox.Spec{Network: sandbox.NetAllowAll})
		if err := c.do(containerName(info.ID)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if c.dead != "" {
			eventually(t, "dead", func() bool { return state(t, p, info.ID).State == sandbox.StateDead })
			eventually(t, c.name+" for "+c.dead, func() bool { return state(t, p, info.ID).Cause == c.dead })
		}
		begin := time.Now()
		if err := p.Destroy(t.Context(), info.ID); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s: took %s", c.name, took)
		}
	}
	if l := left(t, p); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}

// A box at its lease leaves no process; the sweep takes the rest, networks included, and tells the cause before.
func TestLeaseThenSweep(t *testing.T) {
	p := openEngineProvider(t)
	info := start(t, p, sandbox.Spec{Network: sandbox.NetAllowAll, Lease: 300 * time.Millisecond})
	eventually(t, "dead", func() bool { return state(t, p, info.ID).State == sandbox.StateDead })
	if got := state(t, p, info.ID).Cause; got != sandbox.CauseLease {
		t.Errorf("it died of %q", got)
	}
	swept, err := sameState(t, p).Sweep(t.Context())
	if err != nil || !slices.Equal(swept, []string{info.ID}) {
		t.Errorf("swept %v, %v", swept, err)
	}
	if l := left(t, p); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}

// playRole is a process that makes a box and is killed at some time, or a program in a box that tries to get out of its network.
func playRole(role string) int {
	f := strings.Fields(role)
	if f[0] == "attempts" {
		return attempt(f[1:])
	}
	p, err := New(Options{StateRoot: f[1], Image: testTag, Guest: ownProgram, Env: os.LookupEnv})
	if err != nil {
		return 1
	}
	info, err := p.Create(context.Background(), sandbox.Spec{Tied: f[0] == "tied", Network: sandbox.NetAllowAll})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(info.ID)
	time.Sleep(time.Minute)
	return 0
}

// A maker that is killed at any time leaves nothing after a sweep, and a tied box dies with it.
func TestMakerKilled(t *testing.T) {
	p := openEngineProvider(t)
	for i := range 12 {
		after := time.Duration(i) * 60 * time.Millisecond
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), roleVar+"=tied "+p.opts.StateRoot)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	eventually(t, "no box lives", func() bool {
		infos, err := p.List(t.Context())
		return err == nil && !slices.ContainsFunc(infos, func(i sandbox.Info) bool { return i.State == sandbox.StateRunning })
	})
	for until := time.Now().Add(asking + 5*time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if entries, _ := os.ReadDir(p.boxes); len(entries) == 0 {
			break
		}
	}
	if l := left(t, p); len(l) > 0 {
		t.Errorf("left in the engine: %v", l)
	}
	if entries, err := os.ReadDir(p.boxes); err != nil || len(entries) > 0 {
		t.Errorf("left on the host: %v, %v", entries, err)
	}
}

func TestShown(t *testing.T) {
	p := openEngineProvider(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("seen"), 0o644); err != nil {
		t.Fatal(err)
	}
	info := start(t, p, sandbox.Spec{Tied: true, Self: true, Shown: []sandbox.Shown{{From: dir, At: "/opt/seen"}}})
	if got := run(t, p, info.ID, "cat /opt/seen/f; echo no 2>/dev/null >/opt/seen/f; test -x "+sandbox.SelfPath+" && echo ' self'; cat /opt/seen/f"); !strings.Contains(got, "seen") || !strings.Contains(got, " self") || strings.Contains(got, "no\n") {
		t.Errorf("%q", got)
	}
}
