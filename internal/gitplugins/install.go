package gitplugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Request is what is to be installed from git.
type Request struct {
	URL, Ref string
	By       string // who asks, as the lock says it
	Force    bool   // replace a plugin of the same id from elsewhere
	DryRun   bool
	Activate *Activation // turn it on and seed what it gives; nil only fetches
}

// Installed is what an install did, or would do. Its files are held until Close.
type Installed struct {
	Plan      *git.Plan
	Pack      *pack.Pack // the plugin bundle; nil for a plugin alone
	Activated *Activated // nil where that was not asked for
	Warnings  []string
	items     git.Items
}

// Close lets go of the files.
func (i *Installed) Close() error { return errors.Join(i.Pack.Close(), i.items.Close()) }

// Install installs what a repository holds into the workspace: all of it or nothing. An error may be a *NeedsAck, an *Unanswered or a *git.Refused.
func (p *Plugins) Install(ctx context.Context, o Request) (*Installed, error) {
	s, err := p.Store(ctx)
	if err != nil {
		return nil, err
	}
	src, err := git.ParseSource(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Activate != nil && !p.supersedes(src) {
		if err := s.Policy().Allows(src); err != nil { // no consent makes up for that
			return nil, err
		}
		if err := git.CheckRef(o.Ref); err != nil {
			return nil, err
		}
		if err := p.mayAsk(ctx, s.Policy(), src); err != nil {
			return nil, err
		}
	}
	if err := s.Writable(ctx); err != nil {
		return nil, err
	}
	items, err := s.Fetch(ctx, []git.Want{{URL: o.URL, Ref: o.Ref, By: o.By}})
	if err != nil {
		return nil, err
	}
	out := &Installed{items: items}
	if err := p.installItems(ctx, s, o, out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// installItems plans and applies what was fetched: a plugin, or a bundle's members and its row, in one transaction.
func (p *Plugins) installItems(ctx context.Context, s *git.Store, o Request, out *Installed) error {
	first := out.items[0]
	if first.Superseded != "" {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s comes with agent-env as %s: nothing was fetched", first.Fetched.Source, first.Superseded))
	}
	if o.Activate != nil {
		out.Activated = &Activated{}
	}
	if first.Kind == git.Bundle {
		return p.installPack(ctx, s, o, out)
	}
	var err error
	if out.Plan, err = s.Plan(ctx, out.items, o.Force); err != nil || o.DryRun {
		return err
	}
	if o.Activate == nil || first.Manifest == nil {
		out.Plan, err = s.Apply(ctx, out.Plan, nil)
		return err
	}
	if err := p.consented(ctx, s.Policy(), pluginPlan(out.Plan)); err != nil {
		return err
	}
	out.Plan, err = s.Apply(ctx, out.Plan, func(tx *folder.Tx, _ *git.Lock) error {
		*out.Activated = Activated{}
		p.activatePlugin(tx, s, first, out.Activated)
		return nil
	})
	return err
}

// installPack is installItems for a plugin bundle.
func (p *Plugins) installPack(ctx context.Context, s *git.Store, o Request, out *Installed) (err error) {
	if o.Activate != nil {
		if err := p.mayAskMembers(ctx, s.Policy(), out.items[0]); err != nil {
			return err
		}
	}
	if out.Pack, err = pack.Fetch(ctx, s, out.items[0], p.builtins()); err != nil {
		return err
	}
	out.Warnings = append(out.Warnings, out.Pack.Warnings...)
	l, err := s.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := putPack(l, out.Pack, o); err != nil { // a dry run refuses what an install refuses
		return err
	}
	if out.Plan, err = s.Plan(ctx, out.Pack.Members, o.Force); err != nil || o.DryRun {
		return err
	}
	var answers workspace.Answers
	if o.Activate != nil {
		if err := p.consented(ctx, s.Policy(), packPlan(out.Pack, out.Plan)); err != nil {
			return err
		}
		if answers, err = p.answers(ctx, s, out.Pack, *o.Activate); err != nil {
			return err
		}
	}
	out.Plan, err = s.Apply(ctx, out.Plan, func(tx *folder.Tx, l *git.Lock) error {
		row, err := putPack(l, out.Pack, o)
		if err != nil || o.Activate == nil {
			return err
		}
		*out.Activated = Activated{}
		row.Seeded = p.activatePack(tx, l, out.Pack, answers, out.Activated)
		return nil
	})
	return err
}

// putPack puts a bundle's row into the lock, unless the one that is there says the same, and answers the row for changing.
func putPack(l *git.Lock, p *pack.Pack, o Request) (*git.BundleRow, error) {
	row := p.Row(o.By, git.Stamp(time.Now()), nil)
	have := l.Bundle(row.ID)
	if have == nil {
		l.PutBundle(row)
		return l.Bundle(row.ID), nil
	}
	was, err := git.ParseSource(have.SourceURL)
	switch {
	case (err != nil || !was.Same(p.Bundle.Fetched.Source)) && !o.Force:
		return nil, &git.Conflict{Source: p.Bundle.Fetched.Source, What: "plugin bundle", ID: row.ID, From: diag.Clean(git.Shown(have.SourceURL))}
	case !o.Force && !differ(*have, row):
		return have, nil
	}
	row.Seeded = have.Seeded
	l.PutBundle(row)
	return l.Bundle(row.ID), nil
}
