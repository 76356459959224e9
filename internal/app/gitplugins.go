package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// PeerVersion is the release of protoAgent that agent-env counts as where a plugin asks for one.
const PeerVersion = "0.145.0"

// gitBuiltins are the git plugins that come with the program.
func gitBuiltins() []git.Builtin {
	old, err := git.ParseSource("https://github.com/protoLabsAI/delegates-plugin")
	if err != nil {
		panic(err)
	}
	return []git.Builtin{{ID: "delegates", Version: Version, Supersedes: []git.Source{old}}}
}

func (a *App) gitBuiltinIDs() []string {
	var out []string
	for _, b := range gitBuiltins() {
		out = append(out, b.ID)
	}
	return out
}

// WorkspaceFolder is the workspace that commands work on: the one whose configuration is in effect, else the nearest upward; folder.ErrNone.
func (a *App) WorkspaceFolder() (folder.Folder, error) {
	if path := a.Config().Path(); filepath.Base(filepath.Dir(path)) == folder.Dir {
		return folder.At(a.Config().Root()), nil
	}
	return folder.Find(a.opt.Dir)
}

// GitPolicy says where git plugins may come from, as configured. It is read for each command anew.
func (a *App) GitPolicy(ctx context.Context) (git.Policy, error) {
	n, err := a.Config().GitPlugins(ctx, a.secrets)
	if err != nil {
		return git.Policy{}, err
	}
	sources := n.Get("sources")
	p := git.Policy{Allow: texts(sources.Get("allow")), Official: []string{"github.com/protoLabsAI/*"}, Acked: texts(sources.Get("acked")), Files: true}
	if v := sources.Get("official"); v.Exists() {
		p.Official = texts(v)
	}
	p.TrustUnverified, _ = n.Get("trust_unverified").Bool()
	p.PlainHTTP, _ = sources.Get("plain_http").Bool()
	if v, ok := sources.Get("files").Bool(); ok {
		p.Files = v
	}
	for _, list := range [][]string{p.Allow, p.Official, p.Acked} {
		for _, pattern := range list {
			if err := git.CheckPattern(pattern); err != nil {
				return git.Policy{}, err
			}
		}
	}
	return p, nil
}

// texts are the strings of a list; nil when there is no list.
func texts(n doc.Node) []string {
	if !n.Exists() {
		return nil
	}
	out := []string{}
	for _, v := range n.Items() {
		out = append(out, v.Text())
	}
	return out
}

// turnedOn tells of an id whether [git_plugins] turns it on.
func turnedOn(settings doc.Node) func(id string) bool {
	on, off := texts(settings.Get("enabled")), texts(settings.Get("disabled"))
	return func(id string) bool { return slices.Contains(on, id) && !slices.Contains(off, id) }
}

// gitStore is the store of git plugins with the lock of a workspace.
func (a *App) gitStore(f folder.Folder, policy git.Policy) *git.Store {
	return git.Open(git.Options{
		Dir: filepath.Join(a.Config().StateRoot(), "git_plugins"), Folder: f, Policy: policy, Builtins: gitBuiltins(), Version: Version, Peer: PeerVersion,
		Fetch: git.FetchOptions{Env: a.opt.Env, Home: a.Config().Home(), Archive: a.archives()},
	})
}

// archives tells whether archives are fetched although git is there.
func (a *App) archives() bool {
	for _, name := range []string{"AGENT_ENV_PLUGIN_FETCH", "PROTOAGENT_PLUGIN_FETCH"} {
		if v, ok := a.opt.Env(name); ok && v == "archive" {
			return true
		}
	}
	return false
}

// GitStore is the store of git plugins of the workspace here; folder.ErrNone where there is none.
func (a *App) GitStore(ctx context.Context) (*git.Store, error) {
	if a.Config().StateRoot() == "" {
		return nil, a.ConfigProblems().Err()
	}
	f, err := a.WorkspaceFolder()
	if err != nil {
		return nil, err
	}
	policy, err := a.GitPolicy(ctx)
	if err != nil {
		return nil, err
	}
	return a.gitStore(f, policy), nil
}

// GitPlugin is a git plugin as lists show it.
type GitPlugin struct {
	git.Standing
	Enabled bool
}

// GitPlugins are the git plugins and plugin bundles of the workspace here, with what can't be meant in its lock; none where there is no workspace.
func (a *App) GitPlugins(ctx context.Context) ([]GitPlugin, []string, error) {
	s, err := a.GitStore(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows, l, err := s.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	n, err := a.Config().GitPlugins(ctx, a.secrets)
	if err != nil {
		return nil, nil, err
	}
	on := turnedOn(n)
	var warnings []string
	for _, p := range l.Problems {
		warnings = append(warnings, p.String())
	}
	out := make([]GitPlugin, 0, len(rows))
	for _, r := range rows {
		out = append(out, GitPlugin{r, on(r.ID) && !r.Bundle})
	}
	return out, warnings, nil
}

// GitInstall is what is to be installed from git.
type GitInstall struct {
	URL, Ref string
	By       string // who asks, as the lock says it
	Force    bool   // replace a plugin of the same id from elsewhere
	DryRun   bool
}

// GitInstalled is what an install did, or would do. Its files are held until Close.
type GitInstalled struct {
	Plan     *git.Plan
	Pack     *pack.Pack // the plugin bundle; nil for a plugin alone
	Warnings []string
	items    git.Items
}

// Close lets go of the files.
func (i *GitInstalled) Close() error { return errors.Join(i.Pack.Close(), i.items.Close()) }

// InstallGit installs what a repository holds into the workspace here. Nothing is enabled.
func (a *App) InstallGit(ctx context.Context, o GitInstall) (*GitInstalled, error) {
	s, err := a.GitStore(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Writable(ctx); err != nil {
		return nil, err
	}
	items, err := s.Fetch(ctx, []git.Want{{URL: o.URL, Ref: o.Ref, By: o.By}})
	if err != nil {
		return nil, err
	}
	out := &GitInstalled{items: items}
	if err := a.installItems(ctx, s, o, out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// installItems plans and applies what was fetched: a plugin, or a bundle's members and its row, in one transaction.
func (a *App) installItems(ctx context.Context, s *git.Store, o GitInstall, out *GitInstalled) (err error) {
	members, more := out.items, func(*folder.Tx, *git.Lock) error { return nil }
	first := out.items[0]
	if first.Superseded != "" {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s comes with agent-env as %s: nothing was fetched", first.Fetched.Source, first.Superseded))
	}
	if first.Kind == git.Bundle {
		if out.Pack, err = pack.Fetch(ctx, s, first, a.gitBuiltinIDs()); err != nil {
			return err
		}
		members, out.Warnings = out.Pack.Members, append(out.Warnings, out.Pack.Warnings...)
		more = func(_ *folder.Tx, l *git.Lock) error { return putPack(l, out.Pack, o) }
		l, err := s.Lock(ctx)
		if err != nil {
			return err
		}
		if err := putPack(l, out.Pack, o); err != nil { // a dry run refuses what an install refuses
			return err
		}
	}
	if out.Plan, err = s.Plan(ctx, members, o.Force); err != nil || o.DryRun {
		return err
	}
	out.Plan, err = s.Apply(ctx, out.Plan, more)
	return err
}

// putPack puts a bundle's row into the lock, unless the one that is there says the same.
func putPack(l *git.Lock, p *pack.Pack, o GitInstall) error {
	row := p.Row(o.By, git.Stamp(time.Now()), nil)
	have := l.Bundle(row.ID)
	if have == nil {
		l.PutBundle(row)
		return nil
	}
	was, err := git.ParseSource(have.SourceURL)
	switch {
	case (err != nil || !was.Same(p.Bundle.Fetched.Source)) && !o.Force:
		return fmt.Errorf("%s: a plugin bundle %s is installed already, from %s; replace it with --force", p.Bundle.Fetched.Source, row.ID, diag.Clean(have.SourceURL))
	case !o.Force && have.ResolvedSHA == row.ResolvedSHA && have.RequestedRef == row.RequestedRef && have.TreeSHA256 == row.TreeSHA256:
		return nil
	}
	row.Seeded = have.Seeded
	l.PutBundle(row)
	return nil
}

// GitShown is one installed git plugin with its manifest.
type GitShown struct {
	GitPlugin
	Manifest *git.Manifest
	Problems diag.List
}

// GitPluginShow reads an installed plugin of the workspace here; nil when its lock has none of this id.
func (a *App) GitPluginShow(ctx context.Context, id string) (*GitShown, error) {
	all, _, err := a.GitPlugins(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(p GitPlugin) bool { return p.ID == id && !p.Bundle })
	if i < 0 {
		return nil, nil
	}
	out := &GitShown{GitPlugin: all[i]}
	s, err := a.GitStore(ctx)
	if err != nil {
		return nil, err
	}
	out.Manifest, out.Problems, err = readPlugin(ctx, s, out.Row)
	return out, err
}
