package deploy

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"agentenv.internal/agentenv/internal/guest"
)

// boxLinks is how many links one file of a box may be behind.
const boxLinks = 40

// boxFile reads a regular file of a box as it comes, within ctx, so that its size takes no memory. Links are followed. A file of more than most bytes is
// refused. The caller closes it.
func boxFile(ctx context.Context, box guest.Box, name string, most int64) (io.ReadCloser, error) {
	for range boxLinks {
		tree, err := box.Tree(ctx, name)
		if err != nil {
			return nil, err
		}
		r := tar.NewReader(tree)
		h, err := r.Next()
		switch {
		case err != nil:
		case h.Typeflag == tar.TypeSymlink:
			_ = tree.Close()
			if to := h.Linkname; path.IsAbs(to) {
				name = to
			} else {
				name = path.Join(path.Dir(name), to)
			}
			continue
		case h.Typeflag != tar.TypeReg:
			err = &fs.PathError{Op: "read", Path: name, Err: errors.New("it is no regular file")}
		case h.Size > most:
			err = fmt.Errorf("read %s: it is larger than %d MiB", name, most>>20)
		default:
			return struct {
				io.Reader
				io.Closer
			}{r, tree}, nil
		}
		return nil, errors.Join(err, tree.Close())
	}
	return nil, fmt.Errorf("read %s: there are more than %d links one behind another", name, boxLinks)
}
