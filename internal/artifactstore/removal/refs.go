package removal

import (
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// strings looks for references in a document other than a task: a table with id and version pins an artifact, unless its type says that it is
// something else. Where the fields of the document are not known, any other text that is an artifact's id may use it; elsewhere only text that can be
// nothing but an id. The document's own id is none of them, since ids are unique among documents of one kind alone.
func (g *library) strings(d store.Doc, u use, known bool) {
	t, _ := doc.ParseJSON("", d.Body)
	w := walk{g: g, use: u, known: known, told: map[doc.Node]bool{t.Root().Get("id"): true}}
	w.node(t.Root())
}

// walk goes over a document, or a part of one.
type walk struct {
	g     *library
	use   use
	known bool
	told  map[doc.Node]bool // texts that are known to be something else, or noted already
}

func (w *walk) node(n doc.Node) {
	switch n.Kind() {
	case doc.String:
		id := n.Text()
		if _, is := w.g.versions[id]; is && !w.told[n] && (!w.known || ref.IsLocal(id)) {
			w.g.use(id, w.use, anyVersion)
		}
	case doc.Array:
		for _, e := range n.Items() {
			w.node(e)
		}
	case doc.Object:
		w.pin(n)
		for name, e := range n.Members() {
			if name == "task_id" && w.known { // an eval names tasks
				continue
			}
			w.node(e)
		}
	default:
	}
}

// pin notes a table that pins an artifact.
func (w *walk) pin(n doc.Node) {
	id := n.Get("id")
	v, pinned := n.Get("version").Int()
	if !pinned || v < 1 || id.Kind() != doc.String || w.told[id] {
		return
	}
	at := node{id.Text(), int(v)}
	if typ, said := n.Get("type").Str(); said && !artifact.Known(typ) && w.g.entries[at] != nil && w.g.entries[at].typ != typ {
		w.told[id] = true // an environment of the same id, say
		return
	}
	if _, is := w.g.versions[at.id]; is {
		w.told[id] = true
		w.g.use(at.id, w.use, at.version)
	}
}

// task notes what the steps of a task name. A run under way may use any version of that.
func (g *library) task(d store.Doc, by Reason, running bool) {
	t, _ := doc.ParseJSON("", d.Body)
	u := use{by: by}
	for _, s := range t.Root().Get("steps").Items() {
		k := g.kinds(s.Get("type").Text())
		w := walk{g: g, use: u, known: k != nil, told: map[doc.Node]bool{}}
		if k != nil {
			g.refs(&task.Step{Kind: k, Doc: s}, u, running, w.told)
		}
		w.node(s)
	}
}

// refs notes what the fields of a step name, and tells which texts those are.
func (g *library) refs(s *task.Step, u use, running bool, told map[doc.Node]bool) {
	for _, r := range task.RefsIn(s) {
		if !r.Node.Exists() {
			continue
		}
		told[r.Node] = true
		v, pinned := r.Version.Int()
		switch {
		case r.Kind != ref.Artifact || r.Out:
		case running:
			g.use(r.Name, u, anyVersion)
		case pinned && v > 0:
			g.use(r.Name, u, int(v))
		default:
			g.use(r.Name, u, latestVersion)
		}
	}
}
