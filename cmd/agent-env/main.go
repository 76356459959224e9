// Command agent-env runs agent environments: it checks, writes, runs and scores a bundle in isolated sandboxes.
package main

import (
	"context"
	"os"

	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/term"
)

func main() {
	pid1.Dispatch()    // never returns in a process that is a sandbox's PID 1
	nethost.Dispatch() // nor in one that hosts a sandbox's network
	ctx := context.Background()
	image.Dispatch(ctx) // nor in one that keeps the owners of an image's files
	os.Exit(cli.Main(ctx, os.Args[1:], term.System(os.LookupEnv), os.LookupEnv))
}
