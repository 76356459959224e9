package atomicfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked: the lock is held by somebody else.
var ErrLocked = errors.New("in use by another process")

// Lock is a held lock on a lock file: exclusive, or shared with other readers. The kernel drops it when its process ends, however it ends,
// so a lock is never stale and is never removed by age. Two locks in one process exclude each other as those of two processes do.
type Lock struct {
	f    *os.File
	path string
	lent atomic.Bool // a child may hold a copy on purpose
}

// NewLock waits for the exclusive lock on path, whose file is made when missing (its folder is not), until ctx ends.
func NewLock(ctx context.Context, path string) (*Lock, error) {
	return wait(ctx, path, unix.LOCK_EX, nil)
}

// NewLockUnless is NewLock that gives up waiting, with neither a lock nor an error, once needless tells that the lock isn't wanted any more.
func NewLockUnless(ctx context.Context, path string, needless func() bool) (*Lock, error) {
	return wait(ctx, path, unix.LOCK_EX, needless)
}

// NewSharedLock waits for a shared lock: many may hold one, none while an exclusive lock is held.
func NewSharedLock(ctx context.Context, path string) (*Lock, error) {
	return wait(ctx, path, unix.LOCK_SH, nil)
}

// TryLock takes the exclusive lock or answers ErrLocked at once.
func TryLock(path string) (*Lock, error) { return try(path, unix.LOCK_EX) }

// TrySharedLock takes a shared lock or answers ErrLocked at once.
func TrySharedLock(path string) (*Lock, error) { return try(path, unix.LOCK_SH) }

// NewHeldLock makes a lock file that is there held or not at all: whoever tries the lock of a file that is there and gets it knows that its holder is gone.
// The error is fs.ErrExist where the file is there already.
func NewHeldLock(path string) (*Lock, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"~")
	if err != nil {
		return nil, err
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return &Lock{f: f, path: path}, nil
}

// Held tells whether a lock file is there, and whether somebody holds its lock; a file that can't be looked at counts as held. It makes no file.
func Held(path string) (there, held bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false
	}
	if err != nil {
		return true, true
	}
	defer func() { _ = release(f) }()
	if err := flock(f, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return true, true
	}
	return names(f, path), false
}

// Unlock gives the lock up. The file stays. It is legal more than once.
func (l *Lock) Unlock() error {
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	if l.lent.Load() {
		return f.Close()
	}
	return release(f)
}

// release unlocks and closes. Closing alone would leave the lock to a child that this process is about to start, which holds a copy of every file
// until it has become the program that it runs.
func release(f *os.File) error { return errors.Join(flock(f, unix.LOCK_UN), f.Close()) }

// Share turns an exclusive lock into a shared one. Between the two nobody holds the lock: what it guards must be looked at again.
func (l *Lock) Share() error {
	if err := flock(l.f, unix.LOCK_SH); err != nil {
		return fmt.Errorf("share the lock %s: %w", l.path, err)
	}
	return nil
}

// Remove deletes the lock file of an exclusive lock and gives the lock up. Processes that wait for it notice, and lock a new file.
func (l *Lock) Remove() error {
	if l.f == nil {
		return nil
	}
	return errors.Join(os.Remove(l.path), l.Unlock())
}

// File is the open lock file, for a holder that hands its lock to child processes: the lock lasts until the last copy is closed. Several may call it at once.
func (l *Lock) File() *os.File {
	l.lent.Store(true)
	return l.f
}

func try(path string, how int) (*Lock, error) {
	for {
		f, err := openLock(path, how)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how|unix.LOCK_NB); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if names(f, path) {
			return &Lock{f: f, path: path}, nil
		}
		_ = release(f) // its holder removed the file while we waited: lock the one that is there now
	}
}

// wait tries again after pauses that grow to 25 ms: a blocking flock could not be cancelled. needless may be nil.
func wait(ctx context.Context, path string, how int, needless func() bool) (*Lock, error) {
	pause := 500 * time.Microsecond
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx))
		}
		l, err := try(path, how)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		if needless != nil && needless() {
			return nil, nil
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
		case <-t.C:
		}
		pause = min(pause*2, 25*time.Millisecond)
	}
}

// openLock opens or makes a lock file. A shared lock needs no right to write.
func openLock(path string, how int) (*os.File, error) {
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK // a planted link or fifo must not lead or hold us
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|flags, 0o600)
	if err != nil && how == unix.LOCK_SH && (errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)) {
		if g, rerr := os.OpenFile(path, os.O_RDONLY|flags, 0); rerr == nil {
			return g, nil
		}
	}
	return f, err
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return ErrLocked
		case unix.ENOTSUP, unix.ENOSYS, unix.ENOLCK:
			return fmt.Errorf("this file system has no locks (%w); choose another folder", err)
		default:
			return err
		}
	}
}

// names tells whether path is f.
func names(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	at, err := os.Lstat(path)
	return err == nil && os.SameFile(have, at)
}
