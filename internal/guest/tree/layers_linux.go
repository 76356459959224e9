package tree

import (
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Layers are folders that overlays lay over each other; a list of their descriptors has the topmost first.

// Entry is what layers show at a name: a folder, merged of several, or something else.
type Entry struct {
	At     int   // the layer's folder that shows it
	Dirs   []int // of a folder, topmost first
	Opaque bool  // what further layers have at a folder is hidden
	Stat   unix.Stat_t
}

// Close closes Dirs.
func (s *Entry) Close() {
	for _, fd := range s.Dirs {
		unix.Close(fd)
	}
}

// Lookup finds a name below layers as an overlay would. The function it answers closes what it opened.
func Lookup(layers []int, parts []string) (*Entry, func()) {
	var opened []int
	closeAll := func() {
		for _, fd := range opened {
			unix.Close(fd)
		}
	}
	cur := &Entry{Dirs: layers}
	for _, part := range parts {
		next := Child(cur.Dirs, part)
		if next == nil {
			return nil, closeAll
		}
		opened = append(opened, next.Dirs...)
		cur = next
	}
	return cur, closeAll
}

// Child is what a merged folder shows at one name; nil: nothing. The caller closes its dirs.
func Child(dirs []int, name string) *Entry {
	s := Shown(dirs, name)
	if s == nil || Whiteout(&s.Stat) {
		return nil
	}
	return s
}

// Shown is Child with whiteouts.
func Shown(dirs []int, name string) *Entry {
	var out *Entry
	for _, dir := range dirs {
		var st unix.Stat_t
		err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			break
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if out == nil {
			out = &Entry{At: dir, Stat: st}
		}
		if !isDir {
			out.Opaque = len(out.Dirs) > 0 // a file, or none, below a folder hides what the layers below that have
			break
		}
		fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		out.Dirs = append(out.Dirs, fd)
		if out.Opaque = IsOpaque(fd); out.Opaque {
			break
		}
	}
	return out
}

// Whiteout tells whether an entry of a layer stands for an absence.
func Whiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// IsOpaque tells whether a folder of a layer hides what those below have there.
func IsOpaque(dir int) bool {
	var b [1]byte
	n, err := unix.Getxattr("/proc/self/fd/"+strconv.Itoa(dir), Opaque, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// PackMerged packs what layers hold together, marks included.
func PackMerged(p *Packer, dirs []int, rel string) error {
	names, err := NamesIn(dirs)
	if err != nil {
		return err
	}
	for _, name := range names {
		e := Shown(dirs, name)
		if e == nil {
			continue
		}
		err := packEntry(p, e, name, rel+name)
		e.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func packEntry(p *Packer, e *Entry, name, rel string) error {
	if e.Opaque {
		p.Records = map[string]string{XattrPrefix + Opaque: "y"}
	}
	err := p.Add(e.At, name, rel, &e.Stat)
	p.Records = nil
	if err != nil || len(e.Dirs) == 0 {
		return err
	}
	return PackMerged(p, e.Dirs, rel+"/")
}

// NamesIn are the names in any of the folders, sorted.
func NamesIn(dirs []int) ([]string, error) {
	var all []string
	for _, dir := range dirs {
		fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), "layer")
		names, err := f.Readdirnames(-1)
		f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
