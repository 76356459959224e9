//go:build integration && linux

package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/plugin/boxtest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// stateVar is where the plugin of real sandboxes keeps its state.
const stateVar = "PLAY_STATE"

func dispatch() {
	pid1.Dispatch()
	image.Dispatch(context.Background())
	nethost.Dispatch()
}

func playRealBoxes() int {
	return boxesPlugin(boxtest.Everything(), func() (sandbox.Provider, error) { return local.New(local.Options{StateRoot: os.Getenv(stateVar)}) })
}

// TestSandboxesOfProcesses is the suite of all providers over the protocol, with sandboxes of real processes: all that it has but terminals and snapshots, which
// the protocol doesn't have.
func TestSandboxesOfProcesses(t *testing.T) {
	trees := filepath.Join(os.TempDir(), fmt.Sprintf("agentenv-test-trees-%d", os.Geteuid()))
	if err := os.MkdirAll(trees, 0o700); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Run(t, func(t *testing.T) sandbox.Provider {
		dir := t.TempDir()
		if err := os.Symlink(trees, filepath.Join(dir, "trees")); err != nil {
			t.Fatal(err)
		}
		return openBoxes(t, "realboxes", boxtest.Everything(), stateVar+"="+dir)
	}, sandboxtest.Features{Real: true, Egress: true, NoTerminals: true})
}
