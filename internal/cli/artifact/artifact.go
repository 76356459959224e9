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

// completeIDs offers the newest artifacts to the shell. It only reads, for a short time.
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
		l, err := a.Artifacts(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		page, err := l.List(ctx, artifactstore.Query{Prefix: prefix, Limit: 50})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, i := range page.Artifacts {
			out = append(out, cobra.CompletionWithDesc(i.ID, i.Type))
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeID is completeIDs for --id.
func completeID(p *verb.Program, cmd *cobra.Command) {
	ids := completeIDs(p)
	_ = cmd.RegisterFlagCompletionFunc("id", func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return ids(cmd, nil, prefix)
	}) // fails for an unknown flag alone
}
