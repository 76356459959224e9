package export

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// artifact fills the folder of an artifact or skill.
func (f *folder) artifact(ctx context.Context, d store.Doc, n doc.Node) error {
	if t, ok := f.x.options.Bundle.Added(bundle.Artifacts, d.Type); ok {
		return f.added(ctx, d, n, t)
	}
	if d.Type != artifact.Skill {
		f.set("type", d.Type)
	}
	switch d.Type {
	case artifact.File, artifact.FileUniverse:
		return f.plain(d, n)
	case artifact.Environment:
		return f.environment(ctx, n)
	case artifact.EnvironmentUniverse:
		return f.universe(ctx, n)
	case artifact.Skill:
		return f.filesOf(ctx, n, "skill_files", "SKILL.md")
	case artifact.CLI:
		f.set("command_name", n.Get("command_name").Text())
		f.set("entrypoint", n.Get("entrypoint").Text())
		return f.filesOf(ctx, n, "cli_files", n.Get("entrypoint").Text())
	default:
		return f.imageArtifact(d, n)
	}
}

// plain fills the folder of a file, or of files.
func (f *folder) plain(d store.Doc, n doc.Node) error {
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return cant("%s", err)
	}
	if text := n.Get("description").Text(); d.Type == artifact.File && text != files[0].Path {
		f.set("description", text)
	}
	if err := f.add(files, ""); err != nil {
		return err
	}
	if len(f.files) == 0 {
		return cant("none of its files counts as content")
	}
	return nil
}

// filesOf fills the folder with the universe that a document names in <field>_ref. needs must be among its files.
func (f *folder) filesOf(ctx context.Context, n doc.Node, field, needs string) error {
	at := n.Get(field + "_ref")
	if at.Kind() != doc.Object { // documents of other programs name the id alone
		at = doc.Build(map[string]any{"id": n.Get(field + "_id").Text()})
	}
	files, _, err := f.bytesOf(ctx, "universe of files", at, artifact.FileUniverse)
	if err != nil {
		return err
	}
	if err := f.add(files, ""); err != nil {
		return err
	}
	if _, ok := f.files[needs]; !ok {
		return cant("it has no file %s", diag.Repr(needs))
	}
	return nil
}

// environment fills the folder of environment data: with its file where that belongs to it, else with the name of the file's own folder.
func (f *folder) environment(ctx context.Context, n doc.Node) error {
	f.set("environment_name", nameOf(n))
	at := n.Get("file_artifact_ref")
	if p, _ := pinOf(at); p.ID == ref.Derived(f.id, "file") {
		files, d, err := f.bytesOf(ctx, "file", at, artifact.File)
		if err != nil {
			return err
		}
		t, _ := doc.ParseJSON("", d.Body)
		if text := t.Root().Get("description").Text(); text != files[0].Path {
			f.set("description", text)
		}
		if err := f.add(files, ""); err != nil {
			return err
		}
		if len(f.files) == 0 {
			return cant("its file never counts as content of a bundle")
		}
		return nil
	}
	v, err := f.reference(ctx, "file", ref.Artifact, at, artifact.File)
	if err == nil {
		f.set("file", v)
	}
	return err
}

// nameOf is the environment_name of a document, by either of its spellings.
func nameOf(n doc.Node) string {
	return cmp.Or(n.Get("environment_name").Text(), n.Get("service_name").Text())
}

// universe fills the folder of environments that belong together: what belongs to it alone becomes a folder of it, the others are named.
func (f *folder) universe(ctx context.Context, n doc.Node) error {
	refs := n.Get("environment_artifact_refs")
	if refs.Kind() != doc.Array {
		refs = n.Get("service_artifact_refs")
	}
	var named []any
	for i, at := range refs.Items() {
		own, err := f.child(ctx, at)
		if err != nil {
			return err
		}
		if own {
			continue
		}
		v, err := f.reference(ctx, fmt.Sprintf("environment_artifacts[%d]", i), ref.Artifact, at, artifact.Environment)
		if err != nil {
			return err
		}
		named = append(named, v)
	}
	if len(named) > 0 {
		f.set("environment_artifacts", named)
	}
	for name, at := range n.Get("metadata_refs").Members() {
		files, _, err := f.bytesOf(ctx, "metadata "+diag.Repr(name), at, artifact.File)
		if err != nil {
			return err
		}
		if !folderName(name) || len(files[0].Path) == 0 || leaving(files[0].Path) != "" {
			return cant("its metadata %s, the file %s, can't be a folder", diag.Repr(name), diag.Repr(files[0].Path))
		}
		if err := f.add(files, metadata+"/"+name); err != nil {
			return err
		}
	}
	if len(named) == 0 && refs.Len() == 0 {
		return cant("it holds no environment")
	}
	return nil
}

// metadata is the folder of a universe whose folders are no environments.
const metadata = "metadata"

// child writes an environment that belongs to the universe as a folder of it. It is false for one that belongs to nobody, or that no folder can be.
func (f *folder) child(ctx context.Context, at doc.Node) (bool, error) {
	p, _ := pinOf(at)
	name, ok := strings.CutPrefix(p.ID, ref.Derived(f.id, ""))
	if !ok || !folderName(name) || f.top(name) != nil || ref.Fold(name) == metadata {
		return false, nil
	}
	d, a, err := f.x.read(ctx, ref.Artifact, p.ID, p.Version)
	if err != nil || a.why != "" || d.Type != artifact.Environment || nameOf(a.doc) != name {
		return false, err // the reference is looked at as any other, and told of
	}
	file := a.doc.Get("file_artifact_ref")
	if own, _ := pinOf(file); own.ID != ref.Derived(p.ID, "file") {
		return false, nil
	}
	files, _, err := f.bytesOf(ctx, "file", file, artifact.File)
	if err != nil {
		return false, err
	}
	if leaving(files[0].Path) != "" {
		return false, nil
	}
	return true, f.add(files, name)
}

// folderName tells whether a name can be a folder of a universe.
func folderName(name string) bool {
	return ref.CheckSegment(name) == nil && !strings.Contains(name, ref.DerivedMark) && !bundle.Leaving(name) && ref.IsNFC(name)
}

// imageArtifact fills the folder of an artifact that is an image.
func (f *folder) imageArtifact(d store.Doc, n doc.Node) error {
	img, err := imageOf(d)
	if err != nil {
		return err
	}
	if text := n.Get("description").Text(); text != "" {
		f.set("description", text)
	}
	switch {
	case len(img.Files) == 0:
		f.set("ref", img.Name)
	case img.Dockerfile != dockerfileName:
		return cant("it is built from %s, and the folder of an image is built from its %s", diag.Repr(img.Dockerfile), dockerfileName)
	}
	if _, err := f.merge(img.Files); err != nil {
		return err
	}
	f.built("", d, img)
	return nil
}

// merge puts the files of a build context into the folder, except for the toml, which is written anew. It is false, and nothing is done, where the
// folder holds another file of a name already.
func (f *folder) merge(files []artifact.Bytes) (bool, error) {
	files = slices.DeleteFunc(slices.Clone(files), func(b artifact.Bytes) bool { return b.Path == f.config() })
	for _, b := range files {
		if have, ok := f.files[b.Path]; ok && (have.object != b.Digest || have.mode != b.Mode || have.link != b.Link) {
			return false, nil
		}
	}
	return true, f.add(files, "")
}
