package treestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// The test binary plays other processes: TREESTORE_ROLE says which, TREESTORE_DIR where.
func TestMain(m *testing.M) {
	if role := os.Getenv("TREESTORE_ROLE"); role != "" {
		runtime.LockOSThread() // so that a tracer counts the system calls of one thread
		if err := play(role, Open(os.Getenv("TREESTORE_DIR"), Options{ReadOnly: true})); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func play(role string, s *Store) error {
	ctx := context.Background()
	switch role {
	case "build": // a whole build, told apart from a tree that was there
		built := false
		h, err := s.Get(ctx, "key", func(_ context.Context, dir string) error {
			built = true
			return fill(dir, "by a process")
		})
		if err != nil {
			return err
		}
		fmt.Println("built", built)
		return h.Release()
	case "stuck": // a build that never ends
		_, err := s.Get(ctx, "key", func(_ context.Context, dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "half"), []byte("half"), 0o600); err != nil {
				return err
			}
			fmt.Println("ready")
			io.Copy(io.Discard, os.Stdin)
			return errors.New("not killed")
		})
		return err
	case "hold":
		h, err := s.Get(ctx, "key", func(context.Context, string) error { return errors.New("there is no tree") })
		if err != nil {
			return err
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		return h.Release()
	}
	return fmt.Errorf("no role %q", role)
}

// process starts the test binary in a role; wrap is what runs it, if anything.
func process(t *testing.T, role, dir string, wrap ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(wrap, exe)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "TREESTORE_ROLE="+role, "TREESTORE_DIR="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// start runs a role until it says "ready"; end closes its input and waits.
func start(t *testing.T, role, dir string) (cmd *exec.Cmd, end func() error) {
	t.Helper()
	cmd = process(t, role, dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatalf("%s: %q %v", role, line, err)
	}
	return cmd, func() error { return errors.Join(in.Close(), cmd.Wait()) }
}

func fill(dir, text string) error {
	return errors.Join(
		os.MkdirAll(filepath.Join(dir, "a b", "ü"), 0o755),
		os.WriteFile(filepath.Join(dir, "a b", "ü", strings.Repeat("n", 255)), []byte(text), 0o755),
		os.Symlink("a b", filepath.Join(dir, "link")),
	)
}

func content(t *testing.T, h *Held) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(h.Path(), "link", "ü", strings.Repeat("n", 255)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func get(t *testing.T, s *Store, key string) (*Held, bool) {
	t.Helper()
	built := false
	h, err := s.Get(t.Context(), key, func(_ context.Context, dir string) error {
		built = true
		return fill(dir, "of "+key)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Release() })
	return h, built
}

func store(t *testing.T, o Options) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state ü", "trees")
	t.Cleanup(func() { removeAll(dir) })
	return Open(dir, o)
}

// left are the names in the folder of work that is done or dead.
func left(t *testing.T, s *Store) []string {
	t.Helper()
	es, err := os.ReadDir(filepath.Join(s.dir, tempDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		out = append(out, e.Name())
	}
	return out
}

func TestBuiltOnce(t *testing.T) {
	s := store(t, Options{})
	for _, key := range []string{"plain-key.1", "sha256:abc", "", "../../etc", "a/b", strings.Repeat("long", 100), "Case", "case", "ü", "k-x", ".hidden", "a~b"} {
		h, built := get(t, s, key)
		if !built || content(t, h) != "of "+key {
			t.Errorf("%q: built %v, holds %q", key, built, content(t, h))
		}
		again, built := get(t, s, key)
		if built || again.Path() != h.Path() || !s.Has(key) {
			t.Errorf("%q: built again", key)
		}
		if filepath.Dir(filepath.Dir(h.Path())) != s.dir {
			t.Errorf("%q: %s", key, h.Path())
		}
	}
	l, err := s.List(t.Context())
	if err != nil || len(l) != 12 {
		t.Fatal(l, err)
	}
	for _, e := range l {
		if e.Bytes != int64(len("of "+e.Key)) || e.Files != 2 || e.Created.IsZero() || e.LastUsed.Before(e.Created) || !e.InUse {
			t.Errorf("%+v", e)
		}
	}
	if n := left(t, s); len(n) > 0 {
		t.Errorf("left %q", n)
	}
}

func TestMissingStoreIsEmpty(t *testing.T) {
	s := store(t, Options{})
	l, err := s.List(t.Context())
	p, perr := s.Prune(t.Context(), func(Entry) bool { return false })
	if err != nil || perr != nil || len(l) > 0 || len(p.Removed) > 0 || s.Remove("x") != nil {
		t.Error(l, err, p, perr)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("looking made a store")
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	s := store(t, Options{})
	bad := errors.New("no network")
	_, err := s.Get(t.Context(), "key", func(_ context.Context, dir string) error {
		return errors.Join(fill(dir, "half"), os.Chmod(dir, 0o500), bad)
	})
	if !errors.Is(err, bad) || s.Has("key") || len(left(t, s)) > 0 {
		t.Error(err, left(t, s))
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Get(ctx, "key", func(_ context.Context, dir string) error { cancel(); return fill(dir, "late") })
	if !errors.Is(err, context.Canceled) || s.Has("key") || len(left(t, s)) > 0 {
		t.Error(err, left(t, s))
	}
	if _, built := get(t, s, "key"); !built {
		t.Error("a failed build counts")
	}
}

func TestManyAskAtOnce(t *testing.T) {
	s := store(t, Options{})
	var builds, fails atomic.Int32
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			h, err := s.Get(t.Context(), "key", func(_ context.Context, dir string) error {
				if builds.Add(1) == 1 {
					return errors.New("the first build fails")
				}
				time.Sleep(20 * time.Millisecond)
				return fill(dir, "once")
			})
			if err != nil {
				fails.Add(1)
				return
			}
			if content(t, h) != "once" {
				t.Error(content(t, h))
			}
			if err := h.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if builds.Load() != 2 || fails.Load() != 1 {
		t.Errorf("%d builds, %d failures", builds.Load(), fails.Load())
	}
}

// TestNobodyWaitsToBeAlone: who saw no tree takes the one that came meanwhile, though others hold it.
func TestNobodyWaitsToBeAlone(t *testing.T) {
	s, other := store(t, Options{}), store(t, Options{})
	name := nameOf("key")
	if err := s.prepare(name); err != nil {
		t.Fatal(err)
	}
	user, err := atomicfile.TrySharedLock(s.lockPath(name))
	if err != nil {
		t.Fatal(err)
	}
	defer user.Unlock()
	got := make(chan error, 1)
	go func() {
		h, err := s.Get(t.Context(), "key", func(context.Context, string) error { return errors.New("built beside a user") })
		if err == nil {
			err = h.Release()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatal("it did not wait for a tree:", err)
	case <-time.After(50 * time.Millisecond):
	}
	h, err := other.Get(t.Context(), "key", func(_ context.Context, dir string) error { return fill(dir, "x") })
	if err == nil {
		err = errors.Join(h.Release(), os.Rename(filepath.Join(other.dir, name), filepath.Join(s.dir, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits until others have done with the tree")
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	s := store(t, Options{})
	building, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		h, err := s.Get(t.Context(), "key", func(_ context.Context, dir string) error {
			close(building)
			<-done
			return fill(dir, "x")
		})
		if err != nil {
			t.Error(err)
			return
		}
		h.Release()
	})
	<-building
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, "key", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	p, err := s.Prune(t.Context(), func(Entry) bool { return false })
	if err != nil || p.Swept > 0 {
		t.Errorf("pruned under a builder: %+v %v", p, err)
	}
	close(done)
	wg.Wait()
}

func TestPruneSparesWhatIsHeld(t *testing.T) {
	s := store(t, Options{ReadOnly: true})
	held, _ := get(t, s, "held")
	free, _ := get(t, s, "free")
	wanted, _ := get(t, s, "wanted")
	free.Release()
	free.Release()
	wanted.Release()
	p, err := s.Prune(t.Context(), func(e Entry) bool { return e.Key == "wanted" })
	if err != nil || len(p.Removed) != 1 || p.Removed[0].Key != "free" || len(p.Busy) != 1 || p.Busy[0].Key != "held" || !p.Busy[0].InUse {
		t.Errorf("%+v %v", p, err)
	}
	if content(t, held) != "of held" || s.Has("free") || !s.Has("wanted") {
		t.Error("the wrong tree went")
	}
	if err := s.Remove("held"); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	held.Release()
	if err := s.Remove("held"); err != nil || s.Has("held") {
		t.Error(err)
	}
	if es, _ := os.ReadDir(filepath.Join(s.dir, locksDir)); len(es) != 1 || es[0].Name() != "wanted" {
		t.Errorf("locks left: %v", es)
	}
}

// Getting, pruning and removing at once never gives a tree that is not whole.
func TestGetAndPruneAtOnce(t *testing.T) {
	s := store(t, Options{ReadOnly: true})
	ctx, cancel := context.WithCancel(t.Context())
	var pruner, users sync.WaitGroup
	var pruned atomic.Int32
	pruner.Go(func() {
		for ctx.Err() == nil {
			p, err := s.Prune(t.Context(), func(Entry) bool { return false })
			if err != nil {
				t.Error(err)
			}
			pruned.Add(int32(len(p.Removed)))
		}
	})
	for i := range 4 {
		users.Go(func() {
			for n := 0; n < 10 || pruned.Load() < 5 && n < 1000; n++ {
				key := strconv.Itoa((i + n) % 3)
				h, err := s.Get(t.Context(), key, func(_ context.Context, dir string) error { return fill(dir, key) })
				if err != nil {
					t.Error(err)
					return
				}
				if got := content(t, h); got != key {
					t.Errorf("tree %s holds %q", key, got)
				}
				if err := h.Release(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond) // leaves the pruner a moment in which nobody holds the tree
			}
		})
	}
	users.Wait()
	cancel()
	pruner.Wait()
	if pruned.Load() == 0 {
		t.Error("nothing was ever pruned: the test shows nothing")
	}
}

func TestReadOnlyTrees(t *testing.T) {
	s := store(t, Options{ReadOnly: true})
	h, _ := get(t, s, "key")
	for name, want := range map[string]fs.FileMode{".": 0o500, "a b": 0o555, "a b/ü/" + strings.Repeat("n", 255): 0o555} {
		fi, err := os.Stat(filepath.Join(h.Path(), name))
		if err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, fi.Mode(), err)
		}
	}
	w := store(t, Options{})
	h, _ = get(t, w, "key")
	if err := os.WriteFile(filepath.Join(h.Path(), "more"), nil, 0o600); err != nil {
		t.Error("modes were changed:", err)
	}
}

func TestDamagedEntryIsBuiltAgain(t *testing.T) {
	s := store(t, Options{})
	h, _ := get(t, s, "key")
	h.Release()
	if err := os.Remove(filepath.Join(s.dir, "key", metaFile)); err != nil {
		t.Fatal(err)
	}
	l, err := s.List(t.Context())
	if err != nil || len(l) != 1 || l[0].Key != "" {
		t.Errorf("%+v %v", l, err)
	}
	if _, built := get(t, s, "key"); !built {
		t.Error("half a tree was taken")
	}
}

func TestReadOnlyFolder(t *testing.T) {
	s := store(t, Options{})
	h, _ := get(t, s, "key")
	h.Release()
	readOnly(t, s.dir)
	h, built := get(t, s, "key")
	if built || content(t, h) != "of key" {
		t.Error("a tree of a read-only store was not served")
	}
	if _, err := s.Get(t.Context(), "other", func(context.Context, string) error { return nil }); err == nil || !strings.Contains(err.Error(), "read-only file system") {
		t.Error(err)
	}
	if l, err := s.List(t.Context()); err != nil || len(l) != 1 {
		t.Error(l, err)
	}
}

func TestFullDisk(t *testing.T) {
	s := Open(filepath.Join(smallDisk(t, "512k"), "trees"), Options{})
	_, err := s.Get(t.Context(), "key", func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o600)
	})
	if err == nil || !strings.Contains(err.Error(), "no space left on device") || len(left(t, s)) > 0 {
		t.Error(err, left(t, s))
	}
	if _, built := get(t, s, "key"); !built {
		t.Error("after the disk was full nothing can be built")
	}
}

func TestProcessesShareOneBuild(t *testing.T) {
	s := store(t, Options{ReadOnly: true})
	var cmds []*exec.Cmd
	outs := make([]strings.Builder, 4)
	for i := range outs {
		cmd := process(t, "build", s.dir)
		cmd.Stdout = &outs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	var said []string
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err, outs[i].String())
		}
		said = append(said, outs[i].String())
	}
	slices.Sort(said)
	if !slices.Equal(said, []string{"built false\n", "built false\n", "built false\n", "built true\n"}) {
		t.Errorf("%q", said)
	}
}

func TestKilledBuilder(t *testing.T) {
	s := store(t, Options{ReadOnly: true})
	cmd, end := start(t, "stuck", s.dir)
	p, err := s.Prune(t.Context(), func(Entry) bool { return false })
	if err != nil || p.Swept > 0 || len(left(t, s)) != 1 {
		t.Errorf("a living builder's work was swept: %+v %v", p, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	end()
	if len(left(t, s)) != 1 || s.Has("key") {
		t.Error("the test shows nothing:", left(t, s))
	}
	if h, built := get(t, s, "key"); !built || content(t, h) != "of key" || len(left(t, s)) > 0 {
		t.Error("the next one did not build and sweep:", left(t, s))
	}
}

func TestPruneSweepsDeadBuilders(t *testing.T) {
	s := store(t, Options{ReadOnly: true})
	cmd, end := start(t, "stuck", s.dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	end()
	p, err := s.Prune(t.Context(), func(Entry) bool { return true })
	if err != nil || p.Swept != 1 || len(left(t, s)) > 0 {
		t.Errorf("%+v %v %q", p, err, left(t, s))
	}
}

func TestAnotherProcessHolds(t *testing.T) {
	s := store(t, Options{ReadOnly: true})
	h, _ := get(t, s, "key")
	h.Release()
	_, end := start(t, "hold", s.dir)
	if p, err := s.Prune(t.Context(), func(Entry) bool { return false }); err != nil || len(p.Busy) != 1 || len(p.Removed) > 0 {
		t.Errorf("%+v %v", p, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if p, err := s.Prune(t.Context(), func(Entry) bool { return false }); err != nil || len(p.Removed) != 1 {
		t.Errorf("%+v %v", p, err)
	}
}

// A build is killed at every sync, rename and new folder, one after another: the next process finds a whole tree or none, and leaves no litter.
func TestKilledAtEverySync(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil || testing.Short() {
		t.Skip("needs strace, and more than a few seconds:", err)
	}
	for _, call := range []string{"fsync", "renameat", "mkdirat"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			kills := 0
			for k := 1; ; k++ {
				if k > 40 {
					t.Fatal("the build never ended")
				}
				s := store(t, Options{ReadOnly: true})
				err := process(t, "build", s.dir, strace, "-f", "-qq", "-o", os.DevNull, "-e", "signal=none", "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, k)).Run()
				if err == nil {
					break
				}
				kills++
				was := s.Has("key")
				h, built := get(t, s, "key")
				want := "of key"
				if was {
					want = "by a process"
				}
				if was == built || content(t, h) != want {
					t.Errorf("kill %d: there %v, built %v, holds %q", k, was, built, content(t, h))
				}
				if n := left(t, s); len(n) > 0 {
					t.Errorf("kill %d left %q", k, n)
				}
				h.Release()
			}
			if kills == 0 {
				t.Error("nothing was killed")
			}
			t.Logf("%d kills", kills)
		})
	}
}

func TestManyFiles(t *testing.T) {
	s := store(t, Options{})
	h, err := s.Get(t.Context(), "many", func(_ context.Context, dir string) error {
		for i := range manyFiles + 1 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("x"), 0o600); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(dir, "closed"), nil, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if l, err := s.List(t.Context()); err != nil || l[0].Files != manyFiles+2 || l[0].Bytes != manyFiles+1 {
		t.Errorf("%+v %v", l, err)
	}
}

func BenchmarkGet(b *testing.B) {
	s := Open(filepath.Join(b.TempDir(), "trees"), Options{})
	for b.Loop() {
		h, err := s.Get(b.Context(), "key", func(_ context.Context, dir string) error { return fill(dir, "x") })
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

// A lock that was handed on holds its tree after its first holder's release.
func TestHandedLockHolds(t *testing.T) {
	s := Open(t.TempDir(), Options{Volatile: true})
	h, err := s.Get(t.Context(), "key", func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(h.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if h.File() != nil {
		t.Error("a released tree still has a lock")
	}
	if err := s.Remove("key"); !errors.Is(err, ErrInUse) {
		t.Errorf("remove of a held tree: %v, want ErrInUse", err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("key"); err != nil {
		t.Error(err)
	}
}
