// Package workspace holds the verbs about workspaces: folders with a configuration, git plugins, secrets and one agent's soul.
package workspace

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/workspace"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("workspace", "Create, list, run and remove workspaces", newCreate(p), newList(p), newShow(p), newRun(p), newRemove(p))
}

// complete offers the names of workspaces.
func complete(p *verb.Program) cobra.CompletionFunc {
	return p.CompleteFirst(func(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
		r, err := a.Workspaces()
		if err != nil {
			return nil, err
		}
		all, err := r.List(ctx)
		var names []cobra.Completion
		for _, w := range all {
			names = append(names, w.Name)
		}
		return names, err
	}, cobra.ShellCompDirectiveNoFileComp)
}

// named is the workspace that args name, else the nearest one upward.
func named(ctx context.Context, a *app.App, args []string) (workspace.Workspace, error) {
	if len(args) == 0 {
		return a.Workspace()
	}
	r, err := a.Workspaces()
	if err != nil {
		return workspace.Workspace{}, err
	}
	w, err := r.Get(ctx, args[0])
	if err == nil && w.Problem != "" {
		err = &problem{w}
	}
	return w, err
}

// problem is a workspace that can't be used.
type problem struct{ w workspace.Workspace }

func (e *problem) Error() string {
	return "the workspace " + e.w.Name + " can't be used: " + e.w.Problem + "; agent-env workspace remove " + e.w.Name + " forgets it"
}

// atMostOne takes one argument or none.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return verb.Usagef("%s takes one NAME at most, but got %d arguments", cmd.CommandPath(), len(args))
	}
	return nil
}
