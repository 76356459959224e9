package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
)

func (s *Server) catalogRoutes() []route {
	return []route{
		{pattern: "GET /api/plugins/catalog", limit: quick, do: s.catalog},
		{pattern: "GET /api/archetypes", limit: quick, do: s.archetypes},
		{pattern: "GET /api/archetypes/{id}/preview", limit: fetch, changes: true, do: s.preview},
	}
}

// CatalogFile is a workspace's own catalog, in .agentenv: what its people are offered beside what comes with the program.
const CatalogFile = "plugin-catalog.json"

// offer is an entry of the catalog.
type offer struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Category  string `json:"category"`
	Tagline   string `json:"tagline"`
	Repo      string `json:"repo"` // "" of one that comes with the program
	Bundled   bool   `json:"bundled"`
	Status    string `json:"status"` // active, deprecated or internal
	Installed bool   `json:"installed"`
	Enabled   bool   `json:"enabled"`
}

// archetype is a kind of agent that a workspace can be made of.
type archetype struct {
	ID        string `json:"id"`
	Label     string `json:"label"`
	Icon      string `json:"icon"`
	Blurb     string `json:"blurb"`
	Tier      string `json:"tier"`   // standard or advanced
	Bundle    string `json:"bundle"` // the plugin bundle's repository; "" of the one without
	Ref       string `json:"ref"`
	Installed bool   `json:"installed"`
}

// readCatalog reads a catalog file; nil is none. Entries that can't be meant are left out, and told.
func readCatalog(src []byte) (offers []offer, kinds []archetype, wrong []string) {
	if src == nil {
		return nil, nil, nil
	}
	t, l := doc.ParseJSON(CatalogFile, src)
	if t == nil || l.HasErrors() {
		return nil, nil, []string{l[0].String()}
	}
	str := func(n doc.Node, name string) string {
		v, _ := n.Get(name).Str()
		return v
	}
	for i, n := range t.Root().Get("plugins").Items() {
		o := offer{ID: str(n, "id"), Name: str(n, "name"), Category: str(n, "category"), Tagline: str(n, "tagline"), Repo: str(n, "repo"), Status: str(n, "status")}
		o.Bundled, _ = n.Get("bundled").Bool()
		if o.Status == "" {
			o.Status = "active"
		}
		switch why := entryFault(o.ID, o.Repo); {
		case why != "":
			wrong = append(wrong, where("plugins", i)+why)
		case o.Bundled == (o.Repo != ""):
			wrong = append(wrong, where("plugins", i)+"has to have either repo or bundled")
		case !slices.Contains([]string{"active", "deprecated", "internal"}, o.Status):
			wrong = append(wrong, where("plugins", i)+diag.Repr(o.Status)+" is no status; write active, deprecated or internal")
		default:
			offers = append(offers, o)
		}
	}
	for i, n := range t.Root().Get("archetypes").Items() {
		a := archetype{ID: str(n, "id"), Label: str(n, "label"), Icon: str(n, "icon"), Blurb: str(n, "blurb"), Tier: str(n, "tier"), Bundle: str(n, "repo"), Ref: str(n, "ref")}
		why := entryFault(a.ID, a.Bundle)
		if a.Bundle == "" && why == "" {
			why = "has to have repo"
		}
		if why != "" {
			wrong = append(wrong, where("archetypes", i)+why)
			continue
		}
		kinds = append(kinds, a.filled())
	}
	return offers, kinds, wrong
}

func where(list string, i int) string {
	return CatalogFile + ": " + fmt.Sprintf("%s[%d]", list, i) + ": "
}

// entryFault is what is wrong with an entry's id or repository; "" when nothing is.
func entryFault(id, repo string) string {
	if err := git.CheckID(id); err != nil {
		return err.Error()
	}
	if repo == "" {
		return ""
	}
	if _, err := git.ParseSource(repo); err != nil {
		return err.Error()
	}
	return ""
}

func (a archetype) filled() archetype {
	if a.Label == "" {
		a.Label = a.ID
	}
	if a.Tier != "advanced" {
		a.Tier = "standard"
	}
	return a
}

func sameSource(a, b string) bool {
	x, errA := git.ParseSource(a)
	y, errB := git.ParseSource(b)
	return errA == nil && errB == nil && x.Same(y)
}

func (s *Server) catalog(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	src, err := c.plugins.File(CatalogFile)
	if err != nil {
		return nil, err
	}
	all, _, wrong := readCatalog(src)
	for _, b := range c.plugins.Builtins() {
		if !slices.ContainsFunc(all, func(o offer) bool { return o.ID == b.ID }) {
			all = append(all, offer{ID: b.ID, Name: b.ID, Tagline: "comes with agent-env", Bundled: true, Status: "active"})
		}
	}
	have, _, err := c.plugins.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		o := &all[i]
		if o.Bundled {
			o.Installed = slices.ContainsFunc(c.plugins.Builtins(), func(b git.Builtin) bool { return b.ID == o.ID })
			o.Enabled = o.Installed
		}
		for _, x := range have {
			if x.ID == o.ID || o.Repo != "" && sameSource(o.Repo, x.Row.SourceURL) {
				o.Installed, o.Enabled = true, o.Enabled || x.Enabled
			}
		}
	}
	return struct {
		Plugins  []offer  `json:"plugins"`
		Warnings []string `json:"warnings"`
	}{append([]offer{}, all...), some(wrong)}, nil
}

// kinds are the archetypes: the catalog's, then those of installed bundles, each id and each repository once; the one without a bundle is last.
func (s *Server) kinds(ctx context.Context, p *gitplugins.Plugins) ([]archetype, []string, error) {
	src, err := p.File(CatalogFile)
	if err != nil {
		return nil, nil, err
	}
	_, listed, wrong := readCatalog(src)
	rows, err := p.Bundles(ctx)
	if err != nil {
		return nil, nil, err
	}
	out := []archetype{}
	add := func(a archetype) {
		if a.ID == custom || slices.ContainsFunc(out, func(b archetype) bool { return a.ID == b.ID || sameSource(a.Bundle, b.Bundle) }) {
			return
		}
		a.Installed = slices.ContainsFunc(rows, func(r git.BundleRow) bool { return sameSource(r.SourceURL, a.Bundle) })
		out = append(out, a)
	}
	for _, a := range listed {
		add(a)
	}
	for _, r := range rows {
		if len(r.Archetype) == 0 {
			continue
		}
		t, l := doc.ParseJSON("archetype", r.Archetype)
		if t == nil || l.HasErrors() || t.Root().Get("label").Text() == "" {
			continue
		}
		n := t.Root()
		add(archetype{
			ID: r.ID, Label: n.Get("label").Text(), Icon: n.Get("icon").Text(), Blurb: n.Get("blurb").Text(), Tier: n.Get("tier").Text(), Bundle: git.Shown(r.SourceURL), Ref: r.RequestedRef,
		}.filled())
	}
	return append(out, archetype{ID: custom, Label: "Custom", Blurb: "A workspace without a plugin bundle", Tier: "standard"}), wrong, nil
}

// custom is the archetype without a plugin bundle.
const custom = "custom"

func (s *Server) archetypes(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	all, wrong, err := s.kinds(ctx, c.plugins)
	if err != nil {
		return nil, err
	}
	return struct {
		Archetypes []archetype `json:"archetypes"`
		Warnings   []string    `json:"warnings"`
	}{all, some(wrong)}, nil
}

func (s *Server) preview(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	all, _, err := s.kinds(ctx, c.plugins)
	if err != nil {
		return nil, err
	}
	id := c.PathValue("id")
	i := slices.IndexFunc(all, func(a archetype) bool { return a.ID == id })
	if i < 0 {
		return nil, &Failure{http.StatusNotFound, "absent", "there is no archetype " + diag.Repr(id), nil}
	}
	out := struct {
		ID     string               `json:"id"`
		Bundle *gitplugins.PeekView `json:"bundle"`
	}{ID: id}
	if all[i].Bundle == "" {
		return out, nil
	}
	v, err := s.look(ctx, c.plugins, all[i].Bundle, all[i].Ref, false)
	if err != nil {
		if f := failure(ctx, err); f.Status != http.StatusBadRequest || isRefused(err) {
			return nil, f
		}
		return nil, &Failure{http.StatusBadGateway, "source", err.Error(), err}
	}
	out.Bundle = &v.view
	return out, nil
}

func isRefused(err error) bool {
	_, ok := errors.AsType[*git.Refused](err)
	return ok
}
