// Command agent-env runs agent environments: it checks, writes, runs and scores a bundle in isolated sandboxes.
package main

import (
	"context"
	"os"

	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/term"
)

func main() {
	pid1.Dispatch() // never returns in a process that is a sandbox's PID 1
	os.Exit(cli.Main(context.Background(), os.Args[1:], term.System(os.LookupEnv), os.LookupEnv))
}
