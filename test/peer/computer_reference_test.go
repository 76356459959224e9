//go:build integration

package peer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReferenceDriver: the SDK's reference driver, as its folder is shipped with nothing added but its requirements, drives a computer of ours in a
// sandbox, and passes what ours passes. Its packages are installed once and kept in the user's cache.
func TestReferenceDriver(t *testing.T) {
	peer, ours := peerBin(t), builtBinary(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(cache, "agentenv-test", "made")
	found, err := filepath.Glob(filepath.Join(peer, "..", "lib", "python3.*", "site-packages", "agent_env", "drivers", "envs", "reference"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the peer's driver: %v, %v", found, err)
	}
	home := t.TempDir()
	driver := filepath.Join(home, "b", "envs", "reference")
	for _, dir := range []string{made, filepath.Join(home, "state", "agentenv"), filepath.Join(home, "b", "envs", "desk"), filepath.Join(home, "b", "tasks"), driver} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	source, err := os.ReadFile(filepath.Join(found[0], "driver.py"))
	if err != nil {
		t.Fatal(err)
	}
	toml, err := os.ReadFile(filepath.Join(found[0], "env.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"reference/driver.py": string(source), "reference/env.toml": string(toml) + "\npython = \"requirements.txt\"\n",
		"reference/requirements.txt": "agentenv-framework-protocol[computer]==0.1.379\nmss\npython-xlib\n",
		"desk/env.toml":              "type = \"computer\"\ndriver = \"reference\"\ndata_paths = [\"Documents\"]\n",
	} {
		if err := os.WriteFile(filepath.Join(home, "b", "envs", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	task := `[{"id": "up", "type": "deploy_env", "env_id": "desk"}]`
	if err := os.WriteFile(filepath.Join(home, "b", "tasks", "t.json"), []byte(task), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(made, filepath.Join(home, "state", "agentenv", "made")); err != nil {
		t.Fatal(err)
	}
	run(t, home, ours, "run", "./b", "--sandbox", "local")
	out := run(t, home, ours, "env", "validate", "desk", "--sandbox", "local")
	if !strings.Contains(out, "computer_boot: passed\n") || !strings.HasSuffix(strings.TrimSpace(out), "v1: valid") {
		t.Error(out)
	}
	out = run(t, home, ours, "env", "validate", "reference", "--sandbox", "local") // alone it is a computer too
	if !strings.Contains(out, "computer_boot: passed\n") {
		t.Error(out)
	}
}
