package subprocess

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// begin starts a shell in a group of its own and waits for its first word. Whoever of the group lives holds the other end of what is answered.
func begin(t *testing.T, script string) (*exec.Cmd, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	Own(cmd)
	cmd.Stdout = w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	return cmd, r
}

// gone waits until nobody of a group lives.
func gone(t *testing.T, r *os.File) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("somebody of the group is alive: %v", err)
	}
}

func TestWaitEndsWhatIsLeft(t *testing.T) {
	cmd, left := begin(t, "sleep 600 & echo up")
	if err := Wait(cmd); err != nil {
		t.Fatal(err)
	}
	gone(t, left)
}

func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		signal syscall.Signal
	}{
		"term": {"echo up; exec sleep 600", syscall.SIGTERM},
		"kill": {"trap '' TERM; echo up; while :; do sleep 1; done", syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out := begin(t, c.script)
			done := make(chan struct{})
			var how error
			go func() { how = Wait(cmd); close(done) }()
			Stop(cmd, done, 0, 200*time.Millisecond)
			exit, ok := errors.AsType[*exec.ExitError](how)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != c.signal {
				t.Errorf("it ended with %v", how)
			}
			gone(t, out)
		})
	}
}

func TestStopOfOneThatLeaves(t *testing.T) {
	cmd, _ := begin(t, "echo up")
	done := make(chan struct{})
	var how error
	go func() { how = Wait(cmd); close(done) }()
	Stop(cmd, done, time.Minute, time.Minute)
	if how != nil {
		t.Error(how)
	}
}

func TestTail(t *testing.T) {
	tail := &Tail{Max: 4}
	for _, s := range []string{"ab", "cde", "", "0123456789"} {
		if n, err := tail.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
		if s == "cde" && tail.Text() != "bcde" {
			t.Error(tail.Text())
		}
	}
	if tail.Text() != "6789" {
		t.Error(tail.Text())
	}
}

func TestLastLines(t *testing.T) {
	tail := &Tail{Max: 14}
	_, _ = tail.Write([]byte("gone\xc3\xa9\r\n\none\xff\ntwo\n\n")) // the first kept is the second half of a character
	for n, want := range map[int]string{0: "", 1: "two", 2: "one|two", 9: "one|two"} {
		if got := strings.Join(tail.Last(n), "|"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := Environment(func(name string) (string, bool) {
		return name + "-value", name == "PATH" || name == "AWS_SECRET_ACCESS_KEY"
	})
	if strings.Join(got, " ") != "PATH=PATH-value" {
		t.Error(got)
	}
}
