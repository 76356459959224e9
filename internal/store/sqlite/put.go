package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"

	"agentenv.internal/agentenv/internal/ref"
)

// A large object is copied in pieces, in bytes; each is hashed while later ones are read and written, and asks for the disk in
// larger steps, so that little is left for the sync at the end. Pieces must stay small enough for the processor's caches.
const (
	piece     = 256 << 10
	pieces    = 4
	writeback = 8 << 20
	ahead     = 32 << 20 // what room is made for, of a stream of unknown length
)

// putFile copies the rest of a regular file, of about this size. Where the file system can, the copy shares the source's blocks.
func (g *stage) putFile(src *os.File, size int64) (ref.Digest, int64, error) {
	if at, err := src.Seek(0, io.SeekCurrent); err != nil || at != 0 {
		return g.putStream(src, size)
	}
	f, err := g.file()
	if err != nil {
		return "", 0, err
	}
	if !reflink(f, src) {
		return g.copyInto(f, src, size)
	}
	h := sha256.New() // of the copy: the source may be changing
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{cancellable{f, g.ctx.Err}}, make([]byte, piece))
	if err == nil {
		err = makeDurable(f)
	}
	return g.keepFile(f, ref.DigestSum(h), n, err)
}

// putStream copies r into a file of the workspace; size is what is expected, 0 when nobody knows.
func (g *stage) putStream(r io.Reader, size int64) (ref.Digest, int64, error) {
	f, err := g.file()
	if err != nil {
		return "", 0, err
	}
	return g.copyInto(f, r, size)
}

func (g *stage) copyInto(f *os.File, r io.Reader, size int64) (ref.Digest, int64, error) {
	err := preallocate(f, 0, size)
	var n int64
	var d ref.Digest
	if err == nil {
		d, n, err = copyHashed(f, cancellable{r, g.ctx.Err}, size)
	}
	if err == nil {
		err = f.Truncate(n) // what was made room for and not needed
	}
	if err == nil {
		err = makeDurable(f)
	}
	return g.keepFile(f, d, n, err)
}

// copyHashed copies r to f and hashes what was written in a goroutine of its own, which has ended when it returns. There is room
// for the first bytes already.
func copyHashed(f *os.File, r io.Reader, room int64) (ref.Digest, int64, error) {
	full, free := make(chan []byte, pieces), make(chan []byte, pieces)
	for range pieces {
		free <- make([]byte, piece)
	}
	h := sha256.New()
	hashed := make(chan struct{})
	go func() {
		defer close(hashed)
		for b := range full {
			h.Write(b)
			free <- b[:cap(b)]
		}
	}()
	n, err := copyPieces(f, r, room, full, free)
	close(full)
	<-hashed
	return ref.DigestSum(h), n, err
}

func copyPieces(f *os.File, r io.Reader, room int64, full, free chan []byte) (total int64, err error) {
	var asked int64
	for {
		b := <-free
		n, err := io.ReadFull(r, b)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return total, fmt.Errorf("read what is to be stored: %w", err)
		}
		if total+int64(n) > room && total >= writeback {
			_ = preallocate(f, room, ahead) // when there is no room for so much, there may be for the rest
			room += ahead
		}
		if _, err := f.Write(b[:n]); err != nil {
			return total, err
		}
		total += int64(n)
		full <- b[:n]
		if total-asked >= writeback {
			startWriteback(f, asked, total-asked)
			asked = total
		}
		if end {
			return total, nil
		}
	}
}

// makeDurable syncs a file. After an error the kernel may have dropped the pages, so the object counts as lost: no second try.
func makeDurable(f *os.File) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("make an object durable: %w", err)
	}
	return nil
}

// known tells whether src, a file of this size, is in the store already. It reads src only when an object of its size exists,
// and leaves it where it stood otherwise.
func (g *stage) known(ctx context.Context, src *os.File, size int64) (ref.Digest, bool, error) {
	same := false
	err := g.s.read(ctx, func(c *conn) error {
		return c.query(ctx, "SELECT 1 FROM objects WHERE size=? AND data IS NULL LIMIT 1", func([]driver.Value) error { same = true; return nil }, size)
	})
	if err != nil || !same {
		return "", false, err
	}
	start, err := src.Seek(0, io.SeekCurrent)
	if err != nil {
		return "", false, err
	}
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{cancellable{src, ctx.Err}}, make([]byte, 1<<20))
	if err != nil {
		return "", false, err
	}
	d := ref.DigestSum(h)
	if n == size && g.s.intact(ctx, d, size) {
		return d, true, nil
	}
	_, err = src.Seek(start, io.SeekStart)
	return "", false, err
}

// intact tells whether a row and a file of the right size stand for a large object.
func (s *Store) intact(ctx context.Context, d ref.Digest, size int64) bool {
	ok := false
	err := s.read(ctx, func(c *conn) error {
		o, found, err := c.object(ctx, d)
		ok = found && o.inFile && o.size == size
		return err
	})
	if err != nil || !ok {
		return false
	}
	fi, err := os.Lstat(s.objectPath(d))
	return err == nil && fi.Mode().IsRegular() && fi.Size() == size
}

type cancellable struct {
	r         io.Reader
	cancelled func() error
}

func (c cancellable) Read(p []byte) (int, error) {
	if err := c.cancelled(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
