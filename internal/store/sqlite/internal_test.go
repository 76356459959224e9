package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

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

// A page of 10,000 runs is read in under 20 ms; the limit here leaves room for a busy machine.
func TestManyRunsAreListedQuickly(t *testing.T) {
	s := openT(t, t.TempDir())
	const n = 10_000
	err := s.write(t.Context(), relaxed, func(c *conn) error {
		for i := range n {
			m := runlog.Meta{
				ID: fmt.Sprintf("@local/agentenv-framework/hello/hello-%08x", i), Task: "@local/agentenv-framework/hello/hello", TaskVersion: 1,
				Label: "tasks/hello.json", Bundle: "/home/user/bundles/hello", Group: "g", Created: time.UnixMicro(int64(1e15 + i)),
			}
			sum := runlog.Summary{Status: runlog.Passed, Started: m.Created, Ended: m.Created, Scores: map[string]float64{"hello": 1}}
			if _, err := c.exec(context.WithoutCancel(t.Context()), "INSERT INTO runs VALUES(?,?,?,?,?,?,?,?,?,?,?,1,'host',1,1,'boot',0,0)", int64(i+1), m.ID, m.Task, m.Group, m.Eval,
				m.Created.UnixMicro(), string(sum.Status), micros(sum.Started), micros(sum.Ended), runlog.PackMeta(m), runlog.PackState(sum)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	best := time.Hour
	for range 10 {
		start := time.Now()
		p, err := s.Runs().List(t.Context(), runlog.Query{Limit: n})
		best = min(best, time.Since(start))
		if err != nil || len(p.Runs) != n || p.Next != "" || p.Runs[0].ID[len(p.Runs[0].ID)-8:] != "0000270f" || p.Runs[n-1].Scores["hello"] != 1 {
			t.Fatal(len(p.Runs), p.Next, err)
		}
	}
	t.Logf("best %v", best)
	if limit := 100 * time.Millisecond; best > limit {
		t.Errorf("a page of %d runs took %v at best, want less than %v", n, best, limit)
	}
}

func TestProcess(t *testing.T) {
	me := self()
	if me.pid != os.Getpid() || me.host == "" || me.gone(me) {
		t.Errorf("%+v", me)
	}
	if runtime.GOOS != "linux" {
		return
	}
	for name, tt := range map[string]struct {
		change func(*process)
		gone   bool
	}{
		"another start":  {func(p *process) { p.started-- }, true},
		"no such pid":    {func(p *process) { p.pid = 1 << 30 }, true},
		"another boot":   {func(p *process) { p.pid, p.boot = 1<<30, "x" }, false},
		"another host":   {func(p *process) { p.pid, p.host = 1<<30, "x" }, false},
		"unknown boot":   {func(p *process) { p.pid, p.boot = 1<<30, "" }, false},
		"unknown start":  {func(p *process) { p.started = 0 }, false},
		"nothing at all": {func(p *process) { *p = process{} }, false},
	} {
		p := me
		tt.change(&p)
		if p.gone(me) != tt.gone {
			t.Errorf("%s: gone is %v", name, !tt.gone)
		}
	}
}

// While a commit is under way, appends gather, and one commit serves them all.
func TestGroupCommit(t *testing.T) {
	s := openT(t, t.TempDir())
	l := s.runs
	if err := l.Create(t.Context(), runlog.Meta{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	o, err := l.Claim(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	commits := func() (n int) {
		t.Helper()
		b, err := os.ReadFile(s.file() + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		const header, frame, page = 32, 24, 4096
		for at := header; at+frame+page <= len(b); at += frame + page {
			if binary.BigEndian.Uint32(b[at+4:]) != 0 { // the last frame of a transaction holds the size of the file
				n++
			}
		}
		return n
	}
	before := commits()
	w := <-s.writer // nobody can commit now
	const n = 50
	done := make(chan error, n)
	for range n {
		go func() { done <- o.Append(context.WithoutCancel(t.Context()), runlog.Event{Kind: runlog.Note}) }()
	}
	waiting := func() int { l.appends.mu.Lock(); defer l.appends.mu.Unlock(); return len(l.appends.waiting) }
	for waiting() < n-1 {
		runtime.Gosched()
	}
	// One that gives up leaves the others alone.
	ctx, cancel := context.WithCancel(t.Context())
	quit := make(chan error, 1)
	go func() { quit <- o.Append(ctx, runlog.Event{Kind: "never"}) }()
	for waiting() < n {
		runtime.Gosched()
	}
	cancel()
	if err := <-quit; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.writer <- w
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := commits() - before; got != 2 { // the first of them, and all others
		t.Errorf("%d commits for %d appends, want two", got, n)
	}
	seen := 0
	for e, err := range l.Events(t.Context(), "r", 0) {
		if seen++; err != nil || e.Seq != uint64(seen) || e.Kind != runlog.Note {
			t.Fatal(e, err)
		}
	}
	if seen != n {
		t.Errorf("%d events, want %d", seen, n)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Close ends followers, and the store can be opened again.
func TestCloseEndsFollowers(t *testing.T) {
	root := t.TempDir()
	s := openT(t, root)
	if err := s.Runs().Create(t.Context(), runlog.Meta{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	started := make(chan struct{})
	go func() {
		close(started)
		var last error
		for _, err := range s.Runs().Follow(t.Context(), "r", 0) {
			last = err
		}
		ended <- last
	}()
	<-started
	time.Sleep(20 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := openT(t, root).Runs().Get(t.Context(), "r"); err != nil {
		t.Error(err)
	}
}
