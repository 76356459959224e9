// Package eval holds the verbs about stored evals.
package eval

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("eval", "Store, extend, show and list evals", newCreate(p), newAddTasks(p), newGet(p), newList(p))
}

// open is the stored evals, after what dead sandboxes left has been swept.
func open(ctx context.Context, p *verb.Program) (*taskstore.Store, error) {
	a, err := p.Ready()
	if err != nil {
		return nil, err
	}
	p.Sweep(ctx, a)
	return a.Tasks(ctx)
}

// completeIDs offers the newest evals to the shell. It only reads, for a short time.
func completeIDs(p *verb.Program) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), verb.CompletionTime)
		defer cancel()
		a, err := p.App()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		s, err := a.Tasks(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, _, err := s.List(ctx, store.Eval, prefix, 0, 50)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, e := range found {
			out = append(out, e.ID)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeID is completeIDs for --id of a command whose argument is something else.
func completeID(p *verb.Program) cobra.CompletionFunc {
	ids := completeIDs(p)
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return ids(cmd, nil, prefix)
	}
}
