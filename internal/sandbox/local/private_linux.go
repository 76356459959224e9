package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Where ids are mapped, root's files of the host are the files of the box's root, so what only root may read on the host must not be there
// at all. A tree of whiteouts, laid over the system's folders, takes it away. Finding those files is a walk over all of them, about half a
// second, so what it found counts for a while.

const (
	// privateFor is how long a walk counts while nothing that it saw changes.
	privateFor = time.Hour
	// privateDir keeps what a walk found for all state roots of root, until the machine is booted again.
	privateDir = "/run/agentenv"
)

// packageLists change with every change of installed packages.
var packageLists = []string{"/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/lib/apk/db/installed", "/var/lib/pacman/local"}

// ownedTops are the folders of the host that boxes see with the owners' ids mapped.
func ownedTops() []string {
	tops := []string{"/usr"}
	for _, name := range systemDirs {
		if info, err := os.Lstat("/" + name); err == nil && info.IsDir() {
			tops = append(tops, "/"+name)
		}
	}
	return tops
}

// forbidden tells whether a file or folder is nobody's but its owner's and group's. A folder that others may pass through counts as
// theirs; what is in it is judged by itself.
func forbidden(mode uint32) bool {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return mode&0o001 == 0
	case unix.S_IFREG:
		return mode&0o005 == 0
	}
	return false
}

// privateNames are what the tree of whiteouts depends on: the folders at the top, the lists of packages, and each private file with the
// folders above it.
func privateNames(tops []string) []string {
	names := slices.Concat(tops, packageLists)
	for _, name := range findPrivate(tops) {
		for ; !slices.Contains(names, name); name = filepath.Dir(name) {
			names = append(names, name)
		}
	}
	return names
}

// findPrivate walks over folders with two hands, as most machines have at least two processors. What can't be read is left out: to root
// that is what vanishes meanwhile.
func findPrivate(tops []string) []string {
	w := walk{queue: slices.Clone(tops)}
	w.more.L = &w.mu
	var hands sync.WaitGroup
	for range 2 {
		hands.Go(w.run)
	}
	hands.Wait()
	slices.Sort(w.found)
	return w.found
}

// walk is a queue of folders that several hands empty and fill.
type walk struct {
	mu    sync.Mutex
	more  sync.Cond
	queue []string
	busy  int
	found []string
}

func (w *walk) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 {
			if w.busy == 0 {
				w.more.Broadcast()
				return
			}
			w.more.Wait()
		}
		dir := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.busy++
		w.mu.Unlock()
		dirs, found := lookThrough(dir)
		w.mu.Lock()
		w.busy--
		w.queue = append(w.queue, dirs...)
		w.found = append(w.found, found...)
		w.more.Broadcast()
	}
}

func lookThrough(dir string) (dirs, found []string) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	entries, _ := f.ReadDir(-1)
	for _, e := range entries {
		if !e.IsDir() && !e.Type().IsRegular() {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(f.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		full := dir + "/" + e.Name()
		switch {
		case forbidden(st.Mode) && !strings.Contains(full, "\n"): // no such name could be recorded
			found = append(found, full)
		case e.IsDir():
			dirs = append(dirs, full)
		}
	}
	return dirs, found
}

// whiteOut makes, below to, a whiteout for every name that is private, and the folders above it as they are on the host.
func whiteOut(names []string, to string) error {
	for _, name := range names {
		var st unix.Stat_t
		if unix.Lstat(name, &st) != nil || !forbidden(st.Mode) || slices.Contains(packageLists, name) {
			continue
		}
		if err := copyParents(filepath.Dir(name), to); err != nil {
			return err
		}
		err := unix.Mknod(to+name, unix.S_IFCHR, 0)
		if errors.Is(err, unix.EPERM) { // the state root is on an overlay, which keeps whiteouts for itself: an empty file hides as much
			err = unix.Mknod(to+name, unix.S_IFREG, 0)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return &fs.PathError{Op: "white out", Path: name, Err: err}
		}
	}
	return nil
}

// copyParents makes dir and the folders above it below to, with their modes and owners.
func copyParents(dir, to string) error {
	if dir == "/" {
		return nil
	}
	if err := copyParents(filepath.Dir(dir), to); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "look at", Path: dir, Err: err}
	}
	if err := os.Mkdir(to+dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := os.Lchown(to+dir, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return unix.Chmod(to+dir, st.Mode&0o7777)
}
