package app

import (
	"context"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/secrets"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// secrets looks `secret:` references of the configuration up.
func (a *App) secrets(ctx context.Context, key string) (string, bool, error) {
	s, err := a.secretStore.get(func() (*secrets.Secrets, error) {
		class, err := a.Config().SecretStore(ctx)
		if err != nil {
			return nil, err
		}
		if err := onlyLocal("stores.secret", class); err != nil {
			return nil, err
		}
		useEnv, _ := class.Config.Get("use_env").Bool()
		c := secrets.Config{Values: map[string]string{}, UseEnv: useEnv, LookupEnv: a.opt.Env}
		for name, v := range class.Config.Get("values").Members() {
			c.Values[name] = v.Text()
		}
		if f := class.Config.Get("file_path").Text(); f != "" {
			c.File = a.Config().Abs(f)
		}
		return secrets.New(c), nil
	})
	if err != nil {
		return "", false, err
	}
	v, err := s.Secret(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return "", false, nil
	}
	return v, err == nil, err
}

// onlyLocal refuses a class that the program can't load yet.
func onlyLocal(section string, c config.Class) error {
	if c.Impl == config.Local {
		return nil
	}
	where := section
	if p := c.Pos.String(); p != "" {
		where = p + ": " + section
	}
	return fmt.Errorf("%s: this version has no class %q; use local", where, c.Impl)
}

// Store is where documents and objects are kept. Opening it makes nothing.
func (a *App) Store(ctx context.Context) (*sqlite.Store, error) {
	return a.store.get(func() (*sqlite.Store, error) {
		root, err := a.storeRoot(ctx)
		if err != nil {
			return nil, err
		}
		s, err := sqlite.Open(root, sqlite.Options{})
		if err != nil {
			return nil, err
		}
		a.onClose(func(context.Context) error { return s.Close() })
		return s, nil
	})
}

// storeRoot is the folder of the local store: documents and objects share it, since one transaction names both.
func (a *App) storeRoot(ctx context.Context) (string, error) {
	c := a.Config()
	if c.StateRoot() == "" {
		return "", a.ConfigProblems().Err()
	}
	documents, err := c.DocumentStore(ctx, a.secrets)
	if err != nil {
		return "", err
	}
	objects, err := c.ObjectStore(ctx, a.secrets)
	if err != nil {
		return "", err
	}
	if err := errors.Join(onlyLocal("stores.document", documents), onlyLocal("stores.object", objects)); err != nil {
		return "", err
	}
	root := c.Abs(documents.Config.Get("path").Text())
	if other := c.Abs(objects.Config.Get("root").Text()); other != root {
		return "", fmt.Errorf("stores.object.config.root is %s, but documents are in %s: set both to one folder", other, root)
	}
	return root, nil
}

// RunLog is the log of all runs.
func (a *App) RunLog(ctx context.Context) (runlog.Log, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	return s.Runs(), nil
}
