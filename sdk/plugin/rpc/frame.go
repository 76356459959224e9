package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// reader reads lines of at most max bytes.
type reader struct {
	in  *bufio.Reader
	max int
	// long gathers a line that is longer than the buffer; it is given back when it has grown large.
	long []byte
}

func newReader(in io.Reader, max int) *reader {
	return &reader{in: bufio.NewReaderSize(in, min(64<<10, max/2)), max: max}
}

// line is the next line that isn't blank, without its end; valid until the next call. At the end of input it is io.EOF, or io.ErrUnexpectedEOF
// in the middle of a line.
func (r *reader) line() ([]byte, error) {
	for {
		b, err := r.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if b, err = r.rest(b); err != nil {
				return nil, err
			}
		} else if err != nil {
			if errors.Is(err, io.EOF) && len(bytes.TrimSpace(b)) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if len(b) > r.max+1 { // with its end
			r.long = append(r.long[:0], b...)
			return nil, ErrTooLong
		}
		if b = bytes.TrimSpace(b); len(b) > 0 {
			return b, nil
		}
	}
}

// rest gathers a line that begins with b.
func (r *reader) rest(b []byte) ([]byte, error) {
	if cap(r.long) > 1<<20 {
		r.long = nil
	}
	r.long = append(r.long[:0], b...)
	for {
		b, err := r.in.ReadSlice('\n')
		r.long = append(r.long, b...)
		switch {
		case len(r.long) > r.max+1:
			return nil, ErrTooLong
		case err == nil:
			return r.long, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// skip reads to the end of a line that was too long and answers its first and its last bytes; valid until the next call.
func (r *reader) skip() (head, tail []byte, err error) {
	head = bytes.Clone(r.long[:min(len(r.long), endBytes)])
	tail = bytes.Clone(r.long[max(0, len(r.long)-endBytes):])
	whole := bytes.HasSuffix(r.long, []byte("\n"))
	r.long = nil
	for !whole {
		b, err := r.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, nil, err
		}
		whole = err == nil
		tail = append(tail, b[max(0, len(b)-endBytes):]...)
		tail = tail[max(0, len(tail)-endBytes):]
	}
	return head, tail, nil
}

// endBytes is how much of either end of a line that is too long is looked at.
const endBytes = 512

// writer writes whole lines, one at a time.
type writer struct {
	mu  sync.Mutex
	out io.Writer
	err error // of a line that was written in part: nothing can follow it
}

func (w *writer) line(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	_, w.err = w.out.Write(b)
	return w.err
}
