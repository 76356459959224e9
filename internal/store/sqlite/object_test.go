package sqlite

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// An object that is there isn't written again: neither its file nor a temporary one.
func TestDedupe(t *testing.T) {
	s := openT(t, t.TempDir())
	b := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	d := putT(t, s, bytes.NewReader(b))
	first, err := os.Stat(s.objectPath(d))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, n, err := g.Put(f); err != nil || got != d || n != int64(len(b)) {
		t.Fatal(got, n, err)
	}
	if left, err := os.ReadDir(s.path("tmp")); err != nil || len(left) != 0 {
		t.Errorf("a file that is stored already was copied: %v, %v", left, err)
	}
	if err := g.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	putT(t, s, bytes.NewReader(b))
	again, err := os.Stat(s.objectPath(d))
	if err != nil || !os.SameFile(first, again) || !first.ModTime().Equal(again.ModTime()) {
		t.Errorf("the object's file was replaced: %v", err)
	}
	// Another file of the same size is no twin.
	b[7]++
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got := putT(t, s, f); got != ref.DigestOf(b) {
		t.Errorf("got %s", got)
	}
	if err := s.Verify(t.Context(), ref.DigestOf(b)); err != nil {
		t.Error(err)
	}
}

func TestDamagedObjects(t *testing.T) {
	s := openT(t, t.TempDir())
	b := bytes.Repeat([]byte("x"), store.MaxInline+1)
	small, large := putT(t, s, strings.NewReader("small")), putT(t, s, bytes.NewReader(b))
	path := s.objectPath(large)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm()&0o222 != 0 {
		t.Errorf("the object's file can be written: %v, %v", fi.Mode(), err)
	}
	damage := func(b []byte) {
		t.Helper()
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if b != nil {
			if err := os.WriteFile(path, b, 0o444); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, bad := range map[string][]byte{"changed": append([]byte("y"), b[1:]...), "cut": b[:100], "grown": append([]byte("x"), b...), "gone": nil} {
		damage(bad)
		if err := s.Verify(t.Context(), large); !errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "changed" {
			continue // a put can't see it without reading the object
		}
		if _, _, err := s.Open(t.Context(), large); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: Open: %v", name, err)
		}
		if got := putT(t, s, bytes.NewReader(b)); got != large { // a put of the same bytes mends it
			t.Fatal(got)
		}
		if err := s.Verify(t.Context(), large); err != nil {
			t.Errorf("%s, put again: %v", name, err)
		}
	}
	if err := s.write(t.Context(), durable, func(c *conn) error {
		_, err := c.exec(t.Context(), "UPDATE objects SET data=? WHERE sha=?", []byte("smile"), sha(small))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), small); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("small: %v", err)
	}
}

// An object's file that vanishes between Put and Commit, because a sweep or a prune took it, makes the stage plan again.
func TestObjectRemovedMeanwhile(t *testing.T) {
	s := openT(t, t.TempDir())
	b := bytes.Repeat([]byte("x"), store.MaxInline+1)
	d := putT(t, s, bytes.NewReader(b))
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Put(f); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.objectPath(d)); err != nil {
		t.Fatal(err)
	}
	if err := g.Commit(t.Context()); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v", err)
	}
	putT(t, s, bytes.NewReader(b))
	if err := s.Verify(t.Context(), d); err != nil {
		t.Error(err)
	}
}

// What dead writers left is swept; what living ones are writing, and files that are none of ours, stay.
func TestSweep(t *testing.T) {
	s := openT(t, t.TempDir())
	d := putT(t, s, bytes.NewReader(bytes.Repeat([]byte("x"), store.MaxInline+1)))
	orphan, later := ref.DigestOf([]byte("orphan")), ref.DigestOf([]byte("later"))
	if _, err := s.shards([]ref.Digest{orphan, later}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.path("tmp", "aa.work", "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bb.work", "notes", "cc.workshop"} {
		if err := os.Mkdir(s.path("tmp", dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		s.objectPath(orphan):              "moved into place, but never committed",
		s.objectPath(later):               "not announced: another writer's",
		s.path("tmp", "aa.work", "1"):     "half",
		s.path("tmp", "bb.work", "2"):     "",
		s.path("tmp", "bb.work/publish"):  orphan.Hex() + "\n" + d.Hex() + "\nnonsense/../../x\n" + later.Hex()[:50],
		s.path("tmp", "notes", "publish"): later.Hex(),
		s.path("tmp", "dd.work"):          "a file",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(s.path("tmp", "notes"), s.path("tmp", "ee.work")); err != nil {
		t.Fatal(err)
	}
	living, err := newWorkspace(s.path("tmp"))
	if err != nil {
		t.Fatal(err)
	}
	defer living.remove()
	g, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Discard(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		if e.Name() != filepath.Base(living.dir.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) != len(left)-1 || !slices.Equal(names, []string{"cc.workshop", "dd.work", "ee.work", "notes"}) {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(s.objectPath(orphan)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the orphan: %v", err)
	}
	if _, err := os.Stat(s.objectPath(later)); err != nil {
		t.Errorf("another writer's object: %v", err)
	}
	if err := s.Verify(t.Context(), d); err != nil {
		t.Errorf("the committed object: %v", err)
	}
}

// A stage of many large objects holds few descriptors.
func TestDescriptors(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts descriptors in /proc")
	}
	s := openT(t, t.TempDir())
	count := func() int {
		t.Helper()
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	before := count()
	g, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, store.MaxInline+1)
	for i := range 50 {
		b[0] = byte(i)
		if _, _, err := g.Put(bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if n := count() - before; n > 10 {
		t.Errorf("%d descriptors for 50 objects", n)
	}
	if err := g.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A put holds no more of its bytes than a few buffers, whatever comes.
func TestPutMemory(t *testing.T) {
	s := openT(t, t.TempDir())
	const size = 96 << 20
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]io.Reader{"file": f, "stream": io.LimitReader(zeroReader{}, size+1)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		putT(t, s, r)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%s: %d MB allocated for a put of %d MB", name, n>>20, size>>20)
		}
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// What stands in an object's place and is no regular file is damage: opening it neither hangs nor leads elsewhere, and a put mends it.
func TestObjectPlaceHoldsSomethingElse(t *testing.T) {
	s := openT(t, t.TempDir())
	b := bytes.Repeat([]byte("x"), store.MaxInline+1)
	large := putT(t, s, bytes.NewReader(b))
	path := s.objectPath(large)
	elsewhere := filepath.Join(t.TempDir(), "same size")
	if err := os.WriteFile(elsewhere, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]func() error{
		"a pipe":   func() error { return syscall.Mkfifo(path, 0o600) },
		"a link":   func() error { return os.Symlink(elsewhere, path) },
		"a folder": func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := place(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Open(t.Context(), large); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a folder" { // a rename can't replace it; people have to
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		putT(t, s, bytes.NewReader(b))
		if err := s.Verify(t.Context(), large); err != nil {
			t.Errorf("%s, put again: %v", name, err)
		}
	}
}
