package atomicfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The test binary plays other processes: ATOMICFILE_ROLE says which, ATOMICFILE_PATH on what.
func TestMain(m *testing.M) {
	if role := os.Getenv("ATOMICFILE_ROLE"); role != "" {
		runtime.LockOSThread() // so that a tracer counts the system calls of one thread
		if err := play(role, os.Getenv("ATOMICFILE_PATH")); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(role, path string) error {
	ctx := context.Background()
	switch role {
	case "write":
		return WriteBytes(path, 0o600, []byte("new"))
	case "create":
		return CreateBytes(path, 0o600, []byte("new"))
	case "count":
		for range 25 {
			if err := Update(ctx, path, 0o600, addOne); err != nil {
				return err
			}
		}
		return nil
	case "hold":
		if _, err := NewLock(ctx, path); err != nil {
			return err
		}
		fmt.Println("ready")
		time.Sleep(time.Minute)
	}
	return errors.New("no such role")
}

func addOne(old []byte) ([]byte, error) {
	n := 0
	if old != nil {
		var err error
		if n, err = strconv.Atoi(string(old)); err != nil {
			return nil, err
		}
	}
	return []byte(strconv.Itoa(n + 1)), nil
}

func process(t *testing.T, role, path string, wrap ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(wrap, exe)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "ATOMICFILE_ROLE="+role, "ATOMICFILE_PATH="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

// inject is an strace command line that does something to the k-th call of a kind.
func inject(t *testing.T, call, what string, k int) []string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace:", err)
	}
	return []string{strace, "-f", "-qq", "-o", os.DevNull, "-e", "signal=none", "-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:%s:when=%d", call, what, k)}
}

// A writer is killed at each system call that matters, one after another: the file is the old one or the new one, whole, and the next write
// cleans up. A killed Create leaves nothing that it didn't finish.
func TestKilledWriters(t *testing.T) {
	for _, c := range []struct{ role, old, calls string }{
		{"write", "old", "openat flock write fsync renameat"},
		{"create", "", "openat write fsync linkat"},
	} {
		for call := range strings.FieldsSeq(c.calls) {
			kills := 0
			for k := 1; k < 60; k++ {
				dir := t.TempDir()
				path := filepath.Join(dir, "f ü")
				if c.old != "" {
					if err := os.WriteFile(path, []byte(c.old), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if process(t, c.role, path, inject(t, call, "signal=KILL", k)...).Run() == nil {
					break
				}
				kills++
				b, err := os.ReadFile(path)
				if got := string(b); err == nil && got != "new" && got != c.old || err != nil && c.old != "" {
					t.Errorf("%s, %s %d: %q %v", c.role, call, k, got, err)
				}
				es, _ := os.ReadDir(dir)
				if c.role == "create" && len(es) > 1 || len(es) > 2 {
					t.Errorf("%s, %s %d left %v", c.role, call, k, es)
				}
				if err := WriteBytes(path, 0o600, []byte("next")); err != nil {
					t.Errorf("%s, %s %d: the next write: %v", c.role, call, k, err)
				}
				only(t, dir, "f ü")
			}
			if kills == 0 {
				t.Errorf("%s: no %s was killed", c.role, call)
			}
		}
	}
}

// A call that fails leaves the target as it was, no other file, and an error that names the target.
func TestInjectedErrors(t *testing.T) {
	for _, c := range []struct{ role, call, errno, want string }{
		{"write", "fsync", "EIO", "input/output error"},
		{"write", "renameat", "EIO", "input/output error"},
		{"create", "fsync", "EIO", "input/output error"},
		{"create", "linkat", "EIO", "input/output error"},
		{"create", "linkat", "EPERM", "operation not permitted"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		out, err := process(t, c.role, path, inject(t, c.call, "error="+c.errno, 1)...).Output()
		if err == nil || string(out) != "failed: "+c.role+" "+path+": "+c.want+"\n" {
			t.Errorf("%s, %s: %q %v", c.role, c.call, out, err)
		}
		only(t, dir)
	}
}

func TestProcessesLoseNoUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	var cmds []*exec.Cmd
	for range 3 {
		cmd := process(t, "count", path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if got := read(t, path); got != "75" {
		t.Errorf("counted %s of 75", got)
	}
}

func TestLockDiesWithItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	cmd := process(t, "hold", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Error("not locked:", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "64k")
	path := filepath.Join(dir, "f")
	if err := WriteBytes(path, 0o600, []byte("old")); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 1<<20)
	for name, err := range map[string]error{"write": WriteBytes(path, 0o600, big), "create": CreateBytes(path+"2", 0o600, big)} {
		if err == nil || !strings.HasPrefix(err.Error(), name+" "+path) || !strings.HasSuffix(err.Error(), "no space left on device") {
			t.Error(err)
		}
	}
	if read(t, path) != "old" {
		t.Error("the old content is lost")
	}
	only(t, dir, "f")
}

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WriteBytes(path, 0o600, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if l, err := TryLock(path); err != nil {
		t.Fatal(err)
	} else {
		l.Unlock()
	}
	readOnly(t, dir)
	for _, err := range []error{WriteBytes(path, 0o600, nil), CreateBytes(path+"2", 0o600, nil), Update(t.Context(), path, 0o600, addOne), MkdirAll(filepath.Join(dir, "d"))} {
		if err == nil || !strings.Contains(err.Error(), path[:len(dir)]) || !strings.Contains(err.Error(), "read-only file system") {
			t.Error(err)
		}
	}
	l, err := TrySharedLock(path)
	if err != nil {
		t.Error("a shared lock needs no right to write:", err)
	} else {
		l.Unlock()
	}
}
