package local

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/guest/tree"
	"agentenv.internal/agentenv/internal/sandbox"
)

func TestMerge(t *testing.T) {
	chain := func(sizes ...int64) []layer {
		var out []layer
		for _, n := range sizes {
			out = append(out, layer{Bytes: n})
		}
		return out
	}
	long := make([]int64, maxLayers)
	if got := merge(chain(long[1:]...)); got != 0 {
		t.Errorf("a short chain loses %d layers", got)
	}
	long[10] = 5
	if got := merge(chain(long...)); got != 10 {
		t.Errorf("with the largest at 10, %d are merged", got)
	}
	long[10], long[0] = 0, 5
	if got := merge(chain(long...)); got != maxLayers {
		t.Errorf("with the largest on top, %d are merged", got)
	}
}

func TestMeets(t *testing.T) {
	have := sandbox.Needs{Arch: "amd64", System: "debian 12"}
	for _, c := range []struct {
		needs sandbox.Needs
		image string
		lacks int
	}{
		{have, "", 0},
		{sandbox.Needs{Arch: "arm64", System: "fedora 40", IDs: true}, "", 3},
		{sandbox.Needs{Arch: "amd64", System: "fedora 40"}, "", 1},
		{sandbox.Needs{Arch: "amd64"}, "image@sha256:1", 0},
	} {
		err := meets(have, &kept{Snapshot: sandbox.Snapshot{Needs: c.needs, Image: c.image}})
		if (err != nil) != (c.lacks > 0) || err != nil && (!errors.Is(err, sandbox.ErrUnsupported) || strings.Count(err.Error(), ";") != c.lacks-1) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if got := system("NAME=x\nID=debian\nVERSION_ID=\"12\"\n"); got != "debian 12" {
		t.Errorf("the system is %q", got)
	}
}

// FuzzImportSnapshot: whatever an exported snapshot says, nothing outside its layer's folder is touched, and what is refused is not kept.
func FuzzImportSnapshot(f *testing.F) {
	p, err := New(Options{StateRoot: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { p.Close() })
	n := p.needs()
	meta := fmt.Sprintf(`{"format_version":1,"snapshot":{"needs":{"arch":%q,"system":%q}}}`, n.Arch, n.System)
	exported := func(hs ...*tar.Header) []byte {
		var b bytes.Buffer
		w := tree.NewPacker(&b)
		if err := w.File(metaFile, []byte(meta)); err != nil {
			f.Fatal(err)
		}
		t := tar.NewWriter(&b)
		for _, h := range hs {
			if err := t.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.File(endFile, nil); err != nil {
			f.Fatal(err)
		}
		w.Close()
		return b.Bytes()
	}
	f.Add(exported())
	f.Add(exported(&tar.Header{Typeflag: tar.TypeDir, Name: "usr", PAXRecords: map[string]string{tree.XattrPrefix + "user.overlay.redirect": "/etc"}}))
	f.Add(exported(&tar.Header{Typeflag: tar.TypeSymlink, Name: "@", Linkname: "/"}, &tar.Header{Typeflag: tar.TypeReg, Name: "@/x"}))
	f.Add(exported(&tar.Header{Typeflag: tar.TypeReg, Name: "../x"}))
	f.Add([]byte(meta))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		outside := filepath.Join(p.opts.StateRoot, "keep")
		if err := os.WriteFile(outside, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := p.ImportSnapshot(t.Context(), bytes.NewReader(data), sandbox.SnapshotOptions{Passing: true})
		if b, rerr := os.ReadFile(outside); rerr != nil || string(b) != "kept" {
			t.Fatalf("the file outside: %q, %v", b, rerr)
		}
		if err == nil {
			if err := p.RemoveSnapshot(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}
