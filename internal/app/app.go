// Package app puts the program together: it reads configuration, opens stores, and hands the parts to each other. Everything is made when
// it is first asked for, so that a command pays for what it uses alone.
//
// It is the one package that may import widely. It decides nothing about bundles, runs or sandboxes, and prints nothing.
package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/store/secrets"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// Options are what the outside hands in.
type Options struct {
	Env func(string) (string, bool) // as os.LookupEnv
	Dir string                      // the working folder, absolute
	Log *slog.Logger
	// Ask asks a person who plays an agent of a run; see deploy.AgentOptions. It may be nil.
	Ask func(ctx context.Context, q deploy.Question) (string, error)
}

// App is the program of one process. Its methods may be called from several goroutines.
type App struct {
	opt    Options
	config func() (*config.Config, diag.List)

	secretStore part[*secrets.Secrets]
	store       part[*sqlite.Store]
	world       part[sandboxes]
	envs        part[*deploy.Envs]
	agents      part[*deploy.Agents]
	engine      part[*bundlerun.Engine]
	models      part[*source.Models]
	plugins     part[*dist.Environment]
	pluginHost  part[*host.Plugins]
	keepers     part[*keeper.Keeper]

	redact redact.Redactor // of everything that this process records or says of runs

	mu      sync.Mutex
	sources map[string]bundle.Source // of installed bundles that others name entities of, by id root
	closers []func(context.Context) error
}

// New makes an App. The caller closes it.
func New(o Options) *App {
	a := &App{opt: o}
	a.config = sync.OnceValues(func() (*config.Config, diag.List) {
		return config.Load(config.Options{Dir: o.Dir, Env: o.Env})
	})
	return a
}

// Config is the configuration, whatever is wrong with it: settings that can't be read are the defaults.
func (a *App) Config() *config.Config {
	c, _ := a.config()
	return c
}

// ConfigProblems is what is wrong with the configuration. A command that acts on it refuses when the list has errors.
func (a *App) ConfigProblems() diag.List {
	_, l := a.config()
	return l
}

// onClose adds what Close has to do.
func (a *App) onClose(f func(context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closers = append(a.closers, f)
}

// Close closes what was opened, last first.
func (a *App) Close(ctx context.Context) error {
	a.mu.Lock()
	closers := a.closers
	a.closers = nil
	a.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, f := range slices.Backward(closers) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}
