package x11

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/shm"
	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"
	"golang.org/x/sys/unix"
)

// conn is one connection to the X server, with what is known of it. It is used until it breaks, then replaced.
type conn struct {
	x      *xgb.Conn
	root   xproto.Window
	setup  *xproto.SetupInfo
	xtest  bool
	events sync.WaitGroup // what reads events, until the connection ends
	keys   *keymap

	shot    sync.Mutex // held during a capture
	segment *segment   // nil: shared memory doesn't work here
}

// segment is memory that the X server writes captures to.
type segment struct {
	id   shm.Seg
	data []byte
}

func connect(display string) (*conn, error) {
	xgb.Logger.SetOutput(io.Discard) // what it tells comes as errors as well
	x, err := xgb.NewConnDisplay(display)
	if err != nil {
		return nil, fmt.Errorf("connect to the display %s: %w", display, err)
	}
	c := &conn{x: x, setup: xproto.Setup(x)}
	if len(c.setup.Roots) <= x.DefaultScreen {
		x.Close()
		return nil, fmt.Errorf("connect to the display %s: it has no screen %d", display, x.DefaultScreen)
	}
	c.root = c.setup.Roots[x.DefaultScreen].Root
	if err := c.checkFormat(); err != nil {
		x.Close()
		return nil, fmt.Errorf("connect to the display %s: %w", display, err)
	}
	// Every client is told of changed keymaps, asked for or not: nobody may stand in the way of replies.
	c.events.Go(func() {
		for {
			if ev, err := x.WaitForEvent(); ev == nil && err == nil {
				return
			}
		}
	})
	c.xtest = xtest.Init(x) == nil
	if c.keys, err = readKeymap(c); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// checkFormat refuses screens of another kind of pixels than 32 bits, blue first.
func (c *conn) checkFormat() error {
	depth := c.setup.Roots[c.x.DefaultScreen].RootDepth
	for _, f := range c.setup.PixmapFormats {
		if f.Depth == depth && (depth == 24 || depth == 32) && f.BitsPerPixel == 32 && c.setup.ImageByteOrder == xproto.ImageOrderLSBFirst {
			return nil
		}
	}
	return fmt.Errorf("its screen has pixels of a kind that can't be captured (depth %d): want depth 24 of 32 bits", depth)
}

// close ends the connection and waits for what reads from it.
func (c *conn) close() {
	c.x.Close()
	c.events.Wait()
	c.shot.Lock()
	defer c.shot.Unlock()
	c.drop()
}

// alive makes a round trip.
func (c *conn) alive() bool {
	_, err := xproto.GetInputFocus(c.x).Reply()
	return err == nil
}

// broken tells whether an error is one of the connection, rather than an answer of the server.
func broken(err error) bool {
	if err == nil {
		return false
	}
	_, answered := errors.AsType[xgb.Error](err)
	return !answered
}

// size is the screen as it is: what the setup of the connection says is older.
func (c *conn) size() (w, h int, err error) {
	g, err := xproto.GetGeometry(c.x, xproto.Drawable(c.root)).Reply()
	if err != nil {
		return 0, 0, err
	}
	return int(g.Width), int(g.Height), nil
}

// capture is the whole screen, 4 bytes a pixel, blue first; the fourth means nothing.
func (c *conn) capture() (w, h int, pixels []byte, err error) {
	c.shot.Lock()
	defer c.shot.Unlock()
	if w, h, err = c.size(); err != nil {
		return 0, 0, nil, err
	}
	if seg := c.memory(w * h * 4); seg != nil {
		_, err = shm.GetImage(c.x, xproto.Drawable(c.root), 0, 0, uint16(w), uint16(h), 0xffffffff, xproto.ImageFormatZPixmap, seg.id, 0).Reply()
		if err == nil {
			return w, h, append([]byte(nil), seg.data[:w*h*4]...), nil
		}
		if broken(err) {
			return 0, 0, nil, err
		}
	}
	r, err := xproto.GetImage(c.x, xproto.ImageFormatZPixmap, xproto.Drawable(c.root), 0, 0, uint16(w), uint16(h), 0xffffffff).Reply()
	if err != nil {
		return 0, 0, nil, err
	}
	if len(r.Data) < w*h*4 {
		return 0, 0, nil, fmt.Errorf("the display answered %d bytes of an image of %d×%d", len(r.Data), w, h)
	}
	return w, h, r.Data[:w*h*4], nil
}

// memory is a segment of at least size bytes; nil where the server can't share memory with this process.
func (c *conn) memory(size int) *segment {
	if c.segment != nil && len(c.segment.data) >= size {
		return c.segment
	}
	if c.segment == nil {
		if shm.Init(c.x) != nil {
			return nil
		}
	}
	c.drop()
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, 0o600|unix.IPC_CREAT)
	if err != nil {
		return nil
	}
	// Marked at once, it goes with its last user, however that ends.
	defer unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	data, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return nil
	}
	seg, err := shm.NewSegId(c.x)
	if err == nil {
		err = shm.AttachChecked(c.x, seg, uint32(id), false).Check()
	}
	if err != nil {
		_ = unix.SysvShmDetach(data) // nothing else holds it
		return nil
	}
	c.segment = &segment{seg, data}
	return c.segment
}

// drop gives the segment back. Of a connection that ended, the server has already.
func (c *conn) drop() {
	if c.segment == nil {
		return
	}
	shm.Detach(c.x, c.segment.id)
	_ = unix.SysvShmDetach(c.segment.data) // nothing else holds it
	c.segment = nil
}
