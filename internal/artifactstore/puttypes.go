package artifactstore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

func isFolder(p string) bool {
	fi, err := os.Stat(p)
	return err == nil && fi.IsDir()
}

// read reads a small file among those that are put. ok is false when there is none of that name, or it can't be read, which is a fault.
func (b *builder) read(dir, name string) (src []byte, ok bool) {
	for _, f := range b.files {
		if f.path != name || !f.plain() {
			continue
		}
		r, err := f.open()
		if err != nil {
			b.fault(slash(dir, name), "put.read", "%s", reason(err))
			return nil, false
		}
		defer r.Close()
		src, err = io.ReadAll(io.LimitReader(r, doc.MaxConfig+1))
		switch {
		case err != nil:
			b.fault(slash(dir, name), "put.read", "%s", reason(err))
			return nil, false
		case len(src) > doc.MaxConfig:
			b.fault(slash(dir, name), "put.read", "larger than 8 MiB")
			return nil, false
		}
		return src, true
	}
	return nil, false
}

const skillFile = "SKILL.md"

func (b *builder) skill() {
	p, ok := b.oneFolder()
	if !ok {
		return
	}
	before := len(b.faults)
	src, ok := b.read(p, skillFile)
	if !ok {
		if len(b.faults) == before {
			b.fault(p, "skill.none", "there is no file %s at its top", skillFile)
		}
		return
	}
	front, l := artifact.ReadSkill(slash(p, skillFile), src, ref.Last(b.ID))
	for _, f := range l { // the folder's name doesn't matter here, the id's does
		f.Summary = strings.Replace(f.Summary, "it must be the folder's,", "it must be the last part of the id,", 1)
		b.faults.Add(f)
	}
	b.draft.documents = func(p artifact.Pin, files []artifact.Bytes, _ []store.Doc, child artifact.Versions) ([]artifact.Document, error) {
		return artifact.NewSkill(p, front, files, child), nil
	}
}

// image puts a build context, or a registry's image that is pinned.
func (b *builder) image() {
	switch {
	case b.Ref != "" && len(b.Paths) > 0:
		b.fault("--ref", "put.flag", "an image is put either from a folder or by reference; leave one out")
		return
	case b.Ref != "":
		b.imageRef()
		return
	}
	p, ok := b.oneFolder()
	if !ok {
		return
	}
	dockerfile := b.Dockerfile
	if dockerfile == "" {
		dockerfile = "Dockerfile"
	}
	dockerfile = path.Clean(filepath.ToSlash(dockerfile))
	if !b.has(dockerfile) && isFolder(p) {
		b.fault(p, "image.dockerfile", "there is no file %s in it; name the one to build from with --dockerfile", diag.Repr(dockerfile))
	}
	if src, ok := b.read(p, artifact.IgnoreFile); ok {
		ignore, l := artifact.ParseIgnore(slash(p, artifact.IgnoreFile), src, dockerfile)
		b.faults.Add(l...)
		b.files = without(b.files, ignore)
	}
	about := b.Description
	if about == "" {
		about = "built from " + dockerfile
	}
	b.draft.documents = func(p artifact.Pin, files []artifact.Bytes, _ []store.Doc, _ artifact.Versions) ([]artifact.Document, error) {
		return []artifact.Document{artifact.NewImage(p, dockerfile, about, files)}, nil
	}
}

// without leaves out what a context's ignore file names. A folder that it doesn't name stays, empty if need be.
func without(files []source, ignore artifact.Ignore) []source {
	var kept []source
	folders := map[string]bool{}
	filled := map[string]bool{} // folders with something in them that stays
	fill := func(p string) {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			filled[dir] = true
		}
	}
	for _, f := range files {
		for dir := path.Dir(f.path); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
		if !ignore.Match(f.path) {
			kept = append(kept, f)
			fill(f.path)
		}
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(folders))) { // what lies below a folder comes before it
		if !filled[dir] && !ignore.Match(dir) {
			kept = append(kept, source{path: dir, folder: true})
			fill(dir)
		}
	}
	slices.SortFunc(kept, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return kept
}

// has tells whether a file is among those that are put.
func (b *builder) has(name string) bool {
	for _, f := range b.files {
		if f.path == name && f.plain() {
			return true
		}
	}
	return false
}

// imageRef takes "host/repository[:tag]@sha256:…", or an image of this machine: "oci:/dir@sha256:…", "docker-archive:/file@sha256:…",
// "docker-daemon:name@sha256:…". What a tag means today only its registry knows.
func (b *builder) imageRef() {
	if b.Dockerfile != "" {
		b.fault("--dockerfile", "put.flag", "an image put by reference has none")
	}
	image, digest, pinned := strings.Cut(b.Ref, "@")
	scheme, file, _ := strings.Cut(image, ":")
	host, rest, _ := strings.Cut(image, "/")
	here := (scheme == "oci" || scheme == "docker-archive") && path.IsAbs(file) || scheme == "docker-daemon" && file != ""
	switch {
	case !here && (rest == "" || host != "localhost" && !strings.ContainsAny(host, ".:")):
		b.fault("--ref", "image.ref", "%s doesn't spell its registry; write it as registry.example/name:tag@sha256:…", diag.Repr(b.Ref))
	case strings.ContainsFunc(b.Ref, func(r rune) bool { return r <= ' ' || r > '~' }):
		b.fault("--ref", "image.ref", "%s is no reference to an image", diag.Repr(b.Ref))
	case !pinned:
		b.fault("--ref", "image.pin", "%s can mean another image tomorrow, and nothing is asked of registries here; add the digest that it has today: %s@sha256:…", diag.Repr(b.Ref), image)
	case !ref.Digest(digest).Valid():
		b.fault("--ref", "image.pin", "%s is no digest; write sha256: and 64 digits", diag.Repr(digest))
	}
	b.draft.documents = func(p artifact.Pin, _ []artifact.Bytes, _ []store.Doc, _ artifact.Versions) ([]artifact.Document, error) {
		return []artifact.Document{artifact.NewImageOf(p, image, ref.Digest(digest), b.Description)}, nil
	}
}

// environment puts data for one environment: a file, a folder packed into one, or a file artifact that is stored already.
func (b *builder) environment(ctx context.Context) error {
	if b.EnvironmentName == "" {
		b.fault("--environment-name", "environment.name", "is missing: which environment is the data for?")
	}
	given := 0
	for _, is := range []bool{len(b.Paths) > 0, b.File != "", b.Tree != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		b.faults.Add(diag.Problem{Code: "put.paths", Summary: "an environment is put from a file, from --tree or from --file; leave the others out"})
		return nil
	case b.Tree != "":
		if err := b.tree(ctx); err != nil {
			return err
		}
	case b.File != "":
		b.environmentOf()
		return nil
	default:
		if p, ok := b.onePath("file"); ok {
			b.sources.file(p, base(p))
		}
	}
	b.draft.documents = func(p artifact.Pin, files []artifact.Bytes, _ []store.Doc, child artifact.Versions) ([]artifact.Document, error) {
		return artifact.NewOwnEnvironment(p, b.EnvironmentName, files[0], b.Description, child), nil
	}
	return nil
}

// environmentOf wraps a stored file.
func (b *builder) environmentOf() {
	if b.Description != "" {
		b.fault("--description", "environment.description", "is for a file that is put, and --file names one that is stored; drop one")
	}
	refs := b.refs("--file", []string{b.File})
	b.draft.pins = func(ctx context.Context) ([]store.Doc, diag.List, error) { return b.resolve(ctx, refs, artifact.File) }
	b.draft.documents = func(p artifact.Pin, _ []artifact.Bytes, pins []store.Doc, _ artifact.Versions) ([]artifact.Document, error) {
		return []artifact.Document{artifact.NewEnvironment(p, b.EnvironmentName, artifact.Pin{ID: pins[0].ID, Version: pins[0].Version})}, nil
	}
}

// tree packs a folder into the one file of an environment.
func (b *builder) tree(ctx context.Context) error {
	as := b.EnvironmentName + artifact.TreeSuffix
	if strings.ContainsAny(as, "/\x00") || len(as) > longest {
		b.fault("--environment-name", "environment.name", "a tree is stored as a file of this name, and %s can't name one", diag.Repr(b.EnvironmentName))
		return nil
	}
	scratch, err := atomicfile.NewScratch("agent-env-tree")
	if err != nil {
		return err
	}
	b.temps = append(b.temps, func() { _ = scratch.Remove() })
	f, err := os.Create(filepath.Join(scratch.Dir, "tree"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := PackTree(ctx, b.Tree, f); err != nil {
		l, told := diag.From(err)
		if !told {
			return err
		}
		b.faults.Add(l...)
		return nil
	}
	b.add(source{path: as, open: func() (io.ReadCloser, error) {
		r, err := os.Open(f.Name())
		if err != nil {
			return nil, err
		}
		return packed{r}, nil
	}})
	return nil
}

// packed is a file that was made here: its mode is a file's usual one.
type packed struct{ *os.File }

func (p packed) Stat() (fs.FileInfo, error) {
	fi, err := p.File.Stat()
	return packedInfo{fi}, err
}

type packedInfo struct{ fs.FileInfo }

func (packedInfo) Mode() fs.FileMode { return 0o644 }

// universe puts environments that belong together: those of a folder, then stored ones.
func (b *builder) universe() {
	switch len(b.Paths) {
	case 0:
	case 1:
		b.universeFolder(b.Paths[0])
	default:
		b.onePath("folder")
	}
	own := map[string]string{} // where each environment's name comes from
	for _, f := range b.files {
		if dir := path.Dir(f.path); !strings.HasPrefix(dir, "metadata/") {
			own[ref.NFC(dir)] = slash(b.Paths[0], dir)
		}
	}
	b.metadata()
	refs := b.refs("--environment-artifact", b.Environments)
	if len(own) == 0 && len(b.Environments) == 0 && len(b.faults) == 0 {
		b.faults.Add(diag.Problem{Code: "universe.empty", Summary: "a universe needs an environment", Fix: "name a folder that holds <environment>/<file>, or stored ones with --environment-artifact"})
	}
	b.draft.pins = func(ctx context.Context) ([]store.Doc, diag.List, error) {
		docs, l, err := b.resolve(ctx, refs, artifact.Environment)
		taken := map[string]string{}
		maps.Copy(taken, own)
		for _, d := range docs {
			env := artifact.EnvironmentName(d.Body)
			if other, twice := taken[env]; twice {
				l.Add(diag.Problem{
					Where: "--environment-artifact", Code: "universe.same",
					Summary: fmt.Sprintf("%s is for the environment %s, as %s is; a universe has each name once", name(d.ID, d.Version), diag.Repr(env), diag.Clean(other)),
				})
				continue
			}
			taken[env] = name(d.ID, d.Version)
		}
		return docs, l, err
	}
	b.draft.documents = func(p artifact.Pin, files []artifact.Bytes, pins []store.Doc, child artifact.Versions) ([]artifact.Document, error) {
		named := make([]artifact.Pin, len(pins))
		for i, d := range pins {
			named[i] = artifact.Pin{ID: d.ID, Version: d.Version}
		}
		return artifact.NewUniverse(p, files, named, child), nil
	}
}

// universeFolder reads a folder laid out as Get lays one out, by the rules of bundles.
func (b *builder) universeFolder(p string) {
	src, err := bundle.OpenDir(p)
	if err != nil {
		b.fault(p, "put.read", "%s", err)
		return
	}
	b.opened = append(b.opened, src)
	if _, err := fs.Stat(src.FS, "artifact.toml"); err == nil {
		b.fault(slash(p, "artifact.toml"), "universe.bundle", "this folder is part of a bundle; register the bundle, or take the file away and name other environments with --environment-artifact")
		return
	}
	u, l := bundle.ReadUniverse(src, diag.Clean(strings.TrimSuffix(p, "/")), b.ID)
	b.faults.Add(l...)
	for _, parts := range [][]bundle.Part{u.Environments, u.Metadata} {
		for _, part := range parts {
			b.add(source{path: part.File.Path, open: part.File.Open})
		}
	}
}

// metadata adds the files of "key=path".
func (b *builder) metadata() {
	have := map[string]bool{}
	for _, f := range b.files {
		have[path.Dir(f.path)] = true
	}
	for _, text := range b.Metadata {
		key, file, ok := strings.Cut(text, "=")
		key = ref.NFC(key)
		dir := "metadata/" + key
		switch {
		case !ok || key == "" || file == "":
			b.fault("--metadata", "universe.metadata", "%s is no KEY=FILE", diag.Repr(text))
			continue
		case strings.Contains(key, ref.DerivedMark):
			b.fault("--metadata", "universe.name", "%q is kept for derived ids, so no key holds it: %s", ref.DerivedMark, diag.Repr(key))
			continue
		case ref.CheckSegment(key) != nil:
			b.fault("--metadata", "universe.name", "no key: %s", ref.CheckSegment(key))
			continue
		case have[dir]:
			b.fault("--metadata", "universe.same", "the key %s comes twice", diag.Repr(key))
			continue
		}
		have[dir] = true
		b.sources.file(file, dir+"/"+base(file))
	}
}
