package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envdb"
	"agentenv.internal/agentenv/internal/envowner"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/owner"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/treestore"
)

// Deployments is the folder of environments that stand without a command.
func (a *App) Deployments() (*envowner.Folder, error) {
	root := a.Config().StateRoot()
	if root == "" {
		return nil, a.ConfigProblems().Err()
	}
	return envowner.Open(filepath.Join(root, "envs")), nil
}

// runsDir is where files of runs under way are.
func (a *App) runsDir() string { return filepath.Join(a.Config().StateRoot(), "runs") }

// handsDir is where consoles reach the mouse and the keyboard of computers.
func (a *App) handsDir() string { return filepath.Join(a.Config().StateRoot(), "hands") }

// getEnvs is what deploys environments in this process.
func (a *App) getEnvs(ctx context.Context) (*deploy.Envs, error) {
	return a.envs.get(func() (*deploy.Envs, error) {
		s, err := a.Store(ctx)
		if err != nil {
			return nil, err
		}
		w, err := a.getWorld(ctx)
		if err != nil {
			return nil, err
		}
		set, err := a.Config().Sandbox(ctx, a.secrets)
		if err != nil {
			return nil, err
		}
		database, err := a.Config().EnvDatabase(ctx, a.secrets)
		if err != nil {
			return nil, err
		}
		var server *envdb.Server
		if database != "" {
			if server, err = envdb.Parse(database); err != nil {
				return nil, fmt.Errorf("envs.database: %w", err)
			}
		}
		return deploy.NewEnvs(w.deploy, s, deploy.EnvOptions{
			Records: bundlerun.Records{Store: s, Dir: a.runsDir()}, Redact: &a.redact,
			Postgres: server, Trees: treestore.Open(filepath.Join(a.Config().StateRoot(), "made"), treestore.Options{}), PythonIndex: set.PythonIndex,
			NPMRegistry: set.NPMRegistry, Tools: set.Tools, Foreign: foreign{a}, Hands: a.handsDir(),
		}), nil
	})
}

// StoredEnv is a stored environment by its id, or by the last part of it where one environment has that; version 0 is the latest.
func (a *App) StoredEnv(ctx context.Context, text string, version int) (envstore.Env, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return envstore.Env{}, err
	}
	id := text
	if ref.CheckID(text) != nil || !ref.IsLocal(text) {
		page, err := s.List(ctx, store.Query{Kind: store.Env, Limit: 1000})
		if err != nil {
			return envstore.Env{}, err
		}
		var found []string
		for _, d := range page.Docs {
			if d.ID == text {
				found = []string{d.ID}
				break
			}
			if ref.Last(d.ID) == text {
				found = append(found, d.ID)
			}
		}
		if len(found) > 1 {
			return envstore.Env{}, fmt.Errorf("%s is several environments: %s", diag.Repr(text), found)
		}
		if len(found) == 1 {
			id = found[0]
		}
	}
	return envstore.Read(ctx, s, id, version)
}

// CheckEnv tells before anything is made why an environment can't be deployed by these providers, comma-separated; "" is the configured chain.
func (a *App) CheckEnv(ctx context.Context, e envstore.Env, providers string) error {
	chain, err := a.Chain(ctx, providers)
	if err != nil {
		return err
	}
	envs, err := a.getEnvs(ctx)
	if err != nil {
		return err
	}
	return envs.Check(ctx, chain, "", deploy.EnvRequest{Env: e, Type: providers})
}

// OwnEnv is the life of a process that holds one deployment: order is an envowner.Order of the caller's.
func (a *App) OwnEnv(ctx context.Context, order io.Reader, c *owner.Caller) error {
	defer c.Life.Close()
	var o envowner.Order
	if err := json.NewDecoder(order).Decode(&o); err != nil {
		return fmt.Errorf("read what to deploy: %w", err)
	}
	f, err := a.Deployments()
	if err != nil {
		return err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return err
	}
	envs, err := a.getEnvs(ctx)
	if err != nil {
		return err
	}
	w, err := a.getWorld(ctx)
	if err != nil {
		return err
	}
	return (&envowner.Owner{Folder: f, Store: s, Boxes: w.deploy, Envs: envs, Log: a.opt.Log}).Own(ctx, o, c)
}
