//go:build integration && linux

package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestAgentScripts runs testdata/agents with agents that are installed from their registry, once: what is installed is kept between runs of these tests.
func TestAgentScripts(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(cache, "agentenv-test", "made")
	if err := os.MkdirAll(made, 0o700); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/agents", RequireExplicitExec: true, RequireUniqueNames: true, Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonAt},
		Setup: func(e *testscript.Env) error {
			if err := setup(e); err != nil {
				return err
			}
			state := filepath.Join(e.Getenv("XDG_STATE_HOME"), "agentenv")
			if err := os.MkdirAll(state, 0o700); err != nil {
				return err
			}
			return os.Symlink(made, filepath.Join(state, "made"))
		},
	})
}
