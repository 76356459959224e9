package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// box is a folder to unpack into, with a neighbour that must stay as it is.
type box struct {
	t    *testing.T
	base string
	root *os.Root
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, base: t.TempDir()}
	for _, d := range []string{"in", "out"} {
		if err := os.Mkdir(filepath.Join(b.base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.base, "out", "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(b.base, "in"))
	if err != nil {
		t.Fatal(err)
	}
	b.root = root
	t.Cleanup(func() {
		root.Close()
		filepath.WalkDir(b.base, func(p string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				os.Chmod(p, 0o700) // so that it can be removed
			}
			return nil
		})
	})
	return b
}

// tree lists what stands in the box: "d755 name", "f644 name=content", "l name->target".
func tree(t *testing.T, dir string) []string {
	t.Helper()
	out := []string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		bits := fmt.Sprintf("%o", unixMode(fi.Mode()))
		switch {
		case d.IsDir():
			out = append(out, "d"+bits+" "+name)
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			out = append(out, "l "+name+"->"+target)
		default:
			b, err := os.ReadFile(p)
			if err != nil && fi.Mode().Perm()&0o400 != 0 { // root alone reads the others
				return err
			}
			if len(b) > 40 {
				b = fmt.Appendf(nil, "%d bytes", len(b))
			}
			out = append(out, "f"+bits+" "+name+"="+string(b))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *box) tree() []string { return tree(b.t, filepath.Join(b.base, "in")) }

// untouched fails when anything outside the box has changed.
func (b *box) untouched() {
	b.t.Helper()
	if got := tree(b.t, filepath.Join(b.base, "out")); !slices.Equal(got, []string{"f600 secret=secret"}) {
		b.t.Errorf("outside: %q", got)
	}
	es, _ := os.ReadDir(b.base)
	if len(es) != 2 {
		b.t.Errorf("outside: %v", es)
	}
}

type entry struct {
	name, body, link string
	typ              byte
	mode             int64
	pax              map[string]string
}

func f(name, body string) entry { return entry{name: name, body: body, typ: tar.TypeReg, mode: 0o644} }
func d(name string) entry       { return entry{name: name, typ: tar.TypeDir, mode: 0o755} }
func l(name, target string) entry {
	return entry{name: name, link: target, typ: tar.TypeSymlink, mode: 0o777}
}

func hard(name, target string) entry {
	return entry{name: name, link: target, typ: tar.TypeLink, mode: 0o644}
}

func tarOf(t testing.TB, es ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range es {
		h := &tar.Header{Name: e.name, Typeflag: e.typ, Mode: e.mode, Size: int64(len(e.body)), Linkname: e.link, ModTime: time.Unix(1e9, 0), PAXRecords: e.pax}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%q: %v", e.name, err)
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

// zipOf holds the same members as tarOf makes of es, but for what a zip has no word for.
func zipOf(t testing.TB, es ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range es {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		mode, body := fs.FileMode(e.mode)&fs.ModePerm|special(e.mode), e.body
		switch e.typ {
		case tar.TypeDir:
			mode |= fs.ModeDir
		case tar.TypeSymlink:
			mode, body = mode|fs.ModeSymlink, e.link
		case tar.TypeFifo:
			mode |= fs.ModeNamedPipe
		case tar.TypeChar:
			mode |= fs.ModeDevice | fs.ModeCharDevice
		}
		h.SetMode(mode)
		x, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(x, body); err != nil && e.typ != tar.TypeDir {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// unpack goes the way of files, which takes every format.
func (b *box) unpack(data []byte, o Options) (Report, error) {
	b.t.Helper()
	file, err := os.CreateTemp(b.t.TempDir(), "a")
	if err != nil {
		b.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		b.t.Fatal(err)
	}
	return UnpackFile(b.t.Context(), file, b.root, o)
}

func refusals(r Report) []string {
	out := []string{}
	for _, m := range r.Refused {
		out = append(out, m.String())
	}
	return out
}

var long255 = strings.Repeat("n", 252) + "é!"[:3]

// The corpus: what is refused is refused alone, what is safe is there, and nothing outside has changed. Every format goes the same way.
func TestCorpus(t *testing.T) {
	cases := []struct {
		name    string
		in      []entry
		want    []string
		refused []string
		tarOnly bool
		o       Options
	}{
		{
			name: "plain", in: []entry{d("a"), f("a/b", "x"), f("./c/d", "y"), d("e/"), f("sp ace/ü 文\n", "z")},
			want: []string{"d755 a", "f644 a/b=x", "d755 c", "f644 c/d=y", "d755 e", "d755 sp ace", "f644 sp ace/ü 文\n=z"},
		},
		{
			name: "modes", in: []entry{{name: "x", typ: tar.TypeReg, mode: 0o751}, {name: "ro", typ: tar.TypeDir, mode: 0o555}, f("ro/in", "x"), {name: "z", typ: tar.TypeReg, mode: 0}},
			want: []string{"d555 ro", "f644 ro/in=x", "f751 x=", "f0 z="},
		},
		{name: "setuid dropped", in: []entry{{name: "s", typ: tar.TypeReg, mode: 0o6755}, {name: "t", typ: tar.TypeDir, mode: 0o1777}}, want: []string{"f755 s=", "d777 t"}},
		{
			name: "setuid kept", o: Options{KeepSetuid: true}, in: []entry{{name: "s", typ: tar.TypeReg, mode: 0o6755}, {name: "t", typ: tar.TypeDir, mode: 0o1777}},
			want: []string{"f6755 s=", "d1777 t"},
		},
		{
			name: "dot dot", in: []entry{f("../out/secret", "evil"), f("a/../../out/x", "evil"), f("..", "evil"), f("a/..", "evil"), f("ok", "1"), f("..a/b..", "2")},
			want: []string{"d755 ..a", "f644 ..a/b..=2", "f644 ok=1"},
			refused: []string{
				`"../out/secret": its name leaves the folder`, `"a/../../out/x": its name leaves the folder`, `"..": its name leaves the folder`,
				`"a/..": its name leaves the folder`,
			},
		},
		{
			name: "absolute", in: []entry{f("/etc/x", "evil"), f("//x", "evil"), d("/"), f("ok", "1")}, want: []string{"f644 ok=1"},
			refused: []string{`"/etc/x": its name is absolute`, `"//x": its name is absolute`, `"/": its name is absolute`},
		},
		{name: "the folder itself", in: []entry{d("./"), d("."), f("ok", "1")}, want: []string{"f644 ok=1"}},
		{
			name: "link then write", in: []entry{l("a", "b"), d("b"), f("a/x", "evil"), f("b/y", "1"), d("a/z")},
			want:    []string{"l a->b", "d755 b", "f644 b/y=1"},
			refused: []string{`"a/x": "a" above it is no folder`, `"a/z": "a" above it is no folder`},
		},
		{
			name: "link out then write", in: []entry{l("a", "../out"), f("a/secret", "evil")}, want: []string{"d755 a", "f644 a/secret=evil"},
			refused: []string{`"a": it links to a place outside`},
		},
		{
			name: "write then link", in: []entry{f("a/x", "1"), l("a", "b"), l("a/x", "y")}, want: []string{"d755 a", "f644 a/x=1"},
			refused: []string{`"a": its name is taken by another member`, `"a/x": its name is taken by another member`},
		},
		{
			name: "links out", in: []entry{l("a", "/etc/passwd"), l("b", "../out/secret"), l("c/d", "../../out"), l("e/f", "../x/../../.."), l("g", "h/../../out"), l("h", "."), l("i", ""), l("k", "..")},
			want: []string{"l h->."},
			refused: []string{
				`"a": it links to a place outside`, `"b": it links to a place outside`, `"c/d": it links to a place outside`, `"e/f": it links to a place outside`,
				`"g": it links to a place outside`, `"i": it links to a place outside`, `"k": it links to a place outside`,
			},
		},
		// p/q/up is the root, so p/q/evil would lead above it although its text counts out.
		{
			name: "link through a link", in: []entry{l("p/q/up", "../.."), l("p/q/evil", "up/../out/secret")}, want: []string{"d755 p", "d755 p/q", "l p/q/up->../.."},
			refused: []string{`"p/q/evil": it links to a place outside`},
		},
		{name: "links inside", in: []entry{l("a/b", "../c"), l("d", "gone/x"), l("e", "./a"), f("c", "1")}, want: []string{"d755 a", "l a/b->../c", "f644 c=1", "l d->gone/x", "l e->./a"}},
		{name: "no links", o: Options{NoLinks: true}, in: []entry{l("a", "b"), f("b", "1")}, want: []string{"f644 b=1"}, refused: []string{`"a": it is a symbolic link`}},
		{
			name: "hard links", tarOnly: true, in: []entry{
				f("a", "1"), hard("b/c", "a"), hard("d", "./a"), hard("e", "../out/secret"), hard("f", "/etc/passwd"), hard("g", "later"), f("later", "2"),
				d("h"), hard("i", "h"), l("k", "../out/secret"), l("m", "a"), hard("n", "m"),
			},
			want: []string{"f644 a=1", "d755 b", "f644 b/c=1", "f644 d=1", "d755 h", "f644 later=2", "l m->a"},
			refused: []string{
				`"e": it is a hard link to a file that the archive does not hold before it`, `"f": it is a hard link to a file that the archive does not hold before it`,
				`"g": it is a hard link to a file that the archive does not hold before it`, `"i": it is a hard link to a file that the archive does not hold before it`,
				`"k": it links to a place outside`, `"n": it is a hard link to a file that the archive does not hold before it`,
			},
		},
		{
			name: "devices", in: []entry{{name: "null", typ: tar.TypeChar, mode: 0o666}, {name: "pipe", typ: tar.TypeFifo, mode: 0o666}, f("ok", "1")}, want: []string{"f644 ok=1"},
			refused: []string{`"null": it is neither a file nor a folder nor a link`, `"pipe": it is neither a file nor a folder nor a link`},
		},
		{
			name: "block device", tarOnly: true, in: []entry{{name: "sda", typ: tar.TypeBlock, mode: 0o666}, f("ok", "1")}, want: []string{"f644 ok=1"},
			refused: []string{`"sda": it is neither a file nor a folder nor a link`},
		},
		{
			name: "clashes", in: []entry{f("Read", "1"), f("read", "2"), f("dir/a", "3"), f("DIR/b", "4"), f("é", "5"), f("e\u0301", "6"), f("STRASSE", "7"), f("straße", "8"), f("ſ", "9"), f("s", "10"), f("Σ/x", "11"), f("ς/y", "12")},
			want: []string{"f644 Read=1", "f644 STRASSE=7", "d755 dir", "f644 dir/a=3", "f644 straße=8", "f644 é=5", "f644 ſ=9", "d755 Σ", "f644 Σ/x=11"},
			refused: []string{
				`"read": its name differs from "Read" in case or Unicode form only`, `"DIR/b": its name differs from "dir" in case or Unicode form only`,
				"\"e\u0301\"" + `: its name differs from "é" in case or Unicode form only`, `"s": its name differs from "ſ" in case or Unicode form only`,
				`"ς/y": its name differs from "Σ" in case or Unicode form only`,
			},
		},
		{name: "clashes kept", o: Options{KeepClashes: true}, in: []entry{f("Read", "1"), f("read", "2")}, want: []string{"f644 Read=1", "f644 read=2"}},
		{
			name: "twice", in: []entry{f("a", "1"), f("./a", "2"), d("b"), {name: "b", typ: tar.TypeDir, mode: 0o700}, f("b", "3"), f("a/x", "4")}, want: []string{"f644 a=1", "d700 b"},
			refused: []string{`"./a": its name is taken by another member`, `"b": its name is taken by another member`, `"a/x": "a" above it is no folder`},
		},
		{
			name: "255 bytes", in: []entry{f(long255+"/"+long255, "1"), f(long255+"x", "2"), f(strings.Repeat("a/", 2000)+"x", "3")}, want: []string{"d755 " + long255, "f644 " + long255 + "/" + long255 + "=1"},
			refused: []string{fmt.Sprintf("%q: a part of its name is longer than 255 bytes", long255[:200]+"…"), fmt.Sprintf("%q: its name is too long", strings.Repeat("a/", 100)+"…")},
		},
		{
			name: "deep", o: Options{Limits: Limits{Depth: 3}}, in: []entry{f("a/b/c/d", "1"), f("a/b/c/d/e", "2")}, want: []string{"d755 a", "d755 a/b", "d755 a/b/c", "f644 a/b/c/d=1"},
			refused: []string{`"a/b/c/d/e": it lies too deep`},
		},
		{name: "refused by the caller", o: Options{Refuse: func(name string, dir bool) string {
			if strings.HasPrefix(name+"/", ".git/") {
				return "it belongs to git"
			}
			return ""
		}}, in: []entry{f(".git/config", "x"), f(".gitignore", "1")}, want: []string{"f644 .gitignore=1"}, refused: []string{`".git/config": it belongs to git`}},
	}
	for _, c := range cases {
		plain := tarOf(t, c.in...)
		forms := map[string][]byte{"tar": plain, "tar.gz": gz(t, plain), "tar.zst": zst(t, plain)}
		if !c.tarOnly {
			forms["zip"] = zipOf(t, c.in...)
		}
		for form, data := range forms {
			t.Run(c.name+"/"+form, func(t *testing.T) {
				b := newBox(t)
				r, err := b.unpack(data, c.o)
				if err != nil {
					t.Fatal(err)
				}
				if got := b.tree(); !slices.Equal(got, sorted(c.want)) {
					t.Errorf("tree\ngot  %q\nwant %q", got, sorted(c.want))
				}
				if got := refusals(r); !slices.Equal(got, append([]string{}, c.refused...)) || r.Left != len(c.refused) {
					t.Errorf("refused\ngot  %q\nwant %q", got, c.refused)
				}
				b.untouched()
				if len(c.refused) == 0 {
					return
				}
				o := c.o
				o.Strict = true
				if _, err := newBox(t).unpack(data, o); err == nil || !strings.Contains(err.Error(), c.refused[0]) {
					t.Errorf("strict: %v", err)
				}
			})
		}
	}
}

// sorted is the order that filepath.WalkDir goes in.
func sorted(lines []string) []string {
	out := slices.Clone(lines)
	name := func(s string) string {
		_, n, _ := strings.Cut(s, " ")
		n, _, _ = strings.Cut(n, "=")
		n, _, _ = strings.Cut(n, "->")
		return n
	}
	slices.SortFunc(out, func(a, b string) int { return slices.Compare(strings.Split(name(a), "/"), strings.Split(name(b), "/")) })
	if out == nil {
		out = []string{}
	}
	return out
}

func TestZipOnly(t *testing.T) {
	b := newBox(t)
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	w.CreateHeader(&zip.FileHeader{Name: `..\out\secret`})
	w.CreateRaw(&zip.FileHeader{Name: "locked", Flags: 1})
	w.CreateHeader(&zip.FileHeader{Name: "from dos", CreatorVersion: 0})
	w.CreateRaw(&zip.FileHeader{Name: "odd", Method: 99})
	w.Close()
	r, err := b.unpack(buf.Bytes(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`"..\\out\\secret": its name holds a backslash`, `"locked": it is encrypted`, `"odd": it can't be read: zip: unsupported compression algorithm`}
	if got := refusals(r); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := b.tree(); !slices.Equal(got, []string{"f644 from dos="}) {
		t.Errorf("%q", got)
	}
	if _, err := Unpack(t.Context(), strings.NewReader("PK\x03\x04"), b.root, Options{}); err == nil || !strings.Contains(err.Error(), "save it as a file first") {
		t.Error(err)
	}
}

func TestFilesThatExist(t *testing.T) {
	data := tarOf(t, f("a", "new"), f("link", "new"), f("dir", "new"), f("up/x", "new"), l("l", "a"), d("plain/sub"))
	prepare := func(b *box) {
		in := filepath.Join(b.base, "in")
		for _, err := range []error{
			os.WriteFile(filepath.Join(in, "a"), []byte("old"), 0o600), os.Symlink("../out/secret", filepath.Join(in, "link")), os.Mkdir(filepath.Join(in, "dir"), 0o755),
			os.Symlink("../out", filepath.Join(in, "up")), os.WriteFile(filepath.Join(in, "l"), []byte("old"), 0o644), os.WriteFile(filepath.Join(in, "plain"), nil, 0o644),
		} {
			if err != nil {
				b.t.Fatal(err)
			}
		}
	}
	b := newBox(t)
	prepare(b)
	r, err := b.unpack(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`"a": it exists already`, `"link": it exists already`, `"dir": a folder stands there`, `"up/x": "up" stands where a folder should be`,
		`"plain/sub": "plain" stands where a folder should be`, `"l": it exists already`,
	}
	if got := refusals(r); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	b.untouched()

	b = newBox(t)
	prepare(b)
	r, err = b.unpack(data, Options{Overwrite: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.tree(); !slices.Equal(got, []string{"f644 a=new", "d755 dir", "l l->a", "f644 link=new", "f644 plain=", "l up->../out"}) || r.Left != 3 {
		t.Errorf("%q %q", got, refusals(r))
	}
	b.untouched()
}

// zeros is a tar of one file of n zeros.
func zeros(t testing.TB, n int64, w io.Writer) {
	tw := tar.NewWriter(w)
	if err := tw.WriteHeader(&tar.Header{Name: "zeros", Size: n, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<20)
	for ; n > 0; n -= int64(len(b)) {
		if _, err := tw.Write(b[:min(n, int64(len(b)))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBombs(t *testing.T) {
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	zeros(t, 64<<20, z)
	z.Close()
	var zipped bytes.Buffer
	zw := zip.NewWriter(&zipped)
	x, _ := zw.Create("zeros")
	x.Write(make([]byte, 30<<20))
	zw.Close()
	many := make([]entry, 101)
	for i := range many {
		many[i] = d(fmt.Sprint(i))
	}
	sparse := tarOf(t, f("a", strings.Repeat("x", 100)), f("b", strings.Repeat("x", 100)))
	for name, c := range map[string]struct {
		data []byte
		o    Limits
		want string
	}{
		"ratio":       {packed.Bytes(), Limits{}, "unpack to more than 1000 times as many"},
		"bytes":       {packed.Bytes(), Limits{Bytes: 1 << 20}, "it unpacks to more than 1048576 bytes"},
		"zip bytes":   {zipped.Bytes(), Limits{Bytes: 1 << 20}, "it unpacks to more than 1048576 bytes"},
		"zip ratio":   {zipped.Bytes(), Limits{Ratio: 10}, "unpack to more than 10 times as many"},
		"two files":   {sparse, Limits{Bytes: 150}, "it unpacks to more than 150 bytes"},
		"members":     {tarOf(t, many...), Limits{Entries: 100}, "more than 100 members"},
		"zip members": {zipOf(t, many...), Limits{Entries: 100}, "more than 100 members"},
	} {
		b := newBox(t)
		_, err := b.unpack(c.data, Options{Limits: c.o})
		if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		var size int64
		filepath.WalkDir(filepath.Join(b.base, "in"), func(_ string, d fs.DirEntry, _ error) error {
			if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() {
				size += fi.Size()
			}
			return nil
		})
		if most := max(c.o.Bytes, ratioFrom) + 1<<20; size > most {
			t.Errorf("%s: %d bytes were written", name, size)
		}
	}
	b := newBox(t)
	if r, err := b.unpack(packed.Bytes(), Options{Limits: Limits{Ratio: 1 << 30}}); err != nil || r.Bytes != 64<<20 {
		t.Errorf("allowed: %+v %v", r, err)
	}
}

func TestManyRefusalsAreCounted(t *testing.T) {
	es := make([]entry, 1500)
	for i := range es {
		es[i] = f("../"+fmt.Sprint(i), "")
	}
	r, err := newBox(t).unpack(tarOf(t, es...), Options{})
	if err != nil || len(r.Refused) != 1000 || r.Left != 1500 {
		t.Errorf("%d of %d, %v", len(r.Refused), r.Left, err)
	}
	_, err = newBox(t).unpack(tarOf(t, es...), Options{Strict: true})
	if err == nil || !strings.HasPrefix(err.Error(), "the archive holds 1500 unsafe members\n  \"../0\": ") || !strings.HasSuffix(err.Error(), "\n  and 1490 more") {
		t.Error(err)
	}
}

func TestDamagedArchives(t *testing.T) {
	whole := tarOf(t, f("a", strings.Repeat("abc", 4000)))
	packed := gz(t, whole)
	bad := slices.Clone(packed)
	bad[len(bad)-6] ^= 1 // in the checksum, which stands behind the last member
	for name, data := range map[string][]byte{
		"cut tar": whole[:3000], "cut gzip": packed[:len(packed)-20], "wrong checksum": bad, "cut zstd": zst(t, whole)[:30],
		"garbage": []byte(strings.Repeat("garbage ", 200)), "cut zip": zipOf(t, f("a", "b"))[:60], "gzip of nothing known": gz(t, []byte(strings.Repeat("x", 1024))),
	} {
		if _, err := newBox(t).unpack(data, Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if r, err := newBox(t).unpack(nil, Options{}); err != nil || r.Files > 0 {
		t.Errorf("an empty file is an empty tar: %+v %v", r, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := newBox(t)
	if _, err := Unpack(ctx, bytes.NewReader(tarOf(t, f("a", "x"))), b.root, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Pack(ctx, io.Discard, b.root, PackOptions{}); err != nil {
		t.Error("nothing to pack:", err)
	}
	if err := b.root.WriteFile("x", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Pack(ctx, io.Discard, b.root, PackOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "256k")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	_, err = Unpack(t.Context(), bytes.NewReader(tarOf(t, f("big", strings.Repeat("x", 1<<20)))), root, Options{})
	if err == nil || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), `unpack "big"`) {
		t.Error(err)
	}
}
