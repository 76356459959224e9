package gitplugins

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Removal is what uninstalling did.
type Removal struct {
	ID      string
	Removed []string // of each plugin: lock, enabled-ref, config, secrets, code
	// Of a bundle:
	Members  []string // plugins that went with it
	Missing  []string // plugins that were gone already
	Kept     []string // plugins that stay: another bundle or somebody else has installed them
	Servers  []string // MCP servers that were removed
	DepsLeft []string // plugins whose packages stay
	Warnings []string
}

// Uninstall removes a git plugin from the workspace here: its row, and its id from what is on and off; with purge its settings and secrets
// too. Where what comes with the program takes its place, the row alone goes.
func (p *Plugins) Uninstall(ctx context.Context, id string, purge bool) (*Removal, error) {
	s, err := p.Store(ctx)
	if err != nil {
		return nil, err
	}
	out := &Removal{ID: id}
	var row git.Row
	err = s.Change(ctx, func(tx *folder.Tx, l *git.Lock) error {
		have := l.Plugin(id)
		switch {
		case have == nil && slices.Contains(p.builtins(), id):
			return fmt.Errorf("%s comes with agent-env and can't be uninstalled", id)
		case have == nil:
			return notInstalled(l, id, "plugin")
		}
		row = *have
		return p.dropPlugin(tx, l, id, purge, out)
	})
	if err != nil {
		return nil, err
	}
	if b, ok := strings.CutPrefix(row.By, "bundle:"); ok {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s was installed by the plugin bundle %s; the next update of the bundle brings it back", id, diag.Clean(b)))
	}
	dropDeps(ctx, s, []string{id}, purge, out)
	p.prune(ctx, s, []git.Row{row}, out)
	return out, nil
}

// dropPlugin removes a row, and what the workspace's settings say of it.
func (p *Plugins) dropPlugin(tx *folder.Tx, l *git.Lock, id string, purge bool, out *Removal) error {
	note := func(what string) {
		if !slices.Contains(out.Removed, what) {
			out.Removed = append(out.Removed, what)
		}
	}
	if l.Drop(id) {
		note("lock")
	}
	if slices.Contains(p.builtins(), id) {
		return nil // what comes with the program stays as it is
	}
	return workspace.EditSettings(tx, func(e *workspace.Settings) error {
		was, err := e.Forget(id)
		if err != nil {
			return err
		}
		if was {
			note("enabled-ref")
		}
		if !purge {
			return nil
		}
		settings, secrets, err := e.Purge(id)
		if settings {
			note("config")
		}
		if secrets {
			note("secrets")
		}
		return err
	})
}

// prune removes files that no workspace names any more. What it can't remove stays for the next time.
func (p *Plugins) prune(ctx context.Context, s *git.Store, rows []git.Row, out *Removal) {
	if _, err := s.Prune(ctx); err != nil {
		out.Warnings = append(out.Warnings, "files of plugins that nobody uses stay: "+err.Error())
		return
	}
	gone := len(rows) > 0
	for _, r := range rows {
		h, err := s.Tree(ctx, r.TreeSHA256)
		if err == nil {
			gone = false
			_ = h.Release() // it was looked at alone
		}
	}
	if gone {
		out.Removed = append(out.Removed, "code")
	}
}

// others are the other bundles that list a plugin.
func others(l *git.Lock, bundle, plugin string) []string {
	var out []string
	for _, b := range l.Bundles {
		if b.ID != bundle && slices.Contains(b.Plugins, plugin) {
			out = append(out, b.ID)
		}
	}
	return out
}

// retire takes plugins away from a bundle: those that bundles installed and no other one lists go, those of others stay. A plugin that stays for
// another bundle is that one's from now on.
func (p *Plugins) retire(tx *folder.Tx, l *git.Lock, bundle string, plugins []string, purge bool, out *Removal) ([]git.Row, error) {
	var gone []git.Row
	for _, id := range plugins {
		row := l.Plugin(id)
		shared := others(l, bundle, id)
		switch {
		case row == nil:
			out.Missing = append(out.Missing, id)
			continue
		case !strings.HasPrefix(row.By, "bundle:"):
			out.Kept = append(out.Kept, id)
			continue
		case len(shared) > 0:
			out.Kept = append(out.Kept, id)
			if row.By == "bundle:"+bundle {
				row.By = "bundle:" + shared[0]
			}
			continue
		}
		gone = append(gone, *row)
		if err := p.dropPlugin(tx, l, id, purge, out); err != nil {
			return nil, fmt.Errorf("uninstall %s: %w", id, err)
		}
		out.Members = append(out.Members, id)
	}
	return gone, nil
}

// UninstallBundle removes a plugin bundle from the workspace here with the plugins that are its own, in one transaction; with purge their settings
// and secrets, the bundle's secrets, and the MCP servers that it gave and nobody edited.
func (p *Plugins) UninstallBundle(ctx context.Context, id string, purge bool) (*Removal, error) {
	s, err := p.Store(ctx)
	if err != nil {
		return nil, err
	}
	out := &Removal{ID: id}
	var gone []git.Row
	err = s.Change(ctx, func(tx *folder.Tx, l *git.Lock) error {
		b := l.Bundle(id)
		if b == nil {
			return notInstalled(l, id, "plugin bundle")
		}
		row := *b
		var err error
		if gone, err = p.retire(tx, l, id, row.Plugins, purge, out); err != nil {
			return err
		}
		l.DropBundle(id)
		if !purge {
			return nil
		}
		return workspace.EditSettings(tx, func(e *workspace.Settings) error {
			servers, secrets, err := e.PurgeBundle(row)
			out.Servers = servers
			if secrets && !slices.Contains(out.Removed, "secrets") {
				out.Removed = append(out.Removed, "secrets")
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	dropDeps(ctx, s, out.Members, purge, out)
	p.prune(ctx, s, gone, out)
	return out, nil
}

// dropDeps removes the packages of plugins that were purged, or says that they stay.
func dropDeps(ctx context.Context, s *git.Store, ids []string, purge bool, out *Removal) {
	for _, id := range ids {
		if _, err := os.Stat(s.Deps(id)); err != nil {
			continue
		}
		if !purge {
			out.DepsLeft = append(out.DepsLeft, id)
			continue
		}
		dropped, err := dist.Drop(ctx, s.Deps(id))
		if err != nil {
			out.Warnings = append(out.Warnings, fmt.Sprintf("the packages of %s stay for now: %v", id, err))
		}
		if dropped && !slices.Contains(out.Removed, "deps") {
			out.Removed = append(out.Removed, "deps")
		}
	}
}
