package fake_test

import (
	"testing"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, func(*testing.T) sandbox.Provider { return fake.New(fake.Options{}) }, sandboxtest.Features{})
}
