// Package sandbox holds the verbs about sandboxes of every provider.
package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("sandbox", "Start, use and remove sandboxes, and see what isolation holds here",
		newList(p), newStart(p), newExec(p), newRemove(p), newPrune(p), newCheck(p))
}

// open is the program, after what dead sandboxes left has been swept.
func open(ctx context.Context, p *verb.Program) (*app.App, error) {
	a, err := p.Ready()
	if err != nil {
		return nil, err
	}
	p.Sweep(ctx, a)
	return a, nil
}

// completeIDs offers the live sandboxes to the shell. It only reads, for a short time.
func completeIDs(p *verb.Program, many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), verb.CompletionTime)
		defer cancel()
		a, err := p.App()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		boxes, err := a.Boxes(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, b := range boxes {
			out = append(out, cobra.CompletionWithDesc(b.ID, b.Name+" "+b.State))
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
