package cli_test

import (
	"archive/tar"
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"
)

// serveImage is `registry NAME FILE…`: a registry that has NAME:1, whose layers are tars of files, and $IMAGE is its reference. Its commands
// run as user 7 in /srv, with GREETING=hello.
func serveImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: registry NAME FILE…")
	}
	srv := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError))))
	ts.Defer(srv.Close)
	config := v1.Config{
		User: "7", WorkingDir: "/srv", Env: []string{"PATH=/bin", "GREETING=hello"}, Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"echo $GREETING"},
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: config})
	ts.Check(err)
	for _, file := range args[1:] {
		b, err := os.ReadFile(ts.MkAbs(file))
		ts.Check(err)
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		ts.Check(err)
		img, err = mutate.AppendLayers(img, layer)
		ts.Check(err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/" + args[0] + ":1")
	ts.Check(err)
	ts.Check(remote.Write(ref, img))
	ts.Setenv("IMAGE", ref.Name())
}

// serveServers is `servers NAME=ROLE…`: a registry at $REGISTRY that has NAME:1 and NAME:2 for each, images of this program alone that run `agent-env serve ROLE`.
// While there is a file registry-down it lets nobody read anything, and while there is a file registry-dumb it never answers.
func serveServers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: servers NAME=ROLE…")
	}
	down, dumb := ts.MkAbs("registry-down"), ts.MkAbs("registry-dumb")
	reg := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(down); err == nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if _, err := os.Stat(dumb); err == nil {
			<-r.Context().Done()
			return
		}
		reg.ServeHTTP(w, r)
	}))
	ts.Defer(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	self, err := os.ReadFile("/proc/self/exe")
	ts.Check(err)
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	ts.Check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "agent-env", Mode: 0o755, Size: int64(len(self))}))
	_, err = w.Write(self)
	ts.Check(err)
	ts.Check(w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }, tarball.WithCompressedCaching)
	ts.Check(err)
	for _, arg := range args {
		repository, role, _ := strings.Cut(arg, "=")
		for _, tag := range []string{"1", "2"} {
			img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
				OS: "linux", Architecture: runtime.GOARCH,
				Config: v1.Config{Entrypoint: []string{"/agent-env"}, Cmd: []string{"serve", role}, Env: []string{"TAG=" + tag}},
			})
			ts.Check(err)
			img, err = mutate.AppendLayers(img, layer)
			ts.Check(err)
			ref, err := name.ParseReference(host + "/" + repository + ":" + tag)
			ts.Check(err)
			ts.Check(remote.Write(ref, img))
		}
	}
	ts.Setenv("REGISTRY", host)
}
