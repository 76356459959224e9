//go:build integration

package peer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExports: a folder that either program makes of a stored task runs with the other one.
func TestExports(t *testing.T) {
	peer, ours := filepath.Join(peerBin(t), "agent-env"), builtBinary(t)
	site, err := filepath.Glob(filepath.Join(filepath.Dir(peer), "..", "lib", "python3.*", "site-packages", "agent_env", "examples", "hello"))
	if err != nil || len(site) != 1 {
		t.Fatalf("the peer's hello folder: %v, %v", site, err)
	}
	for _, maker := range []string{ours, peer} {
		home := t.TempDir()
		if err := os.CopyFS(filepath.Join(home, "hello"), os.DirFS(site[0])); err != nil {
			t.Fatal(err)
		}
		run(t, home, maker, "run", "./hello")
		run(t, home, maker, "bundle", "init", "copy", "--from-task", "@local/~/hello/hello")
		for _, runner := range []string{ours, peer} {
			if got := run(t, home, runner, "run", "./copy", "--sandbox", "local"); !strings.Contains(got, "tasks/hello.json v1: passed (hello: 1)") {
				t.Errorf("%s makes a folder, and %s says of it\n%s", maker, runner, got)
			}
		}
	}
}
