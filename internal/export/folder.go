package export

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// folder is the folder of one entity, being filled.
type folder struct {
	x      *exporter
	id     string
	group  bundle.Group
	name   string
	label  string // "artifacts/greeting"
	toml   []setting
	files  tree // by path from the folder
	images []Image
	left   []LeftOut
}

// setting is one key of a toml.
type setting struct {
	key   string
	value any // as doc.Build takes it
}

func (f *folder) set(key string, value any) { f.toml = append(f.toml, setting{key, value}) }

// config is the name of the folder's toml; "" for a skill, which has none.
func (f *folder) config() string {
	if f.group == bundle.Skills {
		return ""
	}
	return f.group.One() + ".toml"
}

func (f *folder) leave(where, format string, args ...any) {
	f.left = append(f.left, LeftOut{strings.TrimSuffix(f.label+"/"+where, "/"), fmt.Sprintf(format, args...)})
}

// fill puts into the folder what an entity's document says.
func (f *folder) fill(ctx context.Context, d store.Doc, n doc.Node) error {
	switch f.group {
	case bundle.Envs:
		return f.env(ctx, d, n)
	case bundle.Agents:
		return f.agent(ctx, n)
	default:
		return f.artifact(ctx, d, n)
	}
}

// finish writes the toml. Secrets in it are left out.
func (f *folder) finish() error {
	if f.config() == "" || len(f.toml) == 0 {
		return nil
	}
	n := doc.Build(map[string]any{})
	for _, s := range f.toml {
		n = n.With(s.key, s.value)
	}
	n = f.x.masker.scrub(n, nil, func(path, why string) { f.leave(f.config()+": "+path, "%s", why) })
	text, err := tomlText(n)
	if err != nil {
		return fmt.Errorf("write %s/%s: %w", f.label, f.config(), err)
	}
	f.files[f.config()] = content{text: text}
	return nil
}

// tomlText is a table as a TOML document.
func tomlText(n doc.Node) ([]byte, error) {
	t, _ := doc.ParseTOML("", nil)
	var edits []doc.Edit
	for name, v := range n.Members() {
		if v.Kind() == doc.Object && v.Len() == 0 {
			continue
		}
		edits = append(edits, doc.Set(v, name))
	}
	return doc.Splice(t, edits...)
}

// add puts files into the folder. What bundles never count as content is left out.
func (f *folder) add(files []artifact.Bytes, under string) error {
	for _, b := range files {
		name := path.Join(under, b.Path)
		if part := leaving(b.Path); part != "" {
			f.leave(name, "not written: %s never counts as content of a bundle", part)
			continue
		}
		if err := f.top(name); err != nil {
			return err
		}
		switch {
		case b.Folder:
			f.leave(name, "not written: it is an empty folder, and bundles hold files")
		case b.Link != "":
			if !leads(files, b) {
				return cant("its link %s leads to nothing", diag.Repr(b.Path))
			}
			f.files[name] = content{link: b.Link}
			f.leave(name, "that it is a link is not kept by a run, which takes what it leads to")
		default:
			f.files[name] = content{object: b.Digest, size: b.Size, mode: b.Mode}
		}
	}
	return nil
}

// leads tells whether a link leads to something among the files.
func leads(files []artifact.Bytes, b artifact.Bytes) bool {
	to := path.Join(path.Dir(b.Path), b.Link)
	return slices.ContainsFunc(files, func(o artifact.Bytes) bool { return o.Path == to || strings.HasPrefix(o.Path, to+"/") })
}

// top refuses a file whose name means something else at the top of the folder.
func (f *folder) top(name string) error {
	first, _, _ := strings.Cut(name, "/")
	switch {
	case f.config() != "" && ref.Fold(first) == f.config():
		return cant("its %s would be taken for the %s of the folder", diag.Repr(first), f.config())
	case f.group == bundle.Artifacts && first == "SKILL.md":
		return cant("it holds a SKILL.md, which only folders of skills do")
	}
	return nil
}

// leaving is the part of a path that is never content; "" where there is none.
func leaving(name string) string {
	for part := range strings.SplitSeq(name, "/") {
		if bundle.Leaving(part) {
			return part
		}
	}
	return ""
}

// reference is what a toml says of an entity that it references: its name in the new bundle, or its id.
func (f *folder) reference(ctx context.Context, key string, k ref.Kind, n doc.Node, typ string) (any, error) {
	where := f.label + ": " + key
	p, ok := pinOf(n)
	if !ok {
		return nil, cant("its document names no %s", key)
	}
	if from := f.x.pulled(k, p.ID); from != "" {
		f.x.floats(where, k, p.ID, from, true)
		return p.ID, nil
	}
	o, err := f.x.local(ctx, where, k, p.ID, p.Version, typ)
	if err != nil {
		return nil, err
	}
	switch o.fate {
	case written:
		return o.name, nil
	case stays:
		return map[string]any{string(k): p.ID, "version": o.version}, nil
	default:
		return nil, errTold
	}
}

// floats notes a reference to an entity that comes with an installed bundle. pinned: the store's document named a version of it.
func (x *exporter) floats(where string, k ref.Kind, id, from string, pinned bool) {
	why := "it comes with the installed bundle " + from + ", and a run writes it from there"
	if pinned {
		why += "; the version that was named is dropped"
	}
	x.report.Floating = append(x.report.Floating, Floats{where, k, id, why})
}

// pinOf reads { id, version } of a document. An absent version is the latest.
func pinOf(n doc.Node) (artifact.Pin, bool) {
	id, ok := n.Get("id").Str()
	v, _ := n.Get("version").Int()
	return artifact.Pin{ID: id, Version: int(v)}, ok && id != ""
}

// bytesOf are the files of a file or a universe that a document names. where is what names it.
func (f *folder) bytesOf(ctx context.Context, what string, n doc.Node, typ string) ([]artifact.Bytes, store.Doc, error) {
	p, ok := pinOf(n)
	if !ok {
		return nil, store.Doc{}, cant("its document names no %s", what)
	}
	d, a, err := f.x.read(ctx, ref.Artifact, p.ID, p.Version)
	switch {
	case err != nil:
		return nil, d, err
	case a.why != "":
		return nil, d, cant("%s", a.why)
	case d.Type != typ:
		return nil, d, cant("its %s, %s, is %s and not %s", what, diag.Repr(p.ID), d.Type, typ)
	}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return nil, d, cant("%s: %s", diag.Repr(p.ID), err)
	}
	return files, d, nil
}
