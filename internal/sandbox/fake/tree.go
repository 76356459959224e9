package fake

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Tree is the files of a fake box: absolute paths, folders made as needed.
type Tree struct {
	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	name string
	mode fs.FileMode
	data []byte
	link string // target of a symbolic link
	time time.Time
}

func (n *node) Name() string       { return n.name }
func (n *node) Size() int64        { return int64(len(n.data)) }
func (n *node) Mode() fs.FileMode  { return n.mode }
func (n *node) ModTime() time.Time { return n.time }
func (n *node) IsDir() bool        { return n.mode.IsDir() }
func (n *node) Sys() any           { return nil }

func newTree() *Tree {
	t := &Tree{nodes: map[string]*node{}}
	for _, dir := range []string{"/", "/root", "/tmp", "/usr", "/etc"} {
		t.mkdir(dir)
	}
	return t
}

func (t *Tree) put(name string, n *node) {
	n.name = path.Base(name)
	if n.time.IsZero() {
		n.time = time.Now()
	}
	t.nodes[name] = n
}

func (t *Tree) mkdir(name string) {
	for ; t.nodes[name] == nil; name = path.Dir(name) {
		t.put(name, &node{mode: fs.ModeDir | 0o755})
	}
}

// WriteFile sets a file's content, folders above it included.
func (t *Tree) WriteFile(name string, data []byte, mode fs.FileMode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name = path.Clean("/" + name)
	t.mkdir(path.Dir(name))
	t.put(name, &node{mode: mode.Perm(), data: bytes.Clone(data)})
}

// Remove takes away name and all below it.
func (t *Tree) Remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name = path.Clean("/" + name)
	for p := range t.nodes {
		if p == name || strings.HasPrefix(p, name+"/") {
			delete(t.nodes, p)
		}
	}
}

// ReadFile is a file's content.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.follow("open", name)
	switch {
	case err != nil:
		return nil, err
	case n.IsDir():
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	return bytes.Clone(n.data), nil
}

// Stat follows links.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.follow("stat", name)
	if err != nil {
		return nil, err
	}
	c := *n
	c.name = path.Base(name)
	return &c, nil
}

// Paths are all paths of the tree, sorted.
func (t *Tree) Paths() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.paths("/")
}

func (t *Tree) paths(under string) []string {
	var ps []string
	for p := range t.nodes {
		if p == under || under == "/" || strings.HasPrefix(p, under+"/") {
			ps = append(ps, p)
		}
	}
	slices.Sort(ps)
	return ps
}

// follow finds the node of a path through symbolic links.
func (t *Tree) follow(op, name string) (*node, error) {
	real, err := t.resolve(name, 0)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return t.nodes[real], nil
}

func (t *Tree) resolve(name string, depth int) (string, error) {
	if depth > 40 {
		return "", syscall.ELOOP
	}
	at := "/"
	parts := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	for i, part := range parts {
		next := path.Join(at, part)
		n := t.nodes[next]
		switch {
		case n == nil && part == "":
			return "/", nil
		case n == nil:
			return "", fs.ErrNotExist
		case n.mode&fs.ModeSymlink != 0:
			target := n.link
			if !path.IsAbs(target) {
				target = path.Join(at, target)
			}
			return t.resolve(path.Join(append([]string{target}, parts[i+1:]...)...), depth+1)
		case i < len(parts)-1 && !n.IsDir():
			return "", syscall.ENOTDIR
		}
		at = next
	}
	return at, nil
}

// tar packs what is under name; a file is one entry of its own name.
func (t *Tree) tar(name string) (io.ReadCloser, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	root, err := t.resolve(name, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range t.paths(root) {
		n := t.nodes[p]
		rel := strings.TrimPrefix(strings.TrimPrefix(p, root), "/")
		if p == root {
			if rel = "."; !n.IsDir() {
				rel = path.Base(p)
			}
		}
		h, err := tar.FileInfoHeader(n, n.link)
		if err != nil {
			return nil, err
		}
		if h.Name = rel; n.IsDir() {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(n.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return io.NopCloser(&buf), nil
}

var errEscapes = errors.New("the name leaves the folder")

func (t *Tree) untar(under string, r io.Reader) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	root := path.Clean("/" + under)
	if real, err := t.resolve(root, 0); err == nil {
		root = real
	}
	t.mkdir(root)
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := t.entry(root, h, tr); err != nil {
			return &fs.PathError{Op: "extract", Path: h.Name, Err: err}
		}
	}
}

func (t *Tree) entry(root string, h *tar.Header, r io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if name != "." && !fs.ValidPath(strings.TrimPrefix(name, "./")) {
		return errEscapes
	}
	full := path.Join(root, name)
	for dir := path.Dir(full); len(dir) > len(root); dir = path.Dir(dir) {
		if n := t.nodes[dir]; n != nil && !n.IsDir() {
			return errEscapes
		}
	}
	mode := h.FileInfo().Mode()
	if full != root {
		t.mkdir(path.Dir(full))
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if n := t.nodes[full]; n != nil && !n.IsDir() {
			return errEscapes
		}
		t.mkdir(full)
		t.nodes[full].mode = mode
	case tar.TypeReg:
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		t.put(full, &node{mode: mode, data: data, time: h.ModTime})
	case tar.TypeSymlink:
		t.put(full, &node{mode: fs.ModeSymlink | 0o777, link: h.Linkname, time: h.ModTime})
	case tar.TypeLink:
		n := t.nodes[path.Join(root, h.Linkname)]
		if n == nil || !fs.ValidPath(strings.TrimPrefix(h.Linkname, "./")) {
			return errEscapes
		}
		t.nodes[full] = n
	default:
		return fmt.Errorf("type %q: %w", h.Typeflag, errors.ErrUnsupported)
	}
	return nil
}
