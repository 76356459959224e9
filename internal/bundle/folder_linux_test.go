package bundle

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// A folder lists what os.ReadDir lists, and describes it as os.Lstat does.
func TestFolderListsAsTheSystemDoes(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"plain": 0o644, "run": 0o755, "set": 0o755 | fs.ModeSetuid, "none": 0, "a name\xff": 0o600} {
		full := filepath.Join(dir, "d", name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(full, mode); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 { // more than one answer of the kernel holds
		if err := os.Mkdir(filepath.Join(dir, "d", "a rather long name of a folder "+strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("plain", filepath.Join(dir, "d", "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "d", "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := f.ReadDir("d")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadDir(filepath.Join(dir, "d"))
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d entries, want %d, %v", len(got), len(want), err)
	}
	for i, w := range want {
		g := got[i]
		gi, err := g.Info()
		if err != nil {
			t.Fatal(err)
		}
		wi, err := w.Info()
		if err != nil {
			t.Fatal(err)
		}
		if g.Name() != w.Name() || g.Type() != w.Type() || g.IsDir() != w.IsDir() || gi.Name() != wi.Name() || gi.Mode() != wi.Mode() || gi.Size() != wi.Size() ||
			!gi.ModTime().Equal(wi.ModTime()) {
			t.Errorf("%q is %v of %d bytes, want %q, %v, %d", g.Name(), gi.Mode(), gi.Size(), w.Name(), wi.Mode(), wi.Size())
		}
	}
	if _, err := f.ReadDir("d/plain"); err == nil {
		t.Error("a file is listed")
	}
	if _, err := f.ReadDir("d/link"); err == nil {
		t.Error("a link is followed")
	}
	var read bytes.Buffer
	if n, err := f.readTo("d/run", &read, make([]byte, 2)); err != nil || n != 3 || read.String() != "run" {
		t.Errorf("%q, %d, %v", read.String(), n, err)
	}
	for _, name := range []string{"d/fifo", "d/link", "d", "d/missing", "../x"} {
		if _, err := f.readTo(name, &read, make([]byte, 2)); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
