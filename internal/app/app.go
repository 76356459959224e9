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
)

// Options are what the outside hands in.
type Options struct {
	Env func(string) (string, bool) // as os.LookupEnv
	Dir string                      // the working folder, absolute
	Log *slog.Logger
}

// App is the program of one process. Its methods may be called from several goroutines.
type App struct {
	opt Options

	mu      sync.Mutex
	closers []func(context.Context) error
}

// New makes an App. The caller closes it.
func New(o Options) *App {
	return &App{opt: o}
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
