package plugin

import (
	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/plugin/dist"
)

func newRemove(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var c dist.Change
	var yes, force bool
	cmd := &cobra.Command{
		Use:   "remove PACKAGE…",
		Short: "Uninstall plugin packages",
		Long: `Uninstalls plugin packages from a copy of the plugin environment, and takes the copy for the environment when every other plugin still
works. What they had brought along stays, and so do their settings in the configuration.`,
		Example:           "  agent-env plugin remove agentenv-acme",
		Args:              verb.Args("PACKAGE…"),
		ValidArgsFunction: complete(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Remove, c.Keep = args, force
			return change(cmd.Context(), p, cmd, c, way{yes: yes, force: force, asJSON: *asJSON, done: "Removed."})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove it although the configuration or another plugin needs it")
	changeFlags(cmd, &c.DryRun, &yes)
	asJSON = verb.JSONFlag(cmd, "print one JSON object; it needs --yes or --dry-run")
	return cmd
}
