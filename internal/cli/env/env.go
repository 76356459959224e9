// Package env holds the verbs about environments: stored ones, and deployments that outlive the command that made them.
package env

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/envowner"
	"agentenv.internal/agentenv/internal/store"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("env", "Store, deploy and use environments",
		newPut(p), newList(p), newShow(p), newDeploy(p), newLoad(p), newSnapshot(p), newReset(p), newCall(p), newStop(p), newValidate(p), newMCPServer(p), verb.NewOwn(p, (*app.App).OwnEnv))
}

// open is the program and its deployments, after what dead sandboxes and owners left has been swept.
func open(ctx context.Context, p *verb.Program) (*app.App, *envowner.Folder, error) {
	return verb.Deployed(ctx, p, (*app.App).Deployments)
}

// client finds a living deployment. The caller closes the client.
func client(ctx context.Context, p *verb.Program, text string) (*envowner.Client, envowner.Record, error) {
	_, f, err := open(ctx, p)
	if err != nil {
		return nil, envowner.Record{}, err
	}
	r, err := f.Find(text)
	if err != nil {
		return nil, r, err
	}
	return f.Client(r), r, nil
}

// completeStored offers stored environments to the shell, completeDeployed living deployments.
func completeStored(p *verb.Program) cobra.CompletionFunc {
	return p.CompleteFirst(verb.Stored(store.Env), cobra.ShellCompDirectiveNoFileComp)
}

func completeDeployed(p *verb.Program) cobra.CompletionFunc {
	return verb.CompleteDeployed(p, (*app.App).Deployments)
}
