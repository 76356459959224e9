// Package treestore keeps immutable folders by key: image roots, environments of packages, git checkouts, build outputs, frozen uppers.
//
// A tree is built once, however many processes ask for its key at once: in a folder beside, synced, and put in place by one rename, so that
// a tree that is there is whole. Who asks for a tree holds it until Release; held trees are never pruned, and a process that dies releases
// what it held. What a dead builder left is swept by the next Get of the key and by Prune.
//
// The key says what is inside: a digest, or a digest of all that went into a build. The store never looks into a tree and never changes one.
//
// On disk, below the store's folder: <name>/tree is a tree and <name>/entry.json tells its key and size; .locks/<name> is locked while the
// tree is built (alone) or used (shared), and its time is the last use; .tmp holds what is built or removed just now.
package treestore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// ErrInUse: the tree is held, or being built.
var ErrInUse = errors.New("the tree is in use")

// Options are how a store treats its trees.
type Options struct {
	// ReadOnly takes the right to write away from every file and folder of a tree once it is built. Modes are kept as built otherwise.
	ReadOnly bool
	// Volatile skips making trees durable, which costs more than building small ones. A crash of the machine may damage such a tree, so its
	// key has to hold the id of the machine's boot.
	Volatile bool
	// Remove is asked to remove a folder of the store that this process may not remove, since a build gave it to others. nil: it stays.
	Remove func(path string) error
}

// Store is one folder of trees. Its methods may be called from several goroutines and processes.
type Store struct {
	dir string
	o   Options
}

// Open answers the store in dir, which is made by the first Get.
func Open(dir string, o Options) *Store { return &Store{dir: dir, o: o} }

// Held is a tree that stays as it is until Release.
type Held struct {
	path string
	mu   sync.Mutex
	lock *atomicfile.Lock // nil on a read-only file system, where nobody prunes
}

// Path is the tree's folder.
func (h *Held) Path() string { return h.path }

// File is the tree's lock, for a holder that hands it to another process: the tree is held until the last copy is closed. It is nil where
// nothing can be pruned, and stays the store's.
func (h *Held) File() *os.File {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock == nil {
		return nil
	}
	return h.lock.File()
}

// Release lets the tree be pruned. It is legal more than once.
func (h *Held) Release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock == nil {
		return nil
	}
	return h.lock.Unlock()
}

// Get answers the tree of a key and holds it; the caller releases it. When there is none, build makes it in a new, empty folder, which only
// the owner can enter. Of many that ask at once one builds and the others wait; when its build fails, the next one tries.
func (s *Store) Get(ctx context.Context, key string, build func(ctx context.Context, dir string) error) (*Held, error) {
	name := nameOf(key)
	if err := s.prepare(name); err != nil {
		return nil, err
	}
	for {
		if h, err := s.hold(ctx, name); h != nil || err != nil {
			return h, err
		}
		// Others may use for hours what one of them has built by now: nobody waits to be alone with a tree that is there.
		lock, err := atomicfile.NewLockUnless(ctx, s.lockPath(name), func() bool { return s.whole(name) })
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		if !s.whole(name) {
			if err := s.build(ctx, name, key, build); err != nil {
				return nil, errors.Join(err, lock.Unlock())
			}
		}
		// Between the exclusive and the shared lock the tree may be pruned: then it is built again.
		if err := lock.Share(); err != nil {
			return nil, errors.Join(err, lock.Unlock())
		}
		if s.whole(name) {
			return s.held(name, lock), nil
		}
		if err := lock.Unlock(); err != nil {
			return nil, err
		}
	}
}

// Has tells whether the tree of a key is there now. It may be pruned right after: use Get.
func (s *Store) Has(key string) bool { return s.whole(nameOf(key)) }

// PathOf is where the tree of a key is once it is there. Who uses it has to know that it is held.
func (s *Store) PathOf(key string) string { return s.treePath(nameOf(key)) }

// prepare makes the store's folders, unless the tree is there already: then a store that can't be written to serves too.
func (s *Store) prepare(name string) error {
	if s.whole(name) {
		return nil
	}
	for _, d := range []string{locksDir, tempDir} {
		if err := atomicfile.MkdirAll(filepath.Join(s.dir, d)); err != nil {
			return fmt.Errorf("make the store of trees: %w", err)
		}
	}
	return nil
}

// hold answers the tree if it is there, else nil. It waits while the tree is built.
func (s *Store) hold(ctx context.Context, name string) (*Held, error) {
	lock, err := atomicfile.NewSharedLock(ctx, s.lockPath(name))
	if errors.Is(err, unix.EROFS) && s.whole(name) {
		return &Held{path: s.treePath(name)}, nil
	}
	if errors.Is(err, fs.ErrNotExist) && s.whole(name) { // the store was made without its folder of locks: a copy
		if err = atomicfile.MkdirAll(filepath.Join(s.dir, locksDir)); err == nil {
			lock, err = atomicfile.NewSharedLock(ctx, s.lockPath(name))
		}
	}
	if err != nil {
		return nil, err
	}
	if s.whole(name) {
		return s.held(name, lock), nil
	}
	return nil, lock.Unlock()
}

// held notes the use and answers the tree.
func (s *Store) held(name string, lock *atomicfile.Lock) *Held {
	now := time.Now()
	_ = os.Chtimes(s.lockPath(name), now, now) // the last use is a hint: a store that can't be written to has none
	return &Held{path: s.treePath(name), lock: lock}
}

// build makes the tree. The caller holds the exclusive lock.
func (s *Store) build(ctx context.Context, name, key string, build func(context.Context, string) error) (err error) {
	if err := errors.Join(s.sweep(name), s.discard(name)); err != nil {
		return fmt.Errorf("remove what an earlier build left: %w", err)
	}
	work, err := s.temp(name)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.removeAll(work))
		}
	}()
	tree := filepath.Join(work, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return err
	}
	if err := build(ctx, tree); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	size, err := seal(tree, s.o)
	if err != nil {
		return fmt.Errorf("make the tree durable: %w", err)
	}
	b, err := json.Marshal(meta{Key: key, Bytes: size.bytes, Files: size.files, Created: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := s.note(filepath.Join(work, metaFile), append(b, '\n')); err != nil {
		return err
	}
	if err := os.Rename(work, filepath.Join(s.dir, name)); err != nil {
		return err
	}
	return s.syncDir()
}

// note writes an entry's record, in a folder that nobody else sees yet.
func (s *Store) note(name string, b []byte) error {
	if s.o.Volatile {
		return os.WriteFile(name, b, 0o600) //nolint:forbidigo // nothing of a volatile store outlives the machine
	}
	return atomicfile.WriteBytes(name, 0o600, b)
}

// syncDir makes what was put into the store, or taken away, durable.
func (s *Store) syncDir() error {
	if s.o.Volatile {
		return nil
	}
	return atomicfile.SyncDir(s.dir)
}

// temp makes a folder for work on a name.
func (s *Store) temp(name string) (string, error) {
	dir := filepath.Join(s.dir, tempDir, name+tempMark+rand.Text())
	return dir, os.Mkdir(dir, 0o700)
}

// sweep removes what dead builders of a name left. The caller holds the exclusive lock.
func (s *Store) sweep(name string) error {
	es, err := os.ReadDir(filepath.Join(s.dir, tempDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range es {
		if of, _, ok := strings.Cut(e.Name(), tempMark); ok && of == name {
			errs = append(errs, s.removeAll(filepath.Join(s.dir, tempDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// discard removes a tree, or a damaged one: out of the way by one rename, so that no half of it is ever seen, then for good.
// The caller holds the exclusive lock.
func (s *Store) discard(name string) error {
	dead := filepath.Join(s.dir, tempDir, name+tempMark+rand.Text())
	err := os.Rename(filepath.Join(s.dir, name), dead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(s.syncDir(), s.removeAll(dead))
}

const (
	locksDir = ".locks"
	tempDir  = ".tmp"
	metaFile = "entry.json"
	tempMark = "~" // between the name and the rest, in tempDir
)

func (s *Store) lockPath(name string) string { return filepath.Join(s.dir, locksDir, name) }
func (s *Store) treePath(name string) string { return filepath.Join(s.dir, name, "tree") }

// whole tells whether a tree is there. It was put there by one rename, so its record tells for all of it.
func (s *Store) whole(name string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, name, metaFile))
	if err != nil {
		return false
	}
	fi, err := os.Lstat(s.treePath(name))
	return err == nil && fi.IsDir()
}

var plainKey = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// nameOf is a key as the name of a folder: the key itself where it is one that no file system confuses, else its digest.
func nameOf(key string) string {
	if plainKey().MatchString(key) && !strings.HasPrefix(key, "k-") {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "k-" + hex.EncodeToString(sum[:])
}
