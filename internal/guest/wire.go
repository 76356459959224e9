package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// The wire. Every operation is one connection to the box's unix stream socket: the client sends a request frame, then data frames
// where the operation takes any; the guest answers data frames and one reply frame. Descriptors ride with a frame. When the client
// shuts its half down the guest stops what it does for it: a command's tree is killed, then the reply comes.
// A frame is a kind, a length (32 bits, big endian), and that many bytes.

// FrameKind tells what a frame carries.
type FrameKind byte

// Frame kinds.
const (
	FrameRequest FrameKind = 'Q' // JSON of a Request
	FrameData    FrameKind = 'D' // raw bytes
	FrameEnd     FrameKind = 'E' // the client's data is complete
	FrameReply   FrameKind = 'R' // JSON of a Reply
	FrameFile    FrameKind = 'F' // a descriptor that comes before the reply
)

const (
	// maxFrame bounds what a peer may announce; a command's arguments and environment are the largest frame.
	maxFrame = 8 << 20
	// maxFiles is how many descriptors one frame may carry.
	maxFiles = 250 // the kernel's limit is 253; an image has a mount per layer
	// dataSize is the size of the data frames we send.
	dataSize = 64 << 10
)

// errFrame: the peer broke the protocol.
var errFrame = errors.New("malformed message")

// Conn is one end of a connection. Its methods are for one reader and one writer at a time.
type Conn struct {
	c     *net.UnixConn
	head  [5]byte
	oob   []byte
	files []*os.File // received, not yet taken
}

// NewConn wraps a connected unix stream socket, which Close closes.
func NewConn(c *net.UnixConn) *Conn { return &Conn{c: c} }

// Send writes one frame with files, which stay the caller's.
func (c *Conn) Send(kind FrameKind, payload []byte, files ...*os.File) error {
	buf := make([]byte, 0, 5+len(payload))
	buf = append(buf, byte(kind))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(payload)))
	buf = append(buf, payload...)
	if len(files) == 0 {
		_, err := c.c.Write(buf)
		return err
	}
	return withFDs(files, func(fds []int) error {
		n, _, err := c.c.WriteMsgUnix(buf, syscall.UnixRights(fds...), nil)
		if err == nil && n < len(buf) {
			_, err = c.c.Write(buf[n:])
		}
		return err
	})
}

// withFDs calls f with the descriptors of files, which stay open meanwhile.
func withFDs(files []*os.File, f func([]int) error) error {
	var fds []int
	var take func(i int) error
	take = func(i int) error {
		if i == len(files) {
			return f(fds)
		}
		raw, err := files[i].SyscallConn()
		if err != nil {
			return err
		}
		var inner error
		if err := raw.Control(func(fd uintptr) {
			fds = append(fds, int(fd))
			inner = take(i + 1)
		}); err != nil {
			return err
		}
		return inner
	}
	return take(0)
}

// SendJSON writes one frame whose payload is v.
func (c *Conn) SendJSON(kind FrameKind, v any, files ...*os.File) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("a message of %d bytes, where %d is the limit: %w", len(b), maxFrame, syscall.E2BIG)
	}
	return c.Send(kind, b, files...)
}

// next reads the head of the next frame; its payload of n bytes is to be taken with Payload or Discard before the next one.
func (c *Conn) next() (kind FrameKind, n int, err error) {
	if err := c.readFull(c.head[:]); err != nil {
		return 0, 0, err
	}
	size := binary.BigEndian.Uint32(c.head[1:])
	if size > maxFrame {
		return 0, 0, fmt.Errorf("%w: a frame of %d bytes", errFrame, size)
	}
	switch kind := FrameKind(c.head[0]); kind {
	case FrameRequest, FrameData, FrameEnd, FrameReply, FrameFile:
		return kind, int(size), nil
	default:
		return 0, 0, fmt.Errorf("%w: a frame of kind %q", errFrame, byte(kind))
	}
}

// Recv reads one frame whole.
func (c *Conn) Recv() (FrameKind, []byte, error) {
	kind, n, err := c.next()
	if err != nil {
		return 0, nil, err
	}
	payload := make([]byte, n)
	if err := c.readFull(payload); err != nil {
		return 0, nil, noEOF(err)
	}
	return kind, payload, nil
}

// RecvJSON reads one frame of the kind into v.
func (c *Conn) RecvJSON(want FrameKind, v any) error {
	kind, payload, err := c.Recv()
	if err != nil {
		return err
	}
	if kind != want {
		return fmt.Errorf("%w: %q where %q was due", errFrame, kind, want)
	}
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readFull fills p and keeps the descriptors that come along. io.EOF: the peer ended before the first byte.
func (c *Conn) readFull(p []byte) error {
	if c.oob == nil {
		c.oob = make([]byte, syscall.CmsgSpace(4*maxFiles))
	}
	for got := 0; got < len(p); {
		n, oobn, flags, _, err := c.c.ReadMsgUnix(p[got:], c.oob)
		if err := c.keep(c.oob[:oobn], flags); err != nil {
			return err
		}
		got += n
		switch {
		case err != nil && got > 0:
			return noEOF(err)
		case err != nil:
			return err
		case n == 0 && got > 0:
			return io.ErrUnexpectedEOF
		case n == 0:
			return io.EOF
		}
	}
	return nil
}

func (c *Conn) keep(oob []byte, flags int) error {
	if len(oob) == 0 {
		return nil
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			c.files = append(c.files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if flags&syscall.MSG_CTRUNC != 0 {
		return fmt.Errorf("%w: too many descriptors", errFrame)
	}
	return nil
}

// TakeFiles hands over the descriptors received so far; the caller closes them.
func (c *Conn) TakeFiles() []*os.File {
	files := c.files
	c.files = nil
	return files
}

// SetDeadline ends what this connection waits for at t.
func (c *Conn) SetDeadline(t time.Time) error { return c.c.SetDeadline(t) }

// CloseWrite ends this side's half: the peer reads the end.
func (c *Conn) CloseWrite() error { return c.c.CloseWrite() }

// Close closes the connection and what it received that nobody took.
func (c *Conn) Close() error {
	err := c.c.Close()
	for _, f := range c.TakeFiles() {
		f.Close()
	}
	return err
}

// DataWriter writes data frames.
type DataWriter struct{ Conn *Conn }

func (w DataWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n := min(len(p)-done, dataSize)
		if err := w.Conn.Send(FrameData, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

// DataReader reads data frames until another kind comes, which it answers as io.EOF and keeps in Last and Payload.
type DataReader struct {
	Conn    *Conn
	Last    FrameKind // the frame that ended the data; 0 before
	Payload []byte    // of Last
	left    int
	err     error
}

func (r *DataReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for r.left == 0 {
		kind, n, err := r.Conn.next()
		if err != nil {
			r.err = noEOF(err)
			return 0, r.err
		}
		if kind != FrameData {
			r.Last, r.Payload, r.err = kind, make([]byte, n), io.EOF
			if err := r.Conn.readFull(r.Payload); err != nil && n > 0 {
				r.err = noEOF(err)
			}
			return 0, r.err
		}
		r.left = n
	}
	p = p[:min(len(p), r.left)]
	if err := r.Conn.readFull(p); err != nil {
		r.err = noEOF(err)
		return 0, r.err
	}
	r.left -= len(p)
	return len(p), nil
}
