// Package gitplugins is what people do with the git plugins and plugin bundles of a workspace: list, install, turn on and off, update, remove, look.
// The verbs of the command line and the console do it by this code.
//
// Words: a plan is everything that an install brings; consent is given to its digest. Known is a source that somebody vouches for. To activate is to
// turn on what was installed and to seed what a plugin bundle gives. A gated Plugins asks for consent before code is turned on, or changed while it is on.
//
// It prints nothing and asks nobody: what needs an answer is an error that says so (NeedsAck, Unanswered).
package gitplugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Options are what a Plugins works with: the configuration as it was when it was made.
type Options struct {
	Dir      string // relative folders count from here; absolute
	Builtins []git.Builtin
	// Folder is the workspace; folder.ErrNone.
	Folder func() (folder.Folder, error)
	Policy func(context.Context) (git.Policy, error)
	Store  func(folder.Folder, git.Policy) (*git.Store, error)
	// Settings are [git_plugins] with defaults.
	Settings func(context.Context) (doc.Node, error)
	// Set tells whether the configuration that counts has a value at a path.
	Set func(path ...string) bool
	// Check is what is wrong with the bytes of a configuration file.
	Check     func(src []byte) diag.List
	Granted   func(name string) (string, bool) // variables of the environment that plugin bundles may read
	Env       func(name string) (string, bool)
	Secret    func(ctx context.Context, key string) (string, bool, error) // of the workspace's secrets; nil: there are none
	Delegates func(context.Context) (map[string]workspace.Delegate, error)
}

// Plugins are the git plugins of a workspace. Its methods may be called from several goroutines, and change what other processes change too.
type Plugins struct {
	o     Options
	gated bool
}

// New opens nothing.
func New(o Options) *Plugins { return &Plugins{o: o} }

// Gated is p that asks for consent.
func (p *Plugins) Gated() *Plugins { return &Plugins{p.o, true} }

func (p *Plugins) builtins() []string {
	var out []string
	for _, b := range p.o.Builtins {
		out = append(out, b.ID)
	}
	return out
}

func (p *Plugins) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(p.o.Dir, path)
}

// Store is the store of the workspace; folder.ErrNone where there is none.
func (p *Plugins) Store(ctx context.Context) (*git.Store, error) {
	f, err := p.o.Folder()
	if err != nil {
		return nil, err
	}
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return p.o.Store(f, policy)
}

// withLock is Store, with what its lock says.
func (p *Plugins) withLock(ctx context.Context) (*git.Store, *git.Lock, error) {
	s, err := p.Store(ctx)
	if err != nil {
		return nil, nil, err
	}
	l, err := s.Lock(ctx)
	return s, l, err
}

// withSettings is Store, with what [git_plugins] turns on.
func (p *Plugins) withSettings(ctx context.Context) (_ *git.Store, on func(id string) bool, err error) {
	s, err := p.Store(ctx)
	if err != nil {
		return nil, nil, err
	}
	n, err := p.o.Settings(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s, TurnedOn(n), nil
}

// looker is a store that fetches and looks, for whom no workspace is needed: nothing of it changes a lock.
func (p *Plugins) looker(ctx context.Context) (*git.Store, error) {
	s, err := p.Store(ctx)
	if !errors.Is(err, folder.ErrNone) {
		return s, err
	}
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return p.o.Store(folder.At(p.o.Dir), policy)
}

// TurnedOn tells of an id whether [git_plugins] turns it on.
func TurnedOn(settings doc.Node) func(id string) bool {
	on, off := texts(settings.Get("enabled")), texts(settings.Get("disabled"))
	return func(id string) bool { return slices.Contains(on, id) && !slices.Contains(off, id) }
}

func texts(n doc.Node) []string {
	out := []string{}
	for _, v := range n.Items() {
		if s, ok := v.Str(); ok {
			out = append(out, s)
		}
	}
	return out
}

// Listed is a git plugin as lists show it.
type Listed struct {
	git.Standing
	Enabled bool
}

// List are the git plugins and plugin bundles of the workspace, with what can't be meant in its lock.
func (p *Plugins) List(ctx context.Context) ([]Listed, []string, error) {
	s, on, err := p.withSettings(ctx)
	if err != nil {
		return nil, nil, err
	}
	out, l, err := list(ctx, s, on)
	if err != nil {
		return nil, nil, err
	}
	return out, problems(l), nil
}

func list(ctx context.Context, s *git.Store, on func(id string) bool) ([]Listed, *git.Lock, error) {
	rows, l, err := s.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	out := make([]Listed, 0, len(rows))
	for _, r := range rows {
		out = append(out, Listed{r, on(r.ID) && !r.Bundle})
	}
	return out, l, nil
}

// problems are what can't be meant in a lock.
func problems(l *git.Lock) []string {
	var out []string
	for _, p := range l.Problems {
		out = append(out, p.String())
	}
	return out
}

// Shown is one installed git plugin with its manifest.
type Shown struct {
	Listed
	Manifest *git.Manifest // nil where its files are missing or it can't be used
	Problems diag.List
}

// Show reads an installed plugin of the workspace; nil when its lock has none of this id.
func (p *Plugins) Show(ctx context.Context, id string) (*Shown, error) {
	all, _, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(l Listed) bool { return l.ID == id && !l.Bundle })
	if i < 0 {
		return nil, nil
	}
	out := &Shown{Listed: all[i]}
	s, err := p.Store(ctx)
	if err != nil {
		return nil, err
	}
	out.Manifest, out.Problems, err = readPlugin(ctx, s, out.Row)
	return out, err
}

// Troubles is what keeps plugins that are on from being used, by id.
func (p *Plugins) Troubles(ctx context.Context) (_ map[string]string, err error) {
	s, on, err := p.withSettings(ctx)
	if err != nil {
		return nil, err
	}
	all, err := workspace.ReadPlugins(ctx, s, on, p.o.Env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	return troublesOf(all, on), nil
}

func troublesOf(all *workspace.Plugins, on func(id string) bool) map[string]string {
	out := map[string]string{}
	for _, x := range all.All {
		if on(x.ID) && x.Problem != "" {
			out[x.ID] = x.Problem
		}
	}
	return out
}

// Absent is the error about an id that nothing is installed under.
type Absent struct{ text string }

func (e *Absent) Error() string { return e.text }

// notInstalled is the error about an id that the lock has no row of.
func notInstalled(l *git.Lock, id, what string) error {
	if err := git.CheckID(id); err != nil {
		return err
	}
	switch {
	case what == "plugin" && l.Bundle(id) != nil:
		return &Absent{fmt.Sprintf("%s is a plugin bundle and no plugin: update-bundle and uninstall-bundle are about those", id)}
	case what == "plugin bundle" && l.Plugin(id) != nil:
		return &Absent{fmt.Sprintf("%s is a plugin and no plugin bundle: update and uninstall are about those", id)}
	}
	return &Absent{fmt.Sprintf("no %s %s is installed in this workspace; agent-env plugin list shows what is", what, id)}
}

// Switch turns a git plugin of the workspace on or off, and tells whether that changed anything.
func (p *Plugins) Switch(ctx context.Context, id string, on bool) (changed bool, err error) {
	s, err := p.Store(ctx)
	if err != nil {
		return false, err
	}
	builtin := slices.Contains(p.builtins(), id)
	if builtin && !on {
		return false, fmt.Errorf("%s comes with agent-env and can't be turned off", id)
	}
	err = s.Change(ctx, func(tx *folder.Tx, l *git.Lock) error {
		row := l.Plugin(id)
		if row == nil && !builtin {
			return notInstalled(l, id, "plugin")
		}
		if row != nil && on {
			if err := p.mayTurnOn(ctx, s, *row); err != nil {
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

// mayTurnOn refuses a plugin that needs a newer program, and where p is gated one that nobody consented to. What isn't here can't be asked.
func (p *Plugins) mayTurnOn(ctx context.Context, s *git.Store, row git.Row) error {
	m, _, err := readPlugin(ctx, s, row)
	if err != nil || m == nil {
		return err
	}
	if why := s.TooNew(m); why != "" {
		return fmt.Errorf("%s: %s", row.ID, why)
	}
	if !p.gated {
		return nil
	}
	src, err := git.ParseSource(row.SourceURL)
	if err != nil {
		return err
	}
	f := git.Fetched{Source: src, Ref: row.RequestedRef, Commit: row.ResolvedSHA, Tree: row.TreeSHA256}
	return p.consented(ctx, s.Policy(), pluginPlan(&git.Plan{Items: []git.Planned{{Item: &git.Item{Kind: git.Plugin, Fetched: f, Manifest: m}}}}))
}

// Declaring reads the manifest of an installed plugin whose packages may be installed.
func (p *Plugins) Declaring(ctx context.Context, s *git.Store, id string) (*git.Manifest, error) {
	l, err := s.Lock(ctx)
	if err != nil {
		return nil, err
	}
	row := l.Plugin(id)
	switch {
	case row == nil && slices.Contains(p.builtins(), id):
		return nil, fmt.Errorf("%s comes with agent-env and needs no packages", id)
	case row == nil:
		return nil, notInstalled(l, id, "plugin")
	}
	src, err := git.ParseSource(row.SourceURL)
	if err == nil {
		err = s.Policy().Allows(src)
	}
	if err == nil {
		err = s.Check(ctx, row.TreeSHA256)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	m, faults, err := readPlugin(ctx, s, *row)
	if err == nil && m == nil {
		err = faults.Err()
	}
	return m, err
}

// Vendor writes what is installed from git in the workspace here into a mirror, a folder.
func (p *Plugins) Vendor(ctx context.Context, dir string) ([]git.Vendored, error) {
	s, err := p.Store(ctx)
	if err != nil {
		return nil, err
	}
	return s.Vendor(ctx, p.abs(dir))
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

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
