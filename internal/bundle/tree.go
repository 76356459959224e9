package bundle

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/doc"
)

const (
	// maxLinks is how many links may lead to one file, as kernels have it.
	maxLinks = 40
	// These bound the walk of one entry: links to folders can multiply what is there.
	maxDepth    = 100
	maxFiles    = 200_000
	maxDirLinks = 1000
)

// Why something in a bundle can't be used. Their texts are what problems say.
var (
	errOutside = errors.New("this link leads out of the bundle; copy what it names into the bundle")
	errBroken  = errors.New("broken symlink: nothing is where it leads; fix or remove it")
	errLoop    = errors.New("this link leads to itself; fix or remove it")
	errHolder  = errors.New("this link leads back to a folder that holds it; remove it")
	errSpecial = errors.New("this is neither a file nor a folder; remove it")
	errName    = errors.New("the name isn't valid UTF-8; rename it")
)

// leavings are what file managers and interpreters leave behind: never content.
var leavings = []string{".DS_Store", "Thumbs.db", "desktop.ini", "__pycache__"}

const leavingsNote = ".DS_Store, Thumbs.db, desktop.ini and __pycache__ don't count"

func isLeaving(name string) bool { return slices.Contains(leavings, name) }

// tree reads a Source. Paths given to it hold no link: it resolves each link it meets.
type tree struct {
	fs  fs.FS
	dir string
}

// item is something in a folder, links followed.
type item struct {
	name string // as the folder has it
	path string // where it really is in the file system
	dir  bool
	err  error // why it can't be used; dir is unknown then

	entry fs.DirEntry // nil for what a link led to
}

// list is what a folder holds, sorted by name. An item that can't be used says so.
func (t tree) list(dir string) ([]item, error) {
	entries, err := fs.ReadDir(t.fs, dir)
	if err != nil {
		return nil, err
	}
	items := make([]item, 0, len(entries))
	for _, e := range entries {
		items = append(items, t.item(dir, e))
	}
	return items, nil
}

func (t tree) item(dir string, e fs.DirEntry) item {
	it := item{name: e.Name(), path: join(dir, e.Name()), entry: e}
	switch typ := e.Type(); {
	case !utf8.ValidString(it.name):
		it.err = errName
	case typ.IsDir():
		it.dir = true
	case typ.IsRegular():
	case typ&fs.ModeSymlink != 0:
		it.entry = nil
		real, info, err := t.follow(it.path)
		switch {
		case err != nil:
			it.err = err
		case info.IsDir():
			it.path, it.dir = real, true
		case info.Mode().IsRegular():
			it.path = real
		default:
			it.err = errSpecial
		}
	default:
		it.err = errSpecial
	}
	return it
}

// info describes a usable item itself.
func (t tree) info(it item) (fs.FileInfo, error) {
	if it.entry != nil {
		return it.entry.Info()
	}
	return fs.Lstat(t.fs, it.path)
}

// follow finds what the link at name leads to inside the file system: a path without links.
func (t tree) follow(name string) (string, fs.FileInfo, error) {
	todo := strings.Split(name, "/")
	at := "."
	var info fs.FileInfo
	for links := 0; len(todo) > 0; {
		seg := todo[0]
		todo = todo[1:]
		switch seg {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", nil, errOutside
			}
			at = path.Dir(at)
			info = nil
			continue
		}
		next := join(at, seg)
		li, err := fs.Lstat(t.fs, next)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
				return "", nil, errBroken
			}
			return "", nil, errors.New(reason(err, ""))
		}
		if li.Mode()&fs.ModeSymlink == 0 {
			if len(todo) > 0 && !li.IsDir() {
				return "", nil, errBroken
			}
			at, info = next, li
			continue
		}
		if links++; links > maxLinks {
			return "", nil, errLoop
		}
		target, err := fs.ReadLink(t.fs, next)
		if err != nil {
			return "", nil, errors.New(reason(err, "broken symlink"))
		}
		target, err = t.inside(at, target)
		if err != nil {
			return "", nil, err
		}
		if strings.HasPrefix(target, "/") {
			at, target = ".", target[1:]
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	if info == nil {
		li, err := fs.Lstat(t.fs, at)
		if err != nil {
			return "", nil, errBroken
		}
		info = li
	}
	return at, info, nil
}

// inside spells a link's target as a path from the folder at, or with a leading "/" as one from the bundle's root. A target that lies in the
// bundle's folder when spelled as a path of the machine is such a path.
func (t tree) inside(at, target string) (string, error) {
	if !path.IsAbs(target) {
		if p := path.Join(at, target); p != ".." && !strings.HasPrefix(p, "../") {
			return target, nil
		}
	}
	if t.dir == "" {
		return "", errOutside
	}
	if !path.IsAbs(target) {
		target = path.Join(t.dir, at, target)
	}
	target = path.Clean(target)
	if target == t.dir {
		return "/.", nil
	}
	rest, ok := strings.CutPrefix(target, strings.TrimSuffix(t.dir, "/")+"/")
	if !ok {
		return "", errOutside
	}
	return "/" + rest, nil
}

// found is a file of a walk.
type found struct {
	item
	rel string // from the folder walked
}

// lost is something that a walk couldn't use.
type lost struct {
	rel string
	err error
}

// walk lists the files below a folder, sorted by path, leavings left out, and all that it can't use. skip leaves out names at the top.
func (t tree) walk(dir string, skip func(name string) bool) (files []found, bad []lost) {
	w := walker{tree: t, skip: skip}
	w.dir(dir, "", nil)
	slices.SortFunc(w.files, func(a, b found) int { return cmp.Compare(a.rel, b.rel) })
	return w.files, w.bad
}

type walker struct {
	tree
	skip  func(string) bool
	files []found
	bad   []lost
	seen  int // files and folders
	links int // to folders
	full  bool
}

func (w *walker) dir(dir, rel string, holders []string) {
	items, err := w.list(dir)
	if err != nil {
		w.bad = append(w.bad, lost{rel, errors.New(reason(err, "no such folder"))})
		return
	}
	if len(holders) >= maxDepth {
		w.bad = append(w.bad, lost{rel, errors.New("folders lie too deep in each other; flatten them")})
		return
	}
	holders = append(slices.Clip(holders), dir)
	for _, it := range items {
		w.seen++
		if it.dir && it.entry == nil {
			w.links++
		}
		switch {
		case w.full:
		case w.seen > maxFiles:
			w.stop("holds too much: at most 200000 files and folders fit into one entry")
		case w.links > maxDirLinks:
			w.stop("holds too many links to folders, counting those in the folders that they lead to: at most 1000 fit into one entry")
		}
		if w.full || isLeaving(it.name) || rel == "" && w.skip != nil && w.skip(it.name) {
			continue
		}
		name := it.name
		if rel != "" {
			name = rel + "/" + it.name
		}
		switch {
		case it.err != nil:
			w.bad = append(w.bad, lost{name, it.err})
		case it.dir && (slices.Contains(holders, it.path) || holds(it.path, dir)):
			w.bad = append(w.bad, lost{name, errHolder})
		case it.dir:
			w.dir(it.path, name, holders)
		default:
			w.files = append(w.files, found{it, name})
		}
	}
}

// stop ends the walk.
func (w *walker) stop(why string) {
	w.full = true
	w.bad = append(w.bad, lost{"", errors.New(why)})
}

// holds tells whether a folder is the other one, or lies above it.
func holds(dir, other string) bool {
	return dir == "." || dir == other || strings.HasPrefix(other, dir+"/")
}

// read reads a small file whole: at most doc.MaxConfig bytes. The error's text is a problem's.
func (t tree) read(name string) ([]byte, error) {
	f, err := t.fs.Open(name)
	if err != nil {
		return nil, errors.New(reason(err, "no such file"))
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, errors.New(reason(err, "no such file"))
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Size() > doc.MaxConfig:
		return nil, errors.New("larger than 8 MiB")
	}
	b, err := io.ReadAll(io.LimitReader(f, doc.MaxConfig+1))
	switch {
	case err != nil:
		return nil, errors.New(reason(err, "no such file"))
	case len(b) > doc.MaxConfig:
		return nil, errors.New("larger than 8 MiB")
	}
	return b, nil
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

func sorted(entries []fs.DirEntry, err error) ([]fs.DirEntry, error) {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, err
}
