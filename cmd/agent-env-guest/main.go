// Command agent-env-guest is PID 1 of local sandboxes. agent-env carries it and starts it; it is of no use by itself.
package main

import (
	"os"

	"agentenv.internal/agentenv/internal/guest/pid1"
)

func main() {
	pid1.Dispatch()
	_, _ = os.Stderr.WriteString("agent-env-guest runs as the first process of a sandbox; start one with: agent-env sandbox start\n")
	os.Exit(2)
}
