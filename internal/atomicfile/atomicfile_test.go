package atomicfile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// only fails unless dir holds exactly names.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range es {
		have = append(have, e.Name())
	}
	if strings.Join(have, "|") != strings.Join(names, "|") {
		t.Errorf("folder holds %q, want %q", have, names)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWriteReplaces(t *testing.T) {
	for _, name := range []string{"plain", "with space", "ünïcödé 文件", strings.Repeat("n", 255), "-rf", "a\nb"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		for _, text := range []string{"one", "", "three"} {
			if err := WriteBytes(path, 0o640, []byte(text)); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if got := read(t, path); got != text {
				t.Errorf("%q holds %q, want %q", name, got, text)
			}
		}
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != 0o640 {
			t.Errorf("mode %o, want 640", fi.Mode().Perm())
		}
		only(t, dir, name)
	}
}

func TestWriteReplacesALinkAndLeavesItsTarget(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", link); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(link, 0o600, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if read(t, target) != "old" || read(t, link) != "new" {
		t.Errorf("target %q, link %q", read(t, target), read(t, link))
	}
}

func TestWriteLeavesSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"to-pipe": "pipe", "to-device": "/dev/null", "to-output": "/proc/self/fd/1"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pipe", "to-pipe", "to-device", "to-output"} {
		path := filepath.Join(dir, name)
		err := WriteBytes(path, 0o600, []byte("x"))
		if !errors.Is(err, ErrSpecial) {
			t.Errorf("%s: %v, want ErrSpecial", name, err)
		}
		if fi, err := os.Lstat(path); err != nil || fi.Mode().IsRegular() {
			t.Errorf("%s was replaced: %v, %v", name, fi, err)
		}
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	bad := errors.New("source went away")
	half := func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			return err
		}
		return bad
	}
	type op func(string, fs.FileMode, func(io.Writer) error) error
	for name, do := range map[string]op{"write": Write, "create": Create} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		err := do(path, 0o600, half)
		if !errors.Is(err, bad) || err.Error() != name+" "+path+": source went away" {
			t.Errorf("%s: %v", name, err)
		}
		only(t, dir)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WriteBytes(path, 0o600, []byte("whole")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, 0o600, half); !errors.Is(err, bad) {
		t.Error(err)
	}
	if got := read(t, path); got != "whole" {
		t.Errorf("after a failed write: %q", got)
	}
	only(t, dir, "f")
}

func TestFailureNamesTheTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "f")
	for _, err := range []error{WriteBytes(path, 0o600, nil), CreateBytes(path, 0o600, nil)} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), tempPrefix) {
			t.Error(err)
		}
	}
}

func TestCreateOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("文", 85))
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		wg.Go(func() { errs[i] = CreateBytes(path, 0o644, []byte(strconv.Itoa(i))) })
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won < 0:
			won = i
		case !errors.Is(err, fs.ErrExist):
			t.Errorf("racer %d: %v", i, err)
		}
	}
	if won < 0 || read(t, path) != strconv.Itoa(won) {
		t.Errorf("racer %d won and the file holds %q", won, read(t, path))
	}
	only(t, dir, filepath.Base(path))
}

func TestCreateWithoutUnnamedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	tmp, err := newNamed(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := tmp.fill(all([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	if err := tmp.link(path); err != nil {
		t.Fatal(err)
	}
	tmp.discard()
	only(t, dir, "f")
	if read(t, path) != "x" {
		t.Error(read(t, path))
	}
}

func TestCreateSeesADanglingLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Symlink("nowhere", path); err != nil {
		t.Fatal(err)
	}
	if err := CreateBytes(path, 0o600, nil); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	only(t, dir, "f")
}

func TestDeadWritersFileIsSwept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(tempPath(path, 0), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	live, err := newNamed(path, 0o600) // takes name 0 over
	if err != nil {
		t.Fatal(err)
	}
	defer live.discard()
	if live.path != tempPath(path, 0) {
		t.Errorf("took %s", live.path)
	}
	if err := WriteBytes(path, 0o600, []byte("x")); err != nil { // beside a living writer
		t.Fatal(err)
	}
	if _, err := os.Stat(live.path); err != nil {
		t.Errorf("a living writer's file is gone: %v", err)
	}
	live.discard()
	only(t, dir, "f")
}

func TestManyWritersLeaveOneWholeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if err := WriteBytes(path, 0o600, []byte(strings.Repeat(string(rune('a'+i)), 10000))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := read(t, path)
	if len(got) != 10000 || strings.Trim(got, got[:1]) != "" {
		t.Errorf("%d bytes, mixed", len(got))
	}
	only(t, dir, "f")
}

func TestUpdateLosesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "n")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := Update(t.Context(), path, 0o600, func(old []byte) ([]byte, error) {
				n := 0
				if old != nil {
					n, _ = strconv.Atoi(string(old))
				}
				return []byte(strconv.Itoa(n + 1)), nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := read(t, path); got != "20" {
		t.Errorf("counted %s of 20", got)
	}
}

func TestUpdateWritesOnlyChanges(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	same := func(old []byte) ([]byte, error) { return old, nil }
	if err := Update(t.Context(), path, 0o600, same); err != nil {
		t.Fatal(err)
	}
	only(t, dir, "f.lock")
	if err := Update(t.Context(), path, 0o600, func([]byte) ([]byte, error) { return []byte{}, nil }); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Update(t.Context(), path, 0o600, same); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("equal bytes were written again")
	}
	bad := errors.New("no")
	if err := Update(t.Context(), path, 0o600, func([]byte) ([]byte, error) { return []byte("x"), bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
	if read(t, path) != "" {
		t.Error("a refused change was written")
	}
}

func TestMkdirAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b", "ü", "c")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := MkdirAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for d := range 3 {
		p := dir
		for range d {
			p = filepath.Dir(p)
		}
		fi, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %o", p, fi.Mode().Perm())
		}
	}
	file := filepath.Join(dir, "f")
	if err := WriteBytes(file, 0o600, nil); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(file, "x")); err == nil {
		t.Error("made a folder below a file")
	}
}

func TestLocksExclude(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	a, err := TrySharedLock(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := TrySharedLock(path)
	if err != nil {
		t.Fatal("two readers:", err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a writer beside readers: %v", err)
	}
	a.Unlock()
	b.Unlock()
	w, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TrySharedLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a reader beside a writer: %v", err)
	}
	if err := w.Share(); err != nil {
		t.Fatal(err)
	}
	c, err := TrySharedLock(path)
	if err != nil {
		t.Errorf("a reader beside a shared lock: %v", err)
	}
	c.Unlock()
	w.Unlock()
	if err := w.Unlock(); err != nil {
		t.Errorf("second unlock: %v", err)
	}
}

func TestLockWaitsUntilItsContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	held, err := NewLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the user gave up")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
	defer cancel()
	if _, err := NewLock(ctx, path); !errors.Is(err, why) {
		t.Errorf("waited and got %v", err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := NewLock(t.Context(), path)
		if err == nil {
			l.Unlock()
		}
		got <- err
	}()
	held.Unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A lock that is waited for is given up when it isn't wanted any more, and taken while it is.
func TestLockUnless(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := NewLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	if l, err := NewLockUnless(t.Context(), path, func() bool { looks++; return looks == 3 }); l != nil || err != nil || looks != 3 {
		t.Errorf("%v %v after %d looks", l, err, looks)
	}
	l, err := NewLockUnless(t.Context(), path, func() bool { return held.Unlock() != nil })
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// A lock file may be removed by its holder: whoever waited must end up on the file that is there, never on the removed one.
func TestRemovedLockStaysExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	inside, most := 0, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				l, err := NewLock(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				if i%2 == 0 {
					err = l.Remove()
				} else {
					err = l.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most != 1 {
		t.Errorf("%d held one exclusive lock at once", most)
	}
}

func TestLockNeverFollowsALink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "l")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), path); err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); err == nil {
		t.Error("locked through a link")
	}
	only(t, dir, "l")
}
