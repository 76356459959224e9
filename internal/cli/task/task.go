// Package task holds the verbs about stored tasks.
package task

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("task", "Store, show, list, check and run tasks", newCreate(p), newGet(p), newList(p), newValidate(p), newRun(p), newRunBatch(p))
}

// open is the stored tasks, after what dead sandboxes left has been swept.
func open(ctx context.Context, p *verb.Program) (*app.App, *taskstore.Store, error) {
	a, err := p.Ready()
	if err != nil {
		return nil, nil, err
	}
	p.Sweep(ctx, a)
	s, err := a.Tasks(ctx)
	return a, s, err
}

// completeIDs offers the newest tasks to the shell. It only reads, for a short time.
func completeIDs(p *verb.Program, also cobra.ShellCompDirective) cobra.CompletionFunc {
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
		found, _, err := s.List(ctx, store.Task, prefix, 0, 50)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, t := range found {
			out = append(out, t.ID)
		}
		return out, also | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeID is completeIDs for --id of a command whose argument is something else.
func completeID(p *verb.Program) cobra.CompletionFunc {
	ids := completeIDs(p, cobra.ShellCompDirectiveNoFileComp)
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return ids(cmd, nil, prefix)
	}
}
