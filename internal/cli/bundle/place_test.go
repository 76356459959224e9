//go:build linux

package bundle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func parts() map[string]func(context.Context, []string) int {
	return map[string]func(context.Context, []string) int{"program": program, "full": partFull, "readonly": partReadOnly}
}

// full DIR COMMAND…: runs a command while a small disk is at DIR, and again when the disk has grown.
func partFull(ctx context.Context, args []string) int {
	dir, args := args[0], args[1:]
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=400k"); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ends with", program(ctx, args))
	show(dir)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=16m"); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ends with", program(ctx, args))
	show(dir)
	return 0
}

// readonly DIR COMMAND…: runs a command while DIR is mounted read-only.
func partReadOnly(ctx context.Context, args []string) int {
	dir := args[0]
	if err := errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ends with", program(ctx, args[1:]))
	show(dir)
	return 0
}

// shut runs a child in a user and a mount namespace of its own.
func shut(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("needs user namespaces: %v", err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func folder(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantParts(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		before, after, ok := strings.Cut(got, p)
		if !ok {
			t.Fatalf("it says\n%s\nand not, in its place, %q", before+after, p)
		}
		got = after
	}
}

// A full disk is named, nothing half written is left, and with space it works.
func TestFullDisk(t *testing.T) {
	t.Run("init", func(t *testing.T) {
		h := home(t)
		does(t, h, 0, "bundle", "register", "b")
		got := shut(t, command(t, h, nil, "full", folder(t, filepath.Join(h, "small")), "bundle", "init", "small/out", "--from-task", "@local/~/b/t"))
		wantParts(t, got, "Error: write the bundle "+filepath.Join(h, "small", "out")+": no space left on device; nothing was written\n", "ends with 1\nholds [] <nil>\n",
			"Wrote task @local/~/b/t v1", "ends with 0\nholds [out] <nil>\n")
	})
	t.Run("register", func(t *testing.T) {
		h := home(t)
		got := shut(t, command(t, h, nil, "full", folder(t, filepath.Join(h, "state")), "bundle", "register", "b"))
		wantParts(t, got, "Error: ", "no space left on device", "ends with 1\n", "artifacts/u: v1 (new)\n", "evals/all.toml: v1 (new)\n", "ends with 0\n")
	})
}

// Where nothing can be written that is said, and nothing is there.
func TestReadOnly(t *testing.T) {
	t.Run("init", func(t *testing.T) {
		h := home(t)
		does(t, h, 0, "bundle", "register", "b")
		args := []string{"bundle", "init", "shut/out", "--from-eval", "@local/~/b/all"}
		got := shut(t, command(t, h, nil, "readonly", append([]string{folder(t, filepath.Join(h, "shut"))}, args...)...))
		wantParts(t, got, "Error: write the bundle "+filepath.Join(h, "shut", "out")+": read-only file system; nothing was written\n", "ends with 1\nholds [] <nil>\n")
		does(t, h, 0, args...)
	})
	t.Run("register", func(t *testing.T) {
		h := home(t)
		got := shut(t, command(t, h, nil, "readonly", folder(t, filepath.Join(h, "state")), "bundle", "register", "b"))
		wantParts(t, got, "Error: ", "read-only file system", "ends with 1\nholds [] <nil>\n")
		got = does(t, h, 0, "bundle", "register", "b")
		wantParts(t, got, "artifacts/u: v1 (new)\n")
		// A store that has all of it need not be written to.
		got = shut(t, command(t, h, nil, "readonly", filepath.Join(h, "state"), "bundle", "register", "b"))
		wantParts(t, got, "artifacts/u: v1, unchanged\n", "ends with 0\n")
	})
}
