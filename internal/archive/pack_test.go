package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// odd is a tree with everything that must survive: modes, links, empty folders, spaces, other scripts, names of 255 bytes.
func odd(t *testing.T, b *box) {
	t.Helper()
	in := filepath.Join(b.base, "in")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(in, "empty", "er"), 0o755),
		os.MkdirAll(filepath.Join(in, "sp ace", "ünï 文件", long255), 0o755),
		os.WriteFile(filepath.Join(in, "sp ace", "ünï 文件", long255, long255), []byte("deep"), 0o644),
		os.WriteFile(filepath.Join(in, "run.sh"), []byte("#!/bin/sh\n"), 0o755),
		os.WriteFile(filepath.Join(in, "private"), nil, 0o600),
		os.WriteFile(filepath.Join(in, "bad\xff\nname"), []byte("bytes"), 0o644),
		os.WriteFile(filepath.Join(in, "big"), bytes.Repeat([]byte("0123456789"), 50_000), 0o444),
		os.Link(filepath.Join(in, "run.sh"), filepath.Join(in, "sp ace", "again.sh")),
		os.Symlink("run.sh", filepath.Join(in, "link")),
		os.Symlink("../run.sh", filepath.Join(in, "sp ace", "up")),
		os.Symlink("nowhere/at all", filepath.Join(in, "dangling")),
		os.Mkdir(filepath.Join(in, "ro"), 0o755),
		os.WriteFile(filepath.Join(in, "ro", "x"), []byte("x"), 0o400),
		os.Chmod(filepath.Join(in, "ro"), 0o555),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	b := newBox(t)
	odd(t, b)
	for _, form := range []Format{Tar, TarGzip, TarZstd, Zip} {
		t.Run(form.String(), func(t *testing.T) {
			var packed, again bytes.Buffer
			r, err := Pack(t.Context(), &packed, b.root, PackOptions{Format: form})
			if err != nil || r.Left > 0 {
				t.Fatal(r, err)
			}
			out := newBox(t)
			u, err := out.unpack(packed.Bytes(), Options{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := out.tree(), b.tree(); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			if r.Files != u.Files || r.Dirs != u.Dirs || r.Links != u.Links {
				t.Errorf("packed %+v, unpacked %+v", r, u)
			}
			if _, err := Pack(t.Context(), &again, out.root, PackOptions{Format: form}); err != nil || !bytes.Equal(packed.Bytes(), again.Bytes()) {
				t.Errorf("the copy packs to other bytes: %v", err)
			}
			if form == Zip {
				return
			}
			a, _ := os.Stat(filepath.Join(out.base, "in", "run.sh"))
			c, _ := os.Stat(filepath.Join(out.base, "in", "sp ace", "again.sh"))
			if !os.SameFile(a, c) {
				t.Error("two names of one file became two files")
			}
		})
	}
}

func TestPackLeavesOutWhatIsNoFile(t *testing.T) {
	b := newBox(t)
	if err := syscall.Mkfifo(filepath.Join(b.base, "in", "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"keep", "skip/x", "skip.txt"} {
		if err := b.root.MkdirAll(filepath.Dir(n), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := b.root.WriteFile(n, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	r, err := Pack(t.Context(), &packed, b.root, PackOptions{Skip: func(name string, _ bool) bool { return strings.HasPrefix(name, "skip") }})
	if err != nil || !slices.Equal(refusals(r), []string{`"pipe": it is neither a file nor a folder nor a link`}) {
		t.Errorf("%+v %v", r, err)
	}
	h, err := tar.NewReader(&packed).Next()
	if err != nil || h.Name != "keep" || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v %v", h, err)
	}
}

func TestSetuidAndTimes(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(b.base, "in", "s")
	when := time.Unix(1_600_000_000, 0)
	if err := errors.Join(os.WriteFile(path, nil, 0o755), os.Chmod(path, 0o755|fs.ModeSetuid), os.Mkdir(path+"d", 0o755), os.Chtimes(path, when, when), os.Chtimes(path+"d", when, when)); err != nil {
		t.Fatal(err)
	}
	for _, form := range []Format{Tar, Zip} {
		for _, keep := range []bool{true, false} {
			var packed bytes.Buffer
			if _, err := Pack(t.Context(), &packed, b.root, PackOptions{Format: form, KeepSetuid: keep, Times: keep}); err != nil {
				t.Fatal(err)
			}
			out := newBox(t)
			if _, err := out.unpack(packed.Bytes(), Options{KeepSetuid: true, Times: true}); err != nil {
				t.Fatal(err)
			}
			for _, n := range []string{"s", "sd"} {
				fi, err := os.Stat(filepath.Join(out.base, "in", n))
				if err != nil {
					t.Fatal(err)
				}
				if fi.ModTime().Equal(when) != keep || n == "s" && (fi.Mode()&fs.ModeSetuid != 0) != keep {
					t.Errorf("%s, kept %v: %v %v", form, keep, fi.Mode(), fi.ModTime())
				}
			}
		}
	}
}

func TestXattrs(t *testing.T) {
	b := newBox(t)
	in := filepath.Join(b.base, "in")
	if err := errors.Join(os.WriteFile(filepath.Join(in, "f"), nil, 0o644), os.Mkdir(filepath.Join(in, "d"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"f", "d"} {
		if err := unix.Setxattr(filepath.Join(in, n), "user.note", []byte("a\x00b "+n), 0); err != nil {
			t.Skip("needs a file system with attributes:", err)
		}
	}
	for _, keep := range []bool{true, false} {
		var packed bytes.Buffer
		if _, err := Pack(t.Context(), &packed, b.root, PackOptions{Xattrs: true}); err != nil {
			t.Fatal(err)
		}
		out := newBox(t)
		if _, err := out.unpack(packed.Bytes(), Options{Xattrs: keep}); err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{"f", "d"} {
			v := make([]byte, 100)
			size, err := unix.Getxattr(filepath.Join(out.base, "in", n), "user.note", v)
			if keep != (err == nil) || keep && string(v[:size]) != "a\x00b "+n {
				t.Errorf("%s, kept %v: %q %v", n, keep, v[:max(size, 0)], err)
			}
		}
	}
}

// growing writes to a file of the tree as soon as the archive's first bytes come out.
type growing struct {
	path string
	t    *testing.T
	n    int
}

func (g *growing) Write(b []byte) (int, error) {
	if g.n++; g.n == 1 {
		f, err := os.OpenFile(g.path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			g.t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, "more"); err != nil {
			g.t.Fatal(err)
		}
	}
	return len(b), nil
}

func TestPackSeesChanges(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(b.base, "in", "f")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 100_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Pack(t.Context(), &growing{path: path, t: t}, b.root, PackOptions{}); err == nil || err.Error() != `pack "f": it changed while it was read` {
		t.Error(err)
	}
}

func TestPackToAFullDisk(t *testing.T) {
	b := newBox(t)
	odd(t, b)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full:", err)
	}
	defer full.Close()
	for _, form := range []Format{Tar, TarGzip, TarZstd, Zip} {
		if _, err := Pack(t.Context(), full, b.root, PackOptions{Format: form}); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: %v", form, err)
		}
	}
}

func TestLinkStays(t *testing.T) {
	for _, c := range []struct {
		name, target string
		want         bool
	}{
		{"a", "b", true},
		{"a", "./b/../c", false},
		{"a", "..", false},
		{"a/b", "..", true},
		{"a/b", "../../x", false},
		{"a/b/c", "../../x", true},
		{"a", "/x", false},
		{"a", "", false},
		{"a", "b//c", true},
		{"a", "x\x00y", false},
		{"a/b", "../", true},
		{"a/b", ".././../x", false},
	} {
		if got := linkStays(c.name, c.target); got != c.want {
			t.Errorf("%s -> %s: %v", c.name, c.target, got)
		}
	}
}

// Whatever the bytes are, nothing outside changes, no link leads out, and the limits hold.
func FuzzUnpack(f *testing.F) {
	seeds := [][]entry{
		{{name: "a/b", body: "x", typ: tar.TypeReg, mode: 0o644}, {name: "l", link: "a/b", typ: tar.TypeSymlink}, {name: "h", link: "a/b", typ: tar.TypeLink}},
		{{name: "p/q/up", link: "../..", typ: tar.TypeSymlink}, {name: "p/q/evil", link: "up/../out", typ: tar.TypeSymlink}},
		{{name: "../out/x", typ: tar.TypeReg}, {name: "/x", typ: tar.TypeReg}, {name: "d", typ: tar.TypeDir, mode: 0o4000}},
	}
	for _, es := range seeds {
		plain := tarOf(f, es...)
		f.Add(plain)
		f.Add(gz(f, plain))
		f.Add(zst(f, plain))
		f.Add(zipOf(f, es...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBox(t)
		file, err := os.Create(filepath.Join(t.TempDir(), "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
		r, err := UnpackFile(t.Context(), file, b.root, Options{Limits: Limits{Bytes: 1 << 20, Entries: 100, Depth: 5}, Overwrite: true})
		b.untouched()
		if r.Bytes > 1<<20+64<<10 || r.Files+r.Dirs+r.Links > 700 {
			t.Errorf("%+v %v", r, err)
		}
		in, _ := filepath.EvalSymlinks(filepath.Join(b.base, "in"))
		filepath.WalkDir(in, func(p string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				os.Chmod(p, 0o700) // so that root is not needed to look into it
			}
			if d == nil || d.Type()&fs.ModeSymlink == 0 {
				return nil
			}
			if to, err := filepath.EvalSymlinks(p); err == nil && to != in && !strings.HasPrefix(to, in+"/") {
				t.Errorf("%s leads to %s", p, to)
			}
			return nil
		})
	})
}

func BenchmarkUnpack(b *testing.B) {
	es := make([]entry, 0, 1500)
	for i := range 1500 {
		es = append(es, entry{name: "folder/" + strings.Repeat("x", i%50) + "/" + time.Unix(int64(i), 0).UTC().Format("150405"), body: strings.Repeat("y", 600), typ: tar.TypeReg, mode: 0o644})
	}
	data := tarOf(b, es...)
	for b.Loop() {
		dir := b.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			b.Fatal(err)
		}
		if r, err := Unpack(b.Context(), bytes.NewReader(data), root, Options{}); err != nil || r.Files != 1500 {
			b.Fatal(r, err)
		}
		root.Close()
	}
}
