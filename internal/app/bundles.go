package app

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/examples"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// shippedBy is the distribution that the bundles inside the program count as: their ids are the same wherever they run.
const shippedBy = "agentenv-framework"

// Installed is a bundle that is found by its name.
type Installed struct {
	Name    string
	Package string // the distribution it comes with
	Version string // of the package
	open    func() (bundle.Source, error)
	// qualified: its name alone means another bundle, or none.
	qualified bool
}

// named tells whether a person means it by text.
func (i Installed) named(text string) bool {
	return text == i.Name && !i.qualified || text == i.Package+"/"+i.Name
}

func (i Installed) idRoot() string { return ref.InstalledRoot(i.Package, i.Name) }

// Open makes a source of it. The caller closes the source.
func (i Installed) Open() (bundle.Source, error) { return i.open() }

// Installed lists the bundles that can be run by name: the program's own, sorted, then those of plugins.
func (a *App) Installed(ctx context.Context) ([]Installed, error) {
	own, err := a.shipped()
	return append(own, a.ofPlugins(ctx)...), err
}

// shipped are the bundles inside the program.
func (a *App) shipped() ([]Installed, error) {
	all := examples.FS()
	entries, err := fs.ReadDir(all, ".")
	if err != nil {
		return nil, err
	}
	var out []Installed
	for _, e := range entries {
		name := e.Name()
		out = append(out, Installed{Name: name, Package: shippedBy, Version: FrameworkVersion, open: func() (bundle.Source, error) {
			sub, err := fs.Sub(all, name)
			if err != nil {
				return bundle.Source{}, err
			}
			return bundle.Source{FS: sub, Name: name, Root: shippedBy + "/" + name, IDRoot: ref.InstalledRoot(shippedBy, name)}, nil
		}})
	}
	return out, nil
}

// installedSource is the installed bundle whose ids id is under. Its source stays open until the App is closed.
func (a *App) installedSource(ctx context.Context, id string) (bundle.Source, bool, error) {
	installed, err := a.Installed(ctx)
	if err != nil {
		return bundle.Source{}, false, err
	}
	for _, i := range installed {
		root := i.idRoot()
		if !strings.HasPrefix(id, root+"/") {
			continue
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if src, ok := a.sources[root]; ok {
			return src, true, nil
		}
		src, err := i.Open()
		if err != nil {
			return bundle.Source{}, false, err
		}
		if a.sources == nil {
			a.sources = map[string]bundle.Source{}
		}
		a.sources[root] = src
		a.closers = append(a.closers, func(context.Context) error { return src.Close() })
		return src, true, nil
	}
	return bundle.Source{}, false, nil
}

// aliases are the names that installed bundles give to their agents and environments. A name that two of them give means nothing.
func aliases(installed []Installed, o bundle.Options) map[ref.Kind]map[string]string {
	out := map[ref.Kind]map[string]string{ref.Agent: {}, ref.Env: {}}
	for _, i := range installed {
		src, err := i.Open()
		if err != nil {
			continue
		}
		if _, err := fs.Stat(src.FS, "aliases.toml"); err == nil {
			b, _ := bundle.Parse(src, o)
			for k, names := range b.Aliases() {
				for name, id := range names {
					if _, twice := out[k][name]; twice {
						id = ""
					}
					out[k][name] = id
				}
			}
		}
		_ = src.Close()
	}
	return out
}

// Bundle finds what a person means by text: what begins with ".", "/" or "~" is a path; otherwise an existing folder wins over an installed
// bundle's name. The caller closes the source.
func (a *App) Bundle(ctx context.Context, text string) (bundle.Source, error) {
	home := a.Config().Home()
	path := text
	switch {
	case text == "":
		return bundle.Source{}, diag.List{{Code: "bundle.path", Summary: "the bundle's name is empty", Fix: "name a folder or an installed bundle"}}.Err()
	case text == "~" || strings.HasPrefix(text, "~/"):
		path = filepath.Join(home, text[1:])
	case !filepath.IsAbs(text):
		path = filepath.Join(a.opt.Dir, text)
	}
	isPath := strings.ContainsRune("./~", rune(text[0]))
	if info, err := os.Stat(path); isPath || err == nil && info.IsDir() {
		return bundle.OpenFolder(path, home)
	}
	installed, err := a.shipped()
	if err != nil {
		return bundle.Source{}, err
	}
	if at := slices.IndexFunc(installed, func(i Installed) bool { return i.named(text) }); at >= 0 { // plugins are not looked for
		return installed[at].Open()
	}
	var names []string
	for _, i := range append(installed, a.ofPlugins(ctx)...) {
		if i.named(text) {
			return i.Open()
		}
		names = append(names, i.Name)
	}
	fix := "agent-env run lists the installed ones"
	if near := diag.Nearest(text, names); near != "" {
		fix = fmt.Sprintf("did you mean %s?", near)
	}
	return bundle.Source{}, diag.List{{Code: "bundle.unknown", Summary: diag.Repr(text) + " is neither a folder nor an installed bundle", Fix: fix}}.Err()
}

// Description is an installed bundle as lists show it.
type Description struct {
	Name        string `json:"name"`
	Package     string `json:"package"`
	Version     string `json:"version"`
	IDRoot      string `json:"id_root"`
	Folder      string `json:"folder,omitempty"` // empty for a bundle inside the program
	Tasks       int    `json:"tasks"`
	Evals       int    `json:"evals"`
	Description string `json:"description"`
	// Problem is why it can't be read.
	Problem string `json:"problem,omitempty"`
}

// Describe reads every installed bundle. One that can't be read is listed with its problem.
func (a *App) Describe(ctx context.Context) ([]Description, error) {
	installed, err := a.Installed(ctx)
	if err != nil {
		return nil, err
	}
	out := []Description{}
	for _, i := range installed {
		d := Description{Name: i.Name, Package: i.Package, Version: i.Version}
		if err := a.describe(ctx, i, &d); err != nil {
			d.Problem = err.Error()
		}
		out = append(out, d)
	}
	return out, nil
}

func (a *App) describe(ctx context.Context, i Installed, d *Description) error {
	src, err := i.Open()
	if err != nil {
		return err
	}
	defer src.Close()
	b, problems := bundle.Parse(src, a.bundleOptions(ctx))
	d.IDRoot, d.Folder, d.Description = src.IDRoot, src.Dir, b.Description
	for _, e := range b.Entries {
		switch e.Group {
		case bundle.Tasks:
			d.Tasks++
		case bundle.Evals:
			d.Evals++
		default: // nothing that could be run
		}
	}
	return problems.Err()
}
