package artifactstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
)

const (
	// maxDepth and maxFiles bound what is read of one folder.
	maxDepth = 100
	maxFiles = 200_000
)

// source is one file to put; or a link or an empty folder, which have no bytes.
type source struct {
	path   string // in the artifact
	link   string
	folder bool
	open   func() (io.ReadCloser, error)
}

func (f source) plain() bool { return f.link == "" && !f.folder }

// paths are those of the files, without links and folders.
func paths(files []source) []string {
	var out []string
	for _, f := range files {
		if f.plain() {
			out = append(out, f.path)
		}
	}
	return out
}

// sources gathers what is put, and all that is wrong with it. Its folders stay open until close.
type sources struct {
	files  []source
	faults diag.List
	opened []io.Closer
}

func (s *sources) close() {
	for _, c := range s.opened {
		_ = c.Close()
	}
}

func (s *sources) fault(file, code, format string, args ...any) {
	s.faults.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(file)}, Code: code, Summary: fmt.Sprintf(format, args...)})
}

// file adds one file of this machine. A link to one is followed: it was named.
func (s *sources) file(name, as string) {
	fi, err := os.Stat(name)
	switch {
	case err != nil:
		s.fault(name, "put.read", "%s", reason(err))
	case fi.IsDir():
		s.fault(name, "put.file", "this is a folder, and one file is to be put; name the file")
	case !fi.Mode().IsRegular():
		s.fault(name, "put.file", "this is neither a file nor a folder")
	default:
		s.add(source{path: as, open: func() (io.ReadCloser, error) {
			f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // never waits, should a pipe stand there by now
			return regular(f, err)
		}})
	}
}

// regular refuses what is no file any more.
func regular(f fs.File, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is no file any more")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// add adds one entry; a name that no document can hold is a fault.
func (s *sources) add(f source) {
	if !utf8.ValidString(f.path) {
		s.fault(f.path, "put.name", "the name isn't valid UTF-8; rename it")
		return
	}
	s.files = append(s.files, f)
}

// folder adds what a folder holds under a path of the artifact, "" for its top. Links and empty folders are kept as they are; what file
// managers and interpreters leave behind is left out, as it is from bundles.
func (s *sources) folder(name, under string) {
	src, err := bundle.OpenDir(name)
	if err != nil {
		s.fault(name, "put.read", "%s", err)
		return
	}
	s.opened = append(s.opened, src)
	w := folderWalk{sources: s, fs: src.FS, label: name, under: under}
	w.walk(".", 0)
	slices.SortFunc(s.files, func(a, b source) int { return cmp.Compare(a.path, b.path) })
}

type folderWalk struct {
	*sources
	fs    fs.FS
	label string // the folder as it was named
	under string
	full  bool
}

// walk adds what is below dir, and answers how much that is.
func (w *folderWalk) walk(dir string, depth int) int {
	entries, err := fs.ReadDir(w.fs, dir)
	if err != nil {
		w.fault(filepath.Join(w.label, dir), "put.read", "%s", reason(err))
		return 1
	}
	if depth > maxDepth {
		w.fault(filepath.Join(w.label, dir), "put.deep", "folders lie too deep in each other; flatten them")
		return 1
	}
	n := 0
	for _, e := range entries {
		if w.full || bundle.Leaving(e.Name()) {
			continue
		}
		n++
		w.entry(path.Join(dir, e.Name()), e, depth)
	}
	return n
}

func (w *folderWalk) entry(p string, e fs.DirEntry, depth int) {
	shown := filepath.Join(w.label, p)
	s := source{path: path.Join(w.under, p)}
	switch typ := e.Type(); {
	case typ.IsDir():
		if w.walk(p, depth+1) > 0 {
			return
		}
		s.folder = true
	case typ.IsRegular():
		s.open = func() (io.ReadCloser, error) { return regular(w.fs.Open(p)) }
	case typ&fs.ModeSymlink != 0:
		target, err := fs.ReadLink(w.fs, p)
		switch {
		case err != nil:
			w.fault(shown, "put.read", "%s", reason(err))
			return
		case !utf8.ValidString(target):
			w.fault(shown, "put.link", "this link leads to a name that isn't valid UTF-8; rename it")
			return
		case !artifact.LinkStays(p, target):
			w.fault(shown, "put.link", "this link leads to %s, out of the folder or by way of ..; copy what it names into the folder", diag.Repr(target))
			return
		}
		s.link = target
	default:
		w.fault(shown, "put.special", "this is neither a file nor a folder; remove it")
		return
	}
	if len(w.files) >= maxFiles {
		w.full = true
		w.fault(w.label, "put.many", "holds too many files: at most %d fit into one artifact", maxFiles)
		return
	}
	w.add(s)
}

// clashes reports paths that two sources have, and files where others need a folder.
func (s *sources) clashes() {
	have := make(map[string]bool, len(s.files))
	for _, f := range s.files {
		if have[f.path] {
			s.fault(f.path, "put.clash", "two of what is put have this name; rename one")
		}
		have[f.path] = true
	}
	for _, f := range s.files {
		for dir := path.Dir(f.path); dir != "."; dir = path.Dir(dir) {
			if have[dir] {
				s.fault(dir, "put.clash", "this is a file, and %s lies below it; rename one", diag.Repr(f.path))
			}
		}
	}
}

// reason is why a path can't be read, without the path.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file or folder"
	case errors.Is(err, fs.ErrPermission):
		return "can't be read: permission denied"
	}
	return "can't be read: " + unwrapPath(err).Error()
}

// base is the name that a path gives what it names.
func base(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		name = abs // "." and ".." have names
	}
	return strings.Trim(filepath.Base(name), "/")
}
