package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/computer/app"
)

func TestMain(m *testing.M) {
	if home := os.Getenv("APP_TEST_KILLED"); home != "" {
		fmt.Fprintln(os.Stderr, killed(home)) // it never gets here
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const programAt = "/agentenv/ext/computer-app/"

// eventually waits until what is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatalf("not %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func (r *rig) status() (s app.Status) {
	r.t.Helper()
	if code, b := r.ask(http.MethodGet, programAt+"status", ""); code != http.StatusOK || json.Unmarshal([]byte(b), &s) != nil {
		r.t.Fatal(code, b)
	}
	return s
}

func (r *rig) post(op string) {
	r.t.Helper()
	if code, b := r.ask(http.MethodPost, programAt+op, "{}"); code != http.StatusOK || b != "{}" {
		r.t.Errorf("%s: %d %s", op, code, b)
	}
}

// runs are the pids that the app wrote down, a line each time it started.
func (r *rig) runs() []int {
	b, _ := os.ReadFile(filepath.Join(r.home, "runs"))
	var out []int
	for l := range strings.FieldsSeq(string(b)) {
		n, err := strconv.Atoi(l)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// program is an app that writes its pid down, does more, and then waits.
func program(more string) app.App {
	a := notes()
	a.Launch = []string{"sh", "-c", `echo $$ >> "$AGENTENV_HOME/runs"; ` + more + "\nwhile :; do sleep 0.05; done"}
	return a
}

// TestA19 holds what the card says of the program, and that it can be launched and stopped (A25).
func TestA19(t *testing.T) {
	t.Parallel()
	r := serve(t, program(`echo hello "$AGENTENV_APP" "$HOME"`), nil)
	_, card := r.ask(http.MethodGet, "/.well-known/agent-env.json", "")
	for _, want := range []string{`"urn:agentenv:computer-app/v1"`, `"data_timeout_s":300`, `"paths":["Notes",".notesrc"]`, programAt + "status", programAt + "launch", programAt + "stop"} {
		if !strings.Contains(card, want) {
			t.Errorf("the card lacks %s", want)
		}
	}
	if s := r.status(); s.Running || s.PID != 0 {
		t.Error(s)
	}
	r.post("stop")
	r.post("launch")
	r.post("launch") // it runs already
	eventually(t, "started", func() bool { return len(r.runs()) > 0 })
	s := r.status()
	if runs := r.runs(); !s.Running || len(runs) != 1 || s.PID != runs[0] {
		t.Error(s, runs)
	}
	var pid struct {
		PID, Group int
		Start      uint64
	}
	if b, err := os.ReadFile(filepath.Join(r.home, ".agentenv/apps/notes.pid")); err != nil || json.Unmarshal(b, &pid) != nil || pid.PID != s.PID || pid.Group != s.PID || pid.Start == 0 {
		t.Errorf("%+v %v", pid, err)
	}
	if b, err := os.ReadFile(filepath.Join(r.home, ".agentenv/apps/notes.log")); err != nil || string(b) != "hello notes "+r.home+"\n" {
		t.Errorf("%q %v", b, err)
	}
	r.post("stop")
	if alive(s.PID) || r.status().Running {
		t.Error("it goes on")
	}
	r = serve(t, notes(), nil)
	if code, b := r.ask(http.MethodPost, programAt+"launch", "{}"); code != http.StatusNotImplemented || !strings.Contains(b, "nothing to launch") {
		t.Error(code, b)
	}
	a := notes()
	a.Launch = []string{"./gone"}
	if code, b := serve(t, a, nil).ask(http.MethodPost, programAt+"launch", "{}"); code != http.StatusInternalServerError || !strings.Contains(b, "./gone can't be started: no such file or directory") {
		t.Error(code, b)
	}
}

// TestA20: a load and a reset stop the app and launch it again; an export doesn't; an app that didn't run stays stopped.
func TestA20(t *testing.T) {
	t.Parallel()
	r := serve(t, program(""), map[string]string{"Notes/a": "1"})
	r.is("a load", r.add(file("Notes/b", "2")), "{}")
	r.is("a reset", r.reset(), "{}")
	if s := r.status(); s.Running || len(r.runs()) != 0 {
		t.Error("an app that didn't run was launched")
	}
	r.post("launch")
	for i, f := range []func() string{func() string { return r.add(file("Notes/b", "2")) }, r.reset, func() string { return r.add(file("x", "")) }} {
		eventually(t, "started", func() bool { return len(r.runs()) == i+1 })
		before := r.status()
		r.tree()
		if r.status() != before {
			t.Error("an export stopped the app")
		}
		f()
		if after := r.status(); !after.Running || after.PID == before.PID || alive(before.PID) {
			t.Errorf("%d: %v %v", i, before, after)
		}
	}
	eventually(t, "started", func() bool { return len(r.runs()) == 4 })
	r.is("the export", r.tree(), "Notes/a=1")
}

// TestLaunchTakesATurn: who launches the app while data are loaded waits, and finds it launched again or launches it then (A21).
func TestLaunchTakesATurn(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	a := program("")
	a.Add = func(context.Context, []*app.Part) error { close(begun); <-end; return nil }
	r := serve(t, a, nil)
	done := make(chan error, 2)
	go func() { r.add(file("Notes/b", "2")); done <- nil }()
	<-begun
	go func() { done <- r.s.Launch(t.Context()) }()
	select {
	case err := <-done:
		t.Fatalf("the launch didn't wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if r.status().Running {
		t.Error("it was launched while data are loaded")
	}
	close(end)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if !r.status().Running {
		t.Error("it wasn't launched")
	}
}

// TestBothFail: the app is launched again even if the reset after a failed load fails too (A22).
func TestBothFail(t *testing.T) {
	t.Parallel()
	a := program("")
	a.Add = func(context.Context, []*app.Part) error { return errors.New("bad data") }
	a.Reset = func(context.Context) error { return errors.New("no room") }
	r := serve(t, a, nil)
	r.post("launch")
	before := r.status()
	r.is("a load", r.add(file("Notes/b", "2")), "-32000 add_failed: bad data; the reset after it failed too: no room")
	if after := r.status(); !after.Running || after.PID == before.PID {
		t.Errorf("%v, then %v", before, after)
	}
}

// TestA26: what ignores SIGTERM is killed; what a launch left after its first process ended counts and is ended; so do jobs with groups of their own.
func TestA26(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		killed bool
	}{
		"ignores": {`trap '' TERM; echo $$ > "$HOME/child"; while :; do sleep 0.05; done`, true},
		"leaves":  {`sleep 600 & echo $! > "$HOME/child"; exit 0`, false},
		"jobs":    {`set -m; sleep 600 & echo $! > "$HOME/child"; exit 0`, false},
		"tidies":  {`trap 'echo bye > "$HOME/bye"; exit' TERM; echo $$ > "$HOME/child"; while :; do sleep 0.05; done`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := notes()
			a.Launch = []string{"bash", "-c", c.script}
			r := serve(t, a, nil)
			grace := 10 * time.Second
			if c.killed {
				grace = 200 * time.Millisecond
				r.s.SetGrace(grace)
			}
			r.post("launch")
			child := 0
			eventually(t, "started", func() bool {
				b, _ := os.ReadFile(filepath.Join(r.home, "child"))
				child, _ = strconv.Atoi(strings.TrimSpace(string(b)))
				return child != 0
			})
			first := r.status()
			if name == "leaves" || name == "jobs" {
				eventually(t, "without its first process", func() bool { return !alive(first.PID) })
			}
			if s := r.status(); !s.Running {
				t.Error("it counts as stopped")
			}
			begun := time.Now()
			r.is("a reset", r.reset(), "{}")
			if took := time.Since(begun); (took >= grace) != c.killed {
				t.Errorf("it took %s", took)
			}
			if alive(child) {
				t.Error("it goes on")
			}
			if _, err := os.Stat(filepath.Join(r.home, "bye")); (err == nil) != (name == "tidies") {
				t.Error(err)
			}
		})
	}
}

// TestA25: a pid that was written down says nothing once the number is another's.
func TestA25(t *testing.T) {
	t.Parallel()
	r := serve(t, program(""), nil)
	other := exec.CommandContext(t.Context(), "sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	r.post("launch")
	b, err := os.ReadFile(filepath.Join(r.home, ".agentenv/apps/notes.pid"))
	if err != nil {
		t.Fatal(err)
	}
	r.post("stop")
	var l map[string]any
	if err := json.Unmarshal(b, &l); err != nil {
		t.Fatal(err)
	}
	l["pid"], l["group"] = other.Process.Pid, other.Process.Pid // of another, and the start isn't its
	l["start"] = 1
	if b, err = json.Marshal(l); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(r.home, ".agentenv/apps/notes.pid"), string(b))
	if r.status().Running {
		t.Error("another's process counts")
	}
	r.post("stop")
	if !alive(other.Process.Pid) {
		t.Error("another's process was ended")
	}
}

// TestServerKilledDuringALoad: the next server ends what the load began: nothing of it is left, nothing is outside of the app's paths, and the app, which
// goes on without its server meanwhile, is launched again.
func TestServerKilledDuringALoad(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, filepath.Join(home, "Notes/welcome"), "hi")
	write(t, filepath.Join(home, "Notes/sub/kept"), "kept")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "APP_TEST_KILLED="+home)
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(home, "Notes/half")); err != nil {
		t.Fatal("the load had not begun", err)
	}
	r := serveIn(t, home, program(""))
	r.is("the export", r.tree(), "Notes/sub/kept=kept Notes/welcome=hi")
	if s := r.status(); !s.Running {
		t.Error("the app that ran isn't launched again")
	}
	eventually(t, "started", func() bool { return len(r.runs()) == 2 })
	e, err := os.ReadDir(home)
	var names []string
	for _, f := range e {
		names = append(names, f.Name())
	}
	r.is("the home", fmt.Sprint(names, err), "[.agentenv Notes runs] <nil>")
}

// killed is a server that is killed in the middle of a load, when it has stopped the app and written a file.
func killed(home string) error {
	ctx := context.Background()
	a := program("")
	a.Add = func(context.Context, []*app.Part) error {
		if err := errors.Join(os.WriteFile(filepath.Join(home, "Notes/half"), nil, 0o600), os.RemoveAll(filepath.Join(home, "Notes/sub"))); err != nil {
			return err
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	s, err := app.Open(ctx, a, app.Options{Home: home})
	if err != nil {
		return err
	}
	if err := s.Launch(ctx); err != nil {
		return err
	}
	h, err := s.Handler()
	if err != nil {
		return err
	}
	for {
		if b, err := os.ReadFile(filepath.Join(home, "runs")); err == nil && len(b) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New(call(ctx, h, "data/add"))
}

// TestTwoServers: one server has an app of a home, so that two apps of one name don't undo each other's data.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	r := serve(t, program(""), nil)
	if _, err := app.Open(t.Context(), notes(), app.Options{Home: r.home}); err == nil || !strings.Contains(err.Error(), "another server has the app notes of this home") {
		t.Error(err)
	}
	other, err := app.Open(t.Context(), app.App{Name: "other", Paths: []string{"Other"}}, app.Options{Home: r.home})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A program that is being started has copies of all open files for a moment: a home that was let go of is free all the same.
func TestHomeIsFreeBesideACopy(t *testing.T) {
	home := t.TempDir()
	for range 2 {
		s, err := app.Open(t.Context(), notes(), app.Options{Home: home})
		if err != nil {
			t.Fatal(err)
		}
		copies := copiesOf(t, s.Home())
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, fd := range copies {
			defer func() { _ = syscall.Close(fd) }()
		}
	}
}

// copiesOf are copies of the descriptors that this process has of files below dir.
func copiesOf(t *testing.T, dir string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var copies []int
	for _, e := range entries {
		path, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		fd, nerr := strconv.Atoi(e.Name())
		if err != nil || nerr != nil || !strings.HasPrefix(path, dir+"/") {
			continue
		}
		c, err := syscall.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, c)
	}
	if len(copies) == 0 {
		t.Fatalf("no open file below %s", dir)
	}
	return copies
}

// TestFullDisk: a load that the disk has no room for is undone, on the disk that is full.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	home := t.TempDir()
	if err := syscall.Mount("tmpfs", home, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs the right to mount a small file system:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(home, "Notes/welcome"), strings.Repeat("hi", 100<<10))
	r := serveIn(t, home, notes())
	got := r.add(file("Notes/a", strings.Repeat("a", 300<<10)), file("Notes/welcome", ""), file("Notes/b", strings.Repeat("b", 800<<10)))
	r.is("a load", got, "-32000 add_failed: Notes/b: no space left on device")
	r.is("the export", r.tree(), "Notes/welcome="+strings.Repeat("hi", 100<<10))
	// Full to the last byte, a reset still has room.
	_ = os.WriteFile(filepath.Join(home, "Notes/fill"), make([]byte, 2<<20), 0o600) // it fails when nothing is left
	r.is("a reset", r.reset(), "{}")
	r.is("the export", r.tree(), "Notes/welcome="+strings.Repeat("hi", 100<<10))
	r.is("a load", r.add(file("Notes/a", "a")), "{}")
}
