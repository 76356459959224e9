package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// object is a row of objects.
type object struct {
	size   int64
	inFile bool
	data   []byte
}

func (c *conn) object(ctx context.Context, d ref.Digest) (o object, found bool, err error) {
	err = c.query(ctx, "SELECT size, data IS NULL, data FROM objects WHERE sha=?", func(r []driver.Value) error {
		o, found = object{num(r[0]), num(r[1]) == 1, blob(r[2])}, true
		return nil
	}, sha(d))
	return o, found, err
}

func (s *Store) objectPath(d ref.Digest) string {
	h := d.Hex()
	return s.path("objects", h[:2], h)
}

func missing(d ref.Digest) error { return fmt.Errorf("object %s: %w", d, store.ErrNotFound) }

type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// Open is an object's bytes: in memory when small, else its *os.File.
func (s *Store) Open(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error) {
	if !d.Valid() {
		return nil, 0, missing(d)
	}
	var o object
	found := false
	err := s.read(ctx, func(c *conn) (err error) {
		o, found, err = c.object(ctx, d)
		return err
	})
	switch {
	case err != nil:
		return nil, 0, err
	case !found:
		return nil, 0, missing(d)
	case !o.inFile && int64(len(o.data)) != o.size:
		return nil, 0, fmt.Errorf("object %s: %d bytes instead of %d: %w", d, len(o.data), o.size, store.ErrCorrupt)
	case !o.inFile:
		return memory{bytes.NewReader(o.data)}, o.size, nil
	}
	// Nothing but a regular file is an object: a pipe in its place would hang its reader, a link lead elsewhere.
	f, err := os.OpenFile(s.objectPath(d), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, 0, fmt.Errorf("object %s: no regular file stands in its place: %w", d, store.ErrCorrupt)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("object %s: its file is gone: %w", d, store.ErrCorrupt)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("object %s: %w", d, err)
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
	case !fi.Mode().IsRegular():
		err = fmt.Errorf("no regular file stands in its place: %w", store.ErrCorrupt)
	case fi.Size() != o.size:
		err = fmt.Errorf("%d bytes instead of %d: %w", fi.Size(), o.size, store.ErrCorrupt)
	}
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("object %s: %w", d, err)
	}
	return f, o.size, nil
}

// Verify reads an object whole and compares it with its digest.
func (s *Store) Verify(ctx context.Context, d ref.Digest) error {
	r, _, err := s.Open(ctx, d)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("object %s: %w", d, err)
		}
	}
	if got := ref.DigestSum(h); got != d {
		return fmt.Errorf("object %s: the bytes have digest %s: %w", d, got, store.ErrCorrupt)
	}
	return nil
}
