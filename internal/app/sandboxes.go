package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/docker"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
	"agentenv.internal/agentenv/internal/sandbox/local"
)

// sandboxes is what makes sandboxes and keeps account of them.
type sandboxes struct {
	providers *catalog.Set[sandbox.Provider]
	chain     []string // what is tried where nothing names a provider
	deploy    *deploy.Deployments
	local     *local.Provider
	docker    *docker.Provider
	images    *image.Store
}

func (a *App) getWorld(ctx context.Context) (sandboxes, error) {
	return a.world.get(func() (sandboxes, error) {
		c := a.Config()
		if c.StateRoot() == "" {
			return sandboxes{}, a.ConfigProblems().Err()
		}
		set, err := c.Sandbox(ctx, a.secrets)
		if err != nil {
			return sandboxes{}, err
		}
		images := openImages(c.StateRoot(), &set)
		proxy := func() (guest.Proxy, error) { return hostside.ProxyFrom(a.opt.Env) }
		l, err := local.New(local.Options{StateRoot: c.StateRoot(), Tools: set.Tools, Expose: set.Expose, Images: images, Proxy: proxy})
		if err != nil {
			return sandboxes{}, err
		}
		a.onClose(func(context.Context) error { return l.Close() })
		d, err := docker.New(docker.Options{
			StateRoot: c.StateRoot(), Socket: set.Socket, Image: set.Image, Guest: local.GuestProgram, Env: a.opt.Env, Proxy: proxy,
		})
		if err != nil {
			return sandboxes{}, err
		}
		a.onClose(func(context.Context) error { return d.Close() })
		w := sandboxes{providers: catalog.New[sandbox.Provider]("sandbox provider"), chain: set.Default, local: l, docker: d, images: images}
		w.providers.Add(local.Name, catalog.Origin{Kind: catalog.Builtin}, l)
		w.providers.Add(docker.Name, catalog.Origin{Kind: catalog.Builtin}, d)
		w.providers.Rest(func(set *catalog.Set[sandbox.Provider]) {
			p, err := a.running(ctx)
			if err != nil {
				a.opt.Log.Warn("the plugin environment can't be read", "error", err)
				return
			}
			p.Sandboxes(context.WithoutCancel(ctx), set, filepath.Join(c.StateRoot(), "plugin-sandboxes"))
		})
		w.deploy = deploy.New(w.providers, w.chain, a.opt.Log)
		return w, nil
	})
}

// Providers are what makes sandboxes, by name.
func (a *App) Providers(ctx context.Context) (*catalog.Set[sandbox.Provider], error) {
	w, err := a.getWorld(ctx)
	return w.providers, err
}

// Chain reads a comma-separated chain of providers and refuses names that nobody here knows; "" is no chain.
func (a *App) Chain(ctx context.Context, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	w, err := a.getWorld(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	var l diag.List
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if _, ok := w.providers.Get(name); ok {
			names = append(names, name)
			continue
		}
		p := diag.Problem{
			Code: "sandbox.provider", Summary: fmt.Sprintf("--sandbox %s: no such provider here", diag.Repr(name)),
			Fix: "there are " + strings.Join(w.providers.Names(), ", "),
		}
		if near := diag.Nearest(name, w.providers.Names()); near != "" {
			p.Fix = "did you mean " + near + "?"
		}
		if why := w.providers.Reason(name); why != "" {
			p.Summary, p.Fix = fmt.Sprintf("--sandbox %s: no such provider here (%s)", diag.Repr(name), why), ""
		}
		l.Add(p)
	}
	return names, l.Err()
}

// Boxes lists the sandboxes of every provider, newest first. A provider that can't be asked is told of in the error, beside the others' boxes.
func (a *App) Boxes(ctx context.Context) ([]sandbox.Info, error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return nil, err
	}
	var out []sandbox.Info
	var errs []error
	for e := range w.providers.All() {
		infos, err := e.Value.List(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("list the sandboxes of %s: %w", e.Name, err))
			continue
		}
		out = append(out, infos...)
	}
	slices.SortStableFunc(out, func(a, b sandbox.Info) int { return b.Created.Compare(a.Created) })
	return out, errors.Join(errs...)
}

// FindBox finds a sandbox by its id, the beginning of its id, or its name.
func (a *App) FindBox(ctx context.Context, text string) (sandbox.Info, sandbox.Provider, error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return sandbox.Info{}, nil, err
	}
	all, listErr := a.Boxes(ctx)
	var found []sandbox.Info
	for _, b := range all {
		if b.ID == text {
			found = []sandbox.Info{b}
			break
		}
		// The empty text, of a variable that isn't set, means no box: least of all one without a name.
		if text != "" && (strings.HasPrefix(b.ID, text) || b.Name == text && b.State != sandbox.StateDead) {
			found = append(found, b)
		}
	}
	switch {
	case len(found) == 0 && listErr != nil:
		return sandbox.Info{}, nil, listErr
	case len(found) == 0:
		return sandbox.Info{}, nil, fmt.Errorf("%s: %w; agent-env sandbox list shows them", diag.Repr(text), sandbox.ErrNotFound)
	case len(found) > 1:
		var ids []string
		for _, b := range found {
			ids = append(ids, b.ID)
		}
		return sandbox.Info{}, nil, fmt.Errorf("%s is several sandboxes: %s", diag.Repr(text), strings.Join(ids, ", "))
	}
	e, ok := w.providers.Get(found[0].Provider)
	if !ok {
		return sandbox.Info{}, nil, fmt.Errorf("sandbox %s is of the provider %s, which is not here", found[0].ID, found[0].Provider)
	}
	return found[0], e.Value, nil
}

// Blocked is the id of a sandbox and what its network policy kept it from.
func (a *App) Blocked(ctx context.Context, text string) (id string, list []guest.Blocked, err error) {
	info, p, err := a.FindBox(ctx, text)
	if err != nil {
		return "", nil, err
	}
	l, ok := p.(sandbox.NetworkLogger)
	if !ok {
		return "", nil, fmt.Errorf("sandboxes of %s tell nothing of what was blocked: %w", info.Provider, sandbox.ErrUnsupported)
	}
	list, err = l.Blocked(ctx, info.ID)
	return info.ID, list, err
}

// BoxOutput is a sandbox and the path of the file with what its programs have written, which is missing where nothing was.
func (a *App) BoxOutput(ctx context.Context, text string) (sandbox.Info, string, error) {
	info, p, err := a.FindBox(ctx, text)
	if err != nil {
		return info, "", err
	}
	l, ok := p.(sandbox.OutputLogger)
	if !ok {
		return info, "", fmt.Errorf("sandboxes of %s keep nothing of what their programs write: %w", info.Provider, sandbox.ErrUnsupported)
	}
	path, err := l.OutputLog(info.ID)
	return info, path, err
}

// SweepBoxes removes what dead sandboxes left, of every provider, and answers their ids. Films that killed runs left go into their records.
func (a *App) SweepBoxes(ctx context.Context) ([]string, error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return nil, err
	}
	swept, err := w.deploy.Sweep(ctx)
	var ids []string
	for _, s := range swept {
		ids = append(ids, s.IDs...)
	}
	return ids, errors.Join(err, a.sweepPlugins(ctx), a.keepLeftFilms(ctx))
}

// keepLeftFilms puts films that killed runs left into their records.
func (a *App) keepLeftFilms(ctx context.Context) error {
	r := bundlerun.Records{Dir: a.runsDir()}
	if !r.Left() {
		return nil
	}
	s, err := a.Store(ctx)
	if err != nil {
		return err
	}
	r.Store = s
	return r.KeepLeft(ctx, s.Runs())
}

// Standing lists the sandboxes that runs of this process have up. It never waits for anything to be made.
func (a *App) Standing() []deploy.Live {
	w, ok := a.world.peek()
	if !ok {
		return nil
	}
	return w.deploy.Live("")
}

// StartBox makes a sandbox by the first provider of the chain that can; "" is the configured chain.
func (a *App) StartBox(ctx context.Context, chain string, s sandbox.Spec) (sandbox.Info, error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	names, err := a.Chain(ctx, chain)
	if err != nil {
		return sandbox.Info{}, err
	}
	if len(names) == 0 {
		names = w.chain
	}
	var refused []error
	for _, name := range names {
		e, ok := w.providers.Get(name)
		if !ok {
			refused = append(refused, fmt.Errorf("%s: this version has no such provider", name))
			continue
		}
		info, err := e.Value.Create(ctx, s)
		if !errors.Is(err, sandbox.ErrUnsupported) {
			return info, err
		}
		refused = append(refused, fmt.Errorf("%s: %w", name, err))
	}
	return sandbox.Info{}, errors.Join(refused...)
}

// CheckBox makes a sandbox that is removed again, for what was found in force in it. image may be "".
func (a *App) CheckBox(ctx context.Context, chain, image string) (sandbox.Info, error) {
	info, err := a.StartBox(ctx, chain, sandbox.Spec{Name: "check", Image: image, Tied: true})
	if err != nil {
		return sandbox.Info{}, err
	}
	_, provider, err := a.FindBox(ctx, info.ID)
	if err != nil {
		return sandbox.Info{}, err
	}
	return info, provider.Destroy(context.WithoutCancel(ctx), info.ID)
}
