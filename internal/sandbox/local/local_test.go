package local_test

import (
	"context"
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	image.Dispatch(context.Background())
	nethost.Dispatch()
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(play(role))
	}
	if job := os.Getenv(netVar); job != "" {
		os.Exit(measure(job))
	}
	// Most of what a test takes is waiting for other processes. The flag of the command line, which is parsed later, overrules it.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		os.Exit(fail(err))
	}
	goleak.VerifyTestMain(m)
}

// open makes a provider over a state root of its own. Boxes that the test leaves are destroyed and reported.
func open(t *testing.T) *local.Provider {
	t.Helper()
	return openAt(t, stateRoot(t))
}

// stateRoot is a fresh one, but for the trees: they depend on the host alone, and building them takes a while.
func stateRoot(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := sandboxtest.ShareTrees(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openAt(t testing.TB, root string) *local.Provider {
	t.Helper()
	p, err := local.New(local.Options{StateRoot: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return p
}

func TestSuite(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandbox.Provider { return open(t) }, sandboxtest.Features{Real: true, Egress: true})
}
