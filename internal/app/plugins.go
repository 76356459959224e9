package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/plugin/pyhost"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/step"
)

func (a *App) pluginOptions() dist.Options {
	return dist.Options{
		Dir: filepath.Join(a.Config().StateRoot(), "plugins"), Env: a.opt.Env,
		Own: []dist.Own{{Name: pyhost.FrameworkName, Version: FrameworkVersion}, {Name: pyhost.ProtocolName, Version: ProtocolVersion}},
	}
}

// PluginEnvironment is the plugin environment of this process: the generation that is current when it is first asked for, held until Close.
func (a *App) PluginEnvironment(ctx context.Context) (*dist.Environment, error) {
	return a.plugins.get(func() (*dist.Environment, error) {
		if a.Config().StateRoot() == "" {
			return nil, a.ConfigProblems().Err() // says that there is no home folder
		}
		e, err := dist.Open(ctx, a.pluginOptions())
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		a.onClose(func(context.Context) error { return e.Close() })
		return e, nil
	})
}

// InstalledPlugin says what is installed of the distribution that a table of the configuration is for: its version, or why the table has no effect.
func (a *App) InstalledPlugin(ctx context.Context, name string) string {
	if requirement.IsCore(requirement.Canonical(name)) {
		return "agent-env itself"
	}
	e, err := a.PluginEnvironment(ctx)
	if err != nil {
		return "not known: " + err.Error()
	}
	all, _ := e.Distributions()
	i := slices.IndexFunc(all, func(d dist.Distribution) bool { return d.Canonical() == requirement.Canonical(name) })
	switch {
	case i < 0:
		return "not installed"
	case !all[i].Plugin():
		return "installed but no agent_env entry point"
	default:
		return all[i].Version
	}
}

// PluginReport says what is installed in the plugin environment and what became of it. With load every plugin is imported, in processes of
// their own. commands tells which commands and flags of the command line are taken.
func (a *App) PluginReport(ctx context.Context, load bool, commands dist.Names) (dist.Report, error) {
	e, err := a.PluginEnvironment(ctx)
	if err != nil {
		return dist.Report{}, err
	}
	o := a.reportOptions(e, commands)
	if !load {
		o.Loader = nil
	}
	return e.Report(ctx, o)
}

// CheckPlugins is PluginReport with everything loaded, git plugins of the workspace here that are on and serve types or bundles among them. A git plugin
// that is on and can't be used is told with what can't be read.
func (a *App) CheckPlugins(ctx context.Context, commands dist.Names) (dist.Report, error) {
	e, err := a.PluginEnvironment(ctx)
	if err != nil {
		return dist.Report{}, err
	}
	o := a.reportOptions(e, commands)
	beside, unfit := a.usableGit(ctx)
	byDir := map[string]host.Beside{}
	for _, b := range beside {
		byDir[b.Dir] = b
		o.Beside = append(o.Beside, b.Distribution())
	}
	o.Loader = pluginLoader{a: a, e: e, callbacks: true, beside: byDir}
	r, err := e.Report(ctx, o)
	if err != nil {
		return r, err
	}
	for id, why := range unfit {
		r.Discovery[id] = dist.Trouble{Code: dist.CodeLoadFailed, Reason: "the git plugin is on and not used: " + why}
	}
	return r, nil
}

// ChangePlugins installs distributions into the plugin environment, or removes them. An environment that this process has opened already
// stays the one that it was. A removal of what the configuration names is refused unless force.
func (a *App) ChangePlugins(ctx context.Context, c dist.Change, force bool, commands dist.Names, t dist.Talk) (dist.Outcome, error) {
	if a.Config().StateRoot() == "" {
		return dist.Outcome{}, a.ConfigProblems().Err()
	}
	if len(c.Remove) > 0 && !force {
		if err := a.named(ctx, c.Remove); err != nil {
			return dist.Outcome{}, err
		}
	}
	beside := sync.OnceValue(func() []dist.Distribution {
		all, _ := a.usableGit(ctx) // what can't be used takes no name
		var out []dist.Distribution
		for _, b := range all {
			out = append(out, b.Distribution())
		}
		return out
	})
	m := dist.NewManager(a.pluginOptions(), ownWheels, func(e *dist.Environment) dist.ReportOptions {
		o := a.reportOptions(e, commands)
		o.Beside, o.Loader = beside(), pluginLoader{a: a, e: e, callbacks: true, trusting: true}
		return o
	})
	return m.Apply(ctx, c, t)
}

// ownWheels writes the program's own distributions into a folder.
func ownWheels(dir string) ([]string, error) {
	wheels, err := pyhost.Wheels(dir)
	var out []string
	for _, w := range wheels {
		out = append(out, w.Path)
	}
	return out, err
}

// named refuses to remove distributions whose classes the configuration names.
func (a *App) named(ctx context.Context, remove []string) error {
	impls := a.impls()
	if len(impls) == 0 {
		return nil
	}
	e, err := dist.Open(ctx, a.pluginOptions()) // for this alone: what the process holds can't be pruned
	if err != nil {
		return errors.Join(err, e.Close())
	}
	var errs []error
	for _, impl := range impls {
		d, ok := e.Ships(impl.Value)
		if ok && slices.ContainsFunc(remove, func(name string) bool { return requirement.Canonical(name) == d.Canonical() }) {
			errs = append(errs, fmt.Errorf("blocked: [%s] of %s names %s, which %s ships; take it out there, or use --force", impl.Table, impl.File, impl.Value, d.Name))
		}
	}
	return errors.Join(append(errs, e.Close())...)
}

func (a *App) reportOptions(e *dist.Environment, commands dist.Names) dist.ReportOptions {
	return dist.ReportOptions{Builtin: a.builtinNames(commands), Impls: a.impls(), Config: a.configTrouble(), Loader: pluginLoader{a: a, e: e, callbacks: true}, Aliases: a.Config().TypeAliases()}
}

// builtinNames tells which names the program serves itself.
func (a *App) builtinNames(commands dist.Names) dist.Names {
	steps := step.Kinds()
	return func(group, name string) bool {
		switch group {
		case dist.GroupSteps:
			_, ok := steps.Get(name)
			return ok
		case dist.GroupEnvs:
			return slices.Contains(env.Types(), name)
		case dist.GroupArtifacts:
			return slices.Contains(artifact.Types(), name)
		case dist.GroupSandboxes:
			return name == "local" || name == "docker"
		case dist.GroupBundles:
			all, err := a.shipped()
			return err == nil && slices.ContainsFunc(all, func(i Installed) bool { return i.Package == shippedBy && i.Name == name })
		case dist.GroupCommands, dist.GroupOptions:
			return commands != nil && commands(group, name)
		default:
			return false
		}
	}
}

// impls are the classes that the configuration names.
func (a *App) impls() []dist.Impl {
	c := a.Config()
	var out []dist.Impl
	for _, t := range []struct{ table, group string }{{"envs", dist.GroupEnvs}, {"task_steps", dist.GroupSteps}, {"artifacts", dist.GroupArtifacts}} {
		for _, class := range c.Impls(t.table) {
			out = append(out, dist.Impl{Group: t.group, Value: class, File: c.Path(), Table: t.table})
		}
	}
	for _, t := range []struct{ section, group string }{{"sandbox", dist.GroupSandboxes}, {"state", dist.GroupStates}} {
		for _, name := range c.Providers(t.section) {
			if class := c.ProviderImpl(t.section, name); class != config.Local {
				out = append(out, dist.Impl{Group: t.group, Name: name, Value: class, File: c.Path(), Table: t.section + ".providers." + name})
			}
		}
	}
	for _, class := range c.ExplorerImpls() {
		out = append(out, dist.Impl{Group: dist.GroupExplorer, Value: class, File: c.Path(), Table: "explorer.plugins"})
	}
	return out
}

// configTrouble is what is wrong with the configuration; nil when nothing is.
func (a *App) configTrouble() *dist.Trouble {
	problems := a.ConfigProblems()
	if !problems.HasErrors() {
		return nil
	}
	t := dist.Trouble{Code: dist.CodeConfigInvalid, Reason: problems.Err().Error()}
	path := a.Config().Path()
	if _, err := os.Stat(path); path != "" && errors.Is(err, os.ErrNotExist) {
		t.Code = dist.CodeConfigMissing
	} else if slices.ContainsFunc(problems, func(p diag.Problem) bool {
		return p.Severity == diag.Error && (strings.HasPrefix(p.Code, "toml.") || p.Code == "config.file")
	}) {
		t.Code = dist.CodeConfigBad
	}
	return &t
}

// ConfigTrouble is what is wrong with the configuration, as reports about plugins say it; nil when nothing is.
func (a *App) ConfigTrouble() *dist.Trouble { return a.configTrouble() }

// installedPlugins is what bundles ask of the plugin environment.
type installedPlugins struct{ a *App }

var _ bundle.Plugins = installedPlugins{}

func (p installedPlugins) Installed(ctx context.Context) (requirement.Installed, error) {
	return p.a.PluginEnvironment(ctx)
}

func (p installedPlugins) Environment(ctx context.Context) (requirement.Environment, string, error) {
	e, err := p.a.PluginEnvironment(ctx)
	if err != nil {
		return requirement.Environment{}, "", err
	}
	m, err := e.Markers(ctx)
	if errors.Is(err, dist.ErrNoPython) {
		return m, fmt.Sprintf("there is no python3 here: markers count as for Python %s on this machine", m.PythonVersion), nil
	}
	return m, "", err
}

// Origin finds who claims a type, before anything of it is loaded. Python is asked for nothing where nothing is installed.
func (p installedPlugins) Origin(ctx context.Context, group, name string) (catalog.Origin, bool) {
	all, err := p.a.running(ctx)
	if err != nil {
		return catalog.Origin{}, false
	}
	return all.Origin(ctx, group, name)
}
