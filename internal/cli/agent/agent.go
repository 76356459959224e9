// Package agent holds the verbs about agents: those that come with the program, stored ones, and deployments that outlive the command that made them.
package agent

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/agentowner"
	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	cmd := verb.Group("agent", "Store, deploy and ask agents",
		newPut(p), newList(p), newShow(p), newDeploy(p), newPrompt(p), newAddSkill(p), newStop(p), newValidate(p), verb.NewOwn(p, (*app.App).OwnAgent))
	cmd.Aliases = []string{"a2a-agent"}
	return cmd
}

// open is the program and its deployments, after what dead sandboxes and owners left has been swept.
func open(ctx context.Context, p *verb.Program) (*app.App, *agentowner.Folder, error) {
	return verb.Deployed(ctx, p, (*app.App).AgentDeployments)
}

// client finds a living deployment. The caller closes the client.
func client(ctx context.Context, p *verb.Program, text string) (*agentowner.Client, agentowner.Record, error) {
	_, f, err := open(ctx, p)
	if err != nil {
		return nil, agentowner.Record{}, err
	}
	r, err := f.Find(text)
	if err != nil {
		return nil, r, err
	}
	return f.Client(r), r, nil
}

// completeDeployed offers living deployments to the shell.
func completeDeployed(p *verb.Program) cobra.CompletionFunc {
	return verb.CompleteDeployed(p, (*app.App).AgentDeployments)
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
