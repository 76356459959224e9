package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/subprocess"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
	"agentenv.internal/agentenv/sdk/plugin"
)

// gitPrograms are the git plugins that are on in the workspace here and bring types or bundles; none where there is no workspace. Their files and
// packages are held until Close. One that can't be used stops no other: it is logged, and `plugin show` and `plugin check` tell.
func (a *App) gitPrograms(ctx context.Context) []host.Beside {
	out, unfit := a.usableGit(ctx)
	for _, id := range slices.Sorted(maps.Keys(unfit)) {
		a.opt.Log.Warn("a git plugin is not used", "plugin", id, "reason", unfit[id])
	}
	return out
}

// usableGit is gitPrograms, with why others that are on can't be used, by id.
func (a *App) usableGit(ctx context.Context) (out []host.Beside, unfit map[string]string) {
	unfit = map[string]string{}
	all, err := a.enabledPlugins(ctx)
	if errors.Is(err, folder.ErrNone) {
		return nil, unfit
	}
	if err != nil {
		a.opt.Log.Warn("the workspace's git plugins can't be read", "error", err)
		return nil, unfit
	}
	a.onClose(func(context.Context) error { return all.Close() })
	for _, p := range all.All {
		if !p.Enabled {
			if p.Problem != "" {
				unfit[p.ID] = p.Problem
			}
			continue
		}
		b := host.Beside{ID: p.ID, Version: p.Manifest.Version, Where: p.Source, Dir: p.Dir}
		for _, dir := range p.Manifest.Bundles {
			b.Bundles = append(b.Bundles, dist.EntryPoint{Group: dist.GroupBundles, Name: path.Base(path.Clean(dir)), Value: path.Clean(dir)})
		}
		if len(p.Manifest.Types) > 0 {
			deps, err := a.openDeps(ctx, p)
			if err != nil {
				unfit[p.ID] = err.Error()
				continue
			}
			a.onClose(func(context.Context) error { return deps.Close() })
			b.Types, b.Argv, b.Env = p.Manifest.Types, a.gitArgv(p.Dir, deps, p.Manifest.Command), a.gitEnv(deps)
			if lock := deps.Lock(); lock != nil {
				b.Extra = []*os.File{lock}
			}
		}
		if len(b.Types)+len(b.Bundles) > 0 {
			out = append(out, b)
		}
	}
	return out, unfit
}

// enabledPlugins are the git plugins of the workspace here, whose configuration counts; folder.ErrNone where there is none.
func (a *App) enabledPlugins(ctx context.Context) (*workspace.Plugins, error) {
	w, err := a.WorkspaceFolder()
	if err != nil {
		return nil, err
	}
	return a.workspacePlugins(ctx, workspace.Workspace{Root: w.Root()})
}

// gitArgv is a command of a git plugin as it is started: a first word with a slash, and every word that begins with ./, are files of the plugin; a
// first word without one is looked for among the programs of its packages, then on PATH.
func (a *App) gitArgv(dir string, deps *dist.Environment, command []string) []string {
	out := slices.Clone(command)
	for i, word := range out {
		if strings.HasPrefix(word, "./") || i == 0 && strings.Contains(word, "/") && !filepath.IsAbs(word) {
			out[i] = filepath.Join(dir, filepath.Clean("/"+word))
		}
	}
	list, _ := a.opt.Env("PATH")
	if bin := binOf(deps); bin != "" {
		list = bin + string(filepath.ListSeparator) + list
	}
	if !strings.Contains(out[0], "/") {
		if found := subprocess.Look(list, out[0]); found != "" {
			out[0] = found
		}
	}
	return out
}

// gitEnv is what a git plugin's programs get beside what every plugin does: its packages' programs come first.
func (a *App) gitEnv(deps *dist.Environment) []string {
	bin := binOf(deps)
	if bin == "" {
		return nil
	}
	list, _ := a.opt.Env("PATH")
	return []string{"PATH=" + bin + string(filepath.ListSeparator) + list, "VIRTUAL_ENV=" + deps.Dir(), "PYTHONNOUSERSITE=1"}
}

// binOf is where the programs of packages are; "" where none are installed.
func binOf(deps *dist.Environment) string {
	if deps.Dir() == "" {
		return ""
	}
	return filepath.Join(deps.Dir(), "bin")
}

// openDeps holds the packages that were installed for a plugin of the workspace here; an empty environment where none were. The caller closes it.
func (a *App) openDeps(ctx context.Context, p workspace.Plugin) (*dist.Environment, error) {
	w, err := a.WorkspaceFolder()
	if err != nil {
		return nil, err
	}
	e, err := dist.Open(ctx, a.depsOptions(a.gitStore(w, git.Policy{}), p.ID))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("its packages can't be used; install them again with agent-env plugin install-deps %s: %w", p.ID, err), e.Close())
	}
	return e, nil
}

// servers are the MCP servers of a plugin with the programs and variables of its packages.
func (a *App) withDeps(p workspace.Plugin, deps *dist.Environment, servers []config.MCPServer) []config.MCPServer {
	for i := range servers {
		s := &servers[i]
		if len(s.Command) == 0 {
			continue
		}
		s.Command = a.gitArgv(p.Dir, deps, s.Command)
		set := maps.Clone(s.Env)
		s.Env = map[string]string{}
		for _, v := range a.gitEnv(deps) {
			name, value, _ := strings.Cut(v, "=")
			s.Env[name] = value
		}
		maps.Copy(s.Env, set)
	}
	return servers
}

// LoadGit starts the program of a fetched git plugin, without its packages, and says what is wrong with what it serves; nothing for one without a program.
func (a *App) LoadGit(ctx context.Context, i *git.Item) []string {
	m := i.Manifest
	if m == nil || len(m.Types) == 0 {
		return nil
	}
	none, err := dist.Open(ctx, dist.Options{Dir: filepath.Join(i.Fetched.Dir, ".packages")}) // there is no such folder: an empty environment
	if err != nil {
		return []string{err.Error()}
	}
	types, err := a.askTypes(ctx, host.Program{
		Name: m.ID + " " + m.Version, Distribution: &plugin.Named{Name: m.ID, Version: m.Version}, Git: true, Argv: a.gitArgv(i.Fetched.Dir, none, m.Command),
	})
	if err = errors.Join(err, none.Close()); err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, want := range m.Types {
		if !slices.ContainsFunc(types, func(t plugin.Type) bool { return t.Group == want.Group && t.Name == want.Name }) {
			out = append(out, fmt.Sprintf("%s promises %s, and its program doesn't serve it", plugin.ManifestName, want.Name))
		}
	}
	return out
}

// gitSettings is what a git plugin of the workspace here is set to, and the values that are secret in it.
func (a *App) gitSettings(ctx context.Context, id string) (any, []string, error) {
	held, err := a.Git().Hold(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if held == nil {
		return nil, nil, fmt.Errorf("the git plugin %s is not on in this workspace", id)
	}
	defer func() { _ = held.Close() }() // its files are not used below
	m := held.Manifest
	out, secret := map[string]any{}, []string(nil)
	for k, v := range m.Config.Members() {
		out[k] = v.Any()
	}
	n, err := a.Config().GitPlugin(ctx, "config", id, func(ctx context.Context, key string) (string, bool, error) {
		v, ok, err := a.secrets(ctx, key)
		if ok {
			secret = append(secret, v)
		}
		return v, ok, err
	})
	if err != nil {
		return nil, nil, err
	}
	for k, v := range n.Members() {
		out[k] = v.Any()
	}
	for _, key := range m.Secrets {
		v, ok, err := a.secrets(ctx, strings.Join([]string{"plugins", id, key}, "."))
		if err != nil {
			return nil, nil, err
		}
		if ok {
			out[key], secret = v, append(secret, v)
		}
	}
	return out, secret, nil
}
