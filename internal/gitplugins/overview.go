package gitplugins

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace"
)

// Card is an installed git plugin with all that is known of it.
type Card struct {
	Listed
	Manifest *git.Manifest // nil where its files are missing or it can't be used
	Trouble  string        // what keeps it from being used although it is on
	Lacks    []string      // keys of settings that it requires and nobody has set
	Of       *git.BundleRow
	DepsGone bool // it declares packages, and none were installed for it
}

// Overview is everything that is installed in the workspace: plugins by id, bundles as installed, and what can't be meant in the lock.
func (p *Plugins) Overview(ctx context.Context) (_ []Card, _ []git.BundleRow, _ []string, err error) {
	s, on, err := p.withSettings(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	all, l, err := list(ctx, s, on)
	if err != nil {
		return nil, nil, nil, err
	}
	read, err := workspace.ReadPlugins(ctx, s, on, p.o.Env)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, read.Close()) }()
	manifests := map[string]*git.Manifest{}
	for _, x := range read.All {
		manifests[x.ID] = x.Manifest
	}
	troubles := troublesOf(read, on)
	var out []Card
	for _, x := range all {
		if x.Bundle {
			continue
		}
		c := Card{Listed: x, Manifest: manifests[x.ID], Trouble: troubles[x.ID]}
		if id, ok := strings.CutPrefix(x.Row.By, "bundle:"); ok {
			c.Of = l.Bundle(id)
		}
		if c.Manifest != nil {
			if c.Lacks, err = p.lacks(ctx, c.Manifest); err != nil {
				return nil, nil, nil, err
			}
			hard := slices.ContainsFunc(c.Manifest.Requires, func(r git.Package) bool { return !r.Optional && r.Scope != "host" })
			if _, err := os.Stat(s.Deps(x.ID)); hard && err != nil {
				c.DepsGone = true
			}
		}
		out = append(out, c)
	}
	return out, l.Bundles, problems(l), nil
}

// lacks are the settings that a plugin requires and that have no value.
func (p *Plugins) lacks(ctx context.Context, m *git.Manifest) ([]string, error) {
	var out []string
	for _, s := range m.Settings {
		if !s.Required || m.Config.Get(s.Key).Text() != "" || p.o.Set("git_plugins", "config", m.ID, s.Key) {
			continue
		}
		if p.o.Secret != nil {
			_, found, err := p.o.Secret(ctx, strings.Join([]string{"plugins", m.ID, s.Key}, "."))
			if err != nil {
				return nil, err
			}
			if found {
				continue
			}
		}
		out = append(out, s.Key)
	}
	return out, nil
}

// Bundles are the rows of the plugin bundles of the workspace, as installed.
func (p *Plugins) Bundles(ctx context.Context) ([]git.BundleRow, error) {
	_, l, err := p.withLock(ctx)
	if err != nil {
		return nil, err
	}
	return l.Bundles, nil
}

// File reads a file of the workspace, by its name in .agentenv; nil when there is none.
func (p *Plugins) File(name string) ([]byte, error) {
	f, err := p.o.Folder()
	if err != nil {
		return nil, err
	}
	return f.Read(name)
}

// Root is the workspace's folder.
func (p *Plugins) Root() (string, error) {
	f, err := p.o.Folder()
	return f.Root(), err
}

// Builtins are the git plugins that come with the program.
func (p *Plugins) Builtins() []git.Builtin { return p.o.Builtins }

// Plan is what an install of what was looked at would need consent to; nil where a member can't be looked at.
func (p *Plugins) Plan(ctx context.Context, k *Peek) (*Plan, error) {
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return nil, err
	}
	if k.Pack == nil {
		if k.Item.Manifest == nil {
			return nil, nil
		}
		return pluginPlan(&git.Plan{Items: []git.Planned{{Item: k.Item}}}).judged(policy), nil
	}
	x := &pack.Pack{Manifest: k.Pack, Bundle: k.Item}
	g := &git.Plan{}
	if k.Problems.HasErrors() {
		return nil, nil
	}
	for _, m := range k.Members {
		switch {
		case m.Item != nil:
			x.Members = append(x.Members, m.Item)
			g.Items = append(g.Items, git.Planned{Item: m.Item})
		case !m.Builtin:
			return nil, nil
		}
	}
	return packPlan(x, g).judged(policy), nil
}

// Consented is nil for an installed plugin whose code may be run as it is, else a *NeedsAck. p is gated.
func (p *Plugins) Consented(ctx context.Context, id string) error {
	s, l, err := p.withLock(ctx)
	if err != nil {
		return err
	}
	row := l.Plugin(id)
	if row == nil {
		return notInstalled(l, id, "plugin")
	}
	return p.mayTurnOn(ctx, s, *row)
}

// Sync is the store's, with whether what was fetched is on.
func (p *Plugins) Sync(ctx context.Context) (rows []git.Standing, on bool, err error) {
	s, enabled, err := p.withSettings(ctx)
	if err != nil {
		return nil, false, err
	}
	rows, err = s.Sync(ctx)
	for _, r := range rows {
		on = on || !r.Bundle && enabled(r.ID) && (r.State == git.Arrived || r.State == git.Restored)
	}
	return rows, on, err
}
