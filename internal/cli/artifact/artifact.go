// Package artifact holds the verbs about stored artifacts. Those of any type stand directly under the noun; a type whose files are put in a way of
// its own, or that has commands of that name elsewhere, has a group of its own that does the same.
package artifact

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("artifact", "List, show, fetch, store and remove artifacts",
		newList(p, ""), newShow(p), newVersions(p), newGet(p, "artifact"), newPut(p), newDelete(p), newPrune(p),
		environment(p), universe(p), files(p), skill(p), command(p), tree(p))
}

// open is the stored artifacts, after what dead sandboxes left has been swept.
func open(ctx context.Context, p *verb.Program) (*app.App, *artifactstore.Library, error) {
	a, err := p.Ready()
	if err != nil {
		return nil, nil, err
	}
	p.Sweep(ctx, a)
	l, err := a.Artifacts(ctx)
	return a, l, err
}

// completeIDs offers the newest artifacts to the shell.
func completeIDs(p *verb.Program) cobra.CompletionFunc {
	return p.CompleteFirst(newest, cobra.ShellCompDirectiveNoFileComp)
}

// completeID is completeIDs for --id.
func completeID(p *verb.Program, cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("id", p.Complete(newest, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag alone
}

func newest(ctx context.Context, a *app.App, prefix string) ([]cobra.Completion, error) {
	l, err := a.Artifacts(ctx)
	if err != nil {
		return nil, err
	}
	page, err := l.List(ctx, artifactstore.Query{Prefix: prefix, Limit: 50})
	var out []cobra.Completion
	for _, i := range page.Artifacts {
		out = append(out, cobra.CompletionWithDesc(i.ID, i.Type))
	}
	return out, err
}
