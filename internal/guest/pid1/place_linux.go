package pid1

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest/tree"
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
	from     []int // of those, which of the snapshot's layers each is
}

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
	found, closeAll := tree.Lookup(others, strings.Split(rel, "/"))
	defer closeAll()
	return found != nil
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
