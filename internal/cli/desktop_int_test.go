//go:build integration && linux

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// needsDesktop skips a test, or fails it where everything has to be here, on a machine without an X server, a window manager or Python's Tk, which the
// example's apps show their windows with.
func needsDesktop(t *testing.T) {
	t.Helper()
	if tk, err := filepath.Glob("/usr/lib*/python3*/lib-dynload/_tkinter.*"); err != nil || len(tk) == 0 {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("python3-tk is missing")
		}
		t.Skip("needs python3-tk")
	}
	for _, p := range []string{"Xvfb", "openbox"} {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("REQUIRE") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// TestDesktopScripts runs testdata/desktop: computers on local sandboxes.
func TestDesktopScripts(t *testing.T) {
	needsDesktop(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/desktop", RequireExplicitExec: true, RequireUniqueNames: true, Condition: condition, Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonAt},
	})
}

// TestDesktopOfAnOrdinaryUser: a computer and its apps need no root.
func TestDesktopOfAnOrdinaryUser(t *testing.T) {
	needsDesktop(t)
	dir, err := os.MkdirTemp("", "ordinary-desk-") //nolint:usetesting // the folder of t.TempDir can be entered by its owner alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	home, bin := filepath.Join(dir, "home"), filepath.Join(dir, "agent-env")
	for _, d := range []string{home, filepath.Join(home, "b/tasks"), filepath.Join(home, "b/envs/desk"), filepath.Join(home, "b/envs/notes")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, bin)
	for name, text := range map[string]string{
		"b/envs/desk/env.toml": "type = \"computer\"\napps = [\"notes\"]\n", "b/envs/notes/env.toml": "type = \"computer_app\"\n",
		"b/envs/notes/app.toml": "[linux]\npaths = [\"Notes\"]\ninstall = [\"./install\"]\n", "b/envs/notes/install": "#!/bin/sh\nmkdir -p \"$HOME/Notes\" && id -u > \"$HOME/Notes/id\"\n",
		"b/tasks/t.json": `[{"id": "up", "type": "deploy_env", "env_id": "desk"}, {"id": "s", "type": "snapshot_computer_env", "env_id": "desk", "snapshot_id": "after"}]`,
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var cred *syscall.Credential
	if os.Getuid() == 0 {
		const somebody = 54321
		cred = &syscall.Credential{Uid: somebody, Gid: somebody}
		if out, err := exec.CommandContext(t.Context(), "chown", "-R", "54321:54321", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("agent-env %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("run", "./b"); !strings.Contains(out, "step 2/2 s (snapshot_computer_env)") || !strings.Contains(out, "Tore down 1 sandbox.") {
		t.Errorf("run prints\n%s", out)
	}
	if out := run("run", "notes-computer", "--quiet"); strings.Count(out, ": passed (") != 3 {
		t.Errorf("the example prints\n%s", out)
	}
	run("artifact", "get", "@local/~/b/t/after", "--output-dir", "out")
	if _, err := os.Stat(filepath.Join(home, "out/notes/notes.tree.zip")); err != nil {
		t.Error(err)
	}
}
