package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// free is how many bytes the caller may still write to the store's disk.
func (s *Store) free() (int64, error) {
	dir := s.o.Dir
	for {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil {
			return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between systems
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, unix.ENOENT) || parent == dir {
			return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
		dir = parent // not made yet
	}
}

// room refuses what would leave less free than the floor when need bytes more are written.
func (s *Store) room(need int64) error {
	if s.o.Floor < 0 {
		return nil
	}
	have, err := s.free()
	if err != nil {
		return fmt.Errorf("look at the disk's room: %w", err)
	}
	if have-need >= s.o.Floor {
		return nil
	}
	what := ""
	if need > 0 {
		what = fmt.Sprintf(" and the image takes at least %s", size(need))
	}
	return fmt.Errorf("%w: %s is free below %s%s, where %s has to stay free; make room with agent-env image prune, or lower sandbox.images.floor_mb",
		ErrSpace, size(have), s.o.Dir, what, size(s.o.Floor))
}

func size(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// bounded reads r while there is room for what it gives.
func (s *Store) bounded(ctx context.Context, r io.Reader) io.Reader {
	return &boundedReader{s: s, ctx: ctx, r: r}
}

// lookEvery is how many bytes are written between two looks at the disk.
const lookEvery = 1 << 20

type boundedReader struct {
	s    *Store
	ctx  context.Context //nolint:containedctx // of the one copy that it is made for
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		if err := b.s.room(0); err != nil {
			return 0, err
		}
		b.left = lookEvery
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
