// Package atomicfile writes files that other processes may read or write at the same time, and that must be whole or absent after a crash.
//
// Write replaces a file, Create makes one that nobody else made, Update changes one under a lock, Lock guards anything that has a path, and a
// Scratch is a folder for work under way.
// Every write is made in the folder of its target, synced, put in place in one step, and the folder is synced: when a call returns nil,
// the content survives a power cut. A call that fails leaves the target as it was.
//
// A process killed in the middle of Write can leave one hidden file beside the target, which the next Write of that target removes;
// Create leaves nothing where the file system has unnamed files. The package knows nothing of what files mean.
package atomicfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Write replaces path by what fill writes. The mode is taken less the umask, also when path exists with another one.
// A link at path is replaced, not followed. What is no file and stands for something of the system is never replaced (ErrSpecial): a device, a
// pipe, a socket, a link to one, and a link to what a process has open, as /dev/stdout is.
func Write(path string, mode fs.FileMode, fill func(io.Writer) error) (err error) {
	defer named("write", path, &err)
	if special(path) {
		return ErrSpecial
	}
	t, err := newNamed(path, mode)
	if err != nil {
		return err
	}
	defer t.discard()
	if err := t.fill(fill); err != nil {
		return err
	}
	if err := os.Rename(t.path, path); err != nil {
		return err
	}
	t.path = ""
	return SyncDir(filepath.Dir(path))
}

// ErrSpecial says that what a Write would replace isn't a file.
var ErrSpecial = errors.New("this is a device, a pipe or a socket, which is not replaced; name a file")

// special tells whether path stands for something of the system.
func special(path string) bool {
	if to, err := os.Readlink(path); err == nil && strings.HasPrefix(filepath.Clean(to), "/proc/") {
		return true
	}
	fi, err := os.Stat(path)
	return err == nil && !fi.Mode().IsRegular() && !fi.IsDir()
}

// WriteBytes is Write of data.
func WriteBytes(path string, mode fs.FileMode, data []byte) error {
	return Write(path, mode, all(data))
}

// Create makes path, which must not exist: the error is fs.ErrExist when it does, or when another process makes it meanwhile.
// It needs hard links; on a file system without them it fails and writes nothing.
func Create(path string, mode fs.FileMode, fill func(io.Writer) error) (err error) {
	defer named("create", path, &err)
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	t, err := newUnnamed(path, mode)
	if err != nil {
		if t, err = newNamed(path, mode); err != nil {
			return err
		}
	}
	defer t.discard()
	if err := t.fill(fill); err != nil {
		return err
	}
	if err := t.link(path); err != nil {
		return err
	}
	t.discard() // before the folder is synced, so that the temporary name is gone for good too
	return SyncDir(filepath.Dir(path))
}

// CreateBytes is Create of data.
func CreateBytes(path string, mode fs.FileMode, data []byte) error {
	return Create(path, mode, all(data))
}

// Update reads path, hands its bytes to change and writes what change answers, all under an exclusive lock on path + ".lock",
// so that no update of another process is lost. A missing file is nil bytes. Nothing is written when the bytes stay equal or change fails.
func Update(ctx context.Context, path string, mode fs.FileMode, change func(old []byte) ([]byte, error)) (err error) {
	l, err := NewLock(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock()) }()
	old, err := os.ReadFile(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if missing {
		old = nil
	}
	now, err := change(old)
	if err != nil {
		return err
	}
	if bytes.Equal(old, now) && (!missing || now == nil) {
		return nil
	}
	return WriteBytes(path, mode, now)
}

// SyncDir makes the names in a folder durable. File systems that can't are taken as they are.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// MkdirAll makes dir and the folders above it that are missing, for the owner alone (0700), and makes them durable. Folders that exist are left as they are.
func MkdirAll(dir string) error {
	fi, err := os.Stat(dir)
	if err == nil {
		if !fi.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent == dir || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := MkdirAll(parent); err != nil {
		return err
	}
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if fi, serr := os.Stat(dir); serr == nil && fi.IsDir() {
			return nil // another process made it meanwhile
		}
	}
	if err != nil {
		return err
	}
	return SyncDir(parent)
}

func all(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// named makes a failure speak of the target: the names of temporary files tell people nothing.
func named(op, path string, err *error) {
	if *err == nil {
		return
	}
	e := *err
	if pe := (*fs.PathError)(nil); errors.As(e, &pe) && (pe.Path == path || isTemp(pe.Path)) {
		e = pe.Err
	}
	if le := (*os.LinkError)(nil); errors.As(e, &le) {
		e = le.Err
	}
	if pe := (*fs.PathError)(nil); errors.As(e, &pe) {
		*err = e // it names a path that the caller knows
		return
	}
	*err = &fs.PathError{Op: op, Path: path, Err: e}
}

// temp is a file under construction. Its lock tells other processes that its maker lives.
type temp struct {
	f    *os.File
	path string // "" when it has no name
}

const tempPrefix, tempSuffix = ".agentenv-", ".tmp"

func isTemp(path string) bool {
	base := filepath.Base(path)
	return len(base) > len(tempPrefix)+len(tempSuffix) && base[:len(tempPrefix)] == tempPrefix && filepath.Ext(base) == tempSuffix
}

// tempPath is the n-th temporary name of path: short however long the name of path is, and the same in every process, so that a dead writer's file is found again.
func tempPath(path string, n int) string {
	sum := sha256.Sum256([]byte(filepath.Base(path)))
	return filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%s-%d%s", tempPrefix, hex.EncodeToString(sum[:8]), n, tempSuffix))
}

// newNamed makes a temporary file beside path. A name that a living writer holds is passed over; one that a dead writer left is removed and used.
func newNamed(path string, mode fs.FileMode) (*temp, error) {
	const writers = 10000 // of one path at one time; a limit only so that this ends
	for n := 0; n < writers; {
		name := tempPath(path, n)
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode.Perm())
		if err == nil {
			if holds(f, name) {
				return &temp{f: f, path: name}, nil
			}
			f.Close() // swept between its making and its locking
			continue
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if !sweep(name) {
			n++
		}
	}
	return nil, errors.New("too many writers of one file")
}

// holds locks f and tells whether name still names it. Where files can't be locked nothing is ever swept either.
func holds(f *os.File, name string) bool {
	if errors.Is(flock(f, unix.LOCK_EX|unix.LOCK_NB), ErrLocked) {
		return false
	}
	return names(f, name)
}

// sweep removes a temporary file whose writer is dead; false when it lives or the file can't be removed.
func sweep(name string) bool {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return false
	}
	defer f.Close()
	if flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	if !names(f, name) {
		return true
	}
	return os.Remove(name) == nil
}

func (t *temp) fill(fill func(io.Writer) error) error {
	if err := fill(t.f); err != nil {
		return err
	}
	return t.f.Sync()
}

func (t *temp) link(path string) error {
	if t.path == "" {
		return linkUnnamed(t.f, path)
	}
	return os.Link(t.path, path)
}

// discard drops what is still temporary; the lock goes last.
func (t *temp) discard() {
	if t.f == nil {
		return
	}
	if t.path != "" {
		os.Remove(t.path)
	}
	t.f.Close()
	t.f = nil
}
