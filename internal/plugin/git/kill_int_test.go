//go:build integration && linux

package git

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// installer is a process that installs repos into the workspace of s.
func installer(t *testing.T, s *Store, repos []*gittest.Repo, wrap ...string) *exec.Cmd {
	t.Helper()
	part := childPart{Dir: s.o.Dir, Root: s.Folder().Root()}
	for _, r := range repos {
		part.URLs = append(part.URLs, r.URL())
	}
	b, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	argv := append(wrap, os.Args[0])
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), childVar+"="+string(b))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// after looks at a workspace after a kill: all plugins or none, and the next install works and leaves nothing lying about.
func after(t *testing.T, s *Store, repos []*gittest.Repo, what string) (all bool) {
	t.Helper()
	l, err := s.Lock(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if n := len(l.Plugins); n != 0 && n != len(repos) {
		t.Fatalf("%s: %d of %d plugins", what, n, len(repos))
	}
	for _, r := range l.Plugins {
		if err := s.Check(t.Context(), r.TreeSHA256); err != nil {
			t.Fatalf("%s: %s: %v", what, r.ID, err)
		}
	}
	var wants []Want
	for _, r := range repos {
		wants = append(wants, Want{URL: r.URL()})
	}
	mustInstall(t, s, false, wants...)
	for end := time.Now().Add(10 * time.Second); len(staged(t, s)) > 0; time.Sleep(10 * time.Millisecond) { // a git that is ending holds its folder
		if err := s.Sweep(t.Context()); err != nil || time.Now().After(end) {
			t.Fatalf("%s: left %v, %v", what, staged(t, s), err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(s.o.Dir, treesDir, ".tmp", "*")); err != nil || len(left) > 0 {
		t.Fatalf("%s: left %v, %v", what, left, err)
	}
	return len(l.Plugins) > 0
}

func members(t *testing.T, n int) []*gittest.Repo {
	t.Helper()
	var out []*gittest.Repo
	for i := range n {
		out = append(out, gittest.Plugin(t, fmt.Sprintf("m%d", i), "data", fmt.Sprint(i)))
	}
	return out
}

// Row 107: killed at every call that makes something durable or visible, the install of a set is there whole or not at all. With warm, the
// files are here already, and what is left is the commit.
func TestKilledAtEveryCall(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("strace is missing")
		}
		t.Skip("needs strace")
	}
	cold, warm := members(t, 2), members(t, 10)
	for _, calls := range []string{"fsync,fdatasync", "rename,renameat,renameat2", "linkat,link"} {
		for name, repos := range map[string][]*gittest.Repo{"cold": cold, "warm": warm} {
			t.Run(calls+"/"+name, func(t *testing.T) {
				kills, done := 0, 0
				warmed := newStore(t)
				for k := 1; ; k++ {
					if k > 200 {
						t.Fatal("it never gets through")
					}
					s := newStore(t)
					if name == "warm" {
						s = newStore(t, func(o *Options) { o.Dir = warmed.o.Dir })
						if k == 1 {
							after(t, warmed, repos, "warming")
						}
					}
					inject := fmt.Sprintf("inject=%s:signal=KILL:when=%d", calls, k)
					out, err := installer(t, s, repos, strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace="+calls, "-e", inject).CombinedOutput()
					if err == nil {
						break
					}
					if _, ok := errors.AsType[*exec.ExitError](err); !ok {
						t.Fatalf("call %d: %v: %s", k, err, out)
					}
					kills++
					if after(t, s, repos, fmt.Sprintf("call %d", k)) {
						done++
					}
				}
				t.Logf("killed at %d calls, %d times after the commit", kills, done)
			})
		}
	}
}

// Row 107: killed at random moments.
func TestKilledAtRandom(t *testing.T) {
	repos := members(t, 10)
	begin := time.Now()
	if out, err := installer(t, newStore(t), repos).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	whole := time.Since(begin)
	done := 0
	for i := range 60 {
		s := newStore(t)
		cmd := installer(t, s, repos)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		at := rand.N(whole * 3 / 2)
		time.Sleep(at)
		if err := syscall.Kill(cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if after(t, s, repos, fmt.Sprintf("kill %d at %s", i, at)) {
			done++
		}
	}
	t.Logf("60 kills within %s, %d after the commit", whole, done)
}
