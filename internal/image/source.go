package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Source is where an image comes from.
type Source struct {
	kind sourceKind
	path string // of a layout or an archive, absolute
	tag  string // in a layout or an archive; or an engine's name for an image
	ref  name.Reference
	// digest is of the one image that is meant; "" for the one that is there. Of a registry's it is in ref.
	digest string
}

type sourceKind string

const (
	fromRegistry sourceKind = "registry"
	fromLayout   sourceKind = "oci"
	fromArchive  sourceKind = "docker-archive"
	fromEngine   sourceKind = "docker-daemon"
)

// Parse reads a reference:
//
//	python:3.12, registry.example.org/team/app@sha256:…   an image of a registry
//	oci:DIR, oci:DIR:TAG                                  an OCI layout
//	docker-archive:FILE, docker-archive:FILE:TAG          what `docker save` writes, an OCI layout in a tar, or a tar of a root
//	docker-daemon:NAME                                    an image of the engine that DOCKER_HOST names
//	./DIR, ./FILE, /FILE                                  a layout or an archive, by what is there
//
// Relative paths are taken from the working folder. Each may end in @sha256:… and means that one image then, as references with digests do that
// the store answers.
func Parse(text string) (Source, error) {
	if plain, digest, ok := cutDigest(text); ok {
		s, err := parse(plain)
		if err == nil && s.kind != fromRegistry {
			s.digest = digest
			return s, nil
		}
	}
	return parse(text)
}

// cutDigest splits the digest off a reference.
func cutDigest(text string) (plain, digest string, ok bool) {
	const mark, length = "@sha256:", 64
	i := len(text) - length - len(mark)
	if i < 1 || text[i:i+len(mark)] != mark || strings.Trim(text[i+len(mark):], "0123456789abcdef") != "" {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

func parse(text string) (Source, error) {
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case text == "":
		return Source{}, errors.New("an image's reference is empty")
	case strings.ContainsRune(text, 0):
		return Source{}, errors.New("an image's reference holds a NUL byte")
	case found && sourceKind(scheme) == fromLayout, found && sourceKind(scheme) == fromArchive:
		return fileSource(sourceKind(scheme), rest)
	case found && sourceKind(scheme) == fromEngine:
		if rest == "" {
			return Source{}, errors.New("docker-daemon: names no image: docker-daemon:NAME")
		}
		return Source{kind: fromEngine, tag: rest}, nil
	case filepath.IsAbs(text), strings.HasPrefix(text, "./"), strings.HasPrefix(text, "../"), text == ".", text == "..":
		kind := fromArchive
		if fi, err := os.Stat(text); err == nil && fi.IsDir() {
			kind = fromLayout
		}
		return pathSource(kind, text, "")
	}
	ref, err := name.ParseReference(strings.TrimPrefix(text, "docker://"))
	if err != nil {
		return Source{}, fmt.Errorf("%q is no reference of an image: NAME[:TAG][@DIGEST], oci:DIR, docker-archive:FILE, docker-daemon:NAME, or a path "+
			"that begins with ./ or /", text)
	}
	return Source{kind: fromRegistry, ref: ref}, nil
}

// fileSource splits PATH[:TAG]. A path that exists is taken whole.
func fileSource(kind sourceKind, rest string) (Source, error) {
	if rest == "" {
		return Source{}, fmt.Errorf("%s: names no path", kind)
	}
	if _, err := os.Lstat(rest); err == nil {
		return pathSource(kind, rest, "")
	}
	if i := strings.LastIndexByte(rest, ':'); i > 0 && !strings.Contains(rest[i:], "/") {
		path, tag := rest[:i], rest[i+1:]
		if j := strings.LastIndexByte(path, ':'); kind == fromArchive && j > 0 { // FILE:NAME:TAG
			if _, err := os.Lstat(path); err != nil {
				path, tag = path[:j], rest[j+1:]
			}
		}
		return pathSource(kind, path, tag)
	}
	if i := strings.IndexByte(rest, ':'); i > 0 { // FILE:HOST/NAME:TAG
		return pathSource(kind, rest[:i], rest[i+1:])
	}
	return pathSource(kind, rest, "")
}

func pathSource(kind sourceKind, path, tag string) (Source, error) {
	abs, err := filepath.Abs(path)
	return Source{kind: kind, path: abs, tag: tag}, err
}

// String is the reference, the same however it was spelled.
func (s Source) String() string { return s.key() }

// Local tells whether the reference names a file of this machine or an image of its engine, which mean nothing elsewhere.
func (s Source) Local() bool { return s.kind != fromRegistry }

// Tarball is the path of the archive that a reference names; "" for other references.
func (s Source) Tarball() string {
	if s.kind == fromArchive {
		return s.path
	}
	return ""
}

// EngineName is the name that an engine of this machine has for the image; "" for references that name no engine's.
func (s Source) EngineName() string {
	if s.kind == fromEngine {
		return s.tag
	}
	return ""
}

func (s Source) key() string {
	if s.digest != "" {
		return s.plainKey() + "@" + s.digest
	}
	return s.plainKey()
}

// pinned tells whether the reference means one image for ever.
func (s Source) pinned() bool {
	if s.kind == fromRegistry {
		_, ok := s.ref.(name.Digest)
		return ok
	}
	return s.digest != ""
}

func (s Source) plainKey() string {
	switch s.kind {
	case fromRegistry:
		return s.ref.Name()
	case fromEngine:
		return string(fromEngine) + ":" + s.tag
	case fromLayout, fromArchive:
	}
	if s.tag != "" {
		return string(s.kind) + ":" + s.path + ":" + s.tag
	}
	return string(s.kind) + ":" + s.path
}

// stamp changes when what the reference names may have changed; "" for registries, whose references are asked for on demand alone.
func (s Source) stamp(ctx context.Context) (string, error) {
	path := s.path
	if s.pinned() {
		return "", nil
	}
	switch s.kind {
	case fromRegistry:
		return "", nil
	case fromEngine:
		return engineID(ctx, s.tag)
	case fromLayout:
		path = filepath.Join(path, "index.json")
	case fromArchive:
	}
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: there is no %s", ErrNotFound, path)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d-%d", fi.Size(), fi.ModTime().UnixNano()), nil
}

// opened is an image of a source, its config read and its layers not.
type opened struct {
	config *v1.ConfigFile
	digest string // of the manifest, or of the config where an engine saved the image
	ref    string // with the digest
	layers []blob // lowest first, as many as the config has diff ids
	close  func() error
}

// blob is a layer as its source has it, compressed or not.
type blob struct {
	digest string // of the bytes as they are; "" where the source doesn't say
	size   int64  // 0 where the source doesn't say
	open   func() (io.ReadCloser, error)
}

// open reads an image's manifest and config. The caller closes what it answers.
func (s *Store) open(ctx context.Context, src Source) (*opened, error) {
	var o *opened
	var err error
	switch src.kind {
	case fromRegistry:
		o, err = s.openRegistry(ctx, src.ref)
	case fromLayout:
		o, err = openLayout(src.path, src.tag)
	case fromEngine:
		o, err = s.openEngine(ctx, src.tag)
	default:
		o, err = s.openArchive(ctx, src.path, src.tag)
	}
	if err != nil {
		return nil, err
	}
	if o.ref == "" {
		o.ref = src.plainKey() + "@" + o.digest
	}
	if src.digest != "" && o.digest != src.digest {
		err := fmt.Errorf("%w: %s holds another image by now (%s)", ErrNotFound, src.plainKey(), o.digest)
		return nil, errors.Join(err, o.close())
	}
	if err := check(o); err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// maxLayers is how many layers an overlay of ours may have beside those of snapshots; engines allow about as many.
const maxLayers = 128

// check refuses what can't be run here before any layer is read.
func check(o *opened) error {
	c := o.config
	if want := platform(); (c.OS != "" || c.Architecture != "") && (c.OS != want.OS || c.Architecture != want.Architecture) {
		return fmt.Errorf("%w: this machine runs %s, the image is for %s/%s", ErrPlatform, want, c.OS, c.Architecture)
	}
	if len(c.RootFS.DiffIDs) != len(o.layers) {
		return fmt.Errorf("the image is damaged: %d layers, and diff ids of %d", len(o.layers), len(c.RootFS.DiffIDs))
	}
	if len(o.layers) == 0 || len(o.layers) > maxLayers {
		return fmt.Errorf("the image has %d layers, where 1 to %d can be mounted", len(o.layers), maxLayers)
	}
	for _, d := range c.RootFS.DiffIDs {
		if d.Algorithm != "sha256" {
			return fmt.Errorf("the image names a layer by %s, where sha256 is known", d.Algorithm)
		}
	}
	return nil
}
