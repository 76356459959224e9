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
		Short:  "Serve an example environment or agent",
		Hidden: true,
		Long: `Serves the environment of an example bundle until it is told to end, or an agent: MCP_HOST and MCP_PORT say where (every interface at port 18765), ENVIRONMENT_NAME as
what; A2A_HOST and A2A_PORT (8000) for an agent.`,
		Args: verb.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a := exampleserver.NewAgent(args[0], p.Env); a != nil {
				return a.Serve(cmd.Context())
			}
			e := exampleserver.New(args[0], p.Env)
			if e == nil {
				return verb.Usagef("there is no example server %q; there are %s", args[0], strings.Join(append(exampleserver.Names(), exampleserver.Agents()...), ", "))
			}
			return e.Serve(cmd.Context())
		},
	}
}
