package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Stream is one stream. It is a net.Conn whose addresses say nothing; its methods may be called from several goroutines.
type Stream struct {
	m    *Mux
	name string
	wmu  sync.Mutex // who sends data

	mu   sync.Mutex
	cond *sync.Cond
	// What comes.
	buf       []byte
	off       int
	unpaid    int // bytes that were read and not yet told of
	received  int64
	delivered int64 // to WriteTo's writer
	ended     bool  // by the other side, with fault
	fault     error
	stopped   bool // by this side
	// What goes.
	credit  int
	taken   bool
	refused bool // the other side reads no more
	finish  bool // by this side
	told    bool // End was sent, or will be when the stream is taken
	why     *Fault

	broken          bool
	rlimit, wlimit  time.Time
	rtimer, wtimer  *time.Timer
	local, faraddrs net.Addr
}

var _ net.Conn = (*Stream)(nil)

func newStream(m *Mux, name string) *Stream {
	s := &Stream{m: m, name: name, local: addr(name), faraddrs: addr(name)}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// Name is what the other side takes it by.
func (s *Stream) Name() string { return s.name }

// over tells whether both directions have ended. It is called with mu held.
func (s *Stream) over() bool { return (s.ended || s.stopped) && (s.told || s.refused) }

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// Read reads what has come, and waits where nothing has. The end is io.EOF, or a *Fault.
func (s *Stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	for len(s.buf) == s.off && !s.ended && !s.stopped && !s.broken && !past(s.rlimit) {
		s.cond.Wait()
	}
	switch {
	case s.stopped:
		s.mu.Unlock()
		return 0, net.ErrClosed
	case past(s.rlimit):
		s.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	case len(s.buf) > s.off:
	case s.ended:
		defer s.mu.Unlock()
		return 0, s.fault
	default:
		s.mu.Unlock()
		return 0, ErrBroken
	}
	n := copy(p, s.buf[s.off:])
	s.off += n
	s.unpaid += n
	pay := 0
	if s.unpaid >= Window/4 && !s.ended {
		pay, s.unpaid = s.unpaid, 0
	}
	s.mu.Unlock()
	if pay > 0 {
		_ = s.m.notify(Credit, frame{Stream: s.name, Bytes: pay}) // the connection's end is met by the next read
	}
	return n, nil
}

// WriteTo writes what comes to w until the end, which is nil then, or w fails, which stops the stream.
func (s *Stream) WriteTo(w io.Writer) (int64, error) {
	buf := make([]byte, chunk)
	var total int64
	for {
		n, err := s.Read(buf)
		if n > 0 {
			_, werr := w.Write(buf[:n])
			total += int64(n)
			s.mu.Lock()
			s.delivered = total
			s.cond.Broadcast()
			s.mu.Unlock()
			if werr != nil {
				return total, errors.Join(werr, s.CloseRead())
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Delivered waits until WriteTo has written all that has come by now, or has ended, at most for d.
func (s *Stream) Delivered(d time.Duration) {
	limit := time.Now().Add(d)
	t := time.AfterFunc(d, s.wake)
	defer t.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for want := s.received; s.delivered < want && !s.stopped && !s.broken && !past(limit); {
		s.cond.Wait()
	}
}

// Write sends p, and waits for the other side's leave. EPIPE: it reads no more.
func (s *Stream) Write(p []byte) (int, error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	sent := 0
	for sent < len(p) {
		s.mu.Lock()
		for s.credit == 0 && !s.refused && !s.finish && !s.broken && !past(s.wlimit) {
			s.cond.Wait()
		}
		var err error
		switch {
		case s.finish:
			err = net.ErrClosed
		case s.refused:
			err = syscall.EPIPE
		case s.broken:
			err = ErrBroken
		case past(s.wlimit):
			err = os.ErrDeadlineExceeded
		}
		n := min(len(p)-sent, s.credit, chunk)
		if err == nil {
			s.credit -= n
		}
		s.mu.Unlock()
		if err == nil {
			err = s.m.notify(Data, frame{Stream: s.name, Data: p[sent : sent+n]})
		}
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// CloseWrite ends what this side sends.
func (s *Stream) CloseWrite() error { return s.CloseWith(nil) }

// CloseWith ends what this side sends, early where f is a fault. A stream that nobody has taken yet is ended when it is.
func (s *Stream) CloseWith(f *Fault) error {
	s.mu.Lock()
	twice := s.finish
	s.finish = true
	s.cond.Broadcast()
	s.mu.Unlock()
	if twice {
		return nil
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	s.told, s.why = true, f
	mute := s.refused || s.broken || !s.taken
	over := s.over() && s.taken
	s.mu.Unlock()
	if over {
		s.m.forget(s)
	}
	if mute {
		return nil
	}
	return s.m.notify(End, frame{Stream: s.name, Error: f})
}

// CloseRead ends what this side reads: writes of the other side fail.
func (s *Stream) CloseRead() error {
	s.mu.Lock()
	mute := s.stopped || s.ended || s.broken || !s.taken
	s.stopped = true
	s.buf, s.off = nil, 0
	s.cond.Broadcast()
	over := s.over() && s.taken
	s.mu.Unlock()
	if over {
		s.m.forget(s)
	}
	if mute {
		return nil
	}
	return s.m.notify(Stop, frame{Stream: s.name})
}

// Close ends both directions.
func (s *Stream) Close() error { return errors.Join(s.CloseWrite(), s.CloseRead()) }

// Drop forgets a stream that the other side will not take, since it was told so otherwise.
func (s *Stream) Drop() {
	s.m.forget(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.cond.Broadcast()
}

func (s *Stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cond.Broadcast()
}

// SetReadDeadline makes reads fail from t on; the zero time is none.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.limit(&s.rlimit, &s.rtimer, t) }

// SetWriteDeadline makes writes fail from t on; the zero time is none.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.limit(&s.wlimit, &s.wtimer, t) }

// SetDeadline is both.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

func (s *Stream) limit(at *time.Time, timer **time.Timer, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *timer != nil {
		(*timer).Stop()
	}
	*at, *timer = t, nil
	if d := time.Until(t); !t.IsZero() && d > 0 {
		*timer = time.AfterFunc(d, s.wake)
	}
	s.cond.Broadcast()
	return nil
}

// LocalAddr and RemoteAddr are the stream's name, or what SetAddrs said.
func (s *Stream) LocalAddr() net.Addr  { return s.local }
func (s *Stream) RemoteAddr() net.Addr { return s.faraddrs }

// SetAddrs says what the stream's addresses are. It is to be called before the stream is used.
func (s *Stream) SetAddrs(local, remote net.Addr) { s.local, s.faraddrs = local, remote }

type addr string

func (addr) Network() string  { return "stream" }
func (a addr) String() string { return string(a) }
