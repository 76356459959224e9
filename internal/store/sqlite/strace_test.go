//go:build integration && linux

package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// traced runs the part "write" once, under a rule for its call number k of some kinds. It answers whether the rule was met,
// the stage that the child says is committed (0: none), and how it ended.
func traced(t *testing.T, calls, rule string, k int, root, sources string) (met bool, committed int, err error) {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := command(t, []string{
		path, "-f", "-qq", "-o", trace, "-e", "trace=" + calls, "-e", fmt.Sprintf("inject=%s:%s:when=%d", calls, rule, k),
	}, "write", root, sources)
	out, err := cmd.CombinedOutput()
	if _, serr := fmt.Sscanf(string(out), "committed %d", &committed); serr != nil && err == nil {
		t.Fatalf("call %d: %s", k, out)
	}
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	b, rerr := os.ReadFile(trace)
	if rerr != nil {
		t.Fatal(rerr)
	}
	return err != nil && len(out) == 0 || bytes.Contains(b, []byte("INJECTED")) || bytes.Contains(b, []byte("killed by SIGKILL")), committed, err
}

// A writer is killed at its first, second, … call of each kind that changes files, until it gets through: on a new folder, where
// it makes the store, and on one that is there.
func TestKilledAtEveryCall(t *testing.T) {
	for _, calls := range []string{"fsync,fdatasync", "renameat,renameat2,rename", "unlinkat,unlink", "ftruncate", "pwrite64", "write", "mkdirat,mkdir", "flock", "openat"} {
		for _, fresh := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/fresh=%v", calls, fresh), func(t *testing.T) {
				t.Parallel()
				sources := t.TempDir()
				root := filepath.Join(t.TempDir(), "store")
				if !fresh {
					checkWhole(t, root, sources)
				}
				k := 1
				for ; ; k++ {
					if fresh {
						root = filepath.Join(t.TempDir(), "store")
					}
					_, committed, err := traced(t, calls, "signal=KILL", k, root, sources)
					if n := checkWhole(t, root, sources); n <= committed {
						t.Fatalf("call %d: stage %d was committed, and the store ends with %d", k, committed, n-1)
					}
					if err == nil {
						break
					}
					if ee, _ := errors.AsType[*exec.ExitError](err); ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
						t.Fatalf("call %d: %v", k, err)
					}
					if k > 400 {
						t.Fatal("it never gets through")
					}
				}
				t.Logf("killed at %d calls", k-1)
			})
		}
	}
}

// Each call of a kind fails once: the stage fails with a reason or does without the call, and the next one works.
func TestFailingCalls(t *testing.T) {
	for _, calls := range []string{"fsync,fdatasync", "renameat,renameat2,rename", "pwrite64", "copy_file_range", "linkat,link", "flock", "ioctl", "sync_file_range"} {
		for _, rule := range []string{"error=EIO", "error=EPERM"} {
			t.Run(calls+"/"+rule, func(t *testing.T) {
				t.Parallel()
				sources, root := t.TempDir(), filepath.Join(t.TempDir(), "store")
				failed, k := 0, 1
				for ; k < 100; k++ {
					met, committed, err := traced(t, calls, rule, k, root, sources)
					if n := checkWhole(t, root, sources); n <= committed {
						t.Fatalf("call %d: stage %d was committed, and the store ends with %d", k, committed, n-1)
					}
					if err != nil {
						failed++
					}
					if !met {
						break
					}
				}
				if failed > 0 && (calls == "linkat,link" || calls == "copy_file_range" || calls == "sync_file_range") {
					t.Errorf("%d writes failed for a call that it can do without", failed)
				}
				t.Logf("%d calls met, %d writes failed", k-1, failed)
			})
		}
	}
}
