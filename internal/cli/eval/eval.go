// Package eval holds the verbs about stored evals.
package eval

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("eval", "Store, run and compare evals", newCreate(p), newAddTasks(p), newRun(p), newReport(p), newCompare(p), newGet(p), newList(p))
}

// openEngine is the engine, after what dead sandboxes left has been swept.
func openEngine(ctx context.Context, p *verb.Program) (*bundlerun.Engine, error) {
	a, err := p.Ready()
	if err != nil {
		return nil, err
	}
	p.Sweep(ctx, a)
	return a.Engine(ctx)
}

// completeRuns offers the newest eval runs to the shell.
func completeRuns(p *verb.Program) cobra.CompletionFunc {
	return p.Complete(func(ctx context.Context, a *app.App, _ string) ([]string, error) {
		e, err := a.Engine(ctx)
		if err != nil {
			return nil, err
		}
		all, err := e.EvalRuns(ctx, "")
		var out []string
		for _, x := range all {
			out = append(out, x.ID)
		}
		return out, err
	}, cobra.ShellCompDirectiveNoFileComp)
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

// completeIDs offers the newest evals to the shell.
func completeIDs(p *verb.Program) cobra.CompletionFunc {
	return p.CompleteFirst(verb.Stored(store.Eval), cobra.ShellCompDirectiveNoFileComp)
}

// completeID is completeIDs for --id of a command whose argument is something else.
func completeID(p *verb.Program) cobra.CompletionFunc {
	return p.Complete(verb.Stored(store.Eval), cobra.ShellCompDirectiveNoFileComp)
}
