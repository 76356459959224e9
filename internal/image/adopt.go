package image

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// adopt gives folders of a layer that it has no entry of what they are in the layers below, since the topmost layer's folder is the one that
// an overlay shows. Names come outermost first; "" is the root. What no layer describes stays 0755 and root's.
func adopt(dir string, names, below []string, oneID bool) error {
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	var lowers []*os.Root
	defer func() {
		for _, l := range lowers {
			l.Close()
		}
	}()
	for _, b := range below {
		l, err := os.OpenRoot(b)
		if err != nil {
			return err
		}
		lowers = append(lowers, l)
	}
	for i := len(names) - 1; i >= 0; i-- { // inner ones first: a mode may close a folder
		if err := adoptOne(to, cmp.Or(names[i], "."), lowers, oneID); err != nil {
			return err
		}
	}
	return nil
}

func adoptOne(to *os.Root, name string, lowers []*os.Root, oneID bool) error {
	mode, mtime := fs.FileMode(0o755), time.Unix(0, 0)
	for _, l := range lowers {
		fi, err := l.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			break // it was a file there, or was taken away
		}
		mode, mtime = fi.Mode(), fi.ModTime()
		if uid, gid, ok := ownerOf(fi); ok && !oneID {
			if err := to.Lchown(name, uid, gid); err != nil {
				return err
			}
		}
		break
	}
	if err := to.Chmod(name, mode&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky|fs.ModeSetuid)); err != nil {
		return err
	}
	return to.Chtimes(name, mtime, mtime)
}
