//go:build integration && linux

package artifactstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// killedAt plays a part once and kills it at its call number k of some kinds. met tells whether there was such a call.
func killedAt(t *testing.T, calls string, k int, part, root, path string) (met bool) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(ctx, strace, "-f", "-qq", "-o", trace, "-e", "trace="+calls, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", calls, k), exe, root, path)
	cmd.Env = append(os.Environ(), childVar+"="+part, "GOMAXPROCS=2")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	ee, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s, call %d of %s: %v: %s", part, k, calls, err, out)
	}
	return true
}

// seed makes a store with two versions of a skill and of a file, and a folder to put.
func seed(t *testing.T) (root, folder string) {
	t.Helper()
	dir := t.TempDir()
	root, folder = filepath.Join(dir, "store"), filepath.Join(dir, "greet")
	for name, text := range map[string]string{
		"SKILL.md": "---\nname: s\ndescription: d\n---\n", "a/small": "1", "a/large": strings.Repeat("x", store.MaxInline+1), "b": strings.Repeat("y", store.MaxInline+1),
	} {
		p := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := play(t.Context(), "put", root, folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "b"), []byte(strings.Repeat("z", store.MaxInline+1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := play(t.Context(), "put", root, folder); err != nil {
		t.Fatal(err)
	}
	with(t, root, func(s *sqlite.Store) {
		if _, err := artifactstore.New(s).Put(t.Context(), artifactstore.Put{Type: "file", ID: "@local/x/f", Paths: []string{filepath.Join(folder, "a/large")}}); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.WriteFile(filepath.Join(folder, "b"), []byte(strings.Repeat("w", store.MaxInline+1)), 0o644); err != nil { // what is put next
		t.Fatal(err)
	}
	return root, folder
}

func with(t *testing.T, root string, f func(*sqlite.Store)) {
	t.Helper()
	s, err := sqlite.Open(root, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f(s)
}

// whole checks that what documents pin is there, bytes included, and answers the versions of the skill. After another write, no file of an object
// is left that nothing names.
func whole(t *testing.T, root string) (versions []int) {
	t.Helper()
	with(t, root, func(s *sqlite.Store) {
		p, err := s.List(t.Context(), store.Query{Kind: store.Artifact, AllVersions: true, Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		named := map[ref.Digest]bool{}
		for _, d := range p.Docs {
			needs, err := artifact.Needs(d.Type, d.Body)
			if err != nil {
				t.Error(err)
			}
			for _, n := range needs {
				if _, err := s.Get(t.Context(), store.Artifact, n.ID, n.Version); err != nil {
					t.Errorf("%s v%d pins what is gone: %v", d.ID, d.Version, err)
				}
			}
			for _, o := range d.Objects {
				named[o] = true
				if err := s.Verify(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
			if d.ID == "@local/x/s" {
				versions = append(versions, d.Version)
			}
		}
		if n := len(p.Docs); (n-1)%6 != 0 || (n-1)/6 != len(versions) { // the file; a skill, its universe and four files each
			t.Errorf("%d documents, and versions %v", n, versions)
		}
		g, err := s.Begin(t.Context()) // sweeps
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Discard(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(t.Context(), nil, false); err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(filepath.Join(root, "objects"), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !named[ref.Digest("sha256:"+d.Name())] {
				t.Errorf("%s is left", p)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	slices.Sort(versions)
	return versions
}

var killCalls = []string{"fsync,fdatasync", "renameat,renameat2,rename,linkat,link", "unlinkat,unlink", "pwrite64", "write", "ftruncate"}

// Processes that put, delete and prune are killed at their first, second, … call of each kind that changes files: all of it is done, or nothing.
func TestKilledAtEveryCall(t *testing.T) {
	for part, want := range map[string][2]string{"put": {"[1 2]", "[1 2 3]"}, "delete": {"[1 2]", "[]"}, "prune": {"[1 2]", "[2]"}} {
		for _, calls := range killCalls {
			t.Run(part+"/"+calls, func(t *testing.T) {
				t.Parallel()
				k := 1
				for ; k < 300; k++ {
					root, folder := seed(t)
					met := killedAt(t, calls, k, part, root, folder)
					got := fmt.Sprint(whole(t, root))
					if got != want[1] && (!met || got != want[0]) {
						t.Fatalf("call %d: versions %s", k, got)
					}
					if !met {
						break
					}
				}
				t.Logf("killed at %d calls", k-1)
			})
		}
	}
}

// A killed get leaves its target as it was, or whole; what it left beside is gone after the next.
func TestKilledGets(t *testing.T) {
	for _, calls := range []string{"renameat,renameat2,rename,linkat,link", "write", "openat", "fchmod", "mkdirat,mkdir", "fsync,fdatasync"} {
		for _, part := range []string{"get", "get-file"} {
			t.Run(part+"/"+calls, func(t *testing.T) {
				t.Parallel()
				root, folder := seed(t)
				if err := play(t.Context(), "put", root, folder); err != nil {
					t.Fatal(err)
				}
				k := 1
				for ; k < 300; k++ {
					base := t.TempDir()
					out := filepath.Join(base, "out")
					old := []byte("old")
					if part == "get-file" {
						if err := os.WriteFile(out, old, 0o644); err != nil {
							t.Fatal(err)
						}
					}
					met := killedAt(t, calls, k, part, root, out)
					check := func(done bool) {
						if part == "get" {
							_, err := os.Stat(out)
							if err == nil {
								same(t, out, folder)
							}
							if done && err != nil {
								t.Fatal(err)
							}
							return
						}
						got, err := os.ReadFile(out)
						if err != nil || len(got) != store.MaxInline+1 && (done || !bytes.Equal(got, old)) {
							t.Fatalf("call %d: %d bytes, %v", k, len(got), err)
						}
					}
					check(!met)
					if _, err := os.Stat(out); part == "get" && err == nil {
						if err := os.RemoveAll(out); err != nil {
							t.Fatal(err)
						}
					}
					if err := play(t.Context(), part, root, out); err != nil {
						t.Fatal(err)
					}
					check(true)
					if left, err := os.ReadDir(base); err != nil || len(left) != 1 {
						t.Fatalf("call %d: left %v, %v", k, left, err)
					}
					if !met {
						break
					}
				}
				t.Logf("killed at %d calls", k-1)
			})
		}
	}
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "diff", "-r", got, want).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
