package export

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// writers is how many files are written at once: syncs of several wait together.
const writers = 8

// target is the folder that becomes a bundle.
type target struct {
	dir    string // absolute, with the links above it resolved
	name   string
	idRoot string
	exists bool
	mode   fs.FileMode // of the folder that is there
}

func refuse(file, summary, fix string) error {
	return diag.List{{Pos: diag.Pos{File: diag.Clean(file)}, Code: "export.target", Summary: summary, Fix: fix, Prefixed: true}}.Err()
}

// newTarget checks that dir can become a bundle: it is new or an empty folder, and its path can be part of ids.
func newTarget(dir, home string) (target, error) {
	const into = "name a new or empty folder"
	abs, err := absolute(dir)
	if err != nil {
		return target{}, err
	}
	above, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err == nil {
		_, err = os.ReadDir(above) // not only there: a folder
	}
	if err != nil {
		return target{}, refuse(filepath.Dir(abs), reason(err, "no such folder"), "make it first")
	}
	t := target{dir: filepath.Join(above, filepath.Base(abs)), name: filepath.Base(abs)}
	info, err := os.Lstat(t.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return target{}, refuse(abs, reason(err, "no such folder"), "")
	case !info.IsDir():
		return target{}, refuse(abs, "this is no folder", into)
	default:
		entries, err := os.ReadDir(t.dir)
		if err != nil {
			return target{}, refuse(abs, reason(err, "no such folder"), "")
		}
		if len(entries) > 0 {
			return target{}, refuse(abs, "this folder is not empty", into)
		}
		t.exists, t.mode = true, info.Mode().Perm()
	}
	if h, err := filepath.EvalSymlinks(home); home != "" && err == nil {
		home = h
	} else {
		home = ""
	}
	if t.idRoot, err = ref.RootOf(filepath.ToSlash(t.dir), filepath.ToSlash(home)); err != nil {
		return target{}, refuse(abs, err.Error(), "")
	}
	return t, nil
}

// reason is why a path can't be used, in words, without the path.
func reason(err error, missing string) string {
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		err = le.Err
	}
	return err.Error()
}

// write makes the folder: whole, or not at all.
func (t target) write(ctx context.Context, files tree, o Options) error {
	t.sweep()
	s, err := t.stage()
	if err != nil {
		return t.named(err)
	}
	defer func() { _ = s.lock.Close() }()
	if err = s.fill(ctx, files, o.Store); err == nil {
		if err = t.check(ctx, s.dir, o); err == nil {
			err = t.place(s)
		}
	}
	if err != nil {
		return errors.Join(t.named(err), t.named(os.RemoveAll(s.dir)))
	}
	if err := atomicfile.SyncDir(filepath.Dir(t.dir)); err != nil {
		return fmt.Errorf("the bundle %s is written, but its folder may not outlast a power cut: %w", diag.Clean(t.dir), err)
	}
	return nil
}

// named makes failures of the file system speak of the target.
func (t target) named(err error) error {
	if _, ok := diag.From(err); ok || err == nil || !isFileError(err) {
		return err
	}
	return fmt.Errorf("write the bundle %s: %s; nothing was written", diag.Clean(t.dir), reason(err, "its folder is gone"))
}

func isFileError(err error) bool {
	return errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError)) || errors.As(err, new(unix.Errno))
}

// prefix begins the names of the folders beside the target that exports into it are made in; 8 hex digits follow.
func (t target) prefix() string { return "." + t.name + ".import-" }

var stageTail = lazyregexp.New(`^[0-9a-f]{8}$`)

// sweep removes what killed exports into the same target left. Those of living ones are locked. What can't be removed stays.
func (t target) sweep() {
	above := filepath.Dir(t.dir)
	entries, err := os.ReadDir(above)
	if err != nil {
		return
	}
	for _, e := range entries {
		tail, ok := cutPrefix(e.Name(), t.prefix())
		if !ok || !e.IsDir() || !stageTail().MatchString(tail) {
			continue
		}
		dir := filepath.Join(above, e.Name())
		if lock, err := lockFolder(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	return s[len(prefix):], true
}

// lockFolder locks a folder, so that others see that its maker lives: the lock goes with the process. It fails where another process holds it.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		var have, at fs.FileInfo
		if have, err = f.Stat(); err == nil {
			if at, err = os.Lstat(dir); err == nil && !os.SameFile(have, at) {
				err = fs.ErrNotExist
			}
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// staging is the folder beside the target that is filled.
type staging struct {
	dir  string
	lock *os.File
}

// stage makes the folder.
func (t target) stage() (*staging, error) {
	const tries = 100 // each is lost only to a sweep that comes between the making and the lock
	for range tries {
		var tail [4]byte
		_, _ = rand.Read(tail[:]) // never fails
		s := &staging{dir: filepath.Join(filepath.Dir(t.dir), t.prefix()+hex.EncodeToString(tail[:]))}
		err := os.Mkdir(s.dir, 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if s.lock, err = lockFolder(s.dir); err == nil {
			return s, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, os.Remove(s.dir))
		}
	}
	return nil, errors.New("a folder beside the target vanishes again and again")
}

// fill writes files into the folder and makes them durable.
func (s *staging) fill(ctx context.Context, files tree, objects store.Objects) error {
	dirs := map[string]bool{".": true}
	for name := range files {
		for dir := filepath.Dir(name); !dirs[dir]; dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	order := slices.Sorted(maps.Keys(dirs)) // holders before what they hold
	for _, dir := range order[1:] {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o777); err != nil {
			return err
		}
	}
	all := slices.Sorted(maps.Keys(files))
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(writers, len(all)) {
		g.Go(func() error {
			buf := make([]byte, 64<<10)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := writeFile(ctx, filepath.Join(s.dir, all[i]), files[all[i]], objects, buf); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, dir := range slices.Backward(order) {
		if err := atomicfile.SyncDir(filepath.Join(s.dir, dir)); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes and syncs one file. The bytes of an object are checked on the way.
func writeFile(ctx context.Context, path string, c content, objects store.Objects, buf []byte) (err error) {
	if c.link != "" {
		return os.Symlink(c.link, path)
	}
	mode := fs.FileMode(0o666)
	if c.object != "" {
		mode = 0o600
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if c.object == "" {
		if _, err := f.Write(c.text); err != nil {
			return err
		}
		if c.mode&0o111 != 0 {
			if err := f.Chmod(fs.FileMode(c.mode)); err != nil {
				return err
			}
		}
		return f.Sync()
	}
	r, _, err := store.OpenVerified(ctx, objects, c.object)
	if err != nil {
		return fmt.Errorf("read the bytes of %s: %w", filepath.Base(path), err)
	}
	defer r.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{r}, buf); err != nil {
		return err
	}
	if err := f.Chmod(fs.FileMode(c.mode)); err != nil { // as it was, whatever the umask: modes count in images
		return err
	}
	return f.Sync()
}

// check reads the folder as the bundle that it will be. What is wrong with it refuses the export.
func (t target) check(ctx context.Context, dir string, o Options) error {
	src, err := bundle.OpenFolder(dir, o.Home)
	if err != nil {
		return err
	}
	defer src.Close()
	src.Root, src.Name, src.IDRoot = t.dir, ref.NFC(t.name), t.idRoot
	b, l := bundle.Parse(src, o.Bundle)
	if !l.HasErrors() {
		l = append(l, b.Resolve()...)
	}
	if !l.HasErrors() {
		_, more, err := b.Plan(ctx, nil, bundle.Selection{All: true})
		if err != nil {
			return err
		}
		l = append(l, more...)
	}
	if !l.HasErrors() {
		return nil
	}
	l.Add(diag.Problem{Severity: diag.Hint, Code: "export.check", Summary: "the problems are those of the folder that would have been written; nothing was written"})
	return l.Err()
}

// place puts the folder where the target is to be. An empty folder there is replaced in the same step.
func (t target) place(s *staging) error {
	if t.exists {
		if err := os.Chmod(s.dir, t.mode); err != nil {
			return err
		}
	}
	err := rename(s.dir, t.dir)
	switch {
	case errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR):
		return refuse(t.dir, "something was put there meanwhile", "name a new or empty folder")
	}
	return err
}

// rename is the system's: unlike os.Rename it takes the place of an empty folder.
func rename(from, to string) error {
	for {
		err := unix.Rename(from, to)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
		return nil
	}
}
