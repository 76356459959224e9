package export

import (
	"context"
	"errors"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// added fills the folder of an entity whose type is a plugin's: with those members of its document that the type takes, names in the place of ids, and its files.
// What a plugin has made of an artifact beside its config stays behind: it makes that again.
func (f *folder) added(ctx context.Context, d store.Doc, n doc.Node, t *bundle.Type) error {
	at, err := f.named(ctx, n, t)
	if err != nil {
		return err
	}
	f.set("type", d.Type)
	for name, v := range put(n, at).Members() {
		switch {
		case v.IsNull(), name == artifact.References, slices.Contains(bundle.ReservedFields(), name):
		case !t.Fields.Open && !slices.ContainsFunc(t.Fields.Fields, func(x doc.Field) bool { return x.Name == name }):
			f.leave(f.config()+": "+name, "not written: it is no field of the type")
		default:
			f.set(name, v.Map(func(path string, v doc.Node) (doc.Node, bool) {
				return v, !v.IsNull() || strings.HasSuffix(path, "]") // TOML has no null
			}))
		}
	}
	files, err := artifact.Files(d.Type, d.Body)
	if errors.Is(err, artifact.ErrNoFiles) {
		return nil
	}
	if err != nil {
		return cant("%s", err)
	}
	return f.add(files, "")
}

// named are the references of a document by their paths, as the new bundle spells them: names of what is written, and versions of what stays in the store.
func (f *folder) named(ctx context.Context, n doc.Node, t *bundle.Type) (map[string]any, error) {
	out := map[string]any{}
	for _, r := range task.RefsOf(t.Refs, n) {
		if !r.Node.Exists() {
			continue
		}
		where, version := f.label+": "+r.Field, beside(r.Field, r.Ref.Version)
		if from := f.x.pulled(r.Kind, r.Name); from != "" {
			f.x.floats(where, r.Kind, r.Name, from, true)
			continue
		}
		o, err := f.x.local(ctx, where, r.Kind, r.Name, pinned(n, r.Kind, r.Name), r.Type)
		if err != nil {
			return nil, err
		}
		switch {
		case o.fate == written:
			out[r.Field] = r.Prefix + o.name
			if r.Version.Exists() {
				out[version] = nil
			}
		case o.fate == stays && r.Ref.Version != "":
			out[version] = o.version
		case o.fate == stays:
			f.x.report.Floating = append(f.x.report.Floating, Floats{where, r.Kind, r.Name, "the field takes no version, so a run reads the latest"})
		default:
			return nil, errTold
		}
	}
	return out, nil
}

// pinned is the version of an entity that a document names; 0, the latest, where it says none.
func pinned(n doc.Node, k ref.Kind, id string) int {
	for _, x := range n.Get(artifact.References).Items() {
		if p, ok := pinOf(x); ok && p.ID == id && x.Get("kind").Text() == string(k) {
			return p.Version
		}
	}
	return 0
}
