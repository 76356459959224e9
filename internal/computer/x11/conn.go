package x11

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/env"
)

// Requests of the core protocol.
const (
	getGeometry           = 14
	queryPointer          = 38
	queryKeymap           = 44
	getImage              = 73
	changeKeyboardMapping = 100
	getKeyboardMapping    = 101
)

const (
	zPixmap   = 2
	allPlanes = 0xffffffff
)

// conn is one connection to the X server, with what is known of it. It is used until it breaks, then replaced.
type conn struct {
	*wire
	root  uint32
	xtest byte // number of the extension; 0: there is none
	randr byte
	keys  *keymap

	shot    sync.Mutex // held during a capture
	shm     byte
	segment *segment // nil: shared memory doesn't work here
	tried   int      // how large a segment was that couldn't be shared
}

// segment is memory that the X server writes captures to.
type segment struct {
	id   uint32
	data []byte
}

func connect(display, auth string) (*conn, error) {
	w, err := dial(display, auth)
	if err != nil {
		return nil, fmt.Errorf("connect to the display %s: %w", display, err)
	}
	c := &conn{wire: w, root: w.server.root}
	if s := &w.server; s.depth != 24 && s.depth != 32 || s.bits != 32 || !s.littleEndian {
		err = fmt.Errorf("its screen has pixels of a kind that can't be captured (depth %d in %d bits): want depth 24 in 32 bits", s.depth, s.bits)
	}
	for _, x := range []struct {
		name string
		to   *byte
	}{{"XTEST", &c.xtest}, {"RANDR", &c.randr}, {"MIT-SHM", &c.shm}} {
		if err == nil {
			*x.to, err = w.extension(x.name)
		}
	}
	if err == nil {
		c.keys, err = readKeymap(c)
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("connect to the display %s: %w", display, err)
	}
	return c, nil
}

// end ends the connection.
func (c *conn) end() {
	c.close()
	c.shot.Lock()
	defer c.shot.Unlock()
	c.drop()
}

// alive makes a round trip.
func (c *conn) alive() bool {
	_, err := c.ask(request(getInputFocus, 0), 32)
	return err == nil
}

// broken tells whether an error is one of the connection, rather than an answer of the server or of this package.
func broken(err error) bool {
	if err == nil {
		return false
	}
	_, answered := errors.AsType[*refused](err)
	_, ours := errors.AsType[*env.Failure](err)
	return !answered && !ours
}

// size is the screen as it is: what the server said at first is older.
func (c *conn) size() (w, h int, err error) {
	r, err := c.ask(u32(request(getGeometry, 0), c.root), 20)
	if err != nil {
		return 0, 0, err
	}
	return int(binary.LittleEndian.Uint16(r[16:])), int(binary.LittleEndian.Uint16(r[18:])), nil
}

// pointer is where the pointer is, and which buttons and modifiers are down.
func (c *conn) pointer() (at computer.Point, mask uint16, err error) {
	r, err := c.ask(u32(request(queryPointer, 0), c.root), 26)
	if err != nil {
		return at, 0, err
	}
	signed := func(i int) int { return int(int16(binary.LittleEndian.Uint16(r[i:]))) }
	return computer.Point{X: signed(16), Y: signed(18)}, binary.LittleEndian.Uint16(r[24:]), nil
}

// capture is the whole screen, 4 bytes a pixel, blue first; the fourth means nothing. It is in the
// memory of buf where that is long enough.
func (c *conn) capture(buf []byte) (w, h int, pixels []byte, err error) {
	c.shot.Lock()
	defer c.shot.Unlock()
	if w, h, err = c.size(); err != nil {
		return 0, 0, nil, err
	}
	if seg := c.memory(w * h * 4); seg != nil {
		const shmGetImage = 4
		req := u32(u16(u32(request(c.shm, shmGetImage), c.root), 0, 0, w, h), allPlanes, zPixmap, seg.id, 0)
		if _, err = c.ask(req, 32); err == nil {
			return w, h, append(buf[:0], seg.data[:w*h*4]...), nil
		}
		if broken(err) {
			return 0, 0, nil, err
		}
	}
	r, err := c.ask(u32(u16(u32(request(getImage, zPixmap), c.root), 0, 0, w, h), allPlanes), 32+w*h*4)
	if err != nil {
		return 0, 0, nil, err
	}
	return w, h, r[32 : 32+w*h*4], nil
}

// memory is a segment of at least size bytes; nil where the server can't share memory with this process.
func (c *conn) memory(size int) *segment {
	if c.segment != nil && len(c.segment.data) >= size {
		return c.segment
	}
	if c.shm == 0 || c.tried >= size {
		return nil
	}
	c.drop()
	c.tried = size
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, 0o600|unix.IPC_CREAT)
	if err != nil {
		return nil
	}
	data, err := unix.SysvShmAttach(id, 0, 0)
	if err == nil {
		const attach = 1
		seg := c.newID()
		if err = c.tell(u32(request(c.shm, attach), seg, uint32(id), 0)); err == nil {
			c.segment = &segment{seg, data}
		} else {
			_ = unix.SysvShmDetach(data) // nothing else holds it
		}
	}
	// Marked now, it goes with its last user, however that ends.
	_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return c.segment
}

// drop gives the segment back. Of a connection that ended, the server has already.
func (c *conn) drop() {
	if c.segment == nil {
		return
	}
	const detach = 2
	_ = c.tell(u32(request(c.shm, detach), c.segment.id)) // it goes with the connection at the latest
	_ = unix.SysvShmDetach(c.segment.data)                // nothing else holds it
	c.segment = nil
}

// Kinds of events that are sent.
const (
	keyPress      = 2
	keyRelease    = 3
	buttonPress   = 4
	buttonRelease = 5
	motion        = 6
)

// send sends one event of the pointer or keyboard, and hears that it was taken.
func (c *conn) send(kind, detail byte, at computer.Point) error {
	const fakeInput = 2
	req := append(request(c.xtest, fakeInput), kind, detail, 0, 0)
	req = u16(u32(req, 0, c.root, 0, 0), at.X, at.Y)
	return c.tell(append(req, make([]byte, 8)...))
}

func (c *conn) move(to computer.Point) error { return c.send(motion, 0, to) }

func (c *conn) button(number byte, down bool) error {
	if down {
		return c.send(buttonPress, number, computer.Point{})
	}
	return c.send(buttonRelease, number, computer.Point{})
}

func (c *conn) key(code keycode, down bool) error {
	if down {
		return c.send(keyPress, byte(code), computer.Point{})
	}
	return c.send(keyRelease, byte(code), computer.Point{})
}
