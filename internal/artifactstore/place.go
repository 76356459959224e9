package artifactstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/diag"
)

// stagePrefix begins the name of a folder that a Get fills before it is put in place.
const stagePrefix = ".agentenv-get-"

// toFolder writes into a new folder, which appears whole, or into one that is there, file by file once all of them have been checked.
func (g *getter) toFolder(ctx context.Context) error {
	dir, err := filepath.Abs(g.target.Dir)
	if err != nil {
		return err
	}
	switch fi, err := os.Stat(dir); {
	case err == nil && !fi.IsDir():
		return refusal("artifact.exists", diag.Clean(g.target.Dir)+" exists and is no folder", "name another")
	case err == nil:
		return g.intoFolder(ctx, dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return refusal("artifact.exists", diag.Clean(g.target.Dir)+" is a link that leads nowhere", "name another folder")
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	stage, err := newStage(parent)
	if err != nil {
		return err
	}
	defer stage.discard()
	if err := g.fill(ctx, stage.root); err != nil {
		return err
	}
	// A folder that appeared meanwhile is not replaced: the rename fails.
	if err := os.Rename(stage.path, dir); err != nil {
		return fmt.Errorf("put %s in place: %w", diag.Clean(g.target.Dir), bare(err))
	}
	stage.path = ""
	return nil
}

// bare is the reason of a failed rename, without its names.
func bare(err error) error {
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}

// stage is a folder of its own beside, or in, the place where its content goes. Its lock tells others that its maker lives.
type stage struct {
	path string
	root *os.Root
	lock *os.File
}

// newStage makes a folder, and removes those that dead makers left beside it.
func newStage(parent string) (*stage, error) {
	sweepStages(parent)
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		p := filepath.Join(parent, stagePrefix+hex.EncodeToString(b[:]))
		if err := os.Mkdir(p, 0o777); err != nil { // less the umask, as any folder is made
			return nil, err
		}
		lock, err := lockStage(p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLocked) {
			continue // swept between its making and its locking
		}
		if err != nil {
			return nil, errors.Join(err, os.Remove(p))
		}
		root, err := os.OpenRoot(p)
		if err != nil {
			return nil, errors.Join(err, lock.Close(), os.Remove(p))
		}
		return &stage{p, root, lock}, nil
	}
}

// discard removes what is still staged.
func (s *stage) discard() {
	_ = s.root.Close()
	if s.path != "" {
		_ = os.RemoveAll(s.path)
	}
	_ = s.lock.Close()
}

var errLocked = errors.New("its maker lives")

// lockStage locks a stage that nobody else has locked.
func lockStage(p string) (*os.File, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, errLocked
	}
	have, serr := f.Stat()
	there, lerr := os.Lstat(p)
	if err := errors.Join(serr, lerr); err != nil {
		_ = f.Close()
		return nil, err
	}
	if !os.SameFile(have, there) {
		_ = f.Close()
		return nil, errLocked
	}
	return f, nil // a file system without locks: its stages are never swept either, since nothing is locked there
}

// sweepStages removes what killed processes left. What can't be removed stays.
func sweepStages(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), stagePrefix) {
			continue
		}
		p := filepath.Join(parent, e.Name())
		if lock, err := lockStage(p); err == nil {
			_ = os.RemoveAll(p)
			_ = lock.Close()
		}
	}
}

// intoFolder writes into a folder that is there. Its links are followed as long as they stay in it.
func (g *getter) intoFolder(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := g.mayEnter(root); err != nil {
		return err
	}
	stage, err := newStage(dir)
	if err != nil {
		return err
	}
	defer stage.discard()
	if err := g.fill(ctx, stage.root); err != nil {
		return err
	}
	staged := filepath.Base(stage.path)
	for _, f := range g.files {
		if f.Folder {
			err = root.MkdirAll(f.Path, 0o777)
		} else {
			err = root.MkdirAll(path.Dir(f.Path), 0o777)
		}
		if err == nil && !f.Folder {
			err = root.Rename(staged+"/"+f.Path, f.Path)
		}
		if err != nil {
			return fmt.Errorf("put %s in place: %w", diag.Repr(f.Path), bare(err))
		}
	}
	return nil
}

// mayEnter refuses a folder that holds anything, unless Force is set; then what can't be replaced.
func (g *getter) mayEnter(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	held := false
	for _, n := range names {
		held = held || !strings.HasPrefix(n, stagePrefix)
	}
	if held && !g.target.Force {
		return refusal("artifact.exists", diag.Clean(g.target.Dir)+" holds files already", "name a new folder; or with --force files of the same name are replaced and others stay")
	}
	var faults diag.List
	seen := map[string]bool{}
	check := func(p string, wantDir bool) {
		if seen[p] {
			return
		}
		seen[p] = true
		fi, err := root.Lstat(p)
		if err == nil && wantDir && fi.Mode()&fs.ModeSymlink != 0 {
			fi, err = root.Stat(p)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			faults.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(g.target.Dir)}, Code: "artifact.exists", Summary: fmt.Sprintf("%s can't be used: %s", diag.Repr(p), unwrapPath(err))})
		case wantDir && !fi.IsDir():
			faults.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(g.target.Dir)}, Code: "artifact.exists", Summary: diag.Repr(p) + " is no folder, and the artifact has one there"})
		case !wantDir && fi.Mode()&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket|fs.ModeIrregular) != 0:
			faults.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(g.target.Dir)}, Code: "artifact.exists", Summary: diag.Repr(p) + " is a device, a pipe or a socket, which is not replaced"})
		case !wantDir && fi.IsDir():
			faults.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(g.target.Dir)}, Code: "artifact.exists", Summary: diag.Repr(p) + " is a folder, and the artifact has a file there"})
		}
	}
	for _, f := range g.files {
		for i, c := range f.Path {
			if c == '/' {
				check(f.Path[:i], true)
			}
		}
		check(f.Path, f.Folder)
	}
	return faults.Err()
}
