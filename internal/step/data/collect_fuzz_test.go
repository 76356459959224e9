package data

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store/mem"
)

func archiveOf(t testing.TB, hs ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		h.Size = 0
		if h.Typeflag == tar.TypeReg {
			h.Size = 3
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, "abc"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzCollect: whatever a sandbox sends for a folder, what is kept of it can be loaded again, and nothing in it leads out.
func FuzzCollect(f *testing.F) {
	dir := tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}
	reg := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o4777} }
	link := func(typ byte, name, to string) tar.Header { return tar.Header{Typeflag: typ, Name: name, Linkname: to} }
	for _, hs := range [][]tar.Header{
		{dir, reg("a"), reg("b/c"), link(tar.TypeSymlink, "l", "a"), link(tar.TypeLink, "h", "a")},
		{dir, reg("../up"), reg("/abs")},
		{dir, reg("a"), reg("a/b"), reg("a")},
		{dir, link(tar.TypeSymlink, "l", "../../etc/passwd"), link(tar.TypeLink, "h", "nosuch"), {Typeflag: tar.TypeFifo, Name: "p"}},
		{dir, {Typeflag: tar.TypeDir, Name: "d/"}, {Typeflag: tar.TypeDir, Name: "../e/"}, reg("d")},
		{reg("alone")},
		{},
	} {
		f.Add(archiveOf(f, hs...))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		stage, err := mem.New(mem.Options{}).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stage.Discard() }()
		sends := func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(src)), nil }
		is := func(string) (fs.FileInfo, error) {
			return (&tar.Header{Typeflag: tar.TypeReg, Size: 3}).FileInfo(), nil
		}
		k := newCollector(odd{tree: sends, stat: is}, stage, nil, func(string, ...any) {})
		k.max = 1 << 20
		if k.collect(t.Context(), wanted{from: "/app"}) != nil || k.follow(context.WithoutCancel(t.Context())) != nil {
			return
		}
		files := k.sorted()
		if len(files) == 0 {
			return
		}
		docs := artifact.NewFileUniverse(artifact.Pin{ID: "u", Version: 1}, files, func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: 1} })
		back, err := artifact.Files(docs[0].Type, docs[0].Body(time.Now()))
		if err != nil || len(back) != len(files) {
			t.Errorf("%d of %d entries: %v", len(back), len(files), err)
		}
	})
}

// An entry that would land outside is refused, not moved.
func TestCollectRefusesNames(t *testing.T) {
	for _, name := range []string{"../up", "/abs", "a/../../b"} {
		r := world(t, nil)
		box, err := r.Deploy.Box(t.Context(), steptest.Run, "box")
		if err != nil {
			t.Fatal(err)
		}
		src := archiveOf(t, tar.Header{Typeflag: tar.TypeDir, Name: "./"}, tar.Header{Typeflag: tar.TypeReg, Name: name})
		evil := odd{Box: box, tree: func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(src)), nil }}
		err = r.Do(NewCollectArtifacts(r.Store, boxes(evil.open)), collect(``))
		if got := steptest.ErrorType(err); got != "ReadError" || step.IsInfra(err) {
			t.Errorf("%s: %s %v", name, got, err)
		}
	}
}
