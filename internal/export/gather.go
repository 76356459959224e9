package export

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// exporter gathers what a bundle will hold.
type exporter struct {
	options Options
	from    From
	home    string // id root of the installed bundle that what is exported belongs to; "" for none
	masker  *masker

	names    names
	done     map[key]*outcome // entities, by the version that was written
	docs     map[key]answer
	pulls    map[key]string // the installed bundles of ids; "" for none
	files    tree
	report   Report
	problems diag.List
}

type key struct {
	kind    ref.Kind
	id      string
	version int
}

// outcome is what became of an entity.
type outcome struct {
	fate    fate
	name    string // in the folder
	version int
}

type fate uint8

const (
	refused fate = iota // it can't be written, which is among the problems
	written
	stays // in the store
)

// answer is what the store has.
type answer struct {
	store store.Doc
	doc   doc.Node
	why   string // it can't be used; "" for one that can
}

func newExporter(o Options, from From) *exporter {
	return &exporter{
		options: o, from: from, masker: newMasker(), names: names{}, done: map[key]*outcome{}, docs: map[key]answer{}, pulls: map[key]string{}, files: tree{},
	}
}

// read is a document of the store, 0 standing for its latest version. The error is one of the store itself.
func (x *exporter) read(ctx context.Context, k ref.Kind, id string, version int) (store.Doc, answer, error) {
	at := key{k, id, version}
	if a, ok := x.docs[at]; ok {
		return a.store, a, nil
	}
	var a answer
	d, err := x.options.Store.Get(ctx, store.Kind(k), id, version)
	switch {
	case errors.Is(err, store.ErrNotFound) && version > 0:
		a.why = fmt.Sprintf("there is no version %d of %s %s in the store", version, k, diag.Repr(id))
	case errors.Is(err, store.ErrNotFound):
		a.why = fmt.Sprintf("there is no %s %s in the store", k, diag.Repr(id))
	case err != nil:
		return store.Doc{}, answer{}, fmt.Errorf("read %s %s: %w", k, id, err)
	default:
		t, l := doc.ParseJSON(string(k), d.Body)
		a.store, a.doc = d, t.Root()
		if l.HasErrors() || a.doc.Kind() != doc.Object {
			a.why = fmt.Sprintf("the store's document of %s %s v%d can't be read", k, diag.Repr(id), d.Version)
		}
	}
	x.docs[at] = a
	return a.store, a, nil
}

// pulled is the installed bundle that an entity comes with; "" for one that it doesn't, or that belongs to what is exported.
func (x *exporter) pulled(k ref.Kind, id string) string {
	at := key{kind: k, id: id}
	from, ok := x.pulls[at]
	if ok {
		return from
	}
	if x.home == "" || x.homeOf(id) != x.home {
		from, ok = x.options.Bundle.Pulls(k, id)
	}
	if !ok {
		from = ""
	}
	x.pulls[at] = from
	return from
}

func (x *exporter) problem(where, code, format string, args ...any) {
	x.problems.Add(diag.Problem{Where: where, Code: code, Summary: fmt.Sprintf(format, args...), Prefixed: true})
}

func (x *exporter) leftOut(where, format string, args ...any) {
	x.report.LeftOut = append(x.report.LeftOut, LeftOut{where, fmt.Sprintf(format, args...)})
}

// unwritable is why no folder can hold an entity.
type unwritable struct{ why string }

func (u unwritable) Error() string { return u.why }

func cant(format string, args ...any) error { return unwritable{fmt.Sprintf(format, args...)} }

// errTold: something that an entity needs can't be had, which is among the problems.
var errTold = errors.New("told")

// local writes an entity into the folder, once, or leaves it in the store. where is the reference that asks for it, typ the type that it must have.
func (x *exporter) local(ctx context.Context, where string, k ref.Kind, id string, version int, typ string) (*outcome, error) {
	d, a, err := x.read(ctx, k, id, version)
	if err != nil {
		return nil, err
	}
	if a.why == "" && typ != "" && d.Type != typ {
		a.why = fmt.Sprintf("%s is %s in the store, and this field takes %s", diag.Repr(id), d.Type, typ)
	}
	if a.why != "" {
		x.problem(where, "export.missing", "%s", a.why)
		return &outcome{}, nil
	}
	at := key{k, id, d.Version}
	if o, ok := x.done[at]; ok {
		return o, nil
	}
	o := &outcome{version: d.Version}
	x.done[at] = o
	err = x.entity(ctx, d, a.doc, o)
	u, isUnwritable := errors.AsType[unwritable](err)
	switch {
	case isUnwritable && x.from.User:
		o.fate = stays
		x.report.Store = append(x.report.Store, Stays{where, k, id, d.Version, u.why})
	case isUnwritable:
		x.problem(where, "export.form", "%s %s v%d can't be written into a folder: %s; --include-scope user leaves it in the store, for a folder that is run against the same store",
			k, diag.Repr(id), d.Version, u.why)
	case errors.Is(err, errTold):
	case err != nil:
		return nil, err
	}
	return o, nil
}

// entity writes one entity's folder.
func (x *exporter) entity(ctx context.Context, d store.Doc, n doc.Node, o *outcome) error {
	f := &folder{x: x, id: d.ID, files: tree{}}
	var err error
	k := ref.Kind(d.Kind)
	if f.group, err = x.groupOf(k, d.Type); err != nil {
		return err
	}
	if f.group == bundle.Skills {
		f.name = n.Get("skill_name").Text()
		if f.name != cleanName(f.group, f.name) {
			return cant("its name %s can't be that of a folder", diag.Repr(f.name))
		}
		if !x.names.take(f.group, f.name, "") {
			return cant("a skill's folder takes the skill's name, %s, and another artifact of the folder has it", diag.Repr(f.name))
		}
	} else {
		f.name = x.names.give(f.group, d.ID, "")
	}
	f.label = f.group.String() + "/" + f.name
	if err = f.fill(ctx, d, n); err == nil {
		err = f.finish()
	}
	if err != nil {
		x.names.release(f.group, f.name)
		return err
	}
	for name, c := range f.files {
		x.files[f.label+"/"+name] = c
	}
	x.report.Written = append(x.report.Written, Written{f.label, k, d.Type, d.ID, d.Version})
	x.report.Images = append(x.report.Images, f.images...)
	x.report.LeftOut = append(x.report.LeftOut, f.left...)
	o.fate, o.name = written, f.name
	return nil
}

// groupOf is the folder that entities of a type go to.
func (x *exporter) groupOf(k ref.Kind, typ string) (bundle.Group, error) {
	_, added := x.options.Bundle.Added(bundle.Artifacts, typ)
	switch {
	case k == ref.Env:
		return bundle.Envs, nil
	case k == ref.Agent:
		return bundle.Agents, nil
	case typ == artifact.Skill:
		return bundle.Skills, nil
	case k == ref.Artifact && (artifact.Known(typ) || added):
		return bundle.Artifacts, nil
	default:
		return 0, cant("its type, %s, has no form in a bundle", diag.Repr(typ))
	}
}

// tree is files by path, "/"-separated.
type tree map[string]content

// content is a file to write: text, or an object of the store.
type content struct {
	text   []byte
	object ref.Digest
	size   int64
	mode   uint32 // permission bits; of a text 0 for those of a new file
	link   string // where a link leads
}

// shown are the paths of a tree for people: files at its top, and entries.
func (t tree) shown() []string {
	out := map[string]bool{}
	for name := range t {
		out[shownPath(name)] = true
	}
	return slices.Sorted(maps.Keys(out))
}
