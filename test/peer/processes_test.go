//go:build integration

package peer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPeerEnvironments: the peer's own environment servers run as processes in sandboxes, without an engine, behind our gateway: its example bundles
// pass with nothing added but a process.toml, and its servers are valid. The packages are installed once and kept in the user's cache.
func TestPeerEnvironments(t *testing.T) {
	peer, ours := peerBin(t), builtBinary(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(cache, "agentenv-test", "made")
	if err := os.MkdirAll(made, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, environment := range map[string]string{"echo-mcp": "echo", "mail-mcp": "mail"} {
		t.Run(name, func(t *testing.T) {
			found, err := filepath.Glob(filepath.Join(peer, "..", "lib", "python3.*", "site-packages", "agent_env", "examples", name))
			if err != nil || len(found) != 1 {
				t.Fatalf("the peer's folder: %v, %v", found, err)
			}
			home := t.TempDir()
			dir := filepath.Join(home, name)
			if err := os.CopyFS(dir, os.DirFS(found[0])); err != nil {
				t.Fatal(err)
			}
			process := "command = [\"python3\", \"server.py\"]\npython = \"requirements.txt\"\n"
			if err := os.WriteFile(filepath.Join(dir, "envs", environment, "process.toml"), []byte(process), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(home, "state", "agentenv"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(made, filepath.Join(home, "state", "agentenv", "made")); err != nil {
				t.Fatal(err)
			}
			out := run(t, home, ours, "run", "./"+name, "--sandbox", "local")
			if !strings.Contains(out, ": passed (") {
				t.Error(out)
			}
			out = run(t, home, ours, "env", "validate", environment, "--sandbox", "local")
			if !strings.HasSuffix(strings.TrimSpace(out), "v1: valid") {
				t.Error(out)
			}
		})
	}
}
