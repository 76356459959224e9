package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Put writes one object. content is read from its beginning, and again for another attempt.
func (c *Client) Put(ctx context.Context, o wire.WriteObject, content io.ReadSeeker) (wire.Uploaded, error) {
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return wire.Uploaded{}, failed(wire.CodeInvalidTransfer, false, "the content can't be read")
	}
	if size > o.MaxBytes {
		return wire.Uploaded{}, failed(wire.CodeTransferTooLarge, false, "the object has %d bytes, and the grant allows %d", size, o.MaxBytes)
	}
	var digest string
	err = again(ctx, o.Write.ExpiresAt, func() *Error {
		var e *Error
		digest, e = c.put(ctx, o, size, content)
		return e
	})
	if err != nil {
		return wire.Uploaded{}, err
	}
	return wire.Uploaded{SizeBytes: size, SHA256: digest}, nil
}

func (c *Client) put(ctx context.Context, o wire.WriteObject, size int64, content io.ReadSeeker) (string, *Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	defer cancel(nil)
	sum := sha256.New()
	resp, err := c.send(ctx, o.Write.URL, o.Write.Headers, func(ctx context.Context, address string) (*http.Request, error) {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		sum.Reset()
		body := io.TeeReader(&moving{io.LimitReader(content, size), watch}, sum)
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, address, body)
		if err != nil {
			return nil, err
		}
		if r.ContentLength = size; size == 0 {
			r.Body = http.NoBody
		}
		r.Header.Set("Content-Type", o.MediaType)
		for k, v := range o.Write.Headers {
			r.Header.Set(k, v)
		}
		return r, nil
	})
	if err != nil {
		return "", unreachable(ctx)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return "", failed(wire.CodeTransferUnavailable, true, "the store's answer broke off")
	}
	return hex.EncodeToString(sum.Sum(nil)), answered(resp.StatusCode, string(answer))
}

// Get reads one object into w, which is emptied first by begin for each attempt; nothing that w holds counts unless the error is nil. Size and
// digest are checked against what the object says of itself.
func (c *Client) Get(ctx context.Context, o wire.ReadObject, begin func() (io.Writer, error)) (int64, error) {
	var size int64
	err := again(ctx, o.Read.ExpiresAt, func() *Error {
		w, err := begin()
		if err != nil {
			return failed(wire.CodeInvalidTransfer, false, "the object can't be stored")
		}
		var e *Error
		size, e = c.get(ctx, o, w)
		return e
	})
	return size, err
}

// Bytes is Get for objects that fit into memory: at most limit bytes, whatever the grant allows.
func (c *Client) Bytes(ctx context.Context, o wire.ReadObject, limit int64) ([]byte, error) {
	o.MaxBytes = min(o.MaxBytes, limit)
	var b bytes.Buffer
	_, err := c.Get(ctx, o, func() (io.Writer, error) { b.Reset(); return &b, nil })
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (c *Client) get(ctx context.Context, o wire.ReadObject, w io.Writer) (int64, *Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	defer cancel(nil)
	resp, err := c.send(ctx, o.Read.URL, o.Read.Headers, func(ctx context.Context, address string) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		for k, v := range o.Read.Headers {
			r.Header.Set(k, v)
		}
		r.Header.Set("Accept-Encoding", "identity")
		return r, nil
	})
	if err != nil {
		return 0, unreachable(ctx)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // it only tells more of a failure
		if e := answered(resp.StatusCode, string(answer)); e != nil {
			return 0, e
		}
		return 0, failed(wire.CodeTransferRejected, false, "the store answered %d", resp.StatusCode)
	}
	return receive(ctx, o, resp, w, watch)
}

func receive(ctx context.Context, o wire.ReadObject, resp *http.Response, w io.Writer, watch *time.Timer) (int64, *Error) {
	sum := sha256.New()
	out := &sink{w: io.MultiWriter(w, sum)}
	n, err := io.Copy(out, io.LimitReader(&moving{resp.Body, watch}, o.MaxBytes+1))
	switch {
	case out.failed:
		return n, failed(wire.CodeInvalidTransfer, false, "the object can't be stored")
	case err != nil && ctx.Err() != nil:
		return n, unreachable(ctx)
	case err != nil:
		return n, failed(wire.CodeTransferUnavailable, true, "the store's answer broke off")
	case n > o.MaxBytes:
		return n, failed(wire.CodeTransferTooLarge, false, "the object has more than %d bytes", o.MaxBytes)
	case o.SizeBytes != nil && n != *o.SizeBytes:
		return n, failed(wire.CodeIntegrityMismatch, false, "the object has %d bytes, want %d", n, *o.SizeBytes)
	case o.SHA256 != "" && hex.EncodeToString(sum.Sum(nil)) != o.SHA256:
		return n, failed(wire.CodeIntegrityMismatch, false, "the object has another digest than told")
	}
	return n, nil
}

// sink tells a writer's failure from a reader's.
type sink struct {
	w      io.Writer
	failed bool
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.failed = s.failed || err != nil
	return n, err
}

// moving puts the watch off as long as bytes are read.
type moving struct {
	io.Reader
	watch *time.Timer
}

func (m *moving) Read(p []byte) (int, error) {
	m.watch.Reset(silence)
	return m.Reader.Read(p)
}
