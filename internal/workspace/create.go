package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Order is a workspace to create.
type Order struct {
	Name string
	Root string // its folder, absolute; it is made unless it is there and has no .agentenv
	From string // the root of another workspace, whose configuration, soul and plugins are taken over; "" for none
	Soul string // the text of SOUL.md; "" takes the bundle's, or the one of every new workspace

	Bundle, Ref string // of a plugin bundle; "" for none
	// RequiresTools are tools that its agent is meant to have, beside those that the bundle names.
	RequiresTools []string
	// Permit is asked when the bundle's own repository is here, and before any member's source is asked for anything; nil permits.
	Permit func(ctx context.Context, bundle *git.Item) error
	// Answer is asked once the bundle is known, with what consent covers: it answers with what people say, or refuses.
	Answer func(ctx context.Context, p *pack.Pack, d pack.Disclosure) (Answers, error)
}

// Maker creates workspaces.
type Maker struct {
	Registry *Registry
	// Store opens the store of git plugins for a workspace's folder, under the policy of whoever creates it.
	Store    func(folder.Folder) *git.Store
	Builtins []string // ids of plugins that come with the program
	// Env are variables of the environment that bundles may read; nil: none.
	Env func(string) (string, bool)
	Now func() time.Time
	// Limit is how long a bundle and its members may take to arrive; 0 is FetchLimit.
	Limit time.Duration
}

// FetchLimit is how long a bundle and its members may take to arrive while a workspace is made.
const FetchLimit = 300 * time.Second

// Created is a workspace that stands.
type Created struct {
	Workspace
	Seeded   *Seeded // of its bundle; nil without one
	Plugins  []string
	Warnings []string
}

// Late is the error of a bundle that took too long.
type Late struct {
	Bundle string
	Limit  time.Duration
}

func (e *Late) Error() string {
	return fmt.Sprintf("%s and its members didn't arrive within %s; no workspace was made", e.Bundle, e.Limit)
}

const stagingPrefix = ".agentenv-creating-"

// Create makes a workspace: whole, or, when anything fails or ctx ends, not at all. Its folder appears by one rename.
func (m *Maker) Create(ctx context.Context, o Order) (_ *Created, err error) {
	if err := CheckName(o.Name); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(o.Root) {
		return nil, fmt.Errorf("%s is no absolute path", o.Root)
	}
	if err := atomicfile.MkdirAll(m.Registry.dir); err != nil {
		return nil, fmt.Errorf("keep a list of workspaces: %w", err)
	}
	lock, err := hold(ctx, m.Registry.lock(o.Name))
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("the workspace %s is being made or removed by another command", o.Name)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	e, err := m.reserve(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Registry.undo(o.Name, e))
		}
	}()
	out, hold, err := m.fill(ctx, o, folder.At(e.Staging))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hold()) }()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	back, err := place(e.Staging, o.Root)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, back())
		}
	}()
	out.Root = o.Root
	// From here on it stands: what is left is bookkeeping, which the next command does where this one is killed.
	if err := m.Registry.finish(o.Name, e); err != nil {
		return nil, err
	}
	if o.Bundle != "" || o.From != "" { // its lock names trees, which are kept from now on
		if err := m.Store(folder.At(o.Root)).Change(context.WithoutCancel(ctx), func(*folder.Tx, *git.Lock) error { return nil }); err != nil {
			return nil, err
		}
	}
	return out, nil
}
