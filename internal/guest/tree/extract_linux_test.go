package tree

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzExtract: whatever an archive says, nothing outside its folder is made, changed or removed.
func FuzzExtract(f *testing.F) {
	archive := func(hs ...*tar.Header) []byte {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range hs {
			if h.Typeflag == tar.TypeReg {
				h.Size = 1
			}
			if err := w.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				w.Write([]byte("x"))
			}
		}
		w.Close()
		return buf.Bytes()
	}
	f.Add(archive(&tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Mode: 0o644}))
	f.Add(archive(&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}, &tar.Header{Typeflag: tar.TypeReg, Name: "l/keep"}))
	f.Add(archive(&tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "../keep"}, &tar.Header{Typeflag: tar.TypeReg, Name: "h"}))
	f.Add(archive(&tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o555}, &tar.Header{Typeflag: tar.TypeReg, Name: "d/../../keep"}))
	f.Add(archive(&tar.Header{Typeflag: tar.TypeReg, Name: "x", PAXRecords: map[string]string{"SCHILY.xattr.user.a": "b"}}))
	f.Add(archive(&tar.Header{Typeflag: tar.TypeChar, Name: "w"}, &tar.Header{Typeflag: tar.TypeFifo, Name: "p"}))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		root := memoryDir(t)
		keep := filepath.Join(root, "keep")
		if err := os.WriteFile(keep, []byte("kept"), 0o640); err != nil {
			t.Fatal(err)
		}
		_ = Extract(bytes.NewReader(data), filepath.Join(root, "in"))
		if b, err := os.ReadFile(keep); err != nil || string(b) != "kept" {
			t.Fatalf("the file outside is %q, %v", b, err)
		}
		info, err := os.Lstat(keep)
		if err != nil || info.Mode() != 0o640 {
			t.Fatalf("the file outside: %v, %v", info, err)
		}
		entries, err := os.ReadDir(root)
		if err != nil || len(entries) != 2 {
			t.Fatalf("outside there are %v, %v", entries, err)
		}
		// So that the test can remove it again.
		_ = filepath.WalkDir(filepath.Join(root, "in"), func(name string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(name, 0o700)
			}
			return nil
		})
	})
}

// memoryDir is a temporary folder in memory where there is one: many are made.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agentenv-test-") //nolint:usetesting // in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"a", "a"},
		{"a/b/", "a/b"},
		{"./a", "a"},
		{"a//b", "a/b"},
		{".", "."},
		{"./", "."},
		{"", "."},
		{"...", "..."},
		{"a..b", "a..b"},
		{"\xff", "\xff"},
		{"..", ""},
		{"../a", ""},
		{"a/../b", ""},
		{"a/..", ""},
		{"/a", ""},
		{"a\x00b", ""},
	} {
		got, err := clean(c.name)
		if (err != nil) != (c.want == "") || got != c.want {
			t.Errorf("%q: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

// A tree and its archive say the same, and a file that shrinks while it is packed keeps the archive whole.
func TestSendTreeOfAShrinkingFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("x"), 100), 0o644); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := &shrinker{w: &buf, file: filepath.Join(dir, "f")}
	if err := Pack(w, dir); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&buf)
	for {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "f" {
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(b); len(got) != 100 || strings.Trim(got, "x\x00") != "" {
				t.Errorf("f holds %q", got)
			}
			return
		}
	}
}

// shrinker truncates a file when the header of its entry is written.
type shrinker struct {
	w    *bytes.Buffer
	file string
}

func (s *shrinker) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("f\x00")) { // its header
		if err := os.Truncate(s.file, 10); err != nil {
			return 0, err
		}
	}
	return s.w.Write(p)
}
