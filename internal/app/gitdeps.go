package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// GitDeps is how the packages that a git plugin declares are installed.
type GitDeps struct {
	ID        string
	Optional  bool // those that it can do without, too
	IndexURL  string
	FindLinks []string
	DryRun    bool
}

// GitDepsDone is what that came to.
type GitDepsDone struct {
	Packages []string // what was asked for, as the plugin declares it
	Left     []string // optional ones that were not asked for, and those that protoAgent's own process would import
	Dir      string   // where they are
	dist.Outcome
}

// depsOptions are of the packages of one git plugin: an environment of its own.
func (a *App) depsOptions(s *git.Store, id string) dist.Options {
	o := a.pluginOptions()
	o.Dir = s.Deps(id)
	return o
}

// InstallGitDeps installs the packages that a git plugin of the workspace here declares into an environment of its own, as ChangePlugins does, and
// notes them in the lock. The source has to be allowed now, and the files have to be those of the lock. Nothing of the plugin runs; what its packages run
// while they are built is the installer's business, and only what is built already is installed without a question by it.
func (a *App) InstallGitDeps(ctx context.Context, d GitDeps, t dist.Talk) (GitDepsDone, error) {
	var out GitDepsDone
	s, err := a.Git().Store(ctx)
	if err != nil {
		return out, err
	}
	m, err := a.Git().Declaring(ctx, s, d.ID)
	if err != nil {
		return out, err
	}
	if out.Packages, out.Left, err = packages(m, d.Optional); err != nil {
		return out, err
	}
	if out.Dir = s.Deps(d.ID); len(out.Packages) == 0 {
		return out, nil
	}
	if !d.DryRun {
		if err := s.Writable(ctx); err != nil {
			return out, err
		}
	}
	manager := dist.NewManager(a.depsOptions(s, d.ID), ownWheels, func(*dist.Environment) dist.ReportOptions { return dist.ReportOptions{} })
	out.Outcome, err = manager.Apply(ctx, dist.Change{
		Add: out.Packages, IndexURL: d.IndexURL, FindLinks: d.FindLinks, DryRun: d.DryRun, Plain: true,
	}, t)
	if err != nil || d.DryRun {
		return out, err
	}
	return out, a.noteDeps(ctx, s, d.ID)
}

// packages are what is to be installed for a plugin, and what isn't. Only requirements by name are: a manifest names no place that packages come from.
func packages(m *git.Manifest, optional bool) (want, left []string, err error) {
	want, left = []string{}, []string{}
	var errs []error
	for _, r := range m.Requires {
		if r.Scope == "host" || r.Optional && !optional {
			left = append(left, r.Spec)
			continue
		}
		p, err := requirement.Parse(r.Spec)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: requires_pip: %s %w; only packages of an index, by name, are installed", m.ID, diag.Repr(r.Spec), err))
		case requirement.IsCore(p.Canonical()): // every environment has it
		default:
			want = append(want, r.Spec)
		}
	}
	return want, left, errors.Join(errs...)
}

// noteDeps writes what is installed for a plugin into its row.
func (a *App) noteDeps(ctx context.Context, s *git.Store, id string) (err error) {
	e, err := dist.Open(ctx, a.depsOptions(s, id))
	defer func() { err = errors.Join(err, e.Close()) }()
	if err != nil {
		return err
	}
	type dep struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	deps := []dep{}
	all, _ := e.Distributions()
	for _, d := range all {
		if !d.Own {
			deps = append(deps, dep{d.Name, d.Version})
		}
	}
	b, err := json.Marshal(deps)
	if err != nil {
		return err
	}
	return s.Change(ctx, func(_ *folder.Tx, l *git.Lock) error {
		if row := l.Plugin(id); row != nil { // uninstalled meanwhile: purge takes the packages
			row.Deps = b
		}
		return nil
	})
}
