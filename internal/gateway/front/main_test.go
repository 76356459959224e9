package front_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The SDK's server, which stands behind gateways here, keeps the sessions of clients that it didn't see leave.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
}
