package local

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// What of the host's /etc is not copied: it is made for each box, or it tells of the machine alone.
var etcSkipped = []string{"hostname", "hosts", "resolv.conf", "machine-id", "mtab"}

// etcNames are what the copy of /etc depends on: all folders, whose times every creation, removal and replacement changes, and the files at
// the top.
func etcNames(dir string) ([]string, error) {
	names := []string{dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		full := filepath.Join(dir, e.Name())
		if e.Type().IsRegular() {
			names = append(names, full)
		}
		if !e.IsDir() {
			continue
		}
		err := filepath.WalkDir(full, func(name string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				names = append(names, name) // also one that can't be read
			}
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// copyEtc copies what everybody may read. Modes stay, owners become the box's root.
func copyEtc(from, to string) error {
	return copyDir(from, to, true)
}

func copyDir(from, to string, top bool) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if top && slices.Contains(etcSkipped, e.Name()) {
			continue
		}
		if err := copyEntry(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyEntry(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone meanwhile
	}
	if err != nil {
		return err
	}
	mode := info.Mode()
	switch {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case mode.IsDir():
		if mode.Perm()&0o005 != 0o005 {
			return nil
		}
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		if err := copyDir(from, to, false); err != nil {
			return err
		}
		return os.Chmod(to, mode.Perm()&^0o022)
	case mode.IsRegular() && mode.Perm()&0o004 != 0:
		return copyFile(from, to, mode.Perm()&^0o022)
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	r, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Chmod(to, mode)
}

// writable are the folders that programs write to. Where ids aren't mapped they belong to nobody in the box; a copy of the bare folders,
// laid over them, belongs to the box's root, who may then create, remove and replace what is in them.
func writableDirs() []string {
	dirs := []string{"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/include", "/usr/share", "/usr/src", "/usr/games"}
	for _, pattern := range []string{
		"/usr/lib/*-linux-gnu*", "/usr/lib/python3*", "/usr/lib/python3*/dist-packages", "/usr/lib/python3*/site-packages", "/usr/lib/node_modules", "/usr/share/man",
		"/usr/share/man/man*", "/usr/share/doc", "/usr/share/applications", "/usr/local", "/usr/local/*",
	} {
		found, err := filepath.Glob(pattern)
		if err == nil {
			dirs = append(dirs, found...)
		}
	}
	return dirs
}

// writableTrees are copied with all the folders below them: where package managers keep what they install by hand. Other folders of
// /usr/local are whole programs of their own, of which the top alone is copied.
func writableTrees() []string {
	var trees []string
	for _, name := range []string{"bin", "etc", "games", "include", "lib", "lib64", "libexec", "man", "sbin", "share", "src"} {
		trees = append(trees, "/usr/local/"+name)
	}
	return trees
}

// maxSkeleton bounds the copy of very large folders.
const maxSkeleton = 20000

// skeletonNames are what the bare folders depend on. A folder made deep in /usr/local is missed until something changes above; then a box
// can't write there, no more.
func skeletonNames() ([]string, error) {
	return append(append(writableDirs(), writableTrees()...), "/usr"), nil
}

// copySkeleton makes the folders, empty, below to.
func copySkeleton(to string) error {
	n := 0
	add := func(dir string) error {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			return nil
		}
		rel, err := filepath.Rel("/usr", dir)
		if err != nil {
			return err
		}
		n++
		at := filepath.Join(to, rel)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		return os.Chmod(at, 0o755)
	}
	for _, dir := range writableDirs() {
		if err := add(dir); err != nil {
			return err
		}
	}
	for _, tree := range writableTrees() {
		err := filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil // what can't be read can't be written either
			case !d.IsDir():
				return nil
			case n >= maxSkeleton:
				return fs.SkipAll
			}
			return add(name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// give makes uid the owner of all that is below dir.
func give(dir string, uid int) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, uid, uid)
	})
}

func owner(uid int) string { return "-" + strconv.Itoa(uid) }
