package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/export"
)

// Init writes a stored task or eval as a bundle at dir.
func (a *App) Init(ctx context.Context, dir string, from export.From) (export.Report, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return export.Report{}, err
	}
	o := a.exportOptions(ctx)
	o.Store = s
	return export.Init(ctx, a.abs(dir), from, o)
}

// InitTemplate writes a copy of a bundle that comes with the program at dir.
func (a *App) InitTemplate(ctx context.Context, dir, name string) (export.Report, error) {
	templates, err := a.Templates()
	if err != nil {
		return export.Report{}, err
	}
	var names []string
	for _, t := range templates {
		if t.Name != name {
			names = append(names, t.Name)
			continue
		}
		src, err := t.Open()
		if err != nil {
			return export.Report{}, err
		}
		defer src.Close()
		return export.Template(ctx, a.abs(dir), src, a.exportOptions(ctx))
	}
	fix := "there are " + strings.Join(names, ", ")
	if near := diag.Nearest(name, names); near != "" {
		fix = fmt.Sprintf("did you mean %s?", near)
	}
	return export.Report{}, diag.List{{Code: "export.template", Summary: "there is no template " + diag.Repr(name), Fix: fix}}.Err()
}

// Templates are the bundles that can be copied: those inside the program.
func (a *App) Templates() ([]Installed, error) {
	all, err := a.shipped()
	var out []Installed
	for _, i := range all {
		if i.Package == shippedBy {
			out = append(out, i)
		}
	}
	return out, err
}

func (a *App) exportOptions(ctx context.Context) export.Options {
	return export.Options{Bundle: a.bundleOptions(ctx), Program: "agent-env " + Version, Now: time.Now(), Home: a.Config().Home()}
}

func (a *App) abs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(a.opt.Dir, path)
}
