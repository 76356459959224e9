package image

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// FuzzArchive reads tars of images: whatever they hold, reading ends, and what it answers can be unpacked or is refused.
func FuzzArchive(f *testing.F) {
	img := imageOfLayers(f, func(c *v1.ConfigFile) { c.Config.User = "7" }, layerTar(f, entry{name: "a", body: "1"}))
	var saved bytes.Buffer
	if err := tarball.Write(must(name.NewTag("a/b:1")), img, &saved); err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	if err := must(layout.Write(dir, empty.Index)).AppendImage(img); err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{saved.Bytes(), tarOfFolder(f, dir), layerTar(f, entry{name: "x", body: "y"}), []byte("no tar"), nil} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := os.CreateTemp(t.TempDir(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Write(b); err != nil {
			t.Fatal(err)
		}
		o, err := readArchive(file, "")
		if err != nil {
			return
		}
		if check(o) != nil {
			return
		}
		configOf(o.config)
		if !strings.HasPrefix(o.digest, "sha256:") {
			t.Errorf("digest %q", o.digest)
		}
		for _, l := range o.layers {
			r, err := l.open()
			if err != nil {
				continue
			}
			_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
			r.Close()
		}
	})
}

// memory is a layout that is made of one document, which stands under every name.
type memory struct{ b []byte }

func (m memory) open(name string) (io.ReadCloser, int64, error) {
	if strings.Contains(name, "..") || strings.HasPrefix(name, "/") {
		return nil, 0, fs.ErrPermission
	}
	return io.NopCloser(bytes.NewReader(m.b)), int64(len(m.b)), nil
}

// FuzzDocuments reads indexes, manifests and configs: no name that they hold leads out of the layout.
func FuzzDocuments(f *testing.F) {
	img := imageOfLayers(f, nil, layerTar(f, entry{name: "a"}))
	f.Add(must(img.RawManifest()))
	f.Add(must(img.RawConfigFile()))
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:../../../../etc/passwd"}]}`))
	f.Add([]byte(`[{"Config":"../../etc/passwd","Layers":["/etc/shadow"]}]`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if o, err := readLayout(memory{b}, ""); err == nil {
			_ = check(o)
		}
		if o, err := readImage(memory{b}, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}); err == nil {
			_ = check(o)
		}
		if c, err := parseConfig(b); err == nil {
			configOf(c)
		}
	})
}

// FuzzReference: what is taken for a reference has one spelling that means the same.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"debian:12", "oci:dir:tag", "docker-archive:f.tar:a/b:1", "docker-daemon:x", "./x", "/x/y", "a@sha256:" + strings.Repeat("0", 64), "oci:", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if s.key() == "" {
			t.Fatalf("%q has no key", text)
		}
		if s.kind == fromLayout || s.kind == fromArchive { // a path that is there is taken whole, so its spelling says nothing here
			if !filepath.IsAbs(s.path) {
				t.Errorf("%q leads to %q", text, s.path)
			}
			return
		}
		again, err := Parse(s.key())
		if err != nil || again.key() != s.key() {
			t.Errorf("%q is %q, which is %q, %v", text, s.key(), again.key(), err)
		}
	})
}
