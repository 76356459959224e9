package bundle

import (
	"cmp"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
)

// metadataName is the folder of a universe that holds no environment.
const metadataName = "metadata"

// child is what a folder inside an environment universe becomes: an environment over its one file, or a file of the universe's metadata.
type child struct {
	name  string // of the environment, or the metadata key; in composed form
	id    string
	label string
	file  found // rel counts from the universe's folder
}

// layout is an environment universe's folder, read.
type layout struct {
	envs, metadata []child // sorted by name
	faults         diag.List
}

// layoutOf reads a universe's folder, once.
func (b *Bundle) layoutOf(e *Entry) *layout {
	if e.layout == nil {
		e.layout = &layout{}
		r := layoutReader{b: b, e: e, layout: e.layout}
		r.read()
	}
	return e.layout
}

type layoutReader struct {
	*layout
	b *Bundle
	e *Entry
}

func (r *layoutReader) fault(rel, code, what string) {
	label := r.e.Label
	if rel != "" {
		label += "/" + diag.Clean(rel)
	}
	r.faults.Add(diag.Problem{Pos: diag.Pos{File: label}, Code: code, Summary: what, Prefixed: true})
}

func (r *layoutReader) read() {
	for _, it := range r.e.content() {
		name := ref.NFC(it.name)
		switch {
		case it.err != nil:
			r.fault(name, "universe.link", it.err.Error())
		case !it.dir:
			r.fault(name, "universe.file", "only artifact.toml and folders may lie here: put the file into a folder named like its environment")
		case name == metadataName:
			r.readMetadata(it)
		case ref.Fold(name) == metadataName:
			r.fault(name, "universe.case", "rename to "+metadataName+"; names are case-sensitive")
		default:
			if c, ok := r.child(it, it.name, name, ref.Derived(r.e.ID, name)); ok {
				r.envs = append(r.envs, c)
			}
		}
	}
	for _, cs := range [][]child{r.envs, r.metadata} {
		slices.SortFunc(cs, func(a, b child) int { return cmp.Compare(a.name, b.name) })
		for i := 1; i < len(cs); i++ {
			if cs[i].name == cs[i-1].name {
				r.faults.Add(diag.Problem{
					Pos: diag.Pos{File: cs[i].label + "/" + diag.Clean(cs[i].file.name)}, Code: "universe.same", Prefixed: true,
					Summary: "two folders are named " + diag.Repr(cs[i].name) + ", in different Unicode forms; rename one",
				})
			}
		}
	}
	same := func(a, b child) bool { return a.name == b.name }
	r.envs, r.metadata = slices.CompactFunc(r.envs, same), slices.CompactFunc(r.metadata, same)
}

func (r *layoutReader) readMetadata(dir item) {
	items, err := r.b.tree.list(dir.path)
	if err != nil {
		r.fault(metadataName, "universe.read", reason(err, "no such folder"))
		return
	}
	for _, it := range items {
		name := ref.NFC(it.name)
		rel := metadataName + "/" + name
		switch {
		case isLeaving(it.name):
		case it.err != nil:
			r.fault(rel, "universe.link", it.err.Error())
		case !it.dir:
			r.fault(rel, "universe.file", "metadata holds a folder for each key: put the file into one")
		default:
			if c, ok := r.child(it, dir.name+"/"+it.name, rel, ref.Derived(ref.Derived(r.e.ID, metadataName), name)); ok {
				c.name = name
				r.metadata = append(r.metadata, c)
			}
		}
	}
}

// child reads a folder that holds one file. rel is its path as on disk, shown its path in composed form.
func (r *layoutReader) child(it item, rel, shown, id string) (child, bool) {
	c := child{name: shown, id: id, label: r.e.Label + "/" + diag.Clean(shown)}
	name := ref.NFC(it.name)
	switch {
	case strings.Contains(name, ref.DerivedMark):
		r.fault(shown, "universe.name", `"`+ref.DerivedMark+`" is kept for derived ids; rename the folder`)
		return c, false
	case ref.CheckSegment(name) != nil:
		r.fault(shown, "universe.name", "rename it: "+ref.CheckSegment(name).Error())
		return c, false
	}
	if err := ref.CheckLocal(ref.Derived(id, "file")); err != nil {
		r.fault(shown, "universe.name", "give it or "+r.e.Label+" a shorter name: "+err.Error())
		return c, false
	}
	items, err := r.b.tree.list(it.path)
	if err != nil {
		r.fault(shown, "universe.read", reason(err, "no such folder"))
		return c, false
	}
	var files []string
	ok := true
	for _, f := range items {
		switch {
		case isLeaving(f.name):
		case f.err != nil:
			r.fault(shown+"/"+f.name, "universe.link", f.err.Error())
			ok = false
		case f.dir:
			r.fault(shown+"/"+f.name, "universe.nested", "folders can't lie within each other here; a folder holds one file and nothing else")
			ok = false
		default:
			files = append(files, f.name)
			c.file = found{f, rel + "/" + f.name}
		}
	}
	if ok && len(files) != 1 {
		r.fault(shown, "universe.one", "a folder here holds one file, and this one has "+count(files)+note(files))
		ok = false
	}
	return c, ok
}

func note(names []string) string {
	if len(names) > 0 {
		return ""
	}
	return " (" + leavingsNote + ")"
}

// children are the artifacts that an entry writes besides itself, as far as other ids could be theirs: the names of files in universes can't be.
func (b *Bundle) children(e *Entry) []child {
	var out []child
	add := func(id, label string) { out = append(out, child{id: id, label: label}) }
	switch {
	case e.Group == Envs && (e.Type == env.ComputerDriver || e.Type == env.ComputerApp || e.Type == env.Computer && e.Config.Get("skill").Exists()), e.Group == Skills, e.Group == Artifacts && e.Type == artifact.CLI:
		add(ref.Derived(e.ID, "files"), "the files of "+e.Label)
	case e.Group == Artifacts && e.Type == artifact.Environment && !e.Config.Get("file").Exists():
		add(ref.Derived(e.ID, "file"), "the file of "+e.Label)
	case e.Group == Artifacts && e.Type == artifact.EnvironmentUniverse:
		l := b.layoutOf(e)
		for _, c := range l.envs {
			out = append(out, c)
			add(ref.Derived(c.id, "file"), c.label+"/"+c.file.name)
		}
		out = append(out, l.metadata...)
	}
	return out
}
