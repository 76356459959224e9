package sandbox_test

import (
	"archive/tar"
	"bytes"
	"path"
	"reflect"
	"testing"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
	"agentenv.internal/agentenv/internal/sandbox"
)

func changesTar(t testing.TB, hs ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadChanges(t *testing.T) {
	change := func(kind string, more ...string) map[string]string {
		m := map[string]string{guest.ChangeRecord: kind}
		for i := 0; i+1 < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	got, err := sandbox.ReadChanges(bytes.NewReader(changesTar(t,
		&tar.Header{Typeflag: tar.TypeDir, Name: "w/", Mode: 0o1755, PAXRecords: change("A")},
		&tar.Header{Typeflag: tar.TypeReg, Name: "w/f", Mode: 0o644, PAXRecords: change("M", tree.SizeRecord, "77")},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "x", Mode: 0o777, PAXRecords: change("A")},
		&tar.Header{Typeflag: tar.TypeChar, Name: "gone", PAXRecords: change("D")},
	)))
	want := []sandbox.Change{
		{Path: "/w", Kind: "A", Type: "dir", Mode: 0o755 | 1<<20},
		{Path: "/w/f", Kind: "M", Type: "file", Mode: 0o644, Size: 77},
		{Path: "/l", Kind: "A", Type: "link", Mode: 0o777},
		{Path: "/gone", Kind: "D"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := sandbox.ReadChanges(bytes.NewReader(changesTar(t, &tar.Header{Typeflag: tar.TypeReg, Name: "x"}))); err == nil {
		t.Error("an entry that says no change was taken")
	}
}

func FuzzReadChanges(f *testing.F) {
	f.Add(changesTar(f, &tar.Header{Typeflag: tar.TypeReg, Name: "../x", PAXRecords: map[string]string{guest.ChangeRecord: "A"}}))
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := sandbox.ReadChanges(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, c := range all {
			if !path.IsAbs(c.Path) || path.Clean(c.Path) != c.Path || c.Kind == "" {
				t.Errorf("%+v", c)
			}
		}
	})
}
