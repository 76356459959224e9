package bundle

import (
	"bytes"
	"io/fs"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/ref"
)

// Nest makes a bundle of one entry out of a folder: "envs/mail", with an id below root. more are files of the folder that are given here and hide those it
// has, by name. Closing the bundle closes the folder.
func Nest(folder Source, entry, root string, more map[string][]byte) Source {
	group, name, _ := strings.Cut(entry, "/")
	return Source{FS: &nest{folder.FS, group, name, more}, Name: ref.Last(root), Root: folder.Root, IDRoot: root, Part: true, close: folder.close}
}

// nest shows a folder as group/name of a file system that holds nothing else.
type nest struct {
	fs          fs.FS
	group, name string
	more        map[string][]byte
}

var (
	_ fs.ReadLinkFS = (*nest)(nil)
	_ fs.ReadDirFS  = (*nest)(nil)
)

// inner is a path within the folder; false for the folders above it and for what isn't there.
func (n *nest) inner(name string) (string, bool) {
	top := n.group + "/" + n.name
	if name == top {
		return ".", true
	}
	return strings.CutPrefix(name, top+"/")
}

func (n *nest) Open(name string) (fs.File, error) {
	in, ok := n.inner(name)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if b, ok := n.more[in]; ok {
		return &given{bytes.NewReader(b), made{in, int64(len(b)), 0o644}}, nil
	}
	return n.fs.Open(in)
}

func (n *nest) ReadDir(name string) ([]fs.DirEntry, error) {
	in, ok := n.inner(name)
	switch {
	case name == ".":
		return []fs.DirEntry{fs.FileInfoToDirEntry(made{n.group, 0, fs.ModeDir | 0o755})}, nil
	case name == n.group:
		return []fs.DirEntry{fs.FileInfoToDirEntry(made{n.name, 0, fs.ModeDir | 0o755})}, nil
	case !ok:
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	list, err := fs.ReadDir(n.fs, in)
	if in != "." || err != nil {
		return list, err
	}
	list = slices.DeleteFunc(list, func(e fs.DirEntry) bool { return n.more[e.Name()] != nil })
	for name, b := range n.more {
		list = append(list, fs.FileInfoToDirEntry(made{name, int64(len(b)), 0o644}))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

func (n *nest) Lstat(name string) (fs.FileInfo, error) {
	in, ok := n.inner(name)
	switch {
	case name == "." || name == n.group:
		return made{name, 0, fs.ModeDir | 0o755}, nil
	case !ok:
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
	}
	if b, ok := n.more[in]; ok {
		return made{in, int64(len(b)), 0o644}, nil
	}
	return fs.Lstat(n.fs, in)
}

// Stat is Lstat: whoever reads a bundle resolves links by itself.
func (n *nest) Stat(name string) (fs.FileInfo, error) { return n.Lstat(name) }

func (n *nest) ReadLink(name string) (string, error) {
	in, ok := n.inner(name)
	if !ok {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrNotExist}
	}
	return fs.ReadLink(n.fs, in)
}

// given is an open file of more.
type given struct {
	*bytes.Reader
	info made
}

func (g *given) Stat() (fs.FileInfo, error) { return g.info, nil }
func (g *given) Close() error               { return nil }

// made describes what is in memory.
type made struct {
	name string
	size int64
	mode fs.FileMode
}

func (m made) Name() string       { return m.name }
func (m made) Size() int64        { return m.size }
func (m made) Mode() fs.FileMode  { return m.mode }
func (m made) ModTime() time.Time { return time.Time{} }
func (m made) IsDir() bool        { return m.mode.IsDir() }
func (m made) Sys() any           { return nil }
