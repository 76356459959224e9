package app

import (
	"context"
	"slices"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/diag"
)

// Shown is what a bundle holds.
type Shown struct {
	Bundle      string   `json:"bundle"` // as shown to people
	Name        string   `json:"name"`
	IDRoot      string   `json:"id_root"`
	Folder      string   `json:"folder,omitempty"`  // empty for a bundle inside the program
	Package     string   `json:"package,omitempty"` // of an installed bundle
	Version     string   `json:"version,omitempty"` // of the package
	Description string   `json:"description"`
	Requires    []string `json:"requires"`
	Entries     []Entry  `json:"entries"` // in bundle order
	Ignored     []string `json:"ignored"`

	Problems diag.List `json:"-"`
}

// Entry is one entity of a bundle.
type Entry struct {
	Label   string   `json:"label"` // "artifacts/greeting"
	Kind    string   `json:"kind"`  // the collection that it is stored in
	Type    string   `json:"type"`
	ID      string   `json:"id"`
	Aliases []string `json:"aliases,omitempty"`
}

// Show reads a bundle and tells what it holds and everything that Check finds wrong with it. It opens no store.
func (a *App) Show(ctx context.Context, text string) (Shown, error) {
	src, err := a.Bundle(ctx, text)
	if err != nil {
		return Shown{}, err
	}
	defer src.Close()
	o := a.bundleOptions(ctx)
	out := Shown{Bundle: src.Root, Name: src.Name, IDRoot: src.IDRoot, Folder: src.Dir, Requires: []string{}, Entries: []Entry{}, Ignored: []string{}}
	reader := bundlerun.Engine{Bundle: o, Log: a.opt.Log}
	if out.Problems, err = reader.Check(ctx, src, false); err != nil {
		return out, err
	}
	installed, err := a.Installed(ctx)
	if err != nil {
		return out, err
	}
	if i := slices.IndexFunc(installed, func(i Installed) bool { return i.idRoot() == src.IDRoot }); i >= 0 {
		out.Package, out.Version = installed[i].Package, installed[i].Version
	}
	b, _ := bundle.Parse(src, o)
	out.Description = b.Description
	out.Requires = append(out.Requires, b.Requires...)
	out.Ignored = append(out.Ignored, b.Ignored...)
	aliases := b.Aliases()
	for _, e := range b.Entries {
		shown := Entry{Label: e.Label, Kind: string(e.Store()), Type: e.Type, ID: e.ID}
		for alias, id := range aliases[e.Store()] {
			if id == e.ID {
				shown.Aliases = append(shown.Aliases, alias)
			}
		}
		slices.Sort(shown.Aliases)
		out.Entries = append(out.Entries, shown)
	}
	return out, nil
}
