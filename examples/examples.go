// Package examples holds the bundles that come inside the binary. It is data: it imports nothing of the program.
//
// An embedded file has no mode, so a file that begins with "#!" counts as executable and every other one does not.
package examples

import (
	"embed"
	"io"
	"io/fs"
	"path"
)

//go:embed all:echo-mcp all:hello all:inbox all:mail-mcp all:notes-computer all:wordcount
var files embed.FS

// FS is all bundles, a folder each, named as people type them after `agent-env run`.
func FS() fs.FS { return modes{} }

// modes is the embedded files with 0755 for scripts and 0644 for other files.
type modes struct{}

func (modes) Open(name string) (fs.File, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	if d, ok := f.(fs.ReadDirFile); ok {
		return dir{d, name}, nil
	}
	i, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return file{f.(seeker), withMode(name, i)}, nil
}

func (modes) ReadDir(name string) ([]fs.DirEntry, error) {
	es, err := files.ReadDir(name)
	return entries(name, es), err
}

// seeker is what embedded files are.
type seeker interface {
	fs.File
	io.ReaderAt
	io.Seeker
}

type file struct {
	seeker
	info fs.FileInfo
}

func (f file) Stat() (fs.FileInfo, error) { return f.info, nil }

type dir struct {
	fs.ReadDirFile
	name string
}

func (d dir) ReadDir(n int) ([]fs.DirEntry, error) {
	es, err := d.ReadDirFile.ReadDir(n)
	return entries(d.name, es), err
}

func entries(folder string, es []fs.DirEntry) []fs.DirEntry {
	for i, e := range es {
		es[i] = entry{e, path.Join(folder, e.Name())}
	}
	return es
}

type entry struct {
	fs.DirEntry
	path string
}

func (e entry) Info() (fs.FileInfo, error) {
	i, err := e.DirEntry.Info()
	if err != nil {
		return nil, err
	}
	return withMode(e.path, i), nil
}

type info struct {
	fs.FileInfo
	mode fs.FileMode
}

func (i info) Mode() fs.FileMode { return i.mode }

func withMode(name string, i fs.FileInfo) fs.FileInfo {
	if i.IsDir() {
		return i
	}
	if b, err := files.ReadFile(name); err == nil && len(b) > 1 && b[0] == '#' && b[1] == '!' {
		return info{i, 0o755}
	}
	return info{i, 0o644}
}
