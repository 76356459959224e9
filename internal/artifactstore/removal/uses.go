package removal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// node is one version of an artifact.
type node struct {
	id      string
	version int
}

func (n node) String() string { return name(n.id, n.version) }

// entry is what is known of a node.
type entry struct {
	typ     string
	created time.Time
	objects []ref.Digest
	needs   []need
}

// need is a reference that a node holds.
type need struct {
	id      string
	version int // or latestVersion, anyVersion
	by      Reason
}

// Reason is why a version is kept.
type Reason struct {
	// Kind is "task", "env", "agent", "eval", "artifact", "ledger" or another kind of document; "run" for a run under way; empty for what no
	// document says, such as that it is the latest version.
	Kind    string `json:"kind,omitempty"`
	ID      string `json:"id,omitempty"`
	Version int    `json:"version,omitempty"`
	How     string `json:"how"` // "uses version 2", "uses the latest version"
}

// String is "task @local/b/t v1 uses the latest version".
func (r Reason) String() string {
	switch {
	case r.ID == "":
		return r.How
	case r.Version == 0:
		return r.Kind + " " + diag.Clean(r.ID) + " " + r.How
	default:
		return r.Kind + " " + name(r.ID, r.Version) + " " + r.How
	}
}

// What a reference without a version needs.
const (
	latestVersion = 0  // the latest
	anyVersion    = -1 // not known, so every one
)

// use is one reference to an artifact.
type use struct {
	by      Reason
	holder  node // of an artifact; zero for others
	version int  // or latestVersion, anyVersion
}

// library is every artifact of a store with what uses it, at one moment.
type library struct {
	entries  map[node]*entry
	versions map[string][]int         // ascending
	uses     map[string][]use         // by id
	rows     map[node]bool            // that the ledger has
	others   map[string]map[node]bool // documents of other kinds, by kind
	objects  map[ref.Digest]bool      // that documents of other kinds name
	kinds    func(string) *step.Kind
}

// survey reads the store and the runs under way.
func (r *Remover) survey(ctx context.Context, docs store.Docs) (*library, error) {
	g := &library{
		entries: map[node]*entry{}, versions: map[string][]int{}, uses: map[string][]use{}, rows: map[node]bool{}, others: map[string]map[node]bool{}, objects: map[ref.Digest]bool{}, kinds: r.kind,
	}
	var unclear []store.Doc // artifacts whose references are not known by their type
	err := each(ctx, docs, store.Artifact, func(d store.Doc) error {
		if g.artifact(d) {
			unclear = append(unclear, d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for id := range g.versions {
		slices.Sort(g.versions[id])
	}
	for _, d := range unclear {
		g.strings(d, holder(d, "artifact"), false)
	}
	for _, k := range []store.Kind{store.Env, store.Agent, store.Eval, store.Task, store.Blob, store.Ledger} {
		err := each(ctx, docs, k, func(d store.Doc) error {
			for _, o := range d.Objects {
				g.objects[o] = true
			}
			if g.others[string(k)] == nil {
				g.others[string(k)] = map[node]bool{}
			}
			g.others[string(k)][node{d.ID, d.Version}] = true
			switch k {
			case store.Task:
				g.task(d, Reason{Kind: "task", ID: d.ID, Version: d.Version}, false)
			case store.Ledger:
				g.row(d)
			case store.Blob:
			default:
				g.strings(d, holder(d, string(k)), true)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return g, r.live(ctx, docs, g)
}

func (r *Remover) kind(name string) *step.Kind {
	if r.kinds == nil {
		return nil
	}
	e, ok := r.kinds.Get(name)
	if !ok {
		return nil
	}
	return e.Value
}

// most is how many documents are asked for at once.
const most = 1000

// each calls f for every version of every document of a kind.
func each(ctx context.Context, docs store.Docs, k store.Kind, f func(store.Doc) error) error {
	q := store.Query{Kind: k, AllVersions: true, Limit: most}
	for {
		p, err := docs.List(ctx, q)
		if err != nil {
			return err
		}
		for _, d := range p.Docs {
			if err := f(d); err != nil {
				return err
			}
		}
		if p.Next == "" {
			return nil
		}
		q.After = p.Next
	}
}

// holder is a document as the holder of references.
func holder(d store.Doc, kind string) use {
	u := use{by: Reason{Kind: kind, ID: d.ID, Version: d.Version}}
	if kind == "artifact" {
		u.holder = node{d.ID, d.Version}
	}
	return u
}

// artifact notes a document; true when its references must be looked for in its text.
func (g *library) artifact(d store.Doc) bool {
	n := node{d.ID, d.Version}
	e := &entry{typ: d.Type, created: d.Created, objects: d.Objects}
	g.entries[n] = e
	g.versions[d.ID] = append(g.versions[d.ID], d.Version)
	if !artifact.Known(d.Type) {
		return true
	}
	needs, err := artifact.Needs(d.Type, d.Body)
	if err != nil {
		return true
	}
	for _, n := range needs {
		g.use(n.ID, holder(d, "artifact"), n.Version)
	}
	return false
}

// use notes a reference.
func (g *library) use(id string, u use, version int) {
	u.version = version
	switch version {
	case latestVersion:
		u.by.How = "uses the latest version"
	case anyVersion:
		u.by.How = "may use any version"
	default:
		u.by.How = "uses version " + strconv.Itoa(version)
	}
	g.uses[id] = append(g.uses[id], u)
	if e := g.entries[u.holder]; e != nil {
		e.needs = append(e.needs, need{id, version, u.by})
	}
}

// expand are the nodes that a need keeps.
func (g *library) expand(n need) []node {
	switch n.version {
	case anyVersion:
		var out []node
		for _, v := range g.versions[n.id] {
			out = append(out, node{n.id, v})
		}
		return out
	case latestVersion:
		return []node{{n.id, g.latest(n.id)}}
	default:
		return []node{{n.id, n.version}}
	}
}

// row notes what the ledger says that an entity is made of, as long as the store has that entity.
func (g *library) row(d store.Doc) {
	kind, id, ok := strings.Cut(d.ID, " ")
	if !ok {
		return
	}
	n := node{id, d.Version}
	if kind == string(store.Artifact) {
		g.rows[n] = true
		if g.entries[n] == nil {
			return
		}
	} else if !g.others[kind][n] {
		return
	}
	var row struct {
		Inputs struct {
			Needs     map[string]string `json:"needs"`
			StoreRefs map[string]string `json:"store_refs"`
		} `json:"inputs"`
	}
	if json.Unmarshal(d.Body, &row) != nil {
		return // what it is about pins the same
	}
	u := use{by: Reason{Kind: "ledger", ID: d.ID, Version: d.Version}}
	if kind == string(store.Artifact) {
		u.holder = n // it goes with its artifact
	}
	for _, refs := range []map[string]string{row.Inputs.Needs, row.Inputs.StoreRefs} {
		for what, version := range refs {
			kind, id, _ := strings.Cut(what, " ")
			v, err := strconv.Atoi(version)
			if kind == string(store.Artifact) && err == nil && v > 0 {
				g.use(id, u, v)
			}
		}
	}
}

// live notes what the tasks of runs under way name.
func (r *Remover) live(ctx context.Context, docs store.Docs, g *library) error {
	if r.runs == nil {
		return nil
	}
	q := runlog.Query{Status: []runlog.Status{runlog.Queued, runlog.Running}, Limit: most}
	for {
		p, err := r.runs.List(ctx, q)
		if err != nil {
			return fmt.Errorf("reading the runs under way: %w", err)
		}
		for _, run := range p.Runs {
			d, err := docs.Get(ctx, store.Task, run.Task, run.TaskVersion)
			if errors.Is(err, store.ErrNotFound) {
				continue // nothing tells what it uses
			}
			if err != nil {
				return err
			}
			g.task(d, Reason{Kind: "run", ID: run.ID}, true)
		}
		if p.Next == "" {
			return nil
		}
		q.After = p.Next
	}
}

// latest is the newest version of an artifact; 0 when there is none.
func (g *library) latest(id string) int {
	vs := g.versions[id]
	if len(vs) == 0 {
		return 0
	}
	return vs[len(vs)-1]
}

// reasons are why a version is kept, by all that use it but for the artifacts of which gone is true; sorted, each once.
func (g *library) reasons(n node, gone func(node) bool) []Reason {
	var out []Reason
	for _, u := range g.uses[n.id] {
		if u.holder != (node{}) && (u.holder == n || gone(u.holder)) {
			continue
		}
		if u.version == n.version || u.version == anyVersion || u.version == latestVersion && n.version == g.latest(n.id) {
			out = append(out, u.by)
		}
	}
	slices.SortFunc(out, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Version, b.Version), cmp.Compare(a.How, b.How))
	})
	return slices.Compact(out)
}
