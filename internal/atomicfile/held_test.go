package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A held lock appears held, and takes no other's place.
func TestHeldLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := NewHeldLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one gets it: %v", err)
	}
	if _, err := NewHeldLock(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one is made: %v", err)
	}
	if there, held := Held(path); !there || !held {
		t.Errorf("there %t, held %t", there, held)
	}
	if there, held := Held(path + "2"); there || held {
		t.Errorf("of no file: there %t, held %t", there, held)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if there, held := Held(path); !there || held {
		t.Errorf("given up: there %t, held %t", there, held)
	}
}

// A child that is being started holds copies of all open files for a moment: a lock that is given up is free at once all the same, unless it was handed to a
// child on purpose.
func TestUnlockBesideACopy(t *testing.T) {
	t.Parallel()
	for _, lent := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "lock")
		lock, err := NewLock(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(lock.f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		child := os.NewFile(uintptr(fd), path)
		defer child.Close()
		if lent {
			var lend sync.WaitGroup // as who starts several children at once does
			for range 2 {
				lend.Go(func() { _ = lock.File() })
			}
			lend.Wait()
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		next, err := TryLock(path)
		if lent != errors.Is(err, ErrLocked) {
			t.Errorf("handed on %t: %v", lent, err)
		}
		if err == nil {
			_ = next.Unlock()
		}
	}
}
