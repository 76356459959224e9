package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Folders of a staging: objects by path, and what is on its way in.
const (
	objectsDir  = "objects"
	incomingDir = "incoming"
)

// staging keeps objects in a folder, within a limit on all of them together. An object is whole or isn't there.
type staging struct {
	max int64
	dir string // "" until one is made

	mu    sync.Mutex
	root  *os.Root
	made  bool  // dir is ours to remove
	used  int64 // bytes, stored and reserved
	last  int64 // stamp of the newest object, nanoseconds
	ended bool
}

func newStaging() *staging { return &staging{} }

// store opens the folder at the first use.
func (s *staging) store() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return refuseStaging(http.StatusServiceUnavailable, "the agent ends")
	}
	if s.root != nil {
		return nil
	}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "agent-staging-")
		if err != nil {
			return err
		}
		s.dir, s.made = dir, true
	} else if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	r, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	err = r.RemoveAll(incomingDir) // what an earlier server didn't finish
	for _, d := range []string{objectsDir, incomingDir} {
		err = errors.Join(err, r.MkdirAll(d, 0o700), r.Chmod(d, 0o700)) // ids are secrets
	}
	if err == nil {
		s.used, err = treeSize(r, objectsDir)
	}
	if err != nil {
		return errors.Join(err, r.Close())
	}
	s.root = r
	return nil
}

func treeSize(r *os.Root, p string) (int64, error) {
	total := int64(0)
	err := walk(r, p, func(_ string, fi os.FileInfo) { total += fi.Size() })
	return total, err
}

// walk visits regular files below a path; one that isn't there has none.
func walk(r *os.Root, p string, visit func(p string, fi os.FileInfo)) error {
	return fs.WalkDir(r.FS(), p, func(q string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			return nil
		case err != nil:
			return err
		case !d.Type().IsRegular():
			return nil
		}
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			visit(q, fi)
		}
		return err
	})
}

func (s *staging) reserve(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.max-s.used {
		return refuseStaging(http.StatusRequestEntityTooLarge, "staging is full")
	}
	s.used += n
	return nil
}

func (s *staging) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

// put stores an object; size -1 is unknown, another is reserved before the first byte and must be what comes.
func (s *staging) put(p string, content io.Reader, size int64) (_ staged, err error) {
	in := &incoming{s: s, declared: size, name: incomingDir + "/" + newID(16)}
	if size > 0 {
		if err := s.reserve(size); err != nil {
			return staged{}, err
		}
		in.reserved = size
	}
	done := false
	defer func() {
		if !done {
			_ = s.root.Remove(in.name) // what is left goes with the next start
			s.release(in.reserved)
		}
	}()
	f, err := s.root.OpenFile(in.name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return staged{}, err
	}
	in.f = f
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(in, sum), content)
	if err = errors.Join(err, f.Close()); err != nil {
		return staged{}, err
	}
	if size >= 0 && n != size {
		return staged{}, refuseStaging(http.StatusBadRequest, "the body has another length than told")
	}
	fi, err := s.commit(in.name, p)
	if err != nil {
		return staged{}, err
	}
	done = true
	return staged{p, fi.Size(), etag(fi), hex.EncodeToString(sum.Sum(nil))}, nil
}

// incoming counts what is written before it is written.
type incoming struct {
	s                  *staging
	f                  *os.File
	name               string
	declared           int64
	reserved, received int64
}

func (in *incoming) Write(p []byte) (int, error) {
	in.received += int64(len(p))
	if in.declared >= 0 && in.received > in.declared {
		return 0, refuseStaging(http.StatusBadRequest, "the body has another length than told")
	}
	if more := in.received - in.reserved; more > 0 {
		if err := in.s.reserve(more); err != nil {
			return 0, err
		}
		in.reserved += more
	}
	return in.f.Write(p)
}

// commit puts a written file into its place, with a time of its own, which makes its tag.
func (s *staging) commit(from, p string) (os.FileInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := objectsDir + "/" + p
	conflict := refuseStaging(http.StatusConflict, "the path conflicts with one that is staged")
	var replaced int64
	switch fi, err := s.root.Lstat(to); {
	case err == nil && !fi.Mode().IsRegular():
		return nil, conflict
	case err == nil:
		replaced = fi.Size()
	}
	if err := s.root.MkdirAll(path.Dir(to), 0o700); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return nil, conflict
		}
		return nil, err
	}
	s.last = max(time.Now().UnixNano(), s.last+1000)
	at := time.Unix(0, s.last)
	if err := s.root.Chtimes(from, at, at); err != nil {
		return nil, err
	}
	if err := s.root.Rename(from, to); err != nil {
		return nil, err
	}
	s.used -= replaced
	return s.root.Lstat(to)
}

func (s *staging) open(p string) (*os.File, os.FileInfo, error) {
	none := refuseStaging(http.StatusNotFound, "nothing is staged at this path")
	f, err := s.root.Open(objectsDir + "/" + p)
	if err != nil {
		return nil, nil, none
	}
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, nil, none
	}
	return f, fi, nil
}

// list is what is staged below a prefix, by path relative to it.
func (s *staging) list(prefix string) ([]staged, error) {
	out := []staged{}
	top := objectsDir + "/" + prefix
	err := walk(s.root, top, func(p string, fi os.FileInfo) {
		if rel, ok := strings.CutPrefix(p, top+"/"); ok {
			out = append(out, staged{Path: rel, Size: fi.Size(), ETag: etag(fi)})
		}
	})
	slices.SortFunc(out, func(a, b staged) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

func (s *staging) remove(p, match string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := objectsDir + "/" + p
	fi, err := s.root.Lstat(at)
	switch {
	case err != nil || !fi.Mode().IsRegular():
		return refuseStaging(http.StatusNotFound, "nothing is staged at this path")
	case match != "" && match != "*" && match != etag(fi):
		return refuseStaging(http.StatusPreconditionFailed, "the object is another now")
	}
	if err := s.root.Remove(at); err != nil {
		return err
	}
	s.used -= fi.Size()
	s.prune(path.Dir(at))
	return nil
}

func (s *staging) removeBelow(p string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := objectsDir + "/" + p
	if fi, err := s.root.Lstat(at); err != nil || !fi.IsDir() {
		return nil // nothing is below
	}
	before, err := treeSize(s.root, at)
	if err != nil {
		return err
	}
	err = s.root.RemoveAll(at)
	after, serr := treeSize(s.root, at)
	s.used -= before - after
	s.prune(path.Dir(at))
	return errors.Join(err, serr)
}

// prune removes folders that became empty.
func (s *staging) prune(dir string) {
	for dir != objectsDir && s.root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
}

func (s *staging) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	var err error
	if s.root != nil {
		err = s.root.Close() // what is under way fails by it
	}
	if s.made {
		s.made = false
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
