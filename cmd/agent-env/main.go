// Command agent-env runs agent environments: it checks, writes, runs and scores a bundle in isolated sandboxes.
package main

import (
	"context"
	"os"

	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/term"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], term.System(os.LookupEnv), os.LookupEnv))
}
