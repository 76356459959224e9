package export

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Template writes a copy of a bundle at dir, which must be new or empty. The copy's ids are its own: ids that the template declares are dropped, and
// references by id to entries of it are by name.
func Template(ctx context.Context, dir string, src bundle.Source, o Options) (Report, error) {
	t, err := newTarget(dir, o.Home)
	if err != nil {
		return Report{}, err
	}
	b, l := bundle.Parse(src, o.Bundle)
	if err := l.Err(); err != nil {
		return Report{}, err
	}
	c := copier{bundle: b, files: tree{}, ids: map[string]string{}}
	r := Report{Bundle: t.dir, IDRoot: t.idRoot, From: Origin{Kind: "template", ID: src.Name}}
	for _, e := range b.Entries {
		c.ids[e.ID] = e.Name
		w := Written{Folder: e.Label, Kind: e.Store(), Type: e.Type}
		if e.Group == bundle.Tasks || e.Group == bundle.Evals {
			r.Tasks = append(r.Tasks, w)
		} else {
			r.Written = append(r.Written, w)
		}
	}
	if err := fs.WalkDir(src.FS, ".", c.file); err != nil {
		return Report{}, fmt.Errorf("read the template %s: %w", diag.Clean(src.Name), err)
	}
	c.files["provenance.json"] = content{text: provenance(r, o)}
	if err := t.write(ctx, c.files, o); err != nil {
		return Report{}, err
	}
	r.Files = c.files.shown()
	return r, nil
}

// copier copies the files of a template.
type copier struct {
	bundle *bundle.Bundle
	files  tree
	ids    map[string]string // names of entries by id
}

func (c copier) file(name string, d fs.DirEntry, err error) error {
	if err != nil || d.IsDir() {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	text, err := fs.ReadFile(c.bundle.FS, name)
	if err != nil {
		return err
	}
	switch dir, base, _ := strings.Cut(name, "/"); {
	case name == "README.md":
		text = readmeCopy(text, c.bundle.Name)
	case dir == bundle.Tasks.String() && strings.HasSuffix(base, ".json"):
		text, err = c.own(name, text, doc.ParseJSON)
	case dir == bundle.Evals.String(), c.isConfig(name):
		text, err = c.own(name, text, doc.ParseTOML)
	}
	c.files[name] = content{text: text, mode: uint32(info.Mode().Perm())}
	return err
}

// isConfig tells whether a file is the toml of an entry.
func (c copier) isConfig(name string) bool {
	return slices.ContainsFunc(c.bundle.Entries, func(e *bundle.Entry) bool { return name == e.Label+"/"+e.Group.One()+".toml" })
}

// own is a document with names in place of the template's ids, and without an id of its own. Everything else stays as it is written.
func (c copier) own(name string, text []byte, parse func(string, []byte) (*doc.Tree, diag.List)) ([]byte, error) {
	t, l := parse(name, text)
	if err := l.Err(); err != nil {
		return nil, err
	}
	edits := c.names(t.Root(), nil)
	if t.Root().Get("id").Exists() {
		edits = append(edits, doc.Remove("id"))
	}
	if len(edits) == 0 {
		return text, nil
	}
	return doc.Splice(t, edits...)
}

// names are the edits that put names in place of ids below a value.
func (c copier) names(n doc.Node, path []any) []doc.Edit {
	var out []doc.Edit
	if s, ok := n.Str(); ok && ref.IsLocal(s) && len(path) > 0 && path[0] != "id" {
		if name, ok := c.ids[s]; ok {
			out = append(out, doc.Set(name, path...))
		}
	}
	for name, v := range n.Members() {
		out = append(out, c.names(v, append(slices.Clip(path), name))...)
	}
	for i, v := range n.Items() {
		out = append(out, c.names(v, append(slices.Clip(path), i))...)
	}
	return out
}

// readmeCopy is a template's README for the copy, which is run as the folder that it is. Paragraphs about making a copy are dropped.
func readmeCopy(text []byte, name string) []byte {
	paragraphs := strings.Split(strings.TrimRight(string(text), "\n"), "\n\n")
	paragraphs = slices.DeleteFunc(paragraphs, func(p string) bool { return strings.Contains(p, "--template") })
	return []byte(strings.ReplaceAll(strings.Join(paragraphs, "\n\n"), "agent-env run "+name, "agent-env run .") + "\n")
}
