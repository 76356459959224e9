package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/hostcalls"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/plugin/pyhost"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/plugin"
)

// running is what the plugin environment offers, and the processes that serve it. None is started before something of it is used.
func (a *App) running(ctx context.Context) (*host.Plugins, error) {
	return a.pluginHost.get(func() (*host.Plugins, error) {
		e, err := a.PluginEnvironment(ctx)
		if err != nil {
			return nil, err
		}
		calls := a.hostCalls()
		p := host.OpenPlugins(ctx, e, host.Setup{
			Options: host.Options{Host: plugin.Named{Name: "agent-env", Version: Version}, Env: a.opt.Env, Log: a.opt.Log, Keeper: a.keeper(), Calls: calls.Funcs()},
			Builtin: a.builtinNames(nil), Python: pyhost.Argv, PythonEnv: pyhost.Env(), Impls: a.impls(), Beside: a.gitPrograms,
			Cache: filepath.Join(a.Config().StateRoot(), "plugin-types.json"), Leases: a.pluginLeases(),
		})
		a.onClose(calls.Close)
		a.onClose(p.Close)
		return p, nil
	})
}

// keeper starts programs of which nothing is left when they end.
func (a *App) keeper() *keeper.Keeper {
	k, _ := a.keepers.get(func() (*keeper.Keeper, error) {
		k := keeper.New(local.Carried())
		a.onClose(func(context.Context) error { k.Close(); return nil })
		return k, nil
	})
	return k
}

// contributions are what plugins offer of a group, and what serves it; none where the plugin environment can't be read, of which whoever needs a plugin is told.
func (a *App) contributions(ctx context.Context, group string) (*host.Plugins, []dist.Contribution) {
	if a.Config().StateRoot() == "" {
		return nil, nil
	}
	p, err := a.running(ctx)
	if err != nil {
		return nil, nil
	}
	return p, p.Contributions(group)
}

// kinds are all step types. Those of plugins are looked for when one is asked for that isn't built in.
func (a *App) kinds(ctx context.Context) *catalog.Set[*step.Kind] {
	set := step.Kinds()
	set.Rest(func(set *catalog.Set[*step.Kind]) {
		p, err := a.running(ctx)
		if err != nil {
			a.opt.Log.Warn("the plugin environment can't be read", "error", err)
			return
		}
		p.Kinds(ctx, set)
	})
	return set
}

// pluginExecutors adds what executes the step types of plugins, when one is asked for.
func (a *App) pluginExecutors(ctx context.Context, set *catalog.Set[step.Executor]) *catalog.Set[step.Executor] {
	set.Rest(func(set *catalog.Set[step.Executor]) {
		if p, err := a.running(ctx); err == nil { // who asked for the kind was told
			p.Executors(ctx, set)
		}
	})
	return set
}

// OfferedCommand is a command of a plugin as its metadata has it.
type OfferedCommand struct {
	Name, About string // About is one line, with the distribution
}

// PluginCommands are the commands of plugins that can be run, by name. Nothing is started.
func (a *App) PluginCommands(ctx context.Context) []OfferedCommand {
	var out []OfferedCommand
	p, all := a.contributions(ctx, plugin.GroupCommands)
	for _, c := range all {
		if !c.Usable() {
			continue
		}
		about := "of the plugin " + c.Package
		if c.Exec {
			if t, err := p.Type(ctx, c); err == nil && t.Description != "" {
				about = t.Description + " (" + c.Package + ")"
			}
		}
		out = append(out, OfferedCommand{diag.Clean(c.Name), diag.Clean(about)})
	}
	slices.SortFunc(out, func(a, b OfferedCommand) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// PluginCommand runs a command of a plugin at a person's terminal and answers its exit code; found is false for what no plugin has.
func (a *App) PluginCommand(ctx context.Context, name string, args []string, stdio [3]*os.File, env []string) (code int, found bool, err error) {
	p, all := a.contributions(ctx, plugin.GroupCommands)
	for _, c := range all {
		if c.Name != name {
			continue
		}
		if !c.Usable() {
			return 0, true, fmt.Errorf("the command %s can't be run: %s", name, c.Registered())
		}
		code, err := p.Command(ctx, c, args, host.Terminal{Dir: a.opt.Dir, Env: env, Stdio: stdio})
		return code, true, err
	}
	return 0, false, nil
}

// ofPlugins are the bundles that distributions and git plugins bring. One whose name is that of another's, or of the program's, is found by its distribution (or the git plugin's id) and name alone.
func (a *App) ofPlugins(ctx context.Context) []Installed {
	var out []Installed
	_, all := a.contributions(ctx, plugin.GroupBundles)
	for _, c := range all {
		if !c.Usable() && c.Code != dist.CodeBuiltinName {
			continue
		}
		dir, err := dist.BundleFolder(c.Claim)
		if err != nil {
			continue // `plugin check` tells
		}
		i := Installed{Name: c.Name, Package: requirement.Canonical(c.Package), Version: c.Version, qualified: c.Code != ""}
		i.open = func() (bundle.Source, error) {
			src, err := bundle.OpenFolder(dir, a.Config().Home())
			src.Name, src.Root, src.IDRoot, src.ByPath = i.Name, i.Package+"/"+i.Name, i.idRoot(), false
			return src, err
		}
		out = append(out, i)
	}
	return out
}

// hostCalls are what plugins may ask while they work. What a call needs is opened when it is first asked for.
func (a *App) hostCalls() *hostcalls.Calls {
	return hostcalls.New(hostcalls.Options{
		Config: pluginConfig{a}, Hide: func(v string) { a.redact.Add(v) },
		Store: func(ctx context.Context) (store.Store, error) { return a.Store(ctx) },
		Keeper: func(ctx context.Context) (hostcalls.Keeper, error) {
			s, err := a.Store(ctx)
			return bundlerun.Records{Store: s, Dir: a.runsDir()}, err
		},
		Runs: func(ctx context.Context) (runlog.Log, error) {
			s, err := a.Store(ctx)
			if err != nil {
				return nil, err
			}
			return s.Runs(), nil
		},
		Context: func(ctx context.Context, id string) (json.RawMessage, error) {
			s, err := a.Store(ctx)
			if err != nil {
				return nil, err
			}
			return run.Context(ctx, s.Runs(), bundlerun.NewObjects(s), id)
		},
		Agents: a.getAgents,
		Image: func(ctx context.Context, reference string) (string, error) {
			images, err := a.Images(ctx)
			if err != nil {
				return "", err
			}
			root, release, err := images.Pull(ctx, reference, nil)
			if err != nil {
				return "", err
			}
			defer release()
			return root.Ref, nil
		},
		Envs: a.getEnvs,
		Boxes: func(ctx context.Context) (step.Boxes, error) {
			g, err := a.getAgents(ctx)
			if err != nil {
				return nil, err
			}
			return g.Boxes(), nil
		},
	})
}

// pluginConfig is the configuration as plugins see it.
type pluginConfig struct{ a *App }

func (c pluginConfig) Granted(name string) bool { return c.a.Config().Granted(name) }

func (c pluginConfig) Secret(ctx context.Context, name string) (string, bool, error) {
	return c.a.secrets(ctx, name)
}

// Settings is the table of a distribution. What references in it stand for is secret.
func (c pluginConfig) Settings(ctx context.Context, distribution string) (any, []string, error) {
	var secret []string
	n, err := c.a.Config().Plugin(ctx, distribution, func(ctx context.Context, key string) (string, bool, error) {
		v, ok, err := c.a.secrets(ctx, key)
		if ok {
			secret = append(secret, v)
		}
		return v, ok, err
	})
	if err != nil {
		return nil, nil, err
	}
	return n.Any(), secret, nil
}

// GitSettings is what a git plugin is set to. Secrets are its manifest's, and what references stand for.
func (c pluginConfig) GitSettings(ctx context.Context, id string) (any, []string, error) {
	return c.a.gitSettings(ctx, id)
}

// Value is a setting as `config explain` knows it; nil for what isn't set, and for secrets.
func (c pluginConfig) Value(key string) (any, error) {
	e, err := c.a.Config().Explain(key)
	if err != nil {
		return nil, err
	}
	if text, ok := e.Value.(string); ok && strings.Contains(text, config.Masked) {
		return nil, nil
	}
	return e.Value, nil
}
