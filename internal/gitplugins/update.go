package gitplugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Outdated asks what the sources of all git plugins and plugin bundles of the workspace here have now.
func (p *Plugins) Outdated(ctx context.Context) ([]git.Update, error) {
	s, err := p.Store(ctx)
	if err != nil {
		return nil, err
	}
	return s.Outdated(ctx)
}

// Update brings a git plugin of the workspace here to what its ref means now; with latest a release's tag moves to that of the newest release.
// Who installed it stays, and so does whether it is on.
func (p *Plugins) Update(ctx context.Context, id string, latest, dry bool) (*Installed, error) {
	s, l, err := p.withLock(ctx)
	if err != nil {
		return nil, err
	}
	row := l.Plugin(id)
	if row == nil {
		return nil, notInstalled(l, id, "plugin")
	}
	if err := s.Writable(ctx); err != nil {
		return nil, err
	}
	w := git.Want{URL: row.SourceURL, Ref: row.RequestedRef, By: row.By, Declared: id, DeclaredRef: row.DeclaredRef}
	if latest {
		if w.Ref, err = p.newest(ctx, s, row.SourceURL, row.RequestedRef); err != nil {
			return nil, err
		}
		if w.Ref != row.RequestedRef && strings.HasPrefix(row.By, "bundle:") && w.DeclaredRef == "" {
			w.DeclaredRef = row.RequestedRef
		}
	}
	items, err := s.Fetch(ctx, []git.Want{w})
	if err != nil {
		return nil, err
	}
	out := &Installed{items: items}
	if git.IsPinned(w.Ref) {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s is pinned to the commit %s; agent-env plugin install with another --ref moves it", id, w.Ref))
	}
	if err := p.update(ctx, s, *row, dry, out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// update applies what was fetched to the row that it was fetched for.
func (p *Plugins) update(ctx context.Context, s *git.Store, row git.Row, dry bool, out *Installed) (err error) {
	if out.items[0].Kind != git.Plugin {
		return fmt.Errorf("%s is a plugin bundle now and no plugin any more; uninstall %s and install the bundle", out.items[0].Fetched.Source, row.ID)
	}
	if out.Plan, err = s.Plan(ctx, out.items, false); err != nil || dry {
		return err
	}
	if changes(out.Plan) {
		if err := p.consented(ctx, s.Policy(), pluginPlan(out.Plan)); err != nil {
			return err
		}
	}
	out.Plan, err = s.Apply(ctx, out.Plan, func(_ *folder.Tx, l *git.Lock) error {
		now := l.Plugin(row.ID)
		switch {
		case now == nil:
			return &Absent{row.ID + " was uninstalled meanwhile"}
		case now.ResolvedSHA == out.items[0].Fetched.Commit: // a tag that is newer may be of the same commit
			now.RequestedRef, now.DeclaredRef = out.items[0].Want.Ref, out.items[0].Want.DeclaredRef
		}
		return nil
	})
	return err
}

// changes tells whether a plan changes any files.
func changes(g *git.Plan) bool {
	return slices.ContainsFunc(g.Items, func(i git.Planned) bool { return i.Outcome == git.Added || i.Outcome == git.Updated })
}

// newest is the newest release's tag of a source where ref is a release's, else ref.
func (p *Plugins) newest(ctx context.Context, s *git.Store, url, ref string) (string, error) {
	src, err := git.ParseSource(url)
	if err != nil {
		return "", err
	}
	return s.Newest(ctx, src, ref, false)
}

// BundleUpdate is how a plugin bundle is updated.
type BundleUpdate struct {
	ID     string
	Ref    string // take this ref; "" keeps the one that was asked for
	Latest bool   // a release's tag moves to the newest release's, and members' to that of the newest compatible one
	Newest bool   // a release's tag moves to the newest release's; members are what that one pins
	Force  bool   // replace members that came from elsewhere
	DryRun bool
	// Activate turns on what is new and seeds what it gives; nil only fetches. What was turned off, or taken away, stays so.
	Activate *Activation
}

// BundleUpdated is what updating a plugin bundle did. Its files are held until Close.
type BundleUpdated struct {
	Installed
	Retired Removal // what the bundle doesn't name any more
}

// UpdateBundle installs what a plugin bundle of the workspace here holds now, and removes the plugins that it names no more and that are its own:
// one transaction.
func (p *Plugins) UpdateBundle(ctx context.Context, u BundleUpdate) (*BundleUpdated, error) {
	s, l, err := p.withLock(ctx)
	if err != nil {
		return nil, err
	}
	row := l.Bundle(u.ID)
	if row == nil {
		return nil, notInstalled(l, u.ID, "plugin bundle")
	}
	if err := s.Writable(ctx); err != nil {
		return nil, err
	}
	w := git.Want{URL: row.SourceURL, Ref: row.RequestedRef, By: row.By}
	if u.Ref != "" {
		w.Ref = u.Ref
	} else if u.Latest || u.Newest {
		if w.Ref, err = p.newest(ctx, s, w.URL, w.Ref); err != nil {
			return nil, err
		}
	}
	items, err := s.Fetch(ctx, []git.Want{w})
	if err != nil {
		return nil, err
	}
	out := &BundleUpdated{Installed: Installed{items: items}, Retired: Removal{ID: u.ID}}
	if err := p.updateBundle(ctx, s, *row, u, out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

func (p *Plugins) updateBundle(ctx context.Context, s *git.Store, row git.BundleRow, u BundleUpdate, out *BundleUpdated) (err error) {
	fetch := pack.Fetch
	if u.Latest {
		fetch = pack.FetchLatest
	}
	if err := p.mayAskMembers(ctx, s.Policy(), out.items[0]); err != nil {
		return err
	}
	if out.Pack, err = fetch(ctx, s, out.items[0], p.builtins()); err != nil {
		return err
	}
	out.Warnings = append(out.Warnings, out.Pack.Warnings...)
	if id := out.Pack.Manifest.ID; id != u.ID {
		return fmt.Errorf("%s: the bundle calls itself %s now, and was installed as %s; uninstall that one and install this", out.Pack.Bundle.Fetched.Source, diag.Repr(id), u.ID)
	}
	if out.Plan, err = s.Plan(ctx, out.Pack.Members, u.Force); err != nil {
		return err
	}
	fresh := out.Pack.Row(row.By, git.Stamp(time.Now()), row.Seeded)
	if changes(out.Plan) || differ(row, fresh) {
		if err := p.consented(ctx, s.Policy(), packPlan(out.Pack, out.Plan)); err != nil {
			return err
		}
	}
	var answers workspace.Answers
	if u.Activate != nil {
		out.Activated = &Activated{}
		if answers, err = p.answers(ctx, s, out.Pack, *u.Activate); err != nil {
			return err
		}
	}
	dropped := slices.DeleteFunc(slices.Clone(row.Plugins), func(id string) bool { return slices.Contains(fresh.Plugins, id) })
	var gone []git.Row
	change := func(tx *folder.Tx, l *git.Lock) (err error) {
		out.Retired = Removal{ID: u.ID}
		now := l.Bundle(u.ID)
		if now == nil {
			return &Absent{"the plugin bundle " + u.ID + " was uninstalled meanwhile"}
		}
		if differ(*now, fresh) {
			*now = fresh
		}
		if u.Activate != nil {
			*out.Activated = Activated{}
			now.Seeded = p.activatePack(tx, l, out.Pack, answers, out.Activated)
		}
		gone, err = p.retire(tx, l, u.ID, dropped, false, &out.Retired)
		return err
	}
	if u.DryRun {
		for _, id := range dropped {
			out.Warnings = append(out.Warnings, fmt.Sprintf("the bundle names %s no more", id))
		}
		return nil
	}
	if out.Plan, err = s.Apply(ctx, out.Plan, change); err != nil {
		return err
	}
	if len(gone) > 0 {
		p.prune(ctx, s, gone, &out.Retired)
		out.Warnings = append(out.Warnings, out.Retired.Warnings...)
	}
	return nil
}

// differ tells whether two rows of a bundle are of other files, or of another ref.
func differ(a, b git.BundleRow) bool {
	return a.ResolvedSHA != b.ResolvedSHA || a.RequestedRef != b.RequestedRef || a.TreeSHA256 != b.TreeSHA256
}
