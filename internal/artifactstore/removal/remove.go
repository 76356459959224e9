// Package removal deletes and prunes artifacts, and never breaks what uses them: documents of the store that name an artifact, with or without a version,
// what the ledger says that those are made of, and the tasks of runs under way. It tells why what stays is kept.
//
// A reference that pins a version keeps that version; one without a version keeps the latest; where a document's fields are not known, any text that is
// an artifact's id keeps every version. What belongs to an artifact (ref.IsDerived) goes with it, unless something else uses it.
package removal

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// Version is one version of an artifact as removals name it.
type Version struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Type    string `json:"type"`
}

func (v Version) String() string { return name(v.ID, v.Version) }

// Kept is a version that is not removed, and why.
type Kept struct {
	Version
	Reasons []Reason `json:"reasons"`
}

// Runs tells which runs are under way; a runlog.Log does.
type Runs interface {
	List(ctx context.Context, q runlog.Query) (runlog.Page, error)
}

// Remover removes artifacts of one store. Its methods may be called from several goroutines.
type Remover struct {
	store store.Store
	runs  Runs
	kinds *catalog.Set[*step.Kind]
}

// New makes a Remover. kinds tell where tasks name artifacts.
func New(s store.Store, runs Runs, kinds *catalog.Set[*step.Kind]) *Remover {
	return &Remover{s, runs, kinds}
}

// attempts bounds how often a removal is planned again: each time another writer has got through.
const attempts = 100

func name(id string, version int) string { return fmt.Sprintf("%s v%d", diag.Clean(id), version) }

// Removal is what Delete or Prune did, or would do.
type Removal struct {
	// Removed are artifacts, sorted, with what belonged to them.
	Removed []Version `json:"removed"`
	Kept    []Kept    `json:"kept"`
	// Objects is how many stored files went that nothing names any more, and Bytes their size.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// removal is a planned Removal.
type removal struct {
	out     map[node]bool
	kept    map[node][]Reason
	refused bool // nothing may be removed, for the reasons in kept
}

// Delete removes one version of an artifact, or all of them with version 0, and what belongs to it. When anything uses what is to be deleted,
// nothing is, and the error names every reason; Removal.Kept has them too. With dry nothing is removed.
func (r *Remover) Delete(ctx context.Context, id string, version int, dry bool) (Removal, error) {
	if _, err := artifactstore.Find(ctx, r.store, id, version); err != nil {
		return Removal{}, err
	}
	return r.remove(ctx, dry, func(g *library) removal { return g.deletion(id, version) })
}

// PruneOptions say what Prune looks at.
type PruneOptions struct {
	Prefix string // of ids; "" for all
	Keep   int    // how many of the latest versions of each artifact stay though nothing uses them; 0 counts as 1
	Dry    bool
}

// Prune removes old versions that nothing uses, what belonged to them, and bytes that nothing names. The latest version of what a person or a bundle
// put is never removed.
func (r *Remover) Prune(ctx context.Context, o PruneOptions) (Removal, error) {
	out, err := r.remove(ctx, o.Dry, func(g *library) removal { return g.pruning(o) })
	if err != nil {
		return out, err
	}
	p, ok := r.store.(store.Pruner)
	if !ok {
		return out, nil
	}
	rest, err := p.Prune(ctx, nil, o.Dry)
	out.Objects += rest.Objects
	out.Bytes += rest.Bytes
	return out, err
}

// remove makes a plan and carries it out. The store is surveyed again in the commit, where nobody else writes: a plan that no longer holds is made
// again.
func (r *Remover) remove(ctx context.Context, dry bool, plan func(*library) removal) (Removal, error) {
	for range attempts {
		g, err := r.survey(ctx, r.store)
		if err != nil {
			return Removal{}, err
		}
		p := plan(g)
		if dry || p.refused || len(p.out) == 0 {
			out, err := r.describe(ctx, g, p)
			if err == nil && p.refused {
				err = refusals(out.Kept)
			}
			return out, err
		}
		again, err := r.carryOut(ctx, g, p, plan)
		if err != nil {
			return Removal{}, err
		}
		if again {
			continue
		}
		out, objects := g.removed(p)
		if pruner, ok := r.store.(store.Pruner); ok {
			gone, err := pruner.Prune(ctx, objects, false)
			if err != nil {
				return out, err
			}
			out.Objects, out.Bytes = gone.Objects, gone.Bytes
		}
		return out, nil
	}
	return Removal{}, fmt.Errorf("removing artifacts, tried %d times: %w", attempts, store.ErrConflict)
}

// carryOut commits a removal; again when others wrote meanwhile and the plan must be made anew.
func (r *Remover) carryOut(ctx context.Context, g *library, p removal, plan func(*library) removal) (again bool, err error) {
	s, err := r.store.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = s.Discard() }() // does nothing after Commit
	for n := range p.out {
		s.Delete(store.Artifact, n.id, n.version)
		if g.rows[n] {
			s.Delete(store.Ledger, string(store.Artifact)+" "+n.id, n.version)
		}
	}
	s.Require(func(ctx context.Context, d store.Docs) error {
		now, err := r.survey(ctx, d)
		if err == nil && !maps.Equal(plan(now).out, p.out) {
			again = true
			err = store.ErrConflict
		}
		return err
	})
	err = s.Commit(ctx)
	if again {
		return true, nil
	}
	return false, err
}

// deletion plans the deletion of one or all versions.
func (g *library) deletion(id string, version int) removal {
	r := removal{out: map[node]bool{}, kept: map[node][]Reason{}}
	for _, v := range g.versions[id] {
		if version == 0 || v == version {
			r.out[node{id, v}] = true
		}
	}
	gone := func(n node) bool { return r.out[n] }
	for n := range r.out {
		if why := g.reasons(n, gone); len(why) > 0 {
			r.kept[n] = why
			r.refused = true
		}
	}
	if r.refused {
		return r
	}
	for more := true; more; { // what belongs to them goes too, unless something else uses it
		more = false
		for holder := range maps.Clone(r.out) {
			for _, need := range g.entries[holder].needs {
				n := node{need.id, need.version}
				if g.entries[n] == nil || r.out[n] || !belongs(n, holder) {
					continue
				}
				if why := g.reasons(n, gone); len(why) > 0 {
					r.kept[n] = why
					continue
				}
				delete(r.kept, n)
				r.out[n], more = true, true
			}
		}
	}
	return r
}

// belongs tells whether an artifact's id is derived from that of another.
func belongs(n, holder node) bool { return strings.HasPrefix(n.id, holder.id+ref.DerivedMark) }

// pruning plans what goes because nothing leads to it: from the latest versions, other documents and runs.
func (g *library) pruning(o PruneOptions) removal {
	r := removal{out: map[node]bool{}, kept: map[node][]Reason{}}
	todo := []node{}
	keep := func(n node, why ...Reason) {
		if g.entries[n] == nil {
			return
		}
		if _, known := r.kept[n]; !known {
			todo = append(todo, n)
		}
		r.kept[n] = append(r.kept[n], why...)
	}
	for n := range g.entries {
		why := g.reasons(n, func(node) bool { return true })
		vs := g.versions[n.id]
		switch i, _ := slices.BinarySearch(vs, n.version); {
		case !strings.HasPrefix(n.id, o.Prefix):
			why = append(why, Reason{How: "its id doesn't begin with " + diag.Clean(o.Prefix)})
		case ref.IsDerived(n.id):
		case i == len(vs)-1:
			why = append(why, Reason{How: "it is the latest version"})
		case i >= len(vs)-o.Keep:
			why = append(why, Reason{How: fmt.Sprintf("it is one of the latest %d versions", o.Keep)})
		}
		if len(why) > 0 {
			keep(n, why...)
		}
	}
	for len(todo) > 0 {
		holder := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, need := range g.entries[holder].needs {
			for _, n := range g.expand(need) {
				keep(n, need.by)
			}
		}
	}
	for n := range g.entries {
		if _, stays := r.kept[n]; !stays {
			r.out[n] = true
		}
	}
	return r
}

func compareNodes(a, b node) int {
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.version, b.version))
}

// removed is a plan as a Removal, with the objects that what goes names.
func (g *library) removed(r removal) (Removal, []ref.Digest) {
	out := Removal{Removed: []Version{}, Kept: []Kept{}}
	objects := []ref.Digest{}
	version := func(n node) Version { return Version{n.id, n.version, g.entries[n].typ} }
	for _, n := range slices.SortedFunc(maps.Keys(r.out), compareNodes) {
		if !r.refused {
			out.Removed = append(out.Removed, version(n))
			objects = append(objects, g.entries[n].objects...)
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(r.kept), compareNodes) {
		out.Kept = append(out.Kept, Kept{version(n), r.kept[n]})
	}
	slices.Sort(objects)
	return out, slices.Compact(objects)
}

// describe is removed with what it would free.
func (r *Remover) describe(ctx context.Context, g *library, p removal) (Removal, error) {
	out, objects := g.removed(p)
	if len(objects) == 0 {
		return out, nil
	}
	used := maps.Clone(g.objects)
	for n, e := range g.entries {
		if !p.out[n] {
			for _, o := range e.objects {
				used[o] = true
			}
		}
	}
	for _, o := range objects {
		if used[o] {
			continue
		}
		f, size, err := r.store.Open(ctx, o)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil {
			continue // damaged: what it frees isn't known
		}
		_ = f.Close()
		out.Objects++
		out.Bytes += size
	}
	return out, nil
}

// refusals are a deletion's reasons as an error.
func refusals(kept []Kept) error {
	var l diag.List
	for _, k := range kept {
		for _, why := range k.Reasons {
			l.Add(diag.Problem{Pos: diag.Pos{File: k.String()}, Code: "artifact.used", Summary: "can't be deleted: " + why.String()})
		}
	}
	return l.Err()
}
