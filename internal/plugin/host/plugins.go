package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/plugin"
)

// Environment is the plugin environment as this package needs it; *dist.Environment is one.
type Environment interface {
	Distributions() ([]dist.Distribution, []dist.Problem)
	Markers(ctx context.Context) (requirement.Environment, error)
	Generation() string
	Python() string
	Script(name string) string
	Lock() *os.File
	Ships(class string) (dist.Distribution, bool)
}

// Setup is what the plugins of an environment are run with.
type Setup struct {
	Options
	// Builtin tells which names the program itself serves.
	Builtin dist.Names
	// Python starts the host of Python classes with an interpreter, and PythonEnv are its variables.
	Python    func(interpreter string) []string
	PythonEnv []string
	// Impls are classes that the configuration names, by group.
	Impls []dist.Impl
	// Beside answers the plugins that no distribution brings. It is asked once, when something of a plugin is first looked for. It may be nil.
	Beside func(ctx context.Context) []Beside
	// Leases is the folder of records of running environments; "": none are kept.
	Leases string
	// Cache is the file that remembers what Python classes are, for a generation; "" for none.
	Cache string
}

// Plugins is everything that the distributions of an environment offer, and the processes that serve it. Nothing is read before it is asked for, and no
// process is started before something that it serves is. Its methods may be called from several goroutines.
type Plugins struct {
	env   Environment
	setup Setup

	found  func() []dist.Contribution
	beside func() map[string]Beside // by id
	python *Plugin

	mu     sync.Mutex
	execs  map[string]*Plugin // by the script's path
	kinds  map[plugin.Entry]func() (plugin.Type, error)
	cached map[string]plugin.Type // what the cache file holds, by cacheKey; nil until it is read
	closed bool
}

// OpenPlugins makes the plugins of an environment, which stays the caller's. The caller closes them.
func OpenPlugins(ctx context.Context, env Environment, s Setup) *Plugins {
	p := &Plugins{env: env, setup: s, execs: map[string]*Plugin{}, kinds: map[plugin.Entry]func() (plugin.Type, error){}}
	ctx = context.WithoutCancel(ctx)
	p.beside = sync.OnceValue(func() map[string]Beside {
		out := map[string]Beside{}
		if s.Beside != nil {
			for _, b := range s.Beside(ctx) {
				out[b.ID] = b
			}
		}
		return out
	})
	p.found = sync.OnceValue(func() []dist.Contribution { return p.find(ctx) })
	prog := Program{Name: "host of Python classes", Env: s.PythonEnv, Extra: p.lock()}
	if s.Python != nil {
		prog.Argv = s.Python(env.Python())
	}
	p.python = New(prog, s.Options)
	return p
}

// lock is what a process holds so that its generation stays.
func (p *Plugins) lock() []*os.File {
	if f := p.env.Lock(); f != nil {
		return []*os.File{f}
	}
	return nil
}

// find says which claims stand. Markers are asked for only where a distribution requires anything.
func (p *Plugins) find(ctx context.Context) []dist.Contribution {
	all, _ := p.env.Distributions() // `plugin check` tells of those that can't be read
	markers := requirement.Newest()
	if slices.ContainsFunc(all, func(d dist.Distribution) bool { return !d.Own && len(d.Requires) > 0 && len(d.Entries) > 0 }) {
		if m, err := p.env.Markers(ctx); err == nil {
			markers = m
		}
	}
	all = slices.Clone(all) // the answer is the environment's
	beside := p.beside()
	for _, id := range slices.Sorted(maps.Keys(beside)) {
		all = append(all, beside[id].Distribution())
	}
	return dist.Resolve(all, p.setup.Builtin, markers)
}

// Contributions are all claims of a group, as far as metadata tells.
func (p *Plugins) Contributions(group string) []dist.Contribution {
	var out []dist.Contribution
	for _, c := range p.found() {
		if c.Group == group {
			out = append(out, c)
		}
	}
	return out
}

// origin is where a contribution came from.
func origin(c dist.Contribution) catalog.Origin {
	if c.Git != "" {
		return catalog.Origin{Kind: catalog.GitPlugin, Package: c.Package, Version: c.Version, Where: c.Git}
	}
	return catalog.Origin{Kind: catalog.Distribution, Package: c.Package, Version: c.Version, Where: c.Dir}
}

// Origin is where a type comes from; false for one that nothing installed brings. Of a class that the configuration names, it is the configuration, with the
// distribution that ships the class, if one does.
func (p *Plugins) Origin(ctx context.Context, group, name string) (catalog.Origin, bool) {
	for _, i := range p.impls(group) {
		t, err := p.classOf(context.WithoutCancel(ctx), entryOf(i.Group, i.Name, i.Value))
		if err != nil || t.Name != name {
			continue
		}
		return p.configured(i), true
	}
	for _, c := range p.Contributions(group) {
		if c.Name == name && c.Usable() {
			return origin(c), true
		}
	}
	return catalog.Origin{}, false
}

// configured is the origin of a class that the configuration names.
func (p *Plugins) configured(i dist.Impl) catalog.Origin {
	o := catalog.Origin{Kind: catalog.Config, Where: i.File}
	if d, ok := p.env.Ships(i.Value); ok {
		o.Package, o.Version = d.Name, d.Version
	}
	return o
}

// Kinds adds the step types of all plugins to a set, to be made when they are asked for.
func (p *Plugins) Kinds(ctx context.Context, set *catalog.Set[*step.Kind]) {
	fill(ctx, p, plugin.GroupSteps, set, Kind)
}

// Executors adds what executes the step types of all plugins.
func (p *Plugins) Executors(ctx context.Context, set *catalog.Set[step.Executor]) {
	for _, c := range p.Contributions(plugin.GroupSteps) {
		if c.Usable() {
			set.Later(c.Name, origin(c), func() (step.Executor, error) {
				server, err := p.Server(c)
				if err != nil {
					return nil, err
				}
				return NewStep(server, entryOf(c.Group, c.Name, c.Value), c.Package+" "+c.Version), nil
			})
		}
	}
	for _, i := range p.impls(plugin.GroupSteps) {
		e := entryOf(i.Group, i.Name, i.Value)
		t, err := p.classOf(context.WithoutCancel(ctx), e)
		if err != nil {
			continue
		}
		e.Name = t.Name
		set.Add(t.Name, p.configured(i), step.Executor(NewStep(p.python, e, i.Value)))
	}
}

// Sandboxes adds the providers of sandboxes of all plugins, to be made when they are asked for. dir is where it is noted which sandboxes they have.
func (p *Plugins) Sandboxes(ctx context.Context, set *catalog.Set[sandbox.Provider], dir string) {
	for _, c := range p.Contributions(plugin.GroupProviders) {
		switch {
		case c.Code == dist.CodeBuiltinName:
		case !c.Usable():
			set.Refuse(c.Name, diag.Clean(c.Registered()))
		case !c.Exec:
			set.Refuse(c.Name, fmt.Sprintf("registered by %s %s as a Python class, and providers of sandboxes are programs that speak the plugin protocol", c.Package, c.Version))
		default:
			set.Later(c.Name, origin(c), func() (sandbox.Provider, error) {
				reason := func(err error) error {
					return fmt.Errorf("registered by %s %s but failed to load: %w", c.Package, c.Version, err)
				}
				t, err := p.Type(ctx, c)
				if err != nil {
					return nil, reason(err)
				}
				server, err := p.Server(c)
				if err != nil {
					return nil, reason(err)
				}
				return NewSandboxes(server, t, entryOf(c.Group, c.Name, c.Value), c.Package+" "+c.Version, filepath.Join(dir, c.Name)), nil
			})
		}
	}
}

// impls are the configuration's classes of a group that no distribution's entry point names.
func (p *Plugins) impls(group string) []dist.Impl {
	var out []dist.Impl
	if p.env.Python() == "" {
		return nil
	}
	for _, i := range p.setup.Impls {
		own := slices.ContainsFunc(p.found(), func(c dist.Contribution) bool { return c.Group == group && dist.SameClass(c.Value, i.Value) && !c.Exec })
		if i.Group == group && !own {
			out = append(out, i)
		}
	}
	return out
}

func entryOf(group, name, value string) plugin.Entry {
	return plugin.Entry{Group: group, Name: name, Value: value}
}

// loadError is what the host of Python classes says of a class that it can't serve.
type loadError struct{ reason string }

func (e *loadError) Error() string { return e.reason }

// Type is what a contribution says of its type: a program in its manifest, a Python class when it is loaded. What a class says is remembered with the
// generation, so that no process is started for it again.
func (p *Plugins) Type(ctx context.Context, c dist.Contribution) (plugin.Type, error) {
	if !c.Exec {
		return p.classOf(ctx, entryOf(c.Group, c.Name, c.Value))
	}
	b, err := os.ReadFile(filepath.Join(c.Dir, plugin.ManifestName))
	if err != nil {
		return plugin.Type{}, fmt.Errorf("%s can't be read", plugin.ManifestName)
	}
	m, err := plugin.ParseManifest(b)
	if err != nil {
		return plugin.Type{}, err
	}
	i := slices.IndexFunc(m.Types, func(t plugin.Type) bool { return t.Group == c.Group && t.Name == c.Name })
	if i < 0 {
		return plugin.Type{}, fmt.Errorf("%s lists no %s %s", plugin.ManifestName, c.Group, c.Name)
	}
	return m.Types[i], nil
}

// classOf asks what a Python class is, once.
func (p *Plugins) classOf(ctx context.Context, e plugin.Entry) (plugin.Type, error) {
	p.mu.Lock()
	ask, ok := p.kinds[e]
	if !ok {
		ask = sync.OnceValues(func() (plugin.Type, error) { return p.load(ctx, e) })
		p.kinds[e] = ask
	}
	p.mu.Unlock()
	return ask()
}

func (p *Plugins) load(ctx context.Context, e plugin.Entry) (plugin.Type, error) {
	if t, ok := p.remembered(e); ok {
		return t, nil
	}
	var out plugin.Loads
	err := p.python.Call(ctx, plugin.MethodLoad, nil, func(string) any { return plugin.Load{Entries: []plugin.Entry{e}} }, &out)
	if err != nil {
		return plugin.Type{}, err
	}
	if len(out.Loaded) != 1 {
		return plugin.Type{}, fmt.Errorf("%d of 1 entries were answered", len(out.Loaded))
	}
	got := out.Loaded[0]
	if got.Status != plugin.Active {
		return plugin.Type{}, &loadError{got.Reason}
	}
	t := plugin.Type{Group: e.Group, Name: e.Name}
	if got.Type != nil {
		t = *got.Type
		t.Group = e.Group
	}
	if t.Name == "" {
		t.Name = e.Name
	}
	if e.Name != "" && t.Name != e.Name {
		return plugin.Type{}, &loadError{fmt.Sprintf("failed to load: its type is '%s'", t.Name)}
	}
	return t, p.remember(e, t)
}

// Server is the program that serves a contribution. It is started by its first call.
func (p *Plugins) Server(c dist.Contribution) (*Plugin, error) {
	if !c.Exec {
		return p.python, nil
	}
	boxes := slices.ContainsFunc(p.Contributions(plugin.GroupProviders), func(o dist.Contribution) bool { return o.Exec && o.Value == c.Value && o.Dir == c.Dir })
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Git != "" {
		return p.besideServer(c)
	}
	path := p.env.Script(c.Value)
	if path == "" {
		return nil, fmt.Errorf("%s %s names the program %s, which its wheel didn't install", c.Package, c.Version, diag.Repr(c.Value))
	}
	key := path + "\x00" + c.Dir
	if s := p.execs[key]; s != nil {
		return s, nil
	}
	if p.closed {
		return nil, errClosed
	}
	s := New(Program{
		Name: c.Package + " " + c.Version, Distribution: &plugin.Named{Name: c.Package, Version: c.Version}, Argv: []string{path}, Extra: p.lock(), Boxes: boxes,
	}, p.setup.Options)
	p.execs[key] = s
	return s, nil
}

// besideServer is the program of a git plugin. It is called with mu held.
func (p *Plugins) besideServer(c dist.Contribution) (*Plugin, error) {
	b, ok := p.beside()[c.Package]
	if !ok {
		return nil, fmt.Errorf("there is no git plugin %s", diag.Repr(c.Package))
	}
	key := "git\x00" + b.ID
	if s := p.execs[key]; s != nil {
		return s, nil
	}
	if p.closed {
		return nil, errClosed
	}
	s := New(b.Program(), p.setup.Options)
	p.execs[key] = s
	return s, nil
}

// Close ends all processes.
func (p *Plugins) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := []*Plugin{p.python}
	for _, s := range p.execs {
		all = append(all, s)
	}
	p.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remembering is the cache file: what the Python classes of one generation are.
type remembering struct {
	Format     int                    `json:"format_version"`
	Generation string                 `json:"generation"`
	Types      map[string]plugin.Type `json:"types"`
}

func cacheKey(e plugin.Entry) string {
	b, _ := json.Marshal([]string{e.Group, e.Name, e.Value})
	return string(b)
}
