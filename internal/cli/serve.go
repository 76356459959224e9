package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/exampleserver"
)

// newServe is what the process.toml of example bundles starts inside sandboxes; people run bundles instead, so it is hidden.
func newServe(p *verb.Program) *cobra.Command {
	return &cobra.Command{
		Use:    "serve NAME",
		Short:  "Serve an example environment",
		Hidden: true,
		Long: `Serves the environment of an example bundle until it is told to end: echo-mcp or mail-mcp. MCP_HOST and MCP_PORT say where (every interface
at port 18765), ENVIRONMENT_NAME as what.`,
		Args: verb.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e := exampleserver.New(args[0], p.Env)
			if e == nil {
				return verb.Usagef("there is no example environment %q; there are %s", args[0], strings.Join(exampleserver.Names(), ", "))
			}
			return e.Serve(cmd.Context())
		},
	}
}
