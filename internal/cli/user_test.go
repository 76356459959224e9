package cli_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOrdinaryUser: nothing needs root. As root the test becomes somebody who owns nothing but a home.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ordinary-user-") //nolint:usetesting // the folder of t.TempDir can be entered by its owner alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	home, bin := filepath.Join(dir, "home"), filepath.Join(dir, "agent-env")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, bin)
	var cred *syscall.Credential
	if os.Getuid() == 0 {
		const somebody = 54321
		cred = &syscall.Credential{Uid: somebody, Gid: somebody}
		if err := os.Chown(home, somebody, somebody); err != nil {
			t.Fatal(err)
		}
	}
	// E27: a bundle.toml that this user may not read.
	if err := os.MkdirAll(filepath.Join(home, "b", "tasks"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"bundle.toml": 0, "tasks/t.json": 0o644} {
		if err := os.WriteFile(filepath.Join(home, "b", name), []byte("[]"), mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := exec.CommandContext(t.Context(), bin, "bundle", "check", "./b")
	refused.Dir, refused.Env, refused.SysProcAttr = home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, &syscall.SysProcAttr{Credential: cred}
	if out, err := refused.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "Error: bundle.toml: can't be read: permission denied") {
		t.Errorf("bundle check of an unreadable bundle.toml: %v\n%s", err, out)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("agent-env %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("run", "hello"); !strings.Contains(out, "tasks/hello.json v1: passed (hello: 1)") || !strings.Contains(out, "Tore down 1 sandbox.") {
		t.Errorf("run hello prints\n%s", out)
	}
	if out := run("sandbox", "check"); strings.Contains(out, "BROKEN") || !strings.HasPrefix(out, "local: namespaces\n") {
		t.Errorf("sandbox check prints\n%s", out)
	}
	if out := run("sandbox", "list", "--json"); !strings.Contains(out, `"sandboxes":[]`) {
		t.Errorf("sandboxes are left:\n%s", out)
	}
}

// copyProgram puts this test's own binary, which is the program too, where everybody can run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := exec.LookPath("agent-env")
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
