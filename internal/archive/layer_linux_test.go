package archive

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// layer unpacks a tar as a layer whose files stay the caller's.
func (b *box) layer(data []byte) (Report, error) {
	b.t.Helper()
	return Unpack(b.t.Context(), bytes.NewReader(data), b.root, Options{Layer: &Layer{OneID: true}, Strict: true})
}

func char(name string) entry { return entry{name: name, typ: tar.TypeChar, mode: 0o666} }

// What layers may hold that other archives may not, and what they may not either.
func TestLayer(t *testing.T) {
	cases := []struct {
		name    string
		in      []entry
		want    []string
		implied []string
		err     string
	}{
		{name: "absolute names and links out", in: []entry{d("./"), d("/a"), f("/a/b", "1"), l("c", "/etc/passwd"), l("a/d", "../../..")}, want: []string{"d755 a", "f644 a/b=1", "l a/d->../../..", "l c->/etc/passwd"}},
		{name: "later entries count", in: []entry{d("./"), f("x", "1"), f("x", "2"), l("y", "a"), l("y", "b"), f("z", "1"), l("z", "c"), l("w", "d"), f("w", "3")}, want: []string{"f644 w=3", "f644 x=2", "l y->b", "l z->c"}},
		{name: "hard links", in: []entry{d("./"), f("a", "1"), hard("b", "/a"), l("s", "gone"), hard("t", "s"), hard("u", "t")}, want: []string{"f644 a=1", "f644 b=1", "l s->gone", "l t->gone", "l u->gone"}},
		{name: "setuid and case", in: []entry{d("./"), {name: "s", typ: tar.TypeReg, mode: 0o6755}, f("A", "1"), f("a", "2")}, want: []string{"f644 A=1", "f644 a=2", "f6755 s="}},
		{name: "implied", in: []entry{f("a/b/c", "1"), d("a")}, want: []string{"d755 a", "d755 a/b", "f644 a/b/c=1"}, implied: []string{"", "a/b"}},
		{name: "devices left out", in: []entry{d("./"), char("null"), f("ok", "1")}, want: []string{"f644 ok=1"}},
		{name: "names above", in: []entry{f("../out/secret", "evil")}, err: "leaves the folder"},
		{name: "below a link", in: []entry{l("a", "/"), f("a/b", "evil")}, err: "above it is no folder"},
		{name: "a whiteout below a link", in: []entry{l("a", "/"), f("a/.wh.b", "")}, err: "above it is no folder"},
		{name: "an opaque link", in: []entry{l("a", "../out"), f("a/.wh..wh..opq", "")}, err: "above it is no folder"},
		{name: "a folder replaced", in: []entry{d("a"), f("a", "1")}, err: "taken by another"},
		{name: "hard link out", in: []entry{hard("a", "../out/secret")}, err: "hard link to a file that the archive does not hold"},
		{name: "bookkeeping", in: []entry{d("./"), f(".wh..wh.plnk", ""), f(".wh.", ""), f(".wh...", ""), f("ok", "1")}, want: []string{"f644 ok=1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			r, err := b.layer(tarOf(t, c.in...))
			b.untouched()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := b.tree(); !slices.Equal(got, c.want) {
				t.Errorf("%q\nwant\n%q", got, c.want)
			}
			if !slices.Equal(r.Implied, c.implied) {
				t.Errorf("implied %q", r.Implied)
			}
		})
	}
}

// Whiteouts become what overlays read, and give way to what the layer itself brings.
func TestWhiteouts(t *testing.T) {
	b := newBox(t)
	_, err := b.layer(tarOf(t, d("./"), f(".wh.gone", ""), f("deep/er/.wh.x", ""), f(".wh.both", ""), f("both", "1"), f(".wh.dir", ""), d("dir"), f("o/.wh..wh..opq", ""), f("o/new", "2")))
	if err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(b.base, "in")
	for name, want := range map[string]bool{"gone": true, "deep/er/x": true, "both": false, "dir": false} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(in, name), &st); err != nil {
			t.Fatal(err)
		}
		if got := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0; got != want {
			t.Errorf("%s is a whiteout: %v", name, got)
		}
	}
	for name, want := range map[string]bool{"o": true, "dir": true, "deep": false} {
		v := make([]byte, 1)
		n, err := unix.Getxattr(filepath.Join(in, name), "user.overlay.opaque", v)
		if got := err == nil && n == 1 && v[0] == 'y'; got != want {
			t.Errorf("%s is opaque: %v, %v", name, got, err)
		}
	}
}

// FuzzLayer: whatever a layer holds, nothing outside the folder changes.
func FuzzLayer(f *testing.F) {
	f.Add(tarOf(f, d("a"), entry{name: "a/b", body: "1", typ: tar.TypeReg, mode: 0o4755}, l("c", "/"), entry{name: "p", typ: tar.TypeFifo}, entry{name: "a/.wh.x", typ: tar.TypeReg},
		entry{name: ".wh..wh..opq", typ: tar.TypeReg}, hard("d", "a/b"), hard("e", "c")))
	f.Add(tarOf(f, l("a", "../out"), entry{name: "a/secret", typ: tar.TypeReg, body: "evil"}))
	f.Add([]byte("not a tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBox(t)
		_, _ = Unpack(t.Context(), bytes.NewReader(data), b.root, Options{Limits: Limits{Bytes: 1 << 20, Entries: 1000, Depth: 20}, Layer: &Layer{OneID: true}})
		b.untouched()
		err := filepath.WalkDir(filepath.Join(b.base, "in"), func(p string, e fs.DirEntry, err error) error {
			if os.IsPermission(err) {
				return fs.SkipDir
			}
			if err == nil && e.Type()&fs.ModeDevice != 0 {
				var st unix.Stat_t
				if err := unix.Lstat(p, &st); err == nil && st.Rdev != 0 {
					t.Errorf("%s is a device", p)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
