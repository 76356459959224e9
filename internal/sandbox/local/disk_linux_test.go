package local

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// quickRoot is a fresh state root but for the trees, which take a while to build and depend on the host alone.
func quickRoot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := sandboxtest.ShareTrees(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// onDisk is a box whose disk is on the host's.
func onDisk(t *testing.T, mb int64) (*Provider, sandbox.Info, guest.Box) {
	t.Helper()
	p, err := New(Options{StateRoot: quickRoot(t), memoryDiskMB: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if left, err := filepath.Glob(filepath.Join(p.boxes, "*")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	info, err := p.Create(t.Context(), sandbox.Spec{Tied: true, DiskMB: mb})
	if err != nil {
		t.Fatal(err)
	}
	box, err := p.Connect(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	return p, info, box
}

func script(t *testing.T, box guest.Box, text string) (string, guest.Exit) {
	t.Helper()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", text}, Timeout: 20 * time.Second}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout.String() + r.Stderr.String(), r.Exit
}

// A disk too large for memory is a file system in a file, as root: it holds its limit, has all ids, and is gone with the box.
func TestDiskImage(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("without root file systems can't be mounted")
	}
	if _, err := findMkfs(); err != nil {
		t.Skip(err)
	}
	p, info, box := onDisk(t, 64)
	if got := info.Isolation.Limits["disk"]; got != "loop 64 MB" {
		if _, err := os.Stat("/dev/loop-control"); err != nil {
			t.Skip("no loop devices here")
		}
		t.Fatalf("the disk is held by %q", got)
	}
	out, exit := script(t, box, "set -e; touch /tmp/f; chown 33:42 /tmp/f; stat -c %u:%g /tmp/f; echo x > /usr/lib/x; rm /usr/bin/true; ! [ -e /usr/bin/true ]; head -c 100000000 /dev/zero > /tmp/big")
	if !strings.HasPrefix(out, "33:42\n") || !strings.Contains(out, "No space left") || !exit.DiskFull {
		t.Errorf("%q, %+v", out, exit)
	}
	if size, _ := script(t, box, "stat -c %s /tmp/big"); len(strings.TrimSpace(size)) != 8 {
		t.Errorf("a file on a disk of 64 MB has %s bytes", size)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), "/dev/loop") {
		t.Errorf("the host sees the disk: %v", err)
	}
	if err := p.Destroy(t.Context(), info.ID); err != nil {
		t.Error(err)
	}
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		devices, err := exec.Command("losetup", "-a").Output()
		if errors.Is(err, exec.ErrNotFound) || !strings.Contains(string(devices), filepath.Base(p.opts.StateRoot)) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("left: %s", devices)
		}
	}
}

// Without root it is a folder: a box that writes more than it may is ended, and who used it is told why.
func TestDiskFolder(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root has a file system of its own")
	}
	_, info, box := onDisk(t, 32)
	if got := info.Isolation.Limits["disk"]; got != "watchdog 32 MB" {
		t.Fatalf("the disk is held by %q", got)
	}
	if out, exit := script(t, box, "head -c 20000000 /dev/zero > /tmp/a && echo x > /usr/lib/x && mkdir /tmp/closed && touch /tmp/closed/f && chmod 0 /tmp/closed"); !exit.OK() {
		t.Errorf("within the limit: %q, %+v", out, exit)
	}
	if out, exit := script(t, box, "head -c 90000000 /dev/zero > /tmp/one"); exit.OK() {
		t.Errorf("one file larger than the disk: %q, %+v", out, exit)
	}
	_, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "for i in 1 2 3 4 5 6; do head -c 9000000 /dev/zero > /tmp/f$i; done; sleep 20"}}, guest.Limits{})
	if !errors.Is(err, guest.ErrGone) || !strings.Contains(err.Error(), sandbox.Why(sandbox.CauseDisk)) {
		t.Errorf("more than the disk may hold: %v", err)
	}
}
