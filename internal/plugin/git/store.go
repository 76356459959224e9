package git

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
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/treestore"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// On disk, below the store's folder. All workspaces of a user share it.
const (
	treesDir   = "trees"   // a treestore, by digest of what is inside
	stagingDir = "staging" // a folder for each install under way, locked while it lives
	commitsDir = "commits" // which tree a commit of a source is
	rootsDir   = "roots"   // which workspaces' locks name trees
	depsDir    = "deps"    // by workspace and id: packages that people had installed for plugins
	ownerLock  = "lock"
)

// Builtin is a git plugin that comes with the program.
type Builtin struct {
	ID, Version string
	Supersedes  []Source // repositories that it takes the place of
}

// Options are what a Store is opened with.
type Options struct {
	Dir      string        // <state root>/git_plugins; it is made by the first install
	Folder   folder.Folder // the workspace whose lock names what is installed
	Policy   Policy
	Builtins []Builtin
	Version  string // agent-env's, for min_agentenv_version
	Peer     string // the version of protoAgent that agent-env counts as
	Now      func() time.Time
	Fetch    FetchOptions // Dir and Allows are the store's business
}

// Store keeps the trees of git plugins, and a workspace's lock that names them. Its methods may be called from several goroutines and processes.
type Store struct {
	o     Options
	trees *treestore.Store
}

// Open answers the store; nothing is read or made.
func Open(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{o, treestore.Open(filepath.Join(o.Dir, treesDir), treestore.Options{ReadOnly: true})}
}

// Folder is the workspace.
func (s *Store) Folder() folder.Folder { return s.o.Folder }

// Policy says where plugins may come from.
func (s *Store) Policy() Policy { return s.o.Policy }

// Lock reads the workspace's lock as it is now.
func (s *Store) Lock(ctx context.Context) (*Lock, error) {
	if err := s.o.Folder.Settle(ctx); err != nil {
		return nil, err
	}
	src, err := s.o.Folder.Read(folder.Lock)
	if err != nil {
		return nil, err
	}
	return ReadLock(s.o.Folder.Path(folder.Lock), src)
}

// Change changes the lock, and with it other files of the workspace: everything is committed or nothing. A lock that can't be used is refused and
// left as it is, with a copy beside.
func (s *Store) Change(ctx context.Context, change func(*folder.Tx, *Lock) error) error {
	if err := s.register(); err != nil {
		return err
	}
	return s.o.Folder.Change(ctx, func(tx *folder.Tx) error {
		src, err := tx.Read(folder.Lock)
		if err != nil {
			return err
		}
		l, err := ReadLock(s.o.Folder.Path(folder.Lock), src)
		if err != nil {
			return errors.Join(err, s.keepCopy(src))
		}
		before := l.Clone()
		if err := change(tx, l); err != nil {
			return err
		}
		if same(before, l) {
			return nil
		}
		b, err := l.Bytes()
		if err != nil {
			return err
		}
		return tx.Write(folder.Lock, 0o644, b)
	})
}

// same tells whether two locks say the same, whatever format they were read in.
func same(a, b *Lock) bool {
	x, errA := a.Bytes()
	y, errB := b.Bytes()
	return errA == nil && errB == nil && string(x) == string(y)
}

// keepCopy copies a lock that can't be used, unless a copy of the same bytes is there.
func (s *Store) keepCopy(src []byte) error {
	old, err := filepath.Glob(s.o.Folder.Path(folder.Lock + ".corrupt-*"))
	if err != nil {
		return err
	}
	for _, p := range old {
		if b, err := os.ReadFile(p); err == nil && string(b) == string(src) {
			return nil
		}
	}
	return atomicfile.WriteBytes(s.o.Folder.Path(folder.Lock+".corrupt-"+s.o.Now().UTC().Format("20060102T150405.000000Z")), 0o600, src)
}

// rootName stands for a workspace's folder in names of files.
func rootName(root string) string {
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:16])
}

// Deps is the folder with the packages of one plugin of the workspace, an environment of package dist. It need not exist. The id is a row's.
func (s *Store) Deps(id string) string {
	return filepath.Join(s.o.Dir, depsDir, rootName(s.o.Folder.Root()), id)
}

// register notes that the workspace's lock names trees.
func (s *Store) register() error {
	dir := filepath.Join(s.o.Dir, rootsDir)
	root := s.o.Folder.Root()
	file := filepath.Join(dir, rootName(root)+".json")
	if _, err := os.Lstat(file); err == nil {
		return nil
	}
	if err := atomicfile.MkdirAll(dir); err != nil {
		return err
	}
	b, err := json.Marshal(map[string]string{"root": root})
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(file, 0o600, append(b, '\n'))
}

// Prune removes the trees that no workspace's lock names. A lock that can't be read keeps everything.
func (s *Store) Prune(ctx context.Context) (treestore.Pruned, error) {
	if err := s.Sweep(ctx); err != nil {
		return treestore.Pruned{}, err
	}
	keep := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(s.o.Dir, rootsDir, "*.json"))
	if err != nil {
		return treestore.Pruned{}, err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return treestore.Pruned{}, err
		}
		var r struct {
			Root string `json:"root"`
		}
		if err := json.Unmarshal(b, &r); err != nil || r.Root == "" {
			return treestore.Pruned{}, fmt.Errorf("%s can't be read; remove it", file)
		}
		f := folder.At(r.Root)
		src, err := f.Read(folder.Lock)
		if err != nil {
			return treestore.Pruned{}, err
		}
		if src == nil {
			if _, err := os.Stat(f.Root()); errors.Is(err, fs.ErrNotExist) {
				_ = os.Remove(file) // the workspace is gone
				if err := os.RemoveAll(filepath.Join(s.o.Dir, depsDir, rootName(r.Root))); err != nil {
					return treestore.Pruned{}, err
				}
			}
			continue
		}
		l, err := ReadLock(f.Path(folder.Lock), src)
		if err != nil {
			return treestore.Pruned{}, err
		}
		for _, r := range l.Plugins {
			keep[r.TreeSHA256] = true
		}
		for _, b := range l.Bundles {
			keep[b.TreeSHA256] = true
		}
	}
	return s.trees.Prune(ctx, func(e treestore.Entry) bool { return keep[e.Key] })
}

// Sweep removes what installs and removals that were killed left.
func (s *Store) Sweep(ctx context.Context) error {
	if _, err := s.trees.Sweep(ctx); err != nil {
		return err
	}
	dir := filepath.Join(s.o.Dir, stagingDir)
	es, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range es {
		work := filepath.Join(dir, e.Name())
		lock, err := atomicfile.TryLock(filepath.Join(work, ownerLock))
		if errors.Is(err, atomicfile.ErrLocked) {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, bury(work))
		if lock != nil {
			errs = append(errs, lock.Unlock())
		}
	}
	return errors.Join(errs...)
}

// bury removes a folder that nobody owns. It is renamed first: an install that has just made it and has no lock yet finds that it is gone, and makes
// another one. What such an install may still put into the renamed one is left for the next sweep.
func bury(work string) error {
	dead := filepath.Join(filepath.Dir(work), rand.Text())
	if err := os.Rename(work, dead); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another sweep was faster
		}
		return err
	}
	if err := os.RemoveAll(dead); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// staging is the folder of one install under way.
type staging struct {
	dir  string
	lock *atomicfile.Lock
}

func (s *Store) stage(ctx context.Context) (*staging, error) {
	if err := s.Sweep(ctx); err != nil {
		return nil, fmt.Errorf("remove what an earlier install left: %w", err)
	}
	for range 100 { // a sweep may come between the two steps
		dir := filepath.Join(s.o.Dir, stagingDir, rand.Text())
		if err := atomicfile.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("make a folder for the install: %w", err)
		}
		lock, err := atomicfile.NewLock(ctx, filepath.Join(dir, ownerLock))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := os.Lstat(filepath.Join(dir, ownerLock)); err == nil {
			return &staging{dir, lock}, nil
		}
		if err := lock.Unlock(); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("a folder for the install is removed again and again")
}

func (w *staging) close() error {
	return errors.Join(os.RemoveAll(w.dir), w.lock.Unlock())
}

// known is what is noted of a commit that was fetched once.
type known struct {
	Tree  string `json:"tree_sha256"`
	Fetch string `json:"fetch"`
}

func (s *Store) commitFile(src Source, commit string) string {
	sum := sha256.Sum256([]byte(src.Key()))
	return filepath.Join(s.o.Dir, commitsDir, commit+"-"+hex.EncodeToString(sum[:8])+".json")
}

// knows tells whether anything of a source was fetched before.
func (s *Store) knows(src Source) bool {
	found, err := filepath.Glob(s.commitFile(src, "*"))
	return err == nil && len(found) > 0
}

// knownTree is what a commit of a source was when it was fetched last.
func (s *Store) knownTree(src Source, commit string) (known, bool) {
	b, err := os.ReadFile(s.commitFile(src, commit))
	var k known
	if err != nil || json.Unmarshal(b, &k) != nil || !treeForm().MatchString(k.Tree) {
		return known{}, false
	}
	return k, true
}

func (s *Store) note(src Source, commit string, k known) error {
	if have, ok := s.knownTree(src, commit); ok && have == k {
		return nil
	}
	if err := atomicfile.MkdirAll(filepath.Join(s.o.Dir, commitsDir)); err != nil {
		return err
	}
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(s.commitFile(src, commit), 0o600, append(b, '\n'))
}

// Tree holds a tree by its digest, as a row names it; ErrMissing when it isn't there. The caller releases it.
func (s *Store) Tree(ctx context.Context, sum string) (*treestore.Held, error) {
	if !treeForm().MatchString(sum) || !s.trees.Has(sum) {
		return nil, ErrMissing
	}
	return s.trees.Get(ctx, sum, func(context.Context, string) error { return ErrMissing })
}

// ErrMissing: what the lock names isn't here.
var ErrMissing = errors.New("its files are not here; bring them back with agent-env plugin sync")

// ErrModified: the files here are not what the lock says.
var ErrModified = errors.New("its files were changed; bring them back with agent-env plugin sync")

// Check compares a tree's files with its digest: nil, ErrMissing or ErrModified.
func (s *Store) Check(ctx context.Context, sum string) (err error) {
	h, err := s.Tree(ctx, sum)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Release()) }()
	got, err := Sum(ctx, os.DirFS(h.Path()))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || got != sum {
		return ErrModified
	}
	return nil
}

// superseding is the builtin that takes the place of a repository.
func (s *Store) superseding(src Source) (Builtin, bool) {
	for _, b := range s.o.Builtins {
		for _, old := range b.Supersedes {
			if old.Same(src) {
				return b, true
			}
		}
	}
	return Builtin{}, false
}

func (s *Store) builtin(id string) bool {
	for _, b := range s.o.Builtins {
		if strings.EqualFold(b.ID, id) {
			return true
		}
	}
	return false
}
