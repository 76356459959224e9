package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// entry is one member of a layer. A name that ends in a slash is a folder.
type entry struct {
	name, body, link string
	typ              byte
	mode             int64
	uid, gid         int
	pax              map[string]string
}

func layerTar(t testing.TB, es ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range es {
		h := &tar.Header{Name: e.name, Typeflag: e.typ, Mode: e.mode, Size: int64(len(e.body)), Linkname: e.link, Uid: e.uid, Gid: e.gid, PAXRecords: e.pax}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(e.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func imageOfLayers(t testing.TB, config func(*v1.ConfigFile), layers ...[]byte) v1.Image {
	t.Helper()
	img := empty.Image
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = platform().OS, platform().Architecture
	if config != nil {
		config(c)
	}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// hub is a registry of this process.
type hub struct {
	host    string
	mu      sync.Mutex
	blobs   int // of layers and configs, that were sent
	handler func(http.ResponseWriter, *http.Request) bool
}

func newHub(t testing.TB) *hub {
	h := &hub{}
	reg := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		handler := h.handler
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			h.blobs++
		}
		h.mu.Unlock()
		if handler == nil || !handler(w, r) {
			reg.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	h.host = strings.TrimPrefix(srv.URL, "http://")
	return h
}

func (h *hub) push(t testing.TB, ref string, img v1.Image) string {
	t.Helper()
	text := h.host + "/" + ref
	r, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
	return text
}

func newStore(t testing.TB) *Store {
	t.Helper()
	tr := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(tr.CloseIdleConnections)
	return Open(Options{Dir: filepath.Join(t.TempDir(), "images"), Floor: -1, Transport: tr})
}

func rootOfRef(t testing.TB, s *Store, ref string) *Root {
	t.Helper()
	r, release, err := s.Root(t.Context(), ref, nil)
	if err != nil {
		t.Fatalf("%s: %v", ref, err)
	}
	t.Cleanup(release)
	return r
}

// listing is what a layer holds: "d755 0:0 name", "f4755 0:42 name=body", "l name->to", "w name" for a whiteout, with "!" for an opaque folder.
func listing(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		uid, gid, _ := ownerOf(fi)
		own := fmt.Sprintf("%d:%d", uid, gid)
		switch {
		case d.IsDir():
			mark := ""
			if opaque(p) {
				mark = "!"
			}
			out = append(out, fmt.Sprintf("d%o%s %s %s", unixBits(fi.Mode()), mark, own, rel))
		case fi.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			out = append(out, fmt.Sprintf("l %s %s->%s", own, rel, to))
		case fi.Mode()&fs.ModeCharDevice != 0:
			out = append(out, "w "+rel)
		case fi.Mode()&fs.ModeNamedPipe != 0:
			out = append(out, fmt.Sprintf("p%o %s %s", unixBits(fi.Mode()), own, rel))
		default:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			out = append(out, fmt.Sprintf("f%o %s %s=%s", unixBits(fi.Mode()), own, rel, b))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func unixBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
}

// An image of a registry becomes one folder per layer, with owners, bits and marks as an overlay wants them.
func TestRegistry(t *testing.T) {
	needRoot(t)
	h, s := newHub(t), newStore(t)
	img := imageOfLayers(t, func(c *v1.ConfigFile) {
		c.Config = v1.Config{User: "www", Env: []string{"A=b", "broken"}, WorkingDir: "/srv", Entrypoint: []string{"/bin/x"}, Cmd: []string{"y"}}
	},
		layerTar(t, entry{name: "./", mode: 0o751}, entry{name: "srv/", mode: 0o2750, uid: 33, gid: 42}, entry{name: "srv/a", body: "1", mode: 0o4755, gid: 42},
			entry{name: "srv/b", typ: tar.TypeLink, link: "srv/a"}, entry{name: "etc/"}, entry{name: "etc/abs", typ: tar.TypeSymlink, link: "/nowhere", uid: 7},
			entry{name: "old/"}, entry{name: "old/x", body: "x"}, entry{name: "gone", body: "x"}),
		layerTar(t, entry{name: "srv/new", body: "2", uid: 33}, entry{name: ".wh.gone"}, entry{name: "old/.wh..wh..opq"}, entry{name: "old/y", body: "y"},
			entry{name: "pipe", typ: tar.TypeFifo, mode: 0o620}, entry{name: "dev/null", typ: tar.TypeChar}, entry{name: ".wh.swap"}, entry{name: "swap", body: "s"},
			entry{name: "twice", body: "first"}, entry{name: "twice", body: "second"}))
	ref := h.push(t, "team/app:1", img)
	root := rootOfRef(t, s, ref)
	if len(root.Layers) != 2 || root.Owners != OwnersAll || root.Unowned != 0 {
		t.Fatalf("%+v", root)
	}
	want := Config{User: "www", Env: []string{"A=b"}, WorkingDir: "/srv", Entrypoint: []string{"/bin/x"}, Cmd: []string{"y"}}
	if got, _ := json.Marshal(root.Config); string(got) != string(must(json.Marshal(want))) {
		t.Errorf("config %s", got)
	}
	if d, _ := img.Digest(); root.Digest != d.String() || root.Ref != h.host+"/team/app@"+d.String() {
		t.Errorf("digest %s, ref %s", root.Digest, root.Ref)
	}
	lower := []string{
		"d751 0:0 .", "d755 0:0 etc", "l 7:0 etc/abs->/nowhere", "f644 0:0 gone=x", "d755 0:0 old", "f644 0:0 old/x=x", "d2750 33:42 srv", "f4755 0:42 srv/a=1", "f4755 0:42 srv/b=1",
	}
	upper := []string{ // what the layer has no entry of is as below
		"d751 0:0 .", "d755 0:0 dev", "w gone", "d755! 0:0 old", "f644 0:0 old/y=y", "p620 0:0 pipe", "d2750 33:42 srv", "f644 33:0 srv/new=2", "f644 0:0 swap=s", "f644 0:0 twice=second",
	}
	if got := listing(t, root.Layers[1]); !slices.Equal(got, lower) {
		t.Errorf("lower\n%q\nwant\n%q", got, lower)
	}
	if got := listing(t, root.Layers[0]); !slices.Equal(got, upper) {
		t.Errorf("upper\n%q\nwant\n%q", got, upper)
	}
	a, _ := os.Stat(root.Layers[1] + "/srv/a")
	b, _ := os.Stat(root.Layers[1] + "/srv/b")
	if !os.SameFile(a, b) {
		t.Error("hard links are two files")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What is here is not asked for again; layers that images share come once.
func TestOnce(t *testing.T) {
	h, s := newHub(t), newStore(t)
	base := layerTar(t, entry{name: "base", body: "b"})
	one := h.push(t, "one:1", imageOfLayers(t, nil, base, layerTar(t, entry{name: "one", body: "1"})))
	two := h.push(t, "two:1", imageOfLayers(t, nil, base, layerTar(t, entry{name: "two", body: "2"})))
	r1 := rootOfRef(t, s, one)
	h.blobs = 0
	r2 := rootOfRef(t, s, two)
	if h.blobs != 2 { // its config and its own layer
		t.Errorf("%d blobs for a layer and a config", h.blobs)
	}
	if r1.Layers[1] != r2.Layers[1] {
		t.Error("the base was unpacked twice")
	}
	h.handler = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return true }
	rootOfRef(t, s, one)
	if _, _, err := s.Pull(t.Context(), one, nil); err == nil {
		t.Error("a pull asked nobody")
	}
}

// Several that want one image at once get one.
func TestAtOnce(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "app:1", imageOfLayers(t, nil, layerTar(t, entry{name: "a", body: "1"}), layerTar(t, entry{name: "b", body: "2"})))
	s := newStore(t)
	h.blobs = 0
	var wg sync.WaitGroup
	for range 8 {
		other := Open(s.o) // as another process has
		wg.Go(func() {
			_, release, err := other.Root(t.Context(), ref, nil)
			if err != nil {
				t.Error(err)
				return
			}
			release()
		})
	}
	wg.Wait()
	if h.blobs > 8+2 { // everybody's look at the config, and each layer once
		t.Errorf("%d blobs sent", h.blobs)
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Layers != 2 || all[0].InUse {
		t.Errorf("%+v, %v", all, err)
	}
}

// The platform is looked at before any layer, also of a manifest that stands alone.
func TestPlatform(t *testing.T) {
	h, s := newHub(t), newStore(t)
	foreign := imageOfLayers(t, func(c *v1.ConfigFile) { c.Architecture = "s390x" }, layerTar(t, entry{name: "a"}))
	own := imageOfLayers(t, nil, layerTar(t, entry{name: "b"}))
	_, _, err := s.Root(t.Context(), h.push(t, "foreign:1", foreign), nil)
	if !errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), "linux/s390x") || !strings.Contains(err.Error(), platform().String()) {
		t.Error(err)
	}
	index := func(images ...v1.Image) v1.ImageIndex {
		ix := v1.ImageIndex(empty.Index)
		for _, img := range images {
			c := must(img.ConfigFile())
			ix = mutate.AppendManifests(ix, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: c.OS, Architecture: c.Architecture}}})
		}
		return ix
	}
	write := func(ref string, ix v1.ImageIndex) string {
		r := must(name.ParseReference(h.host + "/" + ref))
		if err := remote.WriteIndex(r, ix); err != nil {
			t.Fatal(err)
		}
		return r.Name()
	}
	if r := rootOfRef(t, s, write("many:1", index(foreign, own))); r.Digest != must(own.Digest()).String() {
		t.Errorf("chose %s", r.Digest)
	}
	if _, _, err := s.Root(t.Context(), write("none:1", index(foreign)), nil); !errors.Is(err, ErrPlatform) {
		t.Error(err)
	}
}

// Every form that an image's files come in is the same image.
func TestForms(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	layer := layerTar(t, entry{name: "hello", body: "world"})
	img := imageOfLayers(t, nil, layer)
	lay := filepath.Join(dir, "lay:out")
	p := must(layout.Write(lay, empty.Index))
	if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{refName: "v1"})); err != nil {
		t.Fatal(err)
	}
	tag := must(name.NewTag("team/app:1"))
	saved := filepath.Join(dir, "saved.tar")
	if err := tarball.WriteToFile(saved, tag, img); err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(dir, "saved.tar.gz")
	write(t, packed, gzipped(t, must(os.ReadFile(saved))))
	ociTar := filepath.Join(dir, "oci.tar")
	write(t, ociTar, tarOfFolder(t, lay))
	plain := filepath.Join(dir, "root.tar.zst")
	write(t, plain, zstded(t, layer))
	for _, ref := range []string{
		"oci:" + lay, "oci:" + lay + ":v1", lay, "docker-archive:" + saved, "docker-archive:" + saved + ":team/app:1", saved, packed, ociTar, plain,
	} {
		r := rootOfRef(t, s, ref)
		if b, err := os.ReadFile(filepath.Join(r.Layers[0], "hello")); err != nil || string(b) != "world" {
			t.Errorf("%s: %q, %v", ref, b, err)
		}
		if len(r.Digest) != 71 || !strings.HasSuffix(r.Ref, "@"+r.Digest) {
			t.Errorf("%s: digest %q, ref %q", ref, r.Digest, r.Ref)
		}
	}
	if trees := must(s.trees.List(t.Context())); countPrefix(trees, layerPrefix) != 1 {
		t.Errorf("the one layer was unpacked %d times", countPrefix(trees, layerPrefix))
	}
	for ref, want := range map[string]string{
		"oci:" + lay + ":v2": "has no", "docker-archive:" + saved + ":other:1": "it has team/app:1", "docker-archive:" + filepath.Join(dir, "no.tar"): "there is no ", "": "empty",
		"oci:" + dir: "index.json", "UPPER": "is no reference", plain + ":x": "there is no ",
	} {
		if _, _, err := s.Root(t.Context(), ref, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
	}
}

// A file that changed is read again.
func TestFileChanges(t *testing.T) {
	s, file := newStore(t), filepath.Join(t.TempDir(), "root.tar")
	write(t, file, layerTar(t, entry{name: "v", body: "1"}))
	one := rootOfRef(t, s, file)
	write(t, file, layerTar(t, entry{name: "v", body: "two"}, entry{name: "w"}))
	if two := rootOfRef(t, s, file); two.Digest == one.Digest {
		t.Error("the old image came again")
	}
}

// A reference with a digest, as the store answers them, means that image for ever, and needs no source while it is here.
func TestPinned(t *testing.T) {
	h, s, file := newHub(t), newStore(t), filepath.Join(t.TempDir(), "root:1.tar")
	write(t, file, layerTar(t, entry{name: "v", body: "1"}))
	one := rootOfRef(t, s, file)
	tagged := rootOfRef(t, s, h.push(t, "app:1", imageOfLayers(t, nil, layerTar(t, entry{name: "a"}))))
	write(t, file, layerTar(t, entry{name: "v", body: "two"}, entry{name: "w"}))
	h.handler = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return true }
	for _, r := range []*Root{one, tagged} {
		if again := rootOfRef(t, s, r.Ref); again.Layers[0] != r.Layers[0] || again.Ref != r.Ref {
			t.Errorf("%s is %s", r.Ref, again.Ref)
		}
	}
	empty := newStore(t)
	if _, _, err := empty.Root(t.Context(), one.Ref, nil); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "holds another image by now") {
		t.Error(err)
	}
}

// What came in is checked by both digests, and nothing of a damaged layer stays.
func TestDamaged(t *testing.T) {
	h, s := newHub(t), newStore(t)
	img := imageOfLayers(t, nil, layerTar(t, entry{name: "a", body: strings.Repeat("1", 1000)}))
	ref := h.push(t, "app:1", img)
	layer := must(img.Layers())[0]
	path := "/blobs/" + must(layer.Digest()).String()
	for what, body := range map[string][]byte{
		"other": gzipped(t, layerTar(t, entry{name: "a", body: "evil"})), "short": must(io.ReadAll(must(layer.Compressed())))[:60], "no gzip": []byte("not a layer at all"),
	} {
		h.handler = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, path) {
				_, _ = w.Write(body)
				return true
			}
			return false
		}
		if _, _, err := s.Root(t.Context(), ref, nil); err == nil {
			t.Errorf("%s: taken", what)
		}
		if trees := must(s.trees.List(t.Context())); len(trees) != 0 {
			t.Errorf("%s: left %v", what, trees)
		}
	}
	// A config that lies about the layer.
	c := must(img.ConfigFile()).DeepCopy()
	c.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64)
	h.handler = nil
	lie := must(mutate.ConfigFile(img, c))
	if _, _, err := s.Root(t.Context(), h.push(t, "lie:1", lie), nil); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
	if left := must(filepath.Glob(filepath.Join(s.o.Dir, "trees", ".tmp", "*"))); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

// A layer that would leave its folder is refused whole.
func TestHostile(t *testing.T) {
	h, s := newHub(t), newStore(t)
	for i, es := range [][]entry{
		{{name: "../x", body: "evil"}},
		{{name: "a", typ: tar.TypeSymlink, link: "/etc"}, {name: "a/passwd", body: "evil"}},
		{{name: "a", typ: tar.TypeLink, link: "/etc/passwd"}},
		{{name: "a/"}, {name: "a", body: "file"}},
		{{name: "a", typ: tar.TypeSymlink, link: "/"}, {name: "a/.wh.b"}},
		{{name: strings.Repeat("d/", 300) + "x"}},
	} {
		ref := h.push(t, fmt.Sprintf("evil:%d", i), imageOfLayers(t, nil, layerTar(t, es...)))
		if _, _, err := s.Root(t.Context(), ref, nil); err == nil || !strings.Contains(err.Error(), "unsafe member") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if trees := must(s.trees.List(t.Context())); len(trees) != 0 {
		t.Errorf("left %v", trees)
	}
}

// Marks that overlays understand come from whiteouts alone.
func TestNoMarks(t *testing.T) {
	h, s := newHub(t), newStore(t)
	r := rootOfRef(t, s, h.push(t, "x:1", imageOfLayers(t, nil, layerTar(t,
		entry{name: "d/", pax: map[string]string{"SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.trusted.overlay.opaque": "y"}}))))
	if opaque(filepath.Join(r.Layers[0], "d")) {
		t.Error("a layer brought its own mark")
	}
}

// A download that breaks off goes on where it was.
func TestResume(t *testing.T) {
	h, s := newHub(t), newStore(t)
	var noise bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&noise, "%x", i*2654435761)
	}
	img := imageOfLayers(t, nil, layerTar(t, entry{name: "big", body: noise.String()}))
	ref := h.push(t, "app:1", img)
	layer := must(img.Layers())[0]
	whole := must(io.ReadAll(must(layer.Compressed())))
	var asked []string
	h.handler = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, must(layer.Digest()).String()) {
			return false
		}
		asked = append(asked, r.Header.Get("Range"))
		from := 0
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(whole)-1, len(whole)))
			w.Header().Set("Content-Length", fmt.Sprint(len(whole)-from))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		}
		end := len(whole)
		if len(asked) < 3 {
			end = min(from+len(whole)/3, end)
		}
		_, _ = w.Write(whole[from:end])
		return true
	}
	var done, total int64
	if _, release, err := s.Root(t.Context(), ref, func(d, all int64) { done, total = d, all }); err != nil {
		t.Error(err)
	} else {
		release()
	}
	if len(asked) != 3 || asked[0] != "" || asked[1] == "" {
		t.Errorf("asked %q", asked)
	}
	if done != total || done != int64(len(whole)) {
		t.Errorf("%d of %d came, of %d", done, total, len(whole))
	}
}

// Below the floor nothing starts and nothing comes in, and the message says so.
func TestFloor(t *testing.T) {
	h := newHub(t)
	s := Open(Options{Dir: filepath.Join(t.TempDir(), "images"), Floor: 1 << 60})
	ref := h.push(t, "app:1", imageOfLayers(t, nil, layerTar(t, entry{name: "a"})))
	for _, f := range []func(context.Context, string, Progress) (*Root, func(), error){s.Root, s.Pull} {
		if _, _, err := f(t.Context(), ref, nil); !errors.Is(err, ErrSpace) || !strings.Contains(err.Error(), "image prune") {
			t.Error(err)
		}
	}
	if _, err := os.Stat(s.o.Dir); err == nil {
		t.Error("the store was made")
	}
}

// Prune takes the images that were used longest ago, with the layers that nobody else has, and never one that is held.
func TestPrune(t *testing.T) {
	h, s := newHub(t), newStore(t)
	base := layerTar(t, entry{name: "base", body: strings.Repeat("b", 1000)})
	var refs []string
	for i := range 3 {
		ref := h.push(t, fmt.Sprintf("app:%d", i), imageOfLayers(t, nil, base, layerTar(t, entry{name: "own", body: strings.Repeat(fmt.Sprint(i), 500)})))
		_, release, err := s.Root(t.Context(), ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		release()
		refs = append(refs, ref)
		old(t, s, must(s.Find(t.Context(), ref)).key, 10-i)
	}
	all := must(s.List(t.Context()))
	if len(all) != 3 || all[0].Bytes != 1500 || all[0].Own != 500 || !slices.Equal(all[0].Refs, refs[:1]) {
		t.Fatalf("%+v", all)
	}
	out := must(s.Prune(t.Context(), 2000))
	if len(out.Images) != 1 || out.Images[0].Refs[0] != refs[0] || out.Left != 2000 || out.Bytes < 500 {
		t.Errorf("%+v", out)
	}
	r, release, err := s.Root(t.Context(), refs[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Remove(t.Context(), refs[1]); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	out = must(s.Prune(t.Context(), 0))
	if len(out.Images) != 1 || len(out.Busy) != 1 || out.Busy[0].Refs[0] != refs[1] {
		t.Errorf("%+v", out)
	}
	for _, l := range r.Layers {
		if _, err := os.Stat(l); err != nil {
			t.Error(err)
		}
	}
	release()
	if out, err = s.Remove(t.Context(), r.Digest[7:20]); err != nil || len(out.Images) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if trees := must(s.trees.List(t.Context())); len(trees) != 0 {
		t.Errorf("left %v", trees)
	}
	if refs := must(s.refs()); len(refs) != 0 {
		t.Errorf("left %v", refs)
	}
	if _, err := s.Remove(t.Context(), refs[1]); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// The cap is held by every pull.
func TestCap(t *testing.T) {
	h, s := newHub(t), newStore(t)
	s.o.Cap = 1500
	for i := range 3 {
		ref := h.push(t, fmt.Sprintf("app:%d", i), imageOfLayers(t, nil, layerTar(t, entry{name: "own", body: strings.Repeat(fmt.Sprint(i), 1000)})))
		_, release, err := s.Root(t.Context(), ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	if all := must(s.List(t.Context())); len(all) != 1 || !strings.HasSuffix(all[0].Refs[0], "app:2") {
		t.Errorf("%+v", all)
	}
}

// Artifacts that are no images, and layers of a kind that is no tree, are refused.
func TestArtifacts(t *testing.T) {
	h, s := newHub(t), newStore(t)
	img := mutate.ConfigMediaType(imageOfLayers(t, nil, layerTar(t, entry{name: "a"})), types.MediaType("application/vnd.cncf.helm.config.v1+json"))
	if _, _, err := s.Root(t.Context(), h.push(t, "chart:1", img), nil); err == nil || !strings.Contains(err.Error(), "not an image but an artifact") {
		t.Error(err)
	}
	if _, _, err := s.Root(t.Context(), h.host+"/nothing:1", nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// With one id for all files the layer's owners are counted, not kept.
func TestOneID(t *testing.T) {
	h, s := newHub(t), newStore(t)
	s.owners = owners{kind: OwnersOne}
	r := rootOfRef(t, s, h.push(t, "app:1", imageOfLayers(t, nil, layerTar(t, entry{name: "a", uid: 33}, entry{name: "b"}, entry{name: "d/", gid: 42}))))
	if r.Owners != OwnersOne || r.Unowned != 2 {
		t.Errorf("%+v", r)
	}
	for _, line := range listing(t, r.Layers[0]) {
		if want := fmt.Sprintf(" %d:%d ", os.Geteuid(), os.Getegid()); !strings.Contains(line, want) {
			t.Error(line)
		}
	}
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	w := must(zstd.NewWriter(nil))
	defer w.Close()
	return w.EncodeAll(b, nil)
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func tarOfFolder(t testing.TB, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
