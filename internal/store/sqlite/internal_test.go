package sqlite

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
)

func openT(t testing.TB, root string) *Store {
	t.Helper()
	s, err := Open(root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func putT(t testing.TB, s *Store, r io.Reader) ref.Digest {
	t.Helper()
	g, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := g.Put(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		out[path] = fmt.Sprint(fi.Mode(), fi.Size(), fi.ModTime())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Nothing is made before the first write, and reading a closed store leaves every file as it was.
func TestReadingWritesNothing(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "state", "store")
	ctx := t.Context()
	read := func() {
		t.Helper()
		s := openT(t, root)
		_, err := s.Get(ctx, store.Artifact, "x", 0)
		_, lerr := s.List(ctx, store.Query{Kind: store.Artifact})
		_, rerr := s.Runs().List(ctx, runlog.Query{})
		g, berr := s.Begin(ctx)
		if berr != nil {
			t.Fatal(berr)
		}
		_, _, perr := g.Put(strings.NewReader("small"))
		g.Doc(store.Doc{Kind: store.Artifact, ID: "x", Version: 1}, store.Absent)
		if err := errors.Join(lerr, rerr, perr, g.Discard(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
	read()
	if got := tree(t, dir); len(got) != 1 {
		t.Errorf("reading made %v", got)
	}
	s := openT(t, root)
	putT(t, s, bytes.NewReader(make([]byte, store.MaxInline+1)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{root: 0o700, filepath.Dir(root): 0o700, s.file(): 0o600, s.path("tmp"): 0o700, s.path("objects"): 0o700} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", path, fi.Mode(), err, mode)
		}
	}
	before := tree(t, dir)
	read()
	if after := tree(t, dir); !maps.Equal(before, after) {
		// SQLite makes its log and shared memory while the store is open, which touches the folder.
		delete(before, root)
		delete(after, root)
		if !maps.Equal(before, after) {
			t.Errorf("reading changed\n%v\nto\n%v", before, after)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if _, err := s.Get(ctx, store.Artifact, "x", 0); !errors.Is(err, errClosed) {
		t.Errorf("Get after Close: %v", err)
	}
	if err := s.Runs().Create(ctx, runlog.Meta{ID: "x"}); !errors.Is(err, errClosed) {
		t.Errorf("Create after Close: %v", err)
	}
}

func TestSchema(t *testing.T) {
	root := t.TempDir()
	s := openT(t, root)
	putT(t, s, strings.NewReader("x"))
	rows := func(s *Store) (out []int64) {
		t.Helper()
		if err := s.read(t.Context(), func(c *conn) error {
			return c.query(t.Context(), "SELECT version FROM schema_version ORDER BY version", func(r []driver.Value) error {
				out = append(out, num(r[0]))
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := rows(s); len(got) != len(migrations) {
		t.Errorf("versions %v", got)
	}
	// An older store is brought up to date step by step, once, and keeps what it holds.
	steps := append(append([]string{}, migrations...), "CREATE TABLE extra(x INTEGER) STRICT", "INSERT INTO extra VALUES(7)")
	for range 2 {
		if err := s.onWriter(t.Context(), func(c *conn) error { return s.migrate(t.Context(), c, steps) }); err != nil {
			t.Fatal(err)
		}
	}
	var x []int64
	if err := s.read(t.Context(), func(c *conn) error {
		return c.query(t.Context(), "SELECT x FROM extra", func(r []driver.Value) error { x = append(x, num(r[0])); return nil })
	}); err != nil || len(x) != 1 || x[0] != 7 {
		t.Errorf("%v, %v", x, err)
	}
	if got := rows(s); len(got) != len(steps) {
		t.Errorf("versions %v", got)
	}
	// A step that fails leaves the store at its version.
	err := s.onWriter(t.Context(), func(c *conn) error {
		return s.migrate(t.Context(), c, append(steps, "CREATE TABLE more(x) STRICT; NONSENSE"))
	})
	if err == nil || !strings.Contains(err.Error(), "format 4") {
		t.Errorf("got %v", err)
	}
	if got := rows(s); len(got) != len(steps) {
		t.Errorf("versions %v", got)
	}
	// This program's own formats end before: it neither reads nor writes the store now.
	later := openT(t, root)
	for name, do := range map[string]func() error{
		"read":  func() error { _, err := later.Get(t.Context(), store.Artifact, "x", 0); return err },
		"write": func() error { return later.Runs().Create(t.Context(), runlog.Meta{ID: "x"}) },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "newer version of this program (format 3, this one knows 1)") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForeignFiles(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "store.db"), bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openT(t, root)
	_, err := s.Get(t.Context(), store.Artifact, "x", 0)
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), root) {
		t.Errorf("read: %v", err)
	}
	if err := s.Runs().Create(t.Context(), runlog.Meta{ID: "x"}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("write: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{file, filepath.Join(file, "below")} {
		if err := openT(t, root).Runs().Create(t.Context(), runlog.Meta{ID: "x"}); err == nil {
			t.Errorf("a store in %s", root)
		}
	}
}

func TestDSN(t *testing.T) {
	for _, path := range []string{"/a b/ü/100%/x?y#z&mode=memory;'\"", "/plain", "/new\nline", "/%41"} {
		root := filepath.Join(t.TempDir(), path)
		s := openT(t, root)
		d := putT(t, s, strings.NewReader(path))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "store.db")); err != nil {
			t.Error(err)
		}
		if err := openT(t, root).Verify(t.Context(), d); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}
