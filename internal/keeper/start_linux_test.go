package keeper

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

// TestStopsItsKeeper: a program that stops its keeper, so that this can't even tell of it, isn't waited for, and is ended.
func TestStopsItsKeeper(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k := New(nil)
	k.start = 100 * time.Millisecond
	t.Cleanup(func() { _ = r.Close(); k.Close() })
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "kill -STOP $PPID; echo; exec sleep 600")
	cmd.Stdout = w
	kept, err := k.Start(cmd, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	switch {
	case err == nil: // the keeper was quicker
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		kept.Signal(syscall.SIGKILL)
		_ = kept.Wait()
	case !strings.Contains(err.Error(), "/bin/sh: whether it runs isn't told within 100ms"):
		t.Errorf("it answers %v", err)
	}
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is left")
	}
}
