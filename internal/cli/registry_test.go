package cli_test

import (
	"bytes"
	"io"
	"log/slog"
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
