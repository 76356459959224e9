package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// files is a folder of named files: a layout, or what is in a tar.
type files interface {
	// open answers a file and its size; fs.ErrNotExist when there is none. The name is relative, with slashes.
	open(name string) (io.ReadCloser, int64, error)
}

// maxDocument bounds manifests and configs, which are kilobytes.
const maxDocument = 8 << 20

func readDocument(f files, name string) ([]byte, error) {
	r, size, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxDocument {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxDocument)
	}
	return io.ReadAll(io.LimitReader(r, maxDocument))
}

// readBlob reads a document of a layout and checks it by its digest.
func readBlob(f files, h v1.Hash) ([]byte, error) {
	name, err := blobName(h)
	if err != nil {
		return nil, err
	}
	b, err := readDocument(f, name)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != h.Hex {
		return nil, fmt.Errorf("the image is damaged: %s has other bytes than its name says", name)
	}
	return b, nil
}

func blobName(h v1.Hash) (string, error) {
	if h.Algorithm != "sha256" || len(h.Hex) != 64 {
		return "", fmt.Errorf("the digest %q is not of sha256", h)
	}
	return path.Join("blobs", h.Algorithm, h.Hex), nil
}

// folder is a layout on the disk. Links in it lead nowhere outside.
type folder struct{ root *os.Root }

func (d folder) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, fi.Size(), nil
}

func openLayout(dir, tag string) (*opened, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no folder %s", ErrNotFound, dir)
	}
	if err != nil {
		return nil, err
	}
	o, err := readLayout(folder{root}, tag)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s is no OCI layout: %w", dir, err)
		}
		return nil, errors.Join(err, root.Close())
	}
	o.close = root.Close
	return o, nil
}

const refName = "org.opencontainers.image.ref.name"

// readLayout takes the image of a layout: the one of the tag, or the only one that this machine can run.
func readLayout(f files, tag string) (*opened, error) {
	b, err := readDocument(f, "index.json")
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read the layout's index: %w", err)
	}
	if tag != "" {
		var kept []v1.Descriptor
		for _, d := range index.Manifests {
			if d.Annotations[refName] == tag || d.Annotations["io.containerd.image.name"] == tag || d.Digest.String() == tag {
				kept = append(kept, d)
			}
		}
		if len(kept) == 0 {
			return nil, fmt.Errorf("%w: the layout has no %q", ErrNotFound, tag)
		}
		index.Manifests = kept
	}
	return chooseIn(f, index, 0)
}

// maxNesting is how deep indexes may lie in indexes.
const maxNesting = 4

func chooseIn(f files, index *v1.IndexManifest, depth int) (*opened, error) {
	if depth > maxNesting {
		return nil, errors.New("the layout's indexes are nested too deeply")
	}
	if len(index.Manifests) == 1 && index.Manifests[0].MediaType.IsIndex() {
		b, err := readBlob(f, index.Manifests[0].Digest)
		if err != nil {
			return nil, err
		}
		inner, err := v1.ParseIndexManifest(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("read the image's index: %w", err)
		}
		return chooseIn(f, inner, depth+1)
	}
	return choose(func() (*v1.IndexManifest, error) { return index, nil }, func(h v1.Hash) (*opened, error) { return readImage(f, h) })
}

// readImage reads an image of a layout by its manifest's digest.
func readImage(f files, h v1.Hash) (*opened, error) {
	b, err := readBlob(f, h)
	if err != nil {
		return nil, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read the image's manifest: %w", err)
	}
	if err := checkManifest(m); err != nil {
		return nil, err
	}
	if b, err = readBlob(f, m.Config.Digest); err != nil {
		return nil, err
	}
	o := &opened{digest: h.String(), close: func() error { return nil }}
	if o.config, err = parseConfig(b); err != nil {
		return nil, err
	}
	for _, l := range m.Layers {
		name, err := blobName(l.Digest)
		if err != nil {
			return nil, err
		}
		o.layers = append(o.layers, blob{digest: l.Digest.String(), size: l.Size, open: func() (io.ReadCloser, error) {
			r, _, err := f.open(name)
			return r, err
		}})
	}
	return o, nil
}

func parseConfig(b []byte) (*v1.ConfigFile, error) {
	c := &v1.ConfigFile{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("read the image's config: %w", err)
	}
	return c, nil
}
