package child

import (
	"fmt"
	"io"
	"os"
	"sync"

	"agentenv.internal/agentenv/internal/rawjson"
)

// memoryLimit is how much of one message is held in memory; what is longer lies in a file that has no name.
const memoryLimit = 1 << 20

// Value is a JSON value as the child sent it: in memory, or in a file when it is large. The zero value is none.
type Value struct {
	mem  []byte
	file *os.File
	span rawjson.Span
}

// Bytes is a value made by hand.
func Bytes(b []byte) Value { return Value{mem: b} }

// None tells that there is no value.
func (v Value) None() bool { return v.mem == nil && v.file == nil }

// Len is its length in bytes.
func (v Value) Len() int64 {
	if v.file != nil {
		return v.span.Len()
	}
	return int64(len(v.mem))
}

// Memory is the value when it lies in memory, else nil. It is good until its Answer is closed.
func (v Value) Memory() []byte { return v.mem }

// object tells whether the value is a JSON object.
func (v Value) object() bool {
	var first [1]byte
	n, _ := v.ReadAt(first[:], 0) // what can't be read begins with no brace
	return n == 1 && first[0] == '{'
}

// WriteTo writes the value.
func (v Value) WriteTo(w io.Writer) (int64, error) {
	if v.file != nil {
		return io.Copy(w, v.section())
	}
	n, err := w.Write(v.mem)
	return int64(n), err
}

// ReadAt reads from the value's beginning on.
func (v Value) ReadAt(p []byte, off int64) (int, error) {
	if v.file != nil {
		return v.section().ReadAt(p, off)
	}
	if off >= int64(len(v.mem)) {
		return 0, io.EOF
	}
	n := copy(p, v.mem[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (v Value) section() *io.SectionReader {
	return io.NewSectionReader(v.file, v.span.From, v.span.Len())
}

// spool takes one message of any size up to max.
type spool struct {
	mem  []byte
	buf  *[]byte // what mem was taken from
	file *os.File
	find *rawjson.Finder
	n    int64
	max  int64
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func newSpool(limit int64) *spool {
	b := buffers.Get().(*[]byte)
	return &spool{mem: (*b)[:0], buf: b, max: limit}
}

func (s *spool) Write(p []byte) (int, error) {
	if s.n += int64(len(p)); s.n > s.max {
		return 0, fmt.Errorf("%w: an answer of more than %d MiB", ErrTooLarge, s.max>>20)
	}
	if s.file == nil && s.n <= memoryLimit {
		s.mem = append(s.mem, p...)
		return len(p), nil
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "agent-env-answer-")
		if err != nil {
			return 0, fmt.Errorf("hold a large answer: %w", err)
		}
		os.Remove(f.Name())
		s.file, s.find = f, rawjson.NewFinder("id", "method", "result", "error")
		if err := s.toFile(s.mem); err != nil {
			return 0, err
		}
	}
	if err := s.toFile(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *spool) toFile(p []byte) error {
	if _, err := s.find.Write(p); err != nil {
		return err
	}
	if _, err := s.file.Write(p); err != nil {
		return fmt.Errorf("hold a large answer: %w", err)
	}
	return nil
}

// ReadFrom spares the copy for what fits into memory.
func (s *spool) ReadFrom(r io.Reader) (int64, error) {
	start := s.n
	for s.file == nil && s.n < memoryLimit {
		if len(s.mem) == cap(s.mem) {
			s.mem = append(s.mem, 0)[:len(s.mem)]
		}
		room := s.mem[len(s.mem):min(cap(s.mem), memoryLimit)]
		n, err := r.Read(room)
		s.mem = s.mem[:len(s.mem)+n]
		s.n += int64(n)
		if err == io.EOF {
			return s.n - start, nil
		}
		if err != nil {
			return s.n - start, err
		}
	}
	buf := make([]byte, 64<<10)
	_, err := io.CopyBuffer(onlyWriter{s}, r, buf)
	return s.n - start, err
}

// onlyWriter hides ReadFrom.
type onlyWriter struct{ io.Writer }

// reset makes room for the next message.
func (s *spool) reset() {
	s.mem, s.n, s.find = s.mem[:0], 0, nil
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

func (s *spool) free() {
	if s == nil || s.buf == nil {
		return
	}
	s.reset()
	*s.buf = s.mem
	buffers.Put(s.buf)
	s.buf = nil
}

// message is one JSON-RPC message. Only result and error can be large.
type message struct {
	id, method, params []byte
	result, err        Value
}

func (s *spool) message() (message, error) {
	if s.file == nil {
		var v [5][]byte
		if err := rawjson.Pick(s.mem, messageNames[:], v[:]); err != nil {
			return message{}, err
		}
		m := message{id: v[0], method: v[1], params: v[2]}
		if v[3] != nil {
			m.result = Value{mem: v[3]}
		}
		if v[4] != nil {
			m.err = Value{mem: v[4]}
		}
		return m, nil
	}
	if err := s.find.End(); err != nil {
		return message{}, err
	}
	var m message
	for name, into := range map[string]*[]byte{"id": &m.id, "method": &m.method} {
		if span, ok := s.find.Span(name); ok && span.Len() < 4<<10 {
			*into = make([]byte, span.Len())
			if _, err := s.file.ReadAt(*into, span.From); err != nil {
				return message{}, fmt.Errorf("read a large answer again: %w", err)
			}
		}
	}
	if span, ok := s.find.Span("result"); ok {
		m.result = Value{file: s.file, span: span}
	}
	if span, ok := s.find.Span("error"); ok {
		m.err = Value{file: s.file, span: span}
	}
	return m, nil
}

var messageNames = [5]string{"id", "method", "params", "result", "error"}
