package app

import (
	"context"
	"path/filepath"
	"slices"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
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
	if p.Mirror = sources.Get("mirror").Text(); p.Mirror != "" {
		if err := git.CheckMirror(p.Mirror, p.PlainHTTP); err != nil {
			return git.Policy{}, err
		}
	}
	for _, list := range []struct {
		of    []string
		check func(string) error
	}{{p.Allow, git.CheckPattern}, {p.Official, git.CheckPattern}, {p.Acked, git.CheckAcked}} {
		for _, entry := range list.of {
			if err := list.check(entry); err != nil {
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

// gitStoreOf is gitStore, refused where there is no state root.
func (a *App) gitStoreOf(f folder.Folder, policy git.Policy) (*git.Store, error) {
	if a.Config().StateRoot() == "" {
		return nil, a.ConfigProblems().Err()
	}
	return a.gitStore(f, policy), nil
}

// Git is what people do with git plugins, in the workspace here.
func (a *App) Git() *gitplugins.Plugins {
	return gitplugins.New(gitplugins.Options{
		Dir: a.opt.Dir, Builtins: gitBuiltins(), Folder: a.WorkspaceFolder, Policy: a.GitPolicy, Store: a.gitStoreOf,
		Settings:  func(ctx context.Context) (doc.Node, error) { return a.Config().GitPlugins(ctx, a.secrets) },
		Set:       a.Config().Has,
		Check:     a.Config().Check,
		Granted:   a.granted,
		Delegates: a.Delegates,
		Env:       a.opt.Env,
		Secret:    a.secrets,
	})
}

// granted is a variable of the environment that bundles may read.
func (a *App) granted(name string) (string, bool) {
	if !slices.Contains(a.Config().EnvGrants(), name) {
		return "", false
	}
	return a.opt.Env(name)
}
