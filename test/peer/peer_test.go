//go:build integration || soak

// Package peer_test runs bundles of the Python peer, taken from its installation, with the built binary and compares what both print.
package peer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// peerBin is the peer's bin folder, installed by the script in $PEER_SH; a missing script skips, or fails under $REQUIRE.
func peerBin(t *testing.T) string {
	t.Helper()
	script := os.Getenv("PEER_SH")
	if script == "" {
		script = filepath.Join("..", "..", "..", "shared", "tools", "peer.sh")
	}
	if _, err := os.Stat(script); err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatalf("the peer's installer is missing (set PEER_SH): %v", err)
		}
		t.Skipf("needs the peer's installer (set PEER_SH): %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", script)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("install the peer: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func builtBinary(t *testing.T) string {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin", "agent-env"))
	if err == nil {
		_, err = os.Stat(bin)
	}
	if err != nil {
		t.Fatalf("run `make build` first: %v", err)
	}
	return bin
}

// run answers stdout; stderr is shown when the command fails.
func run(t *testing.T, home, bin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\nstdout:\n%s\nstderr:\n%s", bin, args, err, out, stderr.String())
	}
	return string(out)
}

var (
	seconds  = regexp.MustCompile(`\b\d+\.\d+s\b`)
	instance = regexp.MustCompile(`(instance \S+-)[a-z0-9]{8}\b`)
)

// lines drops what differs from run to run.
func lines(s string) string {
	return instance.ReplaceAllString(seconds.ReplaceAllString(s, "<t>s"), "${1}<id>")
}

// TestHelloFolder: the peer's own hello folder, unchanged, and the same lines for scripts as the peer prints.
func TestHelloFolder(t *testing.T) {
	peer, ours := peerBin(t), builtBinary(t)
	site, err := filepath.Glob(filepath.Join(peer, "..", "lib", "python3.*", "site-packages", "agent_env", "examples", "hello"))
	if err != nil || len(site) != 1 {
		t.Fatalf("the peer's hello folder: %v, %v", site, err)
	}
	homes := map[string]string{}
	for _, bin := range []string{ours, filepath.Join(peer, "agent-env")} {
		home := t.TempDir()
		homes[bin] = home
		if err := os.CopyFS(filepath.Join(home, "hello"), os.DirFS(site[0])); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"run", "./hello", "--dry-run"},
		{"run", "./hello"},
		{"run", "./hello"}, // unchanged
		{"run", "./hello", "--task", "hello", "--dry-run"},
	} {
		want := lines(run(t, homes[filepath.Join(peer, "agent-env")], filepath.Join(peer, "agent-env"), args...))
		got := lines(run(t, homes[ours], ours, args...))
		if got != want {
			t.Errorf("agent-env %s prints\n%s\nthe peer prints\n%s", strings.Join(args, " "), got, want)
		}
	}
}
