package pid1

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"

	"agentenv.internal/agentenv/internal/guest/tree"
)

// An image's root is the overlay of "/" with the image's layers below the box's own. Its names are a stranger's: what the box needs may stand
// there as a link or a file.

// shows is what the layers of a box, but for its own, have at a path: a file type of stat's, 0 for nothing.
func (w *world) shows(name string) uint32 {
	p, rel := w.at(name)
	if rel == "" {
		return unix.S_IFDIR
	}
	var others []int
	for i, fd := range p.lowers {
		if i != p.stacked {
			others = append(others, fd)
		}
	}
	found, closeAll := tree.Lookup(others, strings.Split(rel, "/"))
	defer closeAll()
	if found == nil {
		return 0
	}
	return found.Stat.Mode & unix.S_IFMT
}

// folderOrNone tells whether a folder can be made at or below a path without hiding something that is none.
func (w *world) folderOrNone(name string) bool {
	kind := w.shows(name)
	return kind == 0 || kind == unix.S_IFDIR
}

// mountPoints makes folders of the box's own over what can't be mounted on.
func (w *world) mountPoints(names ...string) error {
	for _, name := range names {
		if w.folderOrNone(name) {
			continue
		}
		p, rel := w.at(name)
		if err := unix.Mkdir(p.own+"/"+rel, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

// workingFolder makes the folder that an image's commands start in, as engines do. It is called in the box's root, so that the image's links
// lead where the box's do.
func workingFolder(b *guest.Boot) (notes []string) {
	if b.Dir == "" {
		return nil
	}
	if info, err := os.Stat(b.Dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		b.Dir = "/"
		return []string{"the image's working folder can't be made: " + err.Error()}
	}
	return nil
}
