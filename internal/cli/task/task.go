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

// completeIDs offers the newest tasks to the shell, and what else also allows.
func completeIDs(p *verb.Program, also cobra.ShellCompDirective) cobra.CompletionFunc {
	return p.CompleteFirst(verb.Stored(store.Task), also)
}

// completeID is completeIDs for --id of a command whose argument is something else.
func completeID(p *verb.Program) cobra.CompletionFunc {
	return p.Complete(verb.Stored(store.Task), cobra.ShellCompDirectiveNoFileComp)
}
