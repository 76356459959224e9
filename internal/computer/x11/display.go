package x11

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"agentenv.internal/agentenv/sdk/computer"
)

// usualSizes are the sizes of the screen that are offered where they fit.
func usualSizes() []computer.Size {
	return []computer.Size{
		{Width: 800, Height: 600},
		{Width: 1024, Height: 768},
		{Width: 1280, Height: 720},
		{Width: 1280, Height: 800},
		{Width: 1280, Height: 1024},
		{Width: 1366, Height: 768},
		{Width: 1440, Height: 900},
		{Width: 1600, Height: 900},
		{Width: 1680, Height: 1050},
		{Width: 1920, Height: 1080},
		{Width: 1920, Height: 1200},
		{Width: 2560, Height: 1440},
		{Width: 2560, Height: 1600},
		{Width: 3840, Height: 2160},
	}
}

// virtualOutput is what Xvfb calls its only output. Real screens take the modes of their monitors alone, and aren't resized here.
const virtualOutput = "screen"

// Requests of the extension RANDR.
const (
	randrVersion   = 0
	sizeRange      = 6
	setScreenSize  = 7
	outputInfo     = 9
	createMode     = 16
	addOutputMode  = 18
	setCrtcConfig  = 21
	screenResource = 25
)

// screen is the one output of a virtual screen, and what drives it.
type screen struct {
	output, crtc uint32
	modes        []mode
	stamp        uint32
}

type mode struct {
	id            uint32
	width, height int
	name          string
}

// virtual finds the output of a virtual screen; nil for any other.
func virtual(c *conn) (*screen, error) {
	if c.randr == 0 {
		return nil, nil
	}
	v, err := c.ask(u32(request(c.randr, randrVersion), 1, 3), 16)
	if err != nil {
		return nil, err
	}
	if v[8] == 1 && v[12] < 3 {
		return nil, nil
	}
	r, err := c.ask(u32(request(c.randr, screenResource), c.root), 32)
	if err != nil {
		return nil, err
	}
	s := parseResources(r)
	if s == nil {
		return nil, nil
	}
	o, err := c.ask(u32(request(c.randr, outputInfo), s.output, s.stamp), 36)
	if err != nil || outputName(o) != virtualOutput {
		return nil, err
	}
	return s, nil
}

// parseResources reads what a screen is made of; nil when that is not one output of one controller.
func parseResources(r []byte) *screen {
	n := func(i int) int { return int(binary.LittleEndian.Uint16(r[i:])) }
	if n(16) != 1 || n(18) != 1 || len(r) < 40+32*n(20)+n(22) {
		return nil
	}
	s := &screen{crtc: binary.LittleEndian.Uint32(r[32:]), output: binary.LittleEndian.Uint32(r[36:]), stamp: binary.LittleEndian.Uint32(r[12:])}
	names := r[40+32*n(20):]
	for i := range n(20) {
		m := r[40+32*i:]
		length := min(int(binary.LittleEndian.Uint16(m[26:])), len(names))
		s.modes = append(s.modes, mode{
			binary.LittleEndian.Uint32(m), int(binary.LittleEndian.Uint16(m[4:])), int(binary.LittleEndian.Uint16(m[6:])), string(names[:length]),
		})
		names = names[length:]
	}
	return s
}

// outputName is the name in what an output says of itself.
func outputName(o []byte) string {
	n := func(i int) int { return int(binary.LittleEndian.Uint16(o[i:])) }
	at := 36 + 4*(n(26)+n(28)+n(32))
	if len(o) < at+n(34) {
		return ""
	}
	return string(o[at : at+n(34)])
}

// modes are the sizes that the screen can have: none where it can't be changed.
func modes(c *conn) ([]computer.Size, error) {
	s, err := virtual(c)
	if err != nil {
		return nil, fmt.Errorf("ask for the sizes of the screen: %w", err)
	}
	if s == nil {
		return nil, nil
	}
	r, err := c.ask(u32(request(c.randr, sizeRange), c.root), 16)
	if err != nil {
		return nil, fmt.Errorf("ask for the sizes of the screen: %w", err)
	}
	w, h, err := c.size()
	if err != nil {
		return nil, fmt.Errorf("ask for the size of the screen: %w", err)
	}
	most := computer.Size{Width: int(binary.LittleEndian.Uint16(r[12:])), Height: int(binary.LittleEndian.Uint16(r[14:]))}
	out := []computer.Size{{Width: w, Height: h}, most}
	for _, u := range usualSizes() {
		if u.Width <= most.Width && u.Height <= most.Height {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b computer.Size) int {
		if a.Width != b.Width {
			return a.Width - b.Width
		}
		return a.Height - b.Height
	})
	return slices.Compact(out), nil
}

// SetDisplay makes the screen another size.
func (d *Driver) SetDisplay(_ context.Context, want computer.Display) (computer.Display, error) {
	if want.Scale != 1 {
		return computer.Display{}, computer.Fail(computer.InvalidArgument, "this computer has scale 1 alone")
	}
	c, err := d.connection()
	if err != nil {
		return computer.Display{}, err
	}
	w, h, err := c.size()
	if err == nil && (w != want.Width || h != want.Height) {
		if err = c.resize(want.Width, want.Height); err == nil {
			w, h, err = c.size()
		}
	}
	if err != nil {
		return computer.Display{}, fmt.Errorf("set the size of the screen: %w", err)
	}
	d.mu.Lock()
	d.size = computer.Size{Width: w, Height: h}
	d.mu.Unlock()
	return computer.Display{Width: w, Height: h, Scale: 1}, nil
}

// restore makes the screen of a server that was started again as large as it was; the zero size is any.
func (c *conn) restore(to computer.Size) error {
	w, h, err := c.size()
	if err != nil || to == (computer.Size{}) || w == to.Width && h == to.Height {
		return err
	}
	return c.resize(to.Width, to.Height)
}

func (c *conn) resize(w, h int) error {
	c.shot.Lock() // no capture between two sizes
	defer c.shot.Unlock()
	s, err := virtual(c)
	if err != nil {
		return err
	}
	if s == nil {
		return computer.Fail(computer.Unsupported, "the size of this screen can't be changed")
	}
	m, err := c.mode(s, w, h)
	if err != nil {
		return err
	}
	// The screen can't get smaller than what shows it, so that is off meanwhile.
	if err := c.show(s, 0); err != nil {
		return err
	}
	const perInch, mm = 96, 25.4
	err = c.tell(u32(u16(u32(request(c.randr, setScreenSize), c.root), w, h), uint32(float64(w)*mm/perInch), uint32(float64(h)*mm/perInch)))
	if err != nil {
		return err
	}
	return c.show(s, m)
}

// show makes the output show a mode; 0 is none.
func (c *conn) show(s *screen, m uint32) error {
	const unrotated = 1
	req := u16(u32(u16(u32(request(c.randr, setCrtcConfig), s.crtc, 0, s.stamp), 0, 0), m), unrotated, 0)
	if m != 0 {
		req = u32(req, s.output)
	}
	r, err := c.ask(req, 32)
	if err == nil && r[1] != 0 {
		err = fmt.Errorf("the display refused it (status %d)", r[1])
	}
	return err
}

// mode is the mode of a size: one that was made before, or a new one.
func (c *conn) mode(s *screen, w, h int) (uint32, error) {
	name := fmt.Sprintf("agentenv-%dx%d", w, h)
	for i, m := range s.modes {
		if m.width == w && m.height == h && (m.name == name || i == 0) {
			return m.id, nil
		}
	}
	req := u16(u32(request(c.randr, createMode), c.root, 0), w, h)
	req = u16(u32(req, uint32(w*h*60)), w, w, w, 0, h, h, h, len(name))
	r, err := c.ask(text(u32(req, 0), name), 32)
	if err != nil {
		return 0, err
	}
	id := binary.LittleEndian.Uint32(r[8:])
	return id, c.tell(u32(request(c.randr, addOutputMode), s.output, id))
}
