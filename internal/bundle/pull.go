package bundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// pulls are the bundles that entities are pulled from: a bundle that names an entity of an installed bundle writes it too, under that bundle's id
// root, so that it is one entity whoever names it. One pulls is shared by a bundle and all that it pulls from, directly or not.
type pulls struct {
	open   map[string]*Bundle // by id root
	pulled []*Entry           // what was pulled, each once, with what it needs
}

// Pulls tells whether an id names an entity of an installed bundle, and which bundle that is, as shown to people. A reference to such an entity makes
// it part of a plan.
func (o Options) Pulls(k ref.Kind, id string) (bundle string, ok bool) {
	r := resolver{b: &Bundle{options: o, pulls: &pulls{open: map[string]*Bundle{}}}}
	from, e, why := r.pull(k, id)
	return from, e != nil && why == "" && !r.l.HasErrors()
}

// pull finds the entity that id names in an installed bundle, and resolves it with what it needs; problems of those are recorded. The entry is nil
// when no installed bundle has such ids; why says what keeps one that has from being used.
func (r *resolver) pull(k ref.Kind, id string) (from string, e *Entry, why string) {
	if !ref.IsLocal(id) || r.b.options.Installed == nil || k != ref.Env && k != ref.Agent && k != ref.Artifact {
		return "", nil, ""
	}
	src, ok, err := r.b.options.Installed(id)
	switch {
	case err != nil:
		return "", nil, "the installed bundle that " + diag.Repr(id) + " names can't be read: " + diag.Clean(err.Error())
	case !ok:
		return "", nil, ""
	}
	b := r.b.pulls.open[src.IDRoot]
	if b == nil {
		b = r.b.open(src)
	}
	if b.names == nil {
		b.makeIndex()
	}
	if e = b.names[k].id[id]; e == nil {
		return src.Root, nil, fmt.Sprintf("there is no %s %s in the installed bundle %s%s", k, diag.Repr(id), src.Root, b.near(k, id))
	}
	inner := resolver{b: b}
	inner.pulled(e)
	r.l.Add(inner.l...)
	return src.Root, e, ""
}

// open parses a bundle to pull from.
func (b *Bundle) open(src Source) *Bundle {
	other, faults := parse(src, b.options, src.Root+":")
	other.pulls, other.faults = b.pulls, faults
	b.pulls.open[src.IDRoot] = other
	return other
}

// near is the id that may be meant by one that the bundle lacks: "; did you mean '@local/x'?".
func (b *Bundle) near(k ref.Kind, id string) string {
	ids := map[string]string{} // by their last segment, since all of an id counts as near when its beginning is right
	for _, e := range b.Entries {
		if e.Store() == k {
			ids[ref.Last(e.ID)] = e.ID
		}
	}
	if near := diag.Nearest(ref.Last(id), slices.Sorted(maps.Keys(ids))); near != "" {
		return "; did you mean " + diag.Repr(ids[near]) + "?"
	}
	return b.elsewhere(k, id)
}

// pulled resolves an entry of a bundle that is pulled from, and what it needs there. Of the bundle's own problems those that concern it count.
func (r *resolver) pulled(e *Entry) {
	if r.b.prefix == "" { // the bundle itself, by way of another one: it is resolved anyway
		return
	}
	if slices.Contains(r.b.pulls.pulled, e) {
		return
	}
	r.b.pulls.pulled = append(r.b.pulls.pulled, e)
	sound := true
	for _, f := range r.b.faults {
		if f.Pos.File == e.Label || strings.HasPrefix(f.Pos.File, e.Label+"/") || !r.b.ofEntry(f.Pos.File) {
			r.l.Add(f)
			sound = sound && f.Severity != diag.Error
		}
	}
	if !sound {
		return
	}
	r.entry(e)
	for _, x := range e.Refs {
		if x.Entry != nil && x.Entry.bundle == r.b {
			r.pulled(x.Entry)
		}
	}
}

// ofEntry tells whether a file that a problem names lies in one of the bundle's six folders.
func (b *Bundle) ofEntry(file string) bool {
	dir, _, below := strings.Cut(strings.TrimPrefix(file, b.prefix), "/")
	_, ok := groupOf(dir)
	return ok && below
}

// withPulled are the bundle's entries, and after them those that it pulls from others.
func (b *Bundle) withPulled() []*Entry { return slices.Concat(b.Entries, b.pulls.pulled) }

// aliases decides what names mean that an installed bundle gives to its entities: an entity of the store that is called so comes first.
func (p *planner) aliases(ctx context.Context) error {
	for _, e := range p.b.Entries {
		for _, x := range e.Refs {
			if x.pulled == nil {
				continue
			}
			if p.view != nil {
				s, err := p.lookup(ctx, storedKey{x.Kind, x.ID, 0})
				if err != nil {
					return err
				}
				if s.ok {
					continue
				}
			}
			x.ID, x.Entry = x.alias, x.pulled
		}
	}
	return nil
}
