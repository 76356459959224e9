// Package sandbox holds the verbs about sandboxes of every provider.
package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("sandbox", "Start, use and remove sandboxes, and see what isolation holds here",
		newList(p), newStart(p), newExec(p), newCopy(p), newRenew(p), newSnapshot(p), newFork(p), newDiff(p), newRemove(p), newPrune(p), newLogs(p), newBlocked(p), newCheck(p))
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

// connect opens the program and a connection to the box that text means. The caller closes the box.
func connect(ctx context.Context, p *verb.Program, text string) (*app.App, sandbox.Info, guest.Box, error) {
	a, err := open(ctx, p)
	if err != nil {
		return nil, sandbox.Info{}, nil, err
	}
	info, provider, err := a.FindBox(ctx, text)
	if err != nil {
		return nil, sandbox.Info{}, nil, err
	}
	box, err := provider.Connect(ctx, info.ID)
	return a, info, box, err
}

// forker opens the program and finds what forks the box that text means.
func forker(ctx context.Context, p *verb.Program, text string) (*app.App, sandbox.Info, sandbox.Forker, error) {
	a, err := open(ctx, p)
	if err != nil {
		return nil, sandbox.Info{}, nil, err
	}
	info, provider, err := a.FindBox(ctx, text)
	if err != nil {
		return nil, sandbox.Info{}, nil, err
	}
	f, err := app.ForkerOf(info.Provider, provider)
	return a, info, f, err
}

// completeIDs offers the live sandboxes to the shell, for each argument when a command takes many.
func completeIDs(p *verb.Program, many bool) cobra.CompletionFunc {
	if many {
		return p.Complete(live, cobra.ShellCompDirectiveNoFileComp)
	}
	return p.CompleteFirst(live, cobra.ShellCompDirectiveNoFileComp)
}

func live(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
	boxes, err := a.Boxes(ctx)
	var out []cobra.Completion
	for _, b := range boxes {
		out = append(out, cobra.CompletionWithDesc(b.ID, b.Name+" "+b.State))
	}
	return out, err
}
