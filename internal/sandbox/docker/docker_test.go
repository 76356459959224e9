package docker

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
)

// roleVar makes the test binary play another process of the program.
const roleVar = "AGENTENV_TEST_ROLE"

func TestMain(m *testing.M) {
	pid1.Dispatch()
	nethost.Dispatch()
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(playRole(role))
	}
	goleak.VerifyTestMain(m)
}
