//go:build integration && linux

package bundle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// changing are the calls that change files.
var changing = []string{"fsync,fdatasync", "rename,renameat,renameat2", "mkdir,mkdirat", "unlink,unlinkat", "fchmod,fchmodat,chmod", "flock", "ftruncate", "pwrite64", "write", "linkat,link,symlinkat"}

// killed runs a command line that is killed at its call number k of some kinds. It is false when the command gets through.
func killed(t *testing.T, home, calls string, k int, args ...string) bool {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("strace is missing")
		}
		t.Skip("needs strace")
	}
	wrap := []string{strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + calls, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", calls, k)}
	out, err := command(t, home, wrap, "program", args...).CombinedOutput()
	if err == nil {
		return false
	}
	ee, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("call %d: %v: %s", k, err, out)
	}
	return true
}

const most = 600 // calls of one kind in one command

// An export that is killed at any call leaves its target as it was or whole, and the next one works and sweeps what it left.
func TestInitKilledAtEveryCall(t *testing.T) {
	for _, calls := range changing {
		for _, empty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/empty=%v", calls, empty), func(t *testing.T) {
				t.Parallel()
				h := home(t)
				does(t, h, 0, "bundle", "register", "b")
				args := []string{"bundle", "init", "out", "--from-eval", "@local/~/b/all"}
				does(t, h, 0, args...)
				out := filepath.Join(h, "out")
				whole := below(t, out)
				left := 0
				k := 1
				for ; ; k++ {
					if err := os.RemoveAll(out); err != nil {
						t.Fatal(err)
					}
					if empty {
						folder(t, out)
					}
					through := !killed(t, h, calls, k, args...)
					switch info, err := os.Stat(out); {
					case err != nil && (through || empty):
						t.Fatalf("call %d: %v", k, err)
					case err != nil:
					case !info.IsDir():
						t.Fatalf("call %d: %v", k, info)
					default:
						if got := below(t, out); !slices.Equal(got, whole) && (through || !empty || len(got) > 0) {
							t.Fatalf("call %d leaves %q", k, got)
						} else if len(got) > 0 {
							does(t, h, 0, "bundle", "check", "out")
						}
					}
					if through {
						break
					}
					stages, err := filepath.Glob(filepath.Join(h, ".out.import-*"))
					if err != nil || len(stages) > 1 {
						t.Fatalf("call %d: %q, %v: the one before swept nothing", k, stages, err)
					}
					left += len(stages)
					if k > most {
						t.Fatal("it never gets through")
					}
				}
				if stages, err := filepath.Glob(filepath.Join(h, ".*import*")); err != nil || len(stages) > 0 {
					t.Errorf("%q, %v", stages, err)
				}
				t.Logf("killed at %d calls, %d of them left something to sweep", k-1, left)
			})
		}
	}
}

// A registration that is killed at any call has written all or nothing, and the next one writes the rest.
func TestRegisterKilledAtEveryCall(t *testing.T) {
	for _, calls := range changing {
		t.Run(calls, func(t *testing.T) {
			t.Parallel()
			h := home(t)
			wrote := 0
			k := 1
			for ; ; k++ {
				if err := os.RemoveAll(filepath.Join(h, "state")); err != nil {
					t.Fatal(err)
				}
				through := !killed(t, h, calls, k, "bundle", "register", "b")
				switch unchanged, of := written(t, h); unchanged {
				case 0:
					if through {
						t.Fatal("it got through and wrote nothing")
					}
				case of:
					wrote++
				default:
					t.Fatalf("call %d: %d of %d are written", k, unchanged, of)
				}
				if got := does(t, h, 0, "bundle", "register", "b"); !strings.Contains(got, "evals/all.toml: v1") {
					t.Fatalf("call %d: %s", k, got)
				}
				if unchanged, of := written(t, h); unchanged != of {
					t.Fatalf("call %d: then %d of %d are written", k, unchanged, of)
				}
				if through {
					break
				}
				if k > most {
					t.Fatal("it never gets through")
				}
			}
			t.Logf("killed at %d calls, %d times after the write", k-1, wrote-1)
		})
	}
}

// written counts the entities that a registration would leave unchanged, and all.
func written(t *testing.T, home string) (unchanged, of int) {
	t.Helper()
	var got struct {
		Writes []struct {
			Unchanged bool `json:"unchanged"`
		} `json:"writes"`
	}
	out, err := command(t, home, nil, "program", "bundle", "register", "b", "--dry-run", "--json").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(bytes.TrimSpace(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, w := range got.Writes {
		if w.Unchanged {
			unchanged++
		}
	}
	return unchanged, len(got.Writes)
}
