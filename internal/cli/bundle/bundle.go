// Package bundle holds the verbs about bundles that run nothing.
package bundle

import (
	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("bundle", "Make, check, show and register bundles, and list the installed ones", newInit(p), newCheck(p), newList(p), newRegister(p), newShow(p))
}

// CompleteNames offers the installed bundles beside the folders that the shell finds.
func CompleteNames(p *verb.Program) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a, err := p.App()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		installed, err := a.Installed(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, i := range installed {
			out = append(out, i.Name)
		}
		return out, cobra.ShellCompDirectiveDefault
	}
}
