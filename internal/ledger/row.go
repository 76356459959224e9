package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// row is one entry of the ledger: a document of kind store.Ledger whose id is "<kind> <entity id>" and whose version is the entity's.
type row struct {
	Store   string     `json:"store"`
	ID      string     `json:"id"`
	Bundle  string     `json:"bundle"` // id root of the bundle that wrote it
	Scheme  int        `json:"scheme"`
	Digest  ref.Digest `json:"digest"`
	Inputs  inputs     `json:"inputs"`
	At      string     `json:"at"`
	Version int        `json:"version"`
}

// inputs are what an entity is made of. Values are digests and versions, so that a row tells what changed without keeping the content.
type inputs struct {
	Type      string            `json:"type"`
	Config    ref.Digest        `json:"config"` // of the canonical JSON of the resolved config
	Files     map[string]string `json:"files"`  // digest by path, with "+<octal mode>" where the mode counts
	Needs     map[string]string `json:"needs"`  // version by "<kind> <id>", of writes of the same bundle
	StoreRefs map[string]string `json:"store_refs"`
}

func rowID(k ref.Kind, id string) string { return string(k) + " " + id }

// node is the inputs as a document.
func (i inputs) node() map[string]any {
	return map[string]any{
		"type": i.Type, "config": string(i.Config), "files": values(i.Files), "needs": values(i.Needs), "store_refs": values(i.StoreRefs),
	}
}

func values(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// digest is the formula of scheme 2.
func digest(k ref.Kind, id string, i inputs) ref.Digest {
	return ref.DigestOf(doc.Canonical(doc.Build(map[string]any{"id": id, "inputs": i.node(), "scheme": Scheme, "store": string(k)})))
}

// configDigest is the digest of a resolved config; an absent one counts as null.
func configDigest(n doc.Node) ref.Digest { return ref.DigestOf(doc.Canonical(n)) }

// read asks the store for the newest rows and versions of everything planned.
func (w *writer) read(ctx context.Context) error {
	rows := make([]string, 0, len(w.writes))
	ids := map[ref.Kind][]string{}
	for _, x := range w.writes {
		rows = append(rows, rowID(x.Kind, x.ID))
		ids[x.Kind] = append(ids[x.Kind], x.ID)
	}
	// Entities before their rows: both are committed at once, so a row may be newer than what was read of its entity, which the commit finds out,
	// and never missing.
	latest := map[ref.Kind]map[string]store.Doc{}
	for k := range ids {
		var err error
		if latest[k], err = w.store.Latest(ctx, store.Kind(k), ids[k]); err != nil {
			return fmt.Errorf("reading the store: %w", err)
		}
	}
	ledger, err := w.store.Latest(ctx, store.Ledger, rows)
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	for _, x := range w.writes {
		x.latest = latest[x.Kind][x.ID].Version
		if x.Registry != nil {
			x.stored = latest[x.Kind][x.ID].Body
		}
		d, ok := ledger[rowID(x.Kind, x.ID)]
		if !ok {
			continue
		}
		x.row = &row{}
		if err := json.Unmarshal(d.Body, x.row); err != nil {
			return fmt.Errorf("reading the ledger's row of %s %s: %w", x.Kind, x.ID, err)
		}
		x.row.Version = d.Version
	}
	return nil
}

// mayReuse tells whether an entity's row still describes what the store has, so that its digest decides.
func (w *writer) mayReuse(x *write) bool {
	return x.row != nil && x.row.Version == x.latest && x.row.Bundle == x.Bundle && x.row.Scheme == Scheme
}

// fill computes an entity's inputs from its files' digests and the versions of what it needs.
func (w *writer) fill(x *write) {
	x.inputs = inputs{
		Type: x.Type, Config: configDigest(x.Config), Files: make(map[string]string, len(x.Files)), Needs: map[string]string{}, StoreRefs: map[string]string{},
	}
	for i, f := range x.Files {
		x.inputs.Files[f.Path] = x.digests[i].text(f)
	}
	for _, n := range x.Needs {
		x.inputs.Needs[rowID(n.Kind, n.ID)] = strconv.Itoa(w.of[n].version)
	}
	for id, v := range x.StoreRefs {
		x.inputs.StoreRefs[id] = strconv.Itoa(v)
	}
}

// decide tells whether an entity stays as it is, and if not, why.
func (w *writer) decide(x *write) {
	x.version = x.latest + 1
	switch {
	case x.row == nil && x.latest == 0:
		x.reasons = []string{"new"}
	case x.row == nil:
		x.reasons = []string{fmt.Sprintf("v%d in the store wasn't written by a bundle", x.latest)}
	case x.latest < x.row.Version:
		x.reasons = []string{fmt.Sprintf("v%d is no longer in the store", x.row.Version)}
	case x.row.Bundle != x.Bundle:
		x.reasons = []string{"last written by the bundle " + x.row.Bundle}
	case x.latest > x.row.Version:
		x.reasons = []string{fmt.Sprintf("v%d in the store wasn't written by this bundle", x.latest)}
	case x.row.Scheme != Scheme:
		x.reasons = []string{fmt.Sprintf("digest scheme changed: %d → %d", x.row.Scheme, Scheme)}
	}
	if len(x.reasons) > 0 {
		return
	}
	w.fill(x)
	if digest(x.Kind, x.ID, x.inputs) == x.row.Digest {
		x.same, x.version = true, x.latest
		return
	}
	x.reasons = difference(x.row.Inputs, x.inputs)
	if len(x.reasons) == 0 { // a row whose digest and inputs don't belong together
		x.reasons = []string{"the ledger is unsure of it"}
	}
}

// difference says what changed between two sets of inputs, in words.
func difference(old, now inputs) []string {
	var out []string
	if old.Type != now.Type {
		out = append(out, "type changed: "+old.Type+" → "+now.Type)
	}
	if old.Config != now.Config {
		out = append(out, "config changed")
	}
	added, removed, changed := compare(old.Files, now.Files)
	for _, part := range []struct {
		what  string
		names []string
	}{{"files added: ", added}, {"files removed: ", removed}, {"files changed: ", changed}} {
		if len(part.names) > 0 {
			out = append(out, part.what+some(part.names))
		}
	}
	added, removed, changed = compare(old.Needs, now.Needs)
	for _, id := range changed {
		out = append(out, fmt.Sprintf("%s is written anew (v%s → v%s)", id, old.Needs[id], now.Needs[id]))
	}
	moved := func(id string) bool { // between this bundle and the store
		_, was := old.StoreRefs[id]
		_, is := now.StoreRefs[id]
		return was || is
	}
	for _, id := range added {
		if !moved(id) {
			out = append(out, "now needs "+id)
		}
	}
	for _, id := range removed {
		if !moved(id) {
			out = append(out, "no longer needs "+id)
		}
	}
	added, removed, changed = compare(old.StoreRefs, now.StoreRefs)
	for _, id := range changed {
		out = append(out, fmt.Sprintf("%s has a new version in the store (v%s → v%s)", id, old.StoreRefs[id], now.StoreRefs[id]))
	}
	for _, id := range added {
		out = append(out, "now takes "+id+" from the store")
	}
	for _, id := range removed {
		out = append(out, "no longer takes "+id+" from the store")
	}
	return out
}

// compare names what two maps differ in, sorted.
func compare(old, now map[string]string) (added, removed, changed []string) {
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if was, ok := old[k]; !ok {
			added = append(added, k)
		} else if was != now[k] {
			changed = append(changed, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(old)) {
		if _, ok := now[k]; !ok {
			removed = append(removed, k)
		}
	}
	return added, removed, changed
}

// some shows the first five names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
