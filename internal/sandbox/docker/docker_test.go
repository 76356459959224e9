package docker

import (
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/guest/pid1"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	goleak.VerifyTestMain(m)
}
