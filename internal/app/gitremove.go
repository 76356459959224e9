package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// notInstalled is the error about an id that the lock has no row of.
func notInstalled(l *git.Lock, id, what string) error {
	if err := git.CheckID(id); err != nil {
		return err
	}
	switch {
	case what == "plugin" && l.Bundle(id) != nil:
		return fmt.Errorf("%s is a plugin bundle and no plugin: update-bundle and uninstall-bundle are about those", id)
	case what == "plugin bundle" && l.Plugin(id) != nil:
		return fmt.Errorf("%s is a plugin and no plugin bundle: update and uninstall are about those", id)
	}
	return fmt.Errorf("no %s %s is installed in this workspace; agent-env plugin list shows what is", what, id)
}

// GitSwitch turns a git plugin of the workspace here on or off, and tells whether that changed anything.
func (a *App) GitSwitch(ctx context.Context, id string, on bool) (changed bool, err error) {
	s, err := a.GitStore(ctx)
	if err != nil {
		return false, err
	}
	builtin := slices.Contains(a.gitBuiltinIDs(), id)
	if builtin && !on {
		return false, fmt.Errorf("%s comes with agent-env and can't be turned off", id)
	}
	err = s.Change(ctx, func(tx *folder.Tx, l *git.Lock) error {
		row := l.Plugin(id)
		if row == nil && !builtin {
			return notInstalled(l, id, "plugin")
		}
		if row != nil && on {
			if err := fits(ctx, s, *row); err != nil {
				return err
			}
		}
		return workspace.EditSettings(tx, func(e *workspace.Settings) (err error) {
			if on {
				changed, err = e.Enable(id)
			} else {
				changed, err = e.Disable(id)
			}
			return err
		})
	})
	return changed, err
}

// fits refuses a plugin that needs a newer program. What isn't here can't be asked.
func fits(ctx context.Context, s *git.Store, row git.Row) error {
	m, _, err := readPlugin(ctx, s, row)
	if err != nil || m == nil {
		return err
	}
	if why := s.TooNew(m); why != "" {
		return fmt.Errorf("%s: %s", row.ID, why)
	}
	return nil
}

// readPlugin reads the manifest of an installed plugin, with what is wrong with it; nil where its files aren't here or can't be meant.
func readPlugin(ctx context.Context, s *git.Store, row git.Row) (*git.Manifest, diag.List, error) {
	h, err := s.Tree(ctx, row.TreeSHA256)
	if errors.Is(err, git.ErrMissing) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	m, l := git.ReadManifest(os.DirFS(h.Path()))
	return m, l, h.Release()
}

// GitRemoval is what uninstalling did.
type GitRemoval struct {
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

// UninstallGit removes a git plugin from the workspace here: its row, and its id from what is on and off; with purge its settings and secrets
// too. Where what comes with the program takes its place, the row alone goes.
func (a *App) UninstallGit(ctx context.Context, id string, purge bool) (*GitRemoval, error) {
	s, err := a.GitStore(ctx)
	if err != nil {
		return nil, err
	}
	out := &GitRemoval{ID: id}
	var row git.Row
	err = s.Change(ctx, func(tx *folder.Tx, l *git.Lock) error {
		have := l.Plugin(id)
		switch {
		case have == nil && slices.Contains(a.gitBuiltinIDs(), id):
			return fmt.Errorf("%s comes with agent-env and can't be uninstalled", id)
		case have == nil:
			return notInstalled(l, id, "plugin")
		}
		row = *have
		return a.dropPlugin(tx, l, id, purge, out)
	})
	if err != nil {
		return nil, err
	}
	if b, ok := strings.CutPrefix(row.By, "bundle:"); ok {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s was installed by the plugin bundle %s; the next update of the bundle brings it back", id, diag.Clean(b)))
	}
	a.dropDeps(ctx, s, []string{id}, purge, out)
	a.prune(ctx, s, []git.Row{row}, out)
	return out, nil
}

// dropPlugin removes a row, and what the workspace's settings say of it.
func (a *App) dropPlugin(tx *folder.Tx, l *git.Lock, id string, purge bool, out *GitRemoval) error {
	note := func(what string) {
		if !slices.Contains(out.Removed, what) {
			out.Removed = append(out.Removed, what)
		}
	}
	if l.Drop(id) {
		note("lock")
	}
	if slices.Contains(a.gitBuiltinIDs(), id) {
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
func (a *App) prune(ctx context.Context, s *git.Store, rows []git.Row, out *GitRemoval) {
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
func (a *App) retire(tx *folder.Tx, l *git.Lock, bundle string, plugins []string, purge bool, out *GitRemoval) ([]git.Row, error) {
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
		if err := a.dropPlugin(tx, l, id, purge, out); err != nil {
			return nil, fmt.Errorf("uninstall %s: %w", id, err)
		}
		out.Members = append(out.Members, id)
	}
	return gone, nil
}

// UninstallBundle removes a plugin bundle from the workspace here with the plugins that are its own, in one transaction; with purge their settings
// and secrets, the bundle's secrets, and the MCP servers that it gave and nobody edited.
func (a *App) UninstallBundle(ctx context.Context, id string, purge bool) (*GitRemoval, error) {
	s, err := a.GitStore(ctx)
	if err != nil {
		return nil, err
	}
	out := &GitRemoval{ID: id}
	var gone []git.Row
	err = s.Change(ctx, func(tx *folder.Tx, l *git.Lock) error {
		b := l.Bundle(id)
		if b == nil {
			return notInstalled(l, id, "plugin bundle")
		}
		row := *b
		var err error
		if gone, err = a.retire(tx, l, id, row.Plugins, purge, out); err != nil {
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
	a.dropDeps(ctx, s, out.Members, purge, out)
	a.prune(ctx, s, gone, out)
	return out, nil
}
