//go:build integration && linux

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// gitWorld is a home with a workspace, as commands find them; it can be put back as it was.
type gitWorld struct {
	t          *testing.T
	home, link string
	kept       string // a copy of home
}

func newGitWorld(t *testing.T) *gitWorld {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &gitWorld{t, filepath.Join(dir, "home"), filepath.Join(dir, "agent-env"), filepath.Join(dir, "kept")}
	if err := errors.Join(os.Mkdir(w.home, 0o755), os.Symlink(exe, w.link)); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs agent-env, behind other words, in a folder of home, and answers its exit code (-1 of one that was killed) and all that it says.
func (w *gitWorld) run(dir string, wrap []string, args ...string) (int, string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	argv := append(append(append([]string{}, wrap...), w.link), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(w.home, dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "XDG_STATE_HOME=" + filepath.Join(w.home, "state"), "TERM=dumb"}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	} else if err != nil {
		w.t.Fatal(err)
	}
	return 0, string(out)
}

func (w *gitWorld) does(dir string, args ...string) string {
	w.t.Helper()
	code, out := w.run(dir, nil, args...)
	if code != 0 {
		w.t.Fatalf("%q ends with %d:\n%s", args, code, out)
	}
	return out
}

// keep remembers how everything is, restore puts it back.
func (w *gitWorld) keep()    { w.copyTree(w.home, w.kept) }
func (w *gitWorld) restore() { w.copyTree(w.kept, w.home) }

func (w *gitWorld) copyTree(from, to string) {
	w.t.Helper()
	if out, err := exec.CommandContext(w.t.Context(), "sh", "-c", `chmod -R u+w "$1" 2>/dev/null; rm -rf "$1" && cp -a "$0" "$1"`, from, to).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

var (
	stamps = regexp.MustCompile(`"installed_at": "[^"]*"`)
	inKept = []string{"plugins.lock", "config.toml", "secrets.toml"}
)

// files are the workspace's, without times.
func (w *gitWorld) files(dir string) string {
	w.t.Helper()
	var out bytes.Buffer
	for _, name := range inKept {
		b, err := os.ReadFile(filepath.Join(w.home, dir, ".agentenv", name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
		fmt.Fprintf(&out, "--- %s\n%s", name, stamps.ReplaceAll(b, nil))
	}
	return out.String()
}

// leftovers are what nothing should leave.
func (w *gitWorld) leftovers(dir string) []string {
	w.t.Helper()
	var out []string
	for _, pattern := range []string{"state/agentenv/git_plugins/staging/*", "state/agentenv/git_plugins/trees/.tmp/*", dir + "/.agentenv/.journal", dir + "/.agentenv/.*tmp*"} {
		found, err := filepath.Glob(filepath.Join(w.home, pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// Row 107: update, uninstall, update-bundle and uninstall-bundle, killed at every call that makes something durable or visible, have happened or not: lock,
// settings and secrets are those of before or those of after, all files that the lock names are there, the command can be given again, and nothing is left.
func TestGitVerbsKilled(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("strace is missing")
		}
		t.Skip("needs strace")
	}
	w := newGitWorld(t)
	var members []*gittest.Repo
	for _, id := range []string{"a", "b", "c", "d"} {
		members = append(members, gittest.Plugin(t, id))
	}
	alone := gittest.Plugin(t, "alone")
	set := gittest.New(t, "set")
	manifest := func(ids ...int) string {
		text := "id: set\nname: Set\nsecrets: [{key: token, label: Token}]\nconfig: {a: {x: 1}, b: {y: two}}\nplugins:\n"
		for _, i := range ids {
			text += fmt.Sprintf("  - {id: %c, url: %q}\n", 'a'+i, members[i].URL())
		}
		return text
	}
	set.Commit("agentenv.bundle.yaml", manifest(0, 1, 2))
	if err := os.WriteFile(filepath.Join(w.home, "s.toml"), []byte("token = \"t0p\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.does("", "workspace", "create", "desk", "--bundle", set.URL(), "--secrets", "s.toml", "--yes")
	w.does("desk", "plugin", "install", alone.URL())
	w.does("desk", "plugin", "enable", "alone")
	f, err := os.OpenFile(filepath.Join(w.home, "desk/.agentenv/config.toml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("\n# mine\n[git_plugins.config.alone]\nz = 3\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	// What is new is here already, for another workspace: nothing but the change is killed.
	alone.Commit("new", "1")
	members[0].Commit("new", "1")
	set.Commit("agentenv.bundle.yaml", manifest(0, 1, 3))
	w.does("", "workspace", "create", "other", "--bundle", set.URL(), "--yes")
	w.does("other", "plugin", "install", alone.URL())
	w.keep()
	before := w.files("desk")
	for _, args := range [][]string{
		{"plugin", "update", "alone"}, {"plugin", "uninstall", "alone", "--purge"}, {"plugin", "update-bundle", "set"}, {"plugin", "uninstall-bundle", "set", "--purge"},
	} {
		t.Run(args[1], func(t *testing.T) {
			w.t = t
			w.restore()
			w.does("desk", args...)
			after := w.files("desk")
			if after == before {
				t.Fatalf("it does nothing:\n%s", before)
			}
			kills, done := 0, 0
			// Calls are counted for each thread, and which thread makes one is chance: a round may miss those after the commit.
			for round := 0; round < 3 && (done == 0 || done == kills); round++ {
				for _, calls := range []string{"fsync,fdatasync", "rename,renameat,renameat2", "linkat,link,unlink,unlinkat"} {
					for k := 1; ; k++ {
						if k > 200 {
							t.Fatal("it never gets through")
						}
						w.restore()
						code, out := w.run("desk", []string{strace, "-f", "-qq", "-o", os.DevNull, "-e", "signal=none", "-e", "trace=" + calls, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", calls, k)}, args...)
						if code == 0 {
							break
						}
						kills++
						at := fmt.Sprintf("killed at call %d of %s", k, calls)
						if code > 0 && code != 137 {
							t.Fatalf("%s: ends with %d:\n%s", at, code, out)
						}
						w.does("desk", "plugin", "verify") // settles what a kill left
						got := w.files("desk")
						switch got {
						case before:
						case after:
							done++
						default:
							t.Fatalf("%s: half done:\n%s\nbefore:\n%s\nafter:\n%s", at, got, before, after)
						}
						code, out = w.run("desk", nil, args...)
						if again := w.files("desk"); again != after || code != 0 && (got == before || !strings.Contains(out, "is installed in this workspace")) {
							t.Fatalf("%s: again: ends with %d:\n%s\n%s", at, code, out, again)
						}
						w.does("desk", "plugin", "outdated") // sweeps
						if left := w.leftovers("desk"); len(left) > 0 {
							t.Fatalf("%s: left %q", at, left)
						}
					}
				}
			}
			t.Logf("killed at %d calls, %d times after the commit", kills, done)
			if kills == 0 || done == 0 || done == kills {
				t.Errorf("only one outcome: %d of %d", done, kills)
			}
		})
	}
}
