// Package agent holds the verbs about agents: those that come with the program and those that are stored.
package agent

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("agent", "List agents, and ask one something", newList(p), newShow(p), newPrompt(p))
}

// completeAgents offers what can be deployed.
func completeAgents(p *verb.Program) cobra.CompletionFunc {
	return p.CompleteFirst(func(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
		all, err := a.Agents(ctx)
		var out []cobra.Completion
		for _, x := range all {
			out = append(out, x.ID)
		}
		return out, err
	}, cobra.ShellCompDirectiveNoFileComp)
}
