package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// openArchive reads a tar of an image: one of `docker save`, a layout, or else the files of a root, which become the one layer of an image.
// A compressed one is unpacked beside the store first, since its members are read in another order than they stand in.
func (s *Store) openArchive(ctx context.Context, file, tag string) (_ *opened, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no file %s", ErrNotFound, file)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a file", file), err)
	}
	plain, packed, err := decompress(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	defer plain.Close()
	if packed {
		spooled, err := s.spool(ctx, plain)
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", file, err)
		}
		f.Close()
		f = spooled
	}
	o, err := readArchive(f, tag)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	o.close = f.Close
	return o, nil
}

// spool writes a stream to a file without a name on the store's disk.
func (s *Store) spool(ctx context.Context, r io.Reader) (*os.File, error) {
	if err := atomicfile.MkdirAll(s.o.Dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.o.Dir, ".spool-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := io.Copy(f, s.bounded(ctx, r)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// members is what is in a tar, by name.
type members struct {
	f  *os.File
	at map[string]span
}

type span struct {
	from, size int64
	link       string
}

// maxMembers bounds the index of an image's tar, which has a few members per layer.
const maxMembers = 100_000

// indexTar finds the members of a tar, the first maxMembers of them.
func indexTar(f *os.File) (*members, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	m := &members{f: f, at: map[string]span{}}
	t := tar.NewReader(f)
	for len(m.at) < maxMembers {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, err
		}
		name := path.Clean(strings.TrimLeft(h.Name, "/"))
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			m.at[name] = span{from: at, size: h.Size}
		case tar.TypeSymlink:
			m.at[name] = span{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			m.at[name] = span{link: path.Clean(h.Linkname)}
		}
	}
	return m, nil
}

func (m *members) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean(name)
	for range 10 {
		s, ok := m.at[name]
		if !ok {
			break
		}
		if s.link == "" {
			return io.NopCloser(io.NewSectionReader(m.f, s.from, s.size)), s.size, nil
		}
		name = s.link
	}
	return nil, 0, fmt.Errorf("%s is not in the archive: %w", name, fs.ErrNotExist)
}

// saved is one image in the manifest.json of `docker save`.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func readArchive(f *os.File, tag string) (*opened, error) {
	m, err := indexTar(f)
	if err != nil {
		return nil, err
	}
	switch {
	case m.has("manifest.json"):
		return readSaved(m, tag)
	case m.has("oci-layout") && m.has("index.json"):
		return readLayout(m, tag)
	case tag != "":
		return nil, fmt.Errorf("%w: it is a tar of files, which has no tags", ErrNotFound)
	case len(m.at) == 0:
		return nil, errors.New("it holds no files, so it is no image")
	}
	return rootOf(f)
}

func (m *members) has(name string) bool {
	_, ok := m.at[name]
	return ok
}

func readSaved(m *members, tag string) (*opened, error) {
	b, err := readDocument(m, "manifest.json")
	if err != nil {
		return nil, err
	}
	var all []saved
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read the archive's manifest: %w", err)
	}
	i, err := pick(all, tag)
	if err != nil {
		return nil, err
	}
	if b, err = readDocument(m, all[i].Config); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	o := &opened{digest: "sha256:" + hex.EncodeToString(sum[:])}
	if o.config, err = parseConfig(b); err != nil {
		return nil, err
	}
	for _, name := range all[i].Layers {
		size := int64(0)
		if s, ok := m.at[path.Clean(name)]; ok {
			size = s.size
		}
		o.layers = append(o.layers, blob{size: size, open: func() (io.ReadCloser, error) {
			r, _, err := m.open(name)
			return r, err
		}})
	}
	return o, nil
}

// pick is the place of the image that is meant.
func pick(all []saved, tag string) (int, error) {
	var have []string
	for _, s := range all {
		have = append(have, s.RepoTags...)
	}
	slices.Sort(have)
	switch {
	case tag == "" && len(all) == 1:
		return 0, nil
	case tag == "":
		return 0, fmt.Errorf("the archive holds %d images; name one of them after a colon: %s", len(all), strings.Join(have, ", "))
	}
	want, err := name.NewTag(tag)
	if err != nil {
		return 0, fmt.Errorf("%q is no name of an image", tag)
	}
	for i, s := range all {
		for _, t := range s.RepoTags {
			if is, err := name.NewTag(t); err == nil && is.Name() == want.Name() {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: the archive has no %s; it has %s", ErrNotFound, tag, strings.Join(have, ", "))
}

// rootOf makes an image of a tar of files: one layer, nothing configured.
func rootOf(f *os.File) (*opened, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, fi.Size())); err != nil {
		return nil, err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	c := &v1.ConfigFile{}
	c.RootFS.DiffIDs = []v1.Hash{{Algorithm: "sha256", Hex: digest}}
	return &opened{
		config: c, digest: "sha256:" + digest,
		layers: []blob{{size: fi.Size(), open: func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, fi.Size())), nil }}},
	}, nil
}
