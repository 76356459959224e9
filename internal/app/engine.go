package app

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step/data"
	"agentenv.internal/agentenv/internal/step/verify"
	"agentenv.internal/agentenv/sdk/plugin"
)

// Engine is the walk from a bundle to its summary.
func (a *App) Engine(ctx context.Context) (*bundlerun.Engine, error) {
	return a.engine.get(func() (*bundlerun.Engine, error) {
		s, err := a.Store(ctx)
		if err != nil {
			return nil, err
		}
		w, err := a.getWorld(ctx)
		if err != nil {
			return nil, err
		}
		envs, err := a.getEnvs(ctx)
		if err != nil {
			return nil, err
		}
		models, err := a.Models(ctx)
		if err != nil {
			return nil, err
		}
		agents, err := a.getAgents(ctx)
		if err != nil {
			return nil, err
		}
		return &bundlerun.Engine{
			Bundle:    a.bundleOptions(ctx),
			Executors: a.pluginExecutors(ctx, executors(s, w.deploy, envs, agents, func(ctx context.Context) (string, error) { return a.Config().HumanURL(ctx, a.secrets) }, data.NewDownloads(a.Config().PrivateDownloads()), verify.RubricsOptions{Store: s, Models: models, Panel: a.panel, Agents: verify.NewDeployedJudges(agents, models)})),
			Store:     s, Runs: s.Runs(), Records: bundlerun.Records{Store: s, Dir: a.runsDir()}, Deploy: w.deploy, Log: a.opt.Log,
			Machine: &bundlerun.Machine{
				Floors: bundlerun.DefaultFloors(), Free: func() bundlerun.Free { return bundlerun.Look(a.Config().StateRoot()) },
			},
			CheckType: a.checkType, MakeArtifact: a.makeArtifact, Pin: pinner(w.images),
			Secrets: references{a}, Redact: &a.redact, Settings: a.evalSettings, Program: Version,
		}, nil
	})
}

// references resolves references to secrets in steps.
type references struct{ a *App }

// Resolve is the value of "secret:KEY" or "env:NAME", where the configuration grants the name to steps.
func (r references) Resolve(ctx context.Context, reference string) (string, error) {
	if _, name, _ := strings.Cut(reference, ":"); !r.a.Config().Granted(name) {
		return "", fmt.Errorf("%s isn't granted to steps: a trusted configuration has to name %s in [sandbox] grants", diag.Repr(reference), diag.Repr(name))
	}
	if name, ok := strings.CutPrefix(reference, "env:"); ok {
		if v, ok := r.a.opt.Env(name); ok && v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the environment has no variable %s", diag.Repr(name))
	}
	key := strings.TrimPrefix(reference, "secret:")
	v, ok, err := r.a.secrets(ctx, key)
	if err == nil && !ok {
		err = fmt.Errorf("there is no secret %s", diag.Repr(key))
	}
	return v, err
}

// bundleOptions is what reading a bundle depends on.
func (a *App) bundleOptions(ctx context.Context) bundle.Options {
	c := a.Config()
	o := bundle.Options{Kinds: a.kinds(ctx), TypeAliases: c.TypeAliases(), AllowUnknownFields: c.AllowUnknownFields()}
	o.EnvTypes, o.ArtifactTypes = a.pluginTypes(ctx, plugin.GroupEnvs), a.pluginTypes(ctx, plugin.GroupArtifacts)
	own, _ := a.shipped() // who runs one by name is told
	o.Aliases, o.Installed, o.Plugins = aliases(own, o), func(id string) (bundle.Source, bool, error) { return a.installedSource(ctx, id) }, installedPlugins{a}
	base := o
	o.MoreAliases = sync.OnceValue(func() map[ref.Kind]map[string]string { return aliases(a.ofPlugins(ctx), base) })
	return o
}

// Checked is what Check found.
type Checked struct {
	Root     string // as shown to people
	Folders  []Folder
	Problems diag.List
}

// Folder counts the entries of one of a bundle's folders.
type Folder struct {
	Name, One string // "tasks", "task"
	N         int
}

// Contents are the entries by folder.
func (c Checked) Contents() map[string]int {
	out := map[string]int{}
	for _, f := range c.Folders {
		out[f.Name] = f.N
	}
	return out
}

// Check reads a bundle and tells everything that is wrong with it, as far as neither a store nor a sandbox is needed. It opens neither.
func (a *App) Check(ctx context.Context, text string, allowUnknown bool) (Checked, error) {
	src, err := a.Bundle(ctx, text)
	if err != nil {
		return Checked{}, err
	}
	defer src.Close()
	out := Checked{Root: src.Root}
	reader := bundlerun.Engine{Bundle: a.bundleOptions(ctx), Log: a.opt.Log}
	if out.Problems, err = reader.Check(ctx, src, allowUnknown); err != nil {
		return out, err
	}
	b, _ := bundle.Parse(src, a.bundleOptions(ctx))
	for _, e := range b.Entries {
		n := len(out.Folders)
		if n == 0 || out.Folders[n-1].Name != e.Group.String() {
			out.Folders = append(out.Folders, Folder{Name: e.Group.String(), One: e.Group.One()})
			n++
		}
		out.Folders[n-1].N++
	}
	return out, nil
}
