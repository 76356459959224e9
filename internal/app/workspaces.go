package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Workspaces is the list of this user's workspaces.
func (a *App) Workspaces() (*workspace.Registry, error) {
	root := a.Config().StateRoot()
	if root == "" {
		return nil, a.ConfigProblems().Err()
	}
	return workspace.NewRegistry(filepath.Join(root, "workspaces")), nil
}

// Workspace is the nearest one upward; folder.ErrNone.
func (a *App) Workspace() (workspace.Workspace, error) {
	f, err := a.WorkspaceFolder()
	if err != nil {
		return workspace.Workspace{}, err
	}
	return workspace.At(f.Root())
}

// CreateWorkspace makes a workspace. Where plugins may come from is said by the configuration here, not by the one of the workspace to be.
func (a *App) CreateWorkspace(ctx context.Context, o workspace.Order) (*workspace.Created, error) {
	r, err := a.Workspaces()
	if err != nil {
		return nil, err
	}
	policy, err := a.GitPolicy(ctx)
	if err != nil {
		return nil, err
	}
	m := workspace.Maker{
		Registry: r, Builtins: a.gitBuiltinIDs(), Now: time.Now,
		Store: func(f folder.Folder) *git.Store { return a.gitStore(f, policy) },
		Env:   a.granted,
	}
	return m.Create(ctx, o)
}

// Delegates are the agents that work may be handed to here, each with the values of the secrets that its entry names.
func (a *App) Delegates(ctx context.Context) (map[string]workspace.Delegate, error) {
	out := map[string]workspace.Delegate{}
	var errs []error
	for name, n := range a.Config().Delegates().Members() {
		d := workspace.Delegate{Entry: n, Secrets: map[string]string{}}
		n.MapStrings(func(s doc.Node) (string, bool) {
			key, isSecret := config.SecretKey(s.Text())
			if !isSecret {
				return "", false
			}
			v, found, err := a.secrets(ctx, key)
			if err != nil {
				errs = append(errs, fmt.Errorf("delegates.%s: %w", name, err))
			} else if found {
				d.Secrets[key] = v
				a.redact.Add(v)
			}
			return "", false
		})
		out[name] = d
	}
	return out, errors.Join(errs...)
}
