package cli

import (
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	nethost.Dispatch()
	goleak.VerifyTestMain(m)
}
