package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/sandbox"
)

// ForkerOf is a provider as one that has snapshots.
func ForkerOf(name string, p sandbox.Provider) (sandbox.Forker, error) {
	f, ok := p.(sandbox.Forker)
	if !ok {
		return nil, fmt.Errorf("sandboxes of %s have no snapshots: %w", name, sandbox.ErrUnsupported)
	}
	return f, nil
}

// Snapshots lists the snapshots of every provider, newest first. A provider that can't be asked is told of in the error, beside the others'.
func (a *App) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return nil, err
	}
	var out []sandbox.Snapshot
	var errs []error
	for e := range w.providers.All() {
		f, ok := e.Value.(sandbox.Forker)
		if !ok {
			continue
		}
		all, err := f.Snapshots(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("list the snapshots of %s: %w", e.Name, err))
		}
		out = append(out, all...)
	}
	slices.SortStableFunc(out, func(a, b sandbox.Snapshot) int { return b.Created.Compare(a.Created) })
	return out, errors.Join(errs...)
}

// FindSnapshot finds a snapshot by its id, the beginning of its id, or its name.
func (a *App) FindSnapshot(ctx context.Context, text string) (sandbox.Snapshot, sandbox.Forker, error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return sandbox.Snapshot{}, nil, err
	}
	all, listErr := a.Snapshots(ctx)
	var found []sandbox.Snapshot
	for _, s := range all {
		if s.ID == text {
			found = []sandbox.Snapshot{s}
			break
		}
		if text != "" && (strings.HasPrefix(s.ID, text) || s.Name == text) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0 && listErr != nil:
		return sandbox.Snapshot{}, nil, listErr
	case len(found) == 0:
		return sandbox.Snapshot{}, nil, fmt.Errorf("there is no snapshot %s: %w; agent-env sandbox snapshot list shows them", diag.Repr(text), sandbox.ErrNotFound)
	case len(found) > 1:
		var ids []string
		for _, s := range found {
			ids = append(ids, s.ID)
		}
		return sandbox.Snapshot{}, nil, fmt.Errorf("%s is several snapshots: %s", diag.Repr(text), strings.Join(ids, ", "))
	}
	e, ok := w.providers.Get(found[0].Provider)
	if !ok {
		return sandbox.Snapshot{}, nil, fmt.Errorf("snapshot %s is of the provider %s, which is not here", found[0].ID, found[0].Provider)
	}
	f, err := ForkerOf(found[0].Provider, e.Value)
	return found[0], f, err
}

// ImportingForker is the first provider of the chain that has snapshots; "" is the configured chain.
func (a *App) ImportingForker(ctx context.Context, chain string) (sandbox.Forker, error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return nil, err
	}
	names, err := a.Chain(ctx, chain)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = w.chain
	}
	for _, name := range names {
		e, ok := w.providers.Get(name)
		if !ok {
			continue
		}
		if f, ok := e.Value.(sandbox.Forker); ok {
			return f, nil
		}
	}
	return nil, fmt.Errorf("none of the providers %s has snapshots: %w", strings.Join(names, ", "), sandbox.ErrUnsupported)
}

// ForkBox makes n sandboxes that begin with what a living one holds now, each as s says. Those that were made are answered beside an error too.
func (a *App) ForkBox(ctx context.Context, text string, n int, s sandbox.Spec) (_ []sandbox.Info, err error) {
	parent, p, err := a.FindBox(ctx, text)
	if err != nil {
		return nil, err
	}
	f, err := ForkerOf(parent.Provider, p)
	if err != nil {
		return nil, err
	}
	snap, err := f.Snapshot(ctx, parent.ID, sandbox.SnapshotOptions{Passing: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.RemoveSnapshot(context.WithoutCancel(ctx), snap.ID)) }()
	s.From, s.Image = snap.ID, snap.Image
	var out []sandbox.Info
	for i := range n {
		one := s
		if n > 1 && s.Name != "" {
			one.Name = fmt.Sprintf("%s-%d", s.Name, i+1)
		}
		info, err := p.Create(ctx, one)
		if err != nil {
			return out, err
		}
		out = append(out, info)
	}
	return out, nil
}
