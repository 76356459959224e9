// Package stream carries streams of bytes over a connection of messages, both ways, many at once. It is how the plugin protocol hands on what programs of
// sandboxes read and write, where no descriptors can be passed.
//
// Words: a stream is named by one side, in a message of its own, and taken by the other. Each side sends until it has ended its direction, and reads until it
// has stopped. A sender has a window: what it may send before the reader has read it.
package stream

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"
)

// Notifications.
const (
	Data   = "stream/data"   // {"stream", "data": base64}
	End    = "stream/end"    // {"stream", "error"}: nothing more is sent
	Stop   = "stream/stop"   // {"stream"}: nothing more is read
	Credit = "stream/credit" // {"stream", "bytes"}: so much more may be sent
)

// Limits of streams.
const (
	Window = 256 << 10 // bytes that may be on their way to a reader
	chunk  = 32 << 10  // bytes in one message
)

// ErrBroken: the other side sent what no stream may hold, or the connection has ended.
var ErrBroken = errors.New("the stream is broken")

// Fault is why a stream ended early.
type Fault struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
	Errno   int    `json:"errno,omitempty"`
}

func (f *Fault) Error() string { return f.Message }

// frame is the parameter of every notification.
type frame struct {
	Stream string `json:"stream"`
	Data   []byte `json:"data,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
	Error  *Fault `json:"error,omitempty"`
}

// Mux is the streams of one side of a connection.
type Mux struct {
	prefix string
	notify func(method string, params any) error

	mu      sync.Mutex
	next    int
	streams map[string]*Stream
	closed  bool
	work    sync.WaitGroup // what is told late
}

// NewMux makes the streams of a side. The names that it makes begin with prefix, which the other side's don't. notify sends a notification; it may block.
func NewMux(prefix string, notify func(method string, params any) error) *Mux {
	return &Mux{prefix: prefix, notify: notify, streams: map[string]*Stream{}}
}

// Make names a stream. Nothing is sent on it before the other side has taken it.
func (m *Mux) Make() *Stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	s := newStream(m, m.prefix+strconv.Itoa(m.next))
	m.enter(s)
	return s
}

// Take takes a stream that the other side has named. It is not to be called from Notify: it tells the other side.
func (m *Mux) Take(name string) (*Stream, error) {
	m.mu.Lock()
	if _, twice := m.streams[name]; twice || name == "" {
		m.mu.Unlock()
		return nil, errors.New("the stream's name is empty or taken")
	}
	s := newStream(m, name)
	s.credit, s.taken = Window, true
	m.enter(s)
	m.mu.Unlock()
	return s, m.notify(Credit, frame{Stream: name, Bytes: Window})
}

// Refuse ends a stream that the other side has named and nobody takes. It is not to be called from Notify.
func (m *Mux) Refuse(name string) {
	if s, err := m.Take(name); err == nil {
		_ = s.Close() // only the connection's end fails it
	}
}

// enter is called with mu held.
func (m *Mux) enter(s *Stream) {
	if m.closed {
		s.broken = true
		return
	}
	m.streams[s.name] = s
}

// Notify takes a notification and tells whether it was one of streams. It never blocks.
func (m *Mux) Notify(method string, params json.RawMessage) bool {
	switch method {
	case Data, End, Stop, Credit:
	default:
		return false
	}
	var f frame
	if json.Unmarshal(params, &f) != nil {
		return true
	}
	m.mu.Lock()
	s := m.streams[f.Stream]
	m.mu.Unlock()
	if s != nil {
		s.take(method, f)
	}
	return true
}

// Close breaks all streams: the connection has ended, so that nothing blocks in notify any more.
func (m *Mux) Close() {
	m.mu.Lock()
	m.closed = true
	all := m.streams
	m.streams = map[string]*Stream{}
	m.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		s.broken = true
		s.cond.Broadcast()
		s.mu.Unlock()
	}
	m.work.Wait()
}

// later does f in a goroutine that Close waits for.
func (m *Mux) later(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.work.Go(f)
	}
}

func (m *Mux) forget(s *Stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams[s.name] == s {
		delete(m.streams, s.name)
	}
}

// take enters what the other side says.
func (s *Stream) take(method string, f frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch method {
	case Data:
		s.received += int64(len(f.Data))
		switch {
		case s.ended || s.stopped:
		case len(s.buf)-s.off+s.unpaid+len(f.Data) > Window:
			s.ended, s.fault = true, ErrBroken
		default:
			if s.off == len(s.buf) || s.off >= Window/4 {
				s.buf, s.off = s.buf[:copy(s.buf, s.buf[s.off:])], 0
			}
			s.buf = append(s.buf, f.Data...)
		}
	case End:
		if !s.ended {
			s.ended, s.fault = true, io.EOF
			if f.Error != nil {
				s.fault = f.Error
			}
		}
	case Stop:
		s.refused = true
	case Credit:
		if f.Bytes > 0 && f.Bytes <= Window && s.credit <= Window {
			s.credit += f.Bytes
			s.wanted()
		}
	}
	s.cond.Broadcast()
	if s.over() {
		s.m.forget(s)
	}
}

// wanted notes that the other side has taken the stream, and tells what had to wait for that. It is called with mu held.
func (s *Stream) wanted() {
	if s.taken {
		return
	}
	s.taken = true
	finish, why, stopped := s.told, s.why, s.stopped
	if !finish && !stopped {
		return
	}
	s.m.later(func() { // the reader must not wait for the other side to read
		if finish {
			_ = s.m.notify(End, frame{Stream: s.name, Error: why})
		}
		if stopped {
			_ = s.m.notify(Stop, frame{Stream: s.name})
		}
	})
}
