package pid1

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// place is a folder of the box where it can write: the root, and what else is an overlay of its own. All that the box writes is in the upper
// folders of its places.
type place struct {
	path     string
	own      string // on the stage: the layer of files and folders that every box gets; valid until the root is entered
	fallback bool
	upper    int   // a descriptor of what the box wrote
	lowers   []int // of the layers below, topmost first
	stacked  int   // how many of them are a snapshot's
}

// marks of overlays in a layer.
const opaque = "user.overlay.opaque"

// began tells whether the box began with something at rel, besides what its own layer holds.
func (p *place) began(rel string) bool {
	if rel == "" {
		return true
	}
	var others []int
	for i, fd := range p.lowers {
		if i != p.stacked {
			others = append(others, fd)
		}
	}
	found, closeAll := lookup(others, strings.Split(rel, "/"))
	defer closeAll()
	return found != nil
}

// seen is what layers show at a name: a folder, merged of several, or something else.
type seen struct {
	dirs []int // of a folder, topmost first
	st   unix.Stat_t
}

// lookup finds a name below layers as an overlay would. The function it answers closes what it opened.
func lookup(layers []int, parts []string) (*seen, func()) {
	var opened []int
	closeAll := func() {
		for _, fd := range opened {
			unix.Close(fd)
		}
	}
	cur := &seen{dirs: layers}
	for _, part := range parts {
		next := child(cur.dirs, part)
		if next == nil {
			return nil, closeAll
		}
		opened = append(opened, next.dirs...)
		cur = next
	}
	return cur, closeAll
}

// child is what a merged folder shows at one name; nil: nothing. The caller closes its dirs.
func child(dirs []int, name string) *seen {
	var out *seen
	for _, dir := range dirs {
		var st unix.Stat_t
		err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || whiteout(&st) {
			break
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if out == nil {
			out = &seen{st: st}
		}
		if !isDir {
			break // a file, or a file below folders, which hide it
		}
		fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		out.dirs = append(out.dirs, fd)
		if isOpaque(fd) {
			break
		}
	}
	return out
}

func whiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

func isOpaque(dir int) bool {
	var b [1]byte
	n, err := unix.Getxattr(fdPath(dir), opaque, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// inherit gives a new upper folder the mode and owner of the topmost layer's, which its own would hide.
func (p *place) inherit(upper string) error {
	from := 0
	if p.stacked == 0 {
		if p.path != "/" || len(p.lowers) < 2 {
			return nil
		}
		from = 1 // an image's, below the box's own
	}
	var st unix.Stat_t
	if err := unix.Fstat(p.lowers[from], &st); err != nil {
		return err
	}
	if err := unix.Lchown(upper, int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return err
	}
	return unix.Chmod(upper, st.Mode&0o7777)
}
