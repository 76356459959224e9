// Package x11 is the driver of desktops that an X server shows: captures through shared memory where the server can, input by the extension XTEST,
// sizes of the screen by RandR where the server allows any, all of it spoken by this program itself.
//
// A Driver has one connection. When that breaks, as after a restart of the server, the next call makes another: a read is then done once more, an
// input is never sent twice. The package starts no X server, and knows no other desktops than those.
package x11

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/computer"
)

// How inputs are paced.
const (
	betweenClicks = 40 * time.Millisecond
	settle        = 10 * time.Millisecond // between the events of a click
	thaw          = time.Second           // for a window manager that holds the pointer to let go
	mostDwell     = 50 * time.Millisecond // at each point of a drag's path
	dragStep      = 20.0                  // pixels
)

// Driver drives the desktop of an X server. Its methods may be called at the same time.
type Driver struct {
	display string
	auth    string
	modes   []computer.Size

	mu     sync.Mutex // guards what follows
	conn   *conn      // nil: none, or one that broke
	held   map[computer.Key][]keycode
	closed bool
	size   computer.Size // that was set; zero: none was
}

// Open connects to a display, e.g. ":0", showing what the authority file auth says, which needn't exist. Close ends the connection.
func Open(display, auth string) (*Driver, error) {
	if display == "" {
		return nil, errors.New("no display is named: set DISPLAY")
	}
	d := &Driver{display: display, auth: auth}
	c, err := d.connection()
	if err != nil {
		return nil, err
	}
	if c.xtest == 0 {
		d.Close()
		return nil, fmt.Errorf("connect to the display %s: it lacks the extension XTEST, which input needs", display)
	}
	if d.modes, err = modes(c); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Undriven is a driver of no display, to declare what drivers of this package serve: its Features are those that every X server has.
func Undriven() *Driver { return &Driver{} }

// Close ends the connection. Calls fail afterwards.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.conn != nil {
		d.conn.end()
		d.conn = nil
	}
}

// connection is one that answers: the one there is, or a new one.
func (d *Driver) connection() (*conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, computer.Fail(computer.DeviceUnavailable, "the driver is closed")
	}
	if d.conn != nil && d.conn.alive() {
		return d.conn, nil
	}
	if d.conn != nil {
		d.conn.end()
		d.conn = nil
	}
	c, err := connect(d.display, d.auth)
	if err != nil {
		return nil, computer.Fail(computer.DeviceUnavailable, "%v", err)
	}
	if err := c.restore(d.size); err != nil {
		c.end()
		return nil, computer.Fail(computer.DeviceUnavailable, "set the size of the screen again: %v", err)
	}
	d.conn, d.held = c, map[computer.Key][]keycode{}
	return c, nil
}

// read does f, and once more on a new connection when the one it had broke.
func (d *Driver) read(f func(*conn) error) error {
	var err error
	for range 2 {
		var c *conn
		if c, err = d.connection(); err != nil {
			return err
		}
		if err = f(c); err == nil || !broken(err) {
			break
		}
	}
	if broken(err) {
		return computer.Fail(computer.DeviceUnavailable, "the display %s doesn't answer: %v", d.display, err)
	}
	return err
}

// Features are what X can do.
func (d *Driver) Features() computer.Features {
	return computer.Features{
		Buttons: []computer.Button{computer.Left, computer.Right, computer.Middle, computer.Back, computer.Forward}, MaxClickCount: 3, MaxDragPoints: 50,
		Modes: d.modes,
	}
}

// Checks tell whether input can be sent; none is.
func (d *Driver) Checks(context.Context) []computer.Check {
	k := computer.Check{Name: "xtest"}
	err := d.read(func(c *conn) error {
		if c.xtest == 0 {
			return computer.Fail(computer.DeviceUnavailable, "the display lacks the extension XTEST")
		}
		r, err := c.ask(append(request(c.xtest, 0), 2, 0, 2, 0), 10)
		if err == nil {
			k.OK, k.Detail = true, fmt.Sprintf("version %d.%d", r[1], r[8])
		}
		return err
	})
	if err != nil {
		k.Detail = err.Error()
	}
	return []computer.Check{k}
}

// Display is the size of the screen.
func (d *Driver) Display(context.Context) (out computer.Display, err error) {
	err = d.read(func(c *conn) error {
		w, h, err := c.size()
		out = computer.Display{Width: w, Height: h, Scale: 1}
		return err
	})
	return out, err
}

// Capture is the screen as it is shown, but for the pointer.
func (d *Driver) Capture(ctx context.Context) (computer.Image, error) {
	return d.CaptureInto(ctx, nil)
}

// CaptureInto is Capture into the memory of buf, which is replaced when it is too short.
func (d *Driver) CaptureInto(_ context.Context, buf []byte) (out computer.Image, err error) {
	err = d.read(func(c *conn) error {
		w, h, pixels, err := c.capture(buf)
		out = computer.Image{Format: computer.BGRX, Width: w, Height: h, Data: pixels}
		return err
	})
	return out, err
}

// PointerPosition is where the pointer is.
func (d *Driver) PointerPosition(context.Context) (at computer.Point, err error) {
	err = d.read(func(c *conn) (err error) {
		at, _, err = c.pointer()
		return err
	})
	return at, err
}

func buttonNumber(b computer.Button) byte {
	switch b {
	case computer.Middle:
		return 2
	case computer.Right:
		return 3
	case computer.Back:
		return 8
	case computer.Forward:
		return 9
	default:
		return 1
	}
}

// PointerMove moves the pointer.
func (d *Driver) PointerMove(_ context.Context, to computer.Point) error {
	c, err := d.connection()
	if err != nil {
		return err
	}
	return c.move(to)
}

// PointerDown presses a button.
func (d *Driver) PointerDown(_ context.Context, b computer.Button) error {
	c, err := d.connection()
	if err != nil {
		return err
	}
	return c.button(buttonNumber(b), true)
}

// PointerUp releases a button.
func (d *Driver) PointerUp(ctx context.Context, b computer.Button) error {
	c, err := d.connection()
	if err != nil {
		return err
	}
	return c.released(ctx, buttonNumber(b))
}

// with holds modifiers while f works, on a connection that answers. Nothing was sent when its error is a failure that says so.
func (d *Driver) with(modifiers []computer.Key, f func(*conn) error) error {
	c, err := d.connection()
	if err != nil {
		return err
	}
	pressed, err := c.press(modifiers)
	if err == nil {
		err = f(c)
	}
	return errors.Join(err, c.release(pressed))
}

// Click clicks.
func (d *Driver) Click(ctx context.Context, in computer.Click) (*computer.Effect, error) {
	return nil, d.with(in.Modifiers, func(c *conn) error {
		if err := c.move(in.At); err != nil {
			return err
		}
		n := buttonNumber(in.Button)
		wait := settle
		for range in.Count {
			if err := pause(ctx, wait); err != nil {
				return err
			}
			if err := c.button(n, true); err != nil {
				return err
			}
			held := pause(ctx, settle)
			if err := errors.Join(held, c.released(ctx, n)); err != nil {
				return err
			}
			wait = betweenClicks
		}
		return nil
	})
}

// Drag goes along the path in small steps, each point of it included.
func (d *Driver) Drag(ctx context.Context, in computer.Drag) (*computer.Effect, error) {
	return nil, d.with(in.Modifiers, func(c *conn) error {
		if err := c.move(in.Path[0]); err != nil {
			return err
		}
		n := buttonNumber(in.Button)
		if err := c.button(n, true); err != nil {
			return err
		}
		return errors.Join(c.follow(ctx, in), c.released(ctx, n))
	})
}

// follow moves the pointer along a drag's path.
func (c *conn) follow(ctx context.Context, in computer.Drag) error {
	corners := time.Duration(len(in.Path) - 1)
	dwell := max(settle, min(mostDwell, in.Duration/(4*corners)))
	way := steps(in.Path)
	moving := max(0, in.Duration-dwell*corners)
	began, dwelt, next := time.Now(), time.Duration(0), 1
	for i, p := range way {
		// By the clock, so that slow steps don't add up.
		if err := pause(ctx, time.Until(began.Add(dwelt+moving*time.Duration(i+1)/time.Duration(len(way))))); err != nil {
			return err
		}
		if err := c.move(p); err != nil {
			return err
		}
		if i == 0 {
			// The press may have stopped the pointer, see thawed; the server makes one move of all that come meanwhile.
			if err := c.thawed(ctx, func(at computer.Point, _ uint16) bool { return at == p }); err != nil {
				return err
			}
			began = time.Now()
		}
		if p == in.Path[next] && next < len(in.Path)-1 { // programs that are busy see only where the pointer rests
			next++
			dwelt += dwell
		}
	}
	return pause(ctx, dwell)
}

// released releases a button and waits until that was heard. A window manager may stop the pointer when a button is pressed and let the press through
// later; keys that are sent before would overtake it.
func (c *conn) released(ctx context.Context, number byte) error {
	if err := c.button(number, false); err != nil || number > 5 { // the server tells of five buttons
		return err
	}
	const first = 1 << 8
	button := uint16(first) << (number - 1)
	return c.thawed(context.WithoutCancel(ctx), func(_ computer.Point, mask uint16) bool { return mask&button == 0 })
}

// thawed waits until the server has done what was sent to the pointer, which a window manager may have stopped; not for ever, since then the
// pointer is somebody's on purpose.
func (c *conn) thawed(ctx context.Context, done func(at computer.Point, mask uint16) bool) error {
	for give := time.Now().Add(thaw); ; {
		at, mask, err := c.pointer()
		if err != nil || done(at, mask) || time.Now().After(give) {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// steps are the points of a way after its first, about dragStep apart and at least two for each part of it.
func steps(path []computer.Point) []computer.Point {
	var out []computer.Point
	for i := 1; i < len(path); i++ {
		from, to := path[i-1], path[i]
		dx, dy := float64(to.X-from.X), float64(to.Y-from.Y)
		n := max(2, int(math.Ceil(math.Hypot(dx, dy)/dragStep)))
		for s := 1; s <= n; s++ {
			part := float64(s) / float64(n)
			out = append(out, computer.Point{X: from.X + int(math.Round(dx*part)), Y: from.Y + int(math.Round(dy*part))})
		}
	}
	return out
}

// Scroll turns the wheel.
func (d *Driver) Scroll(ctx context.Context, in computer.Scroll) (*computer.Effect, error) {
	n := byte(4 + slices.Index([]computer.Direction{computer.Up, computer.Down, computer.ToLeft, computer.ToRight}, in.Direction))
	return nil, d.with(in.Modifiers, func(c *conn) error {
		if err := c.move(in.At); err != nil {
			return err
		}
		for range in.Amount {
			if err := errors.Join(c.button(n, true), c.released(ctx, n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// pause waits, or less when the caller leaves.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
