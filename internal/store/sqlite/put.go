package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"

	"agentenv.internal/agentenv/internal/ref"
)

// chunk is how much of a large object is copied before its hash follows, in bytes; few chunks are under way at once.
const (
	chunk    = 8 << 20
	inFlight = 4
)

// putFile copies the rest of a regular file into tmp/. Its digest is of the copy: the source may be changing.
func (g *stage) putFile(src *os.File) (ref.Digest, int64, error) {
	f, err := g.file()
	if err != nil {
		return "", 0, err
	}
	hashed := startHash(f)
	n, err := g.copyChunks(f, src, hashed.upTo)
	if err == nil {
		err = makeDurable(f) // while the hash of the last chunks is still going on
	}
	sum, herr := hashed.wait()
	if err == nil {
		err = herr
	}
	return g.keepFile(f, sum, n, err)
}

// copyChunks copies src from where it stands and calls done with the length that is written.
func (g *stage) copyChunks(dst, src *os.File, done func(int64)) (int64, error) {
	at, err := src.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if at == 0 {
		if n, ok := reflink(dst, src); ok {
			done(n)
			_, err := src.Seek(n, io.SeekStart)
			return n, err
		}
	}
	var total int64
	inKernel := true
	for {
		if err := g.ctx.Err(); err != nil {
			return total, err
		}
		var n int64
		if inKernel {
			if n, inKernel, err = copyRange(dst, src, chunk); !inKernel {
				continue
			}
		} else {
			n, err = io.CopyN(dst, src, chunk)
			if errors.Is(err, io.EOF) {
				err = nil
			}
		}
		if err != nil {
			return total, err
		}
		if n == 0 {
			return total, nil
		}
		startWriteback(dst, total, n)
		total += n
		done(total)
	}
}

// hasher hashes a file behind its writer, in its own goroutine.
type hasher struct {
	upTo   func(int64)
	ends   chan int64
	result chan error
	sum    ref.Digest
}

func startHash(f *os.File) *hasher {
	h := &hasher{ends: make(chan int64, inFlight), result: make(chan error, 1)}
	h.upTo = func(n int64) { h.ends <- n }
	go func() {
		sum := sha256.New()
		buf := make([]byte, 256<<10)
		var at int64
		var err error
		for end := range h.ends {
			for at < end && err == nil {
				var n int
				n, err = f.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
				sum.Write(buf[:n])
				at += int64(n)
				if n > 0 && errors.Is(err, io.EOF) {
					err = nil
				}
			}
		}
		h.sum = ref.DigestSum(sum)
		h.result <- err
	}()
	return h
}

// wait ends the hash; upTo must not be called any more.
func (h *hasher) wait() (ref.Digest, error) {
	close(h.ends)
	err := <-h.result
	return h.sum, err
}

// putStream writes head and the rest of r into tmp/. Each buffer is hashed while the next one is read and written.
func (g *stage) putStream(head []byte, r io.Reader) (ref.Digest, int64, error) {
	f, err := g.file()
	if err != nil {
		return "", 0, err
	}
	type piece struct{ b []byte }
	full, free := make(chan piece, 2), make(chan piece, 3)
	for range cap(free) {
		free <- piece{make([]byte, 1<<20)}
	}
	sum := sha256.New()
	hashed := make(chan struct{})
	go func() {
		defer close(hashed)
		for p := range full {
			sum.Write(p.b)
			free <- piece{p.b[:cap(p.b)]}
		}
	}()
	var total, started int64
	err = func() error {
		defer close(full)
		r := io.MultiReader(bytes.NewReader(head), r)
		for {
			if err := g.ctx.Err(); err != nil {
				return err
			}
			p := <-free
			n, err := io.ReadFull(r, p.b)
			end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
			if err != nil && !end {
				return fmt.Errorf("read what is to be stored: %w", err)
			}
			if _, err := f.Write(p.b[:n]); err != nil {
				return err
			}
			total += int64(n)
			full <- piece{p.b[:n]}
			if total-started >= chunk {
				startWriteback(f, started, total-started)
				started = total
			}
			if end {
				return makeDurable(f)
			}
		}
	}()
	<-hashed
	return g.keepFile(f, ref.DigestSum(sum), total, err)
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
