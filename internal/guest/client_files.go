package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// ReadFile reads a regular file of at most max bytes.
func (b *Client) ReadFile(ctx context.Context, path string, max int64) ([]byte, error) {
	c, err := b.open(ctx, &Request{Op: OpRead, Path: path, Max: max})
	if err != nil {
		return nil, err
	}
	defer b.done(c)
	defer watch(ctx, c)()
	r := &DataReader{Conn: c}
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(data)) > max {
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrTooBig}
	}
	if err := b.ended(ctx, r, err); err != nil {
		return nil, err
	}
	return data, nil
}

// Stat follows links.
func (b *Client) Stat(ctx context.Context, path string) (fs.FileInfo, error) {
	reply, _, err := b.call(ctx, &Request{Op: OpStat, Path: path})
	if err != nil {
		return nil, err
	}
	if reply.Stat == nil {
		return nil, b.wrap(ctx, errFrame)
	}
	return reply.Stat, nil
}

// Tree is a tar of path. A fault of the box in the middle is the error of a Read. The caller closes it.
func (b *Client) Tree(ctx context.Context, path string) (io.ReadCloser, error) {
	return b.stream(ctx, &Request{Op: OpTree, Path: path})
}

// stream is the tar that answers r.
func (b *Client) stream(ctx context.Context, r *Request) (io.ReadCloser, error) {
	c, err := b.open(ctx, r)
	if err != nil {
		return nil, err
	}
	t := &tree{b: b, ctx: ctx, c: c, r: &DataReader{Conn: c}, unwatch: watch(ctx, c)}
	// The first bytes tell whether there is such a path, so that a missing one is an error here and not of the first Read.
	t.first = make([]byte, 512)
	n, err := io.ReadFull(t, t.first)
	if err != nil {
		t.Close()
		return nil, err
	}
	t.first = t.first[:n]
	t.primed = true
	return t, nil
}

type tree struct {
	b       *Client
	ctx     context.Context //nolint:containedctx // of the Tree call, whose end stops the stream
	c       *Conn
	r       *DataReader
	first   []byte
	primed  bool
	unwatch func() bool
	once    sync.Once
}

func (t *tree) Read(p []byte) (int, error) {
	if t.primed && len(t.first) > 0 {
		n := copy(p, t.first)
		t.first = t.first[n:]
		return n, nil
	}
	n, err := t.r.Read(p)
	if err == nil {
		return n, nil
	}
	if err := t.b.ended(t.ctx, t.r, nil); err != nil {
		return n, err
	}
	return n, io.EOF
}

func (t *tree) Close() error {
	t.once.Do(func() {
		t.unwatch()
		t.b.done(t.c)
	})
	return nil
}

// ended reads the reply that follows data.
func (b *Client) ended(ctx context.Context, r *DataReader, err error) error {
	if err == nil && r.Last == 0 {
		_, err = io.Copy(io.Discard, r)
	}
	if err == nil && !errors.Is(r.err, io.EOF) {
		err = r.err
	}
	if err != nil {
		return b.wrap(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var reply Reply
	if r.Last != FrameReply {
		return b.wrap(ctx, errFrame)
	}
	if err := json.Unmarshal(r.Payload, &reply); err != nil {
		return b.wrap(ctx, errFrame)
	}
	return reply.Fault.Err()
}

// Extract unpacks a tar under path.
func (b *Client) Extract(ctx context.Context, path string, tar io.Reader) error {
	c, err := b.open(ctx, &Request{Op: OpExtract, Path: path})
	if err != nil {
		return err
	}
	defer b.done(c)
	defer watch(ctx, c)()
	if err := sendData(c, tar); err != nil {
		c.CloseWrite() // the guest must not take what came for the whole
		return fmt.Errorf("read the archive for %s: %w", path, err)
	}
	var reply Reply
	if err := c.RecvJSON(FrameReply, &reply); err != nil {
		return b.wrap(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return reply.Fault.Err()
}

// sendData sends r as data frames and an end. Its error is r's: when the guest stops reading, its reply says why.
func sendData(c *Conn, r io.Reader) error {
	buf := make([]byte, dataSize)
	for {
		n, err := r.Read(buf)
		if n > 0 && c.Send(FrameData, buf[:n]) != nil {
			return nil
		}
		if errors.Is(err, io.EOF) {
			_ = c.Send(FrameEnd, nil)
			return nil
		}
		if err != nil {
			return err
		}
	}
}
