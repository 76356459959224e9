package x11

import (
	"context"
	"fmt"
	"slices"

	"github.com/jezek/xgb/randr"
	"github.com/jezek/xgb/xproto"

	"agentenv.internal/agentenv/sdk/computer"
)

// usualSizes are the sizes of the screen that are offered where they fit.
func usualSizes() []computer.Size {
	return []computer.Size{
		{Width: 800, Height: 600}, {Width: 1024, Height: 768}, {Width: 1280, Height: 720}, {Width: 1280, Height: 800}, {Width: 1280, Height: 1024}, {Width: 1366, Height: 768},
		{Width: 1440, Height: 900}, {Width: 1600, Height: 900}, {Width: 1680, Height: 1050}, {Width: 1920, Height: 1080}, {Width: 1920, Height: 1200},
		{Width: 2560, Height: 1440}, {Width: 2560, Height: 1600}, {Width: 3840, Height: 2160},
	}
}

// virtualOutput is what Xvfb calls its only output. Real screens take the modes of their monitors alone, and aren't resized here.
const virtualOutput = "screen"

// screen is the one output of a virtual screen, and what drives it.
type screen struct {
	output randr.Output
	crtc   randr.Crtc
	modes  []randr.ModeInfo
	names  []string // of modes
	stamp  xproto.Timestamp
}

// virtual finds the output of a virtual screen; nil for any other.
func virtual(c *conn) (*screen, error) {
	if randr.Init(c.x) != nil {
		return nil, nil
	}
	v, err := randr.QueryVersion(c.x, 1, 3).Reply()
	if err != nil {
		return nil, err
	}
	if v.MajorVersion == 1 && v.MinorVersion < 3 {
		return nil, nil
	}
	r, err := randr.GetScreenResourcesCurrent(c.x, c.root).Reply()
	if err != nil {
		return nil, err
	}
	if len(r.Outputs) != 1 || len(r.Crtcs) != 1 {
		return nil, nil
	}
	o, err := randr.GetOutputInfo(c.x, r.Outputs[0], r.ConfigTimestamp).Reply()
	if err != nil {
		return nil, err
	}
	if string(o.Name) != virtualOutput {
		return nil, nil
	}
	s := &screen{output: r.Outputs[0], crtc: r.Crtcs[0], modes: r.Modes, stamp: r.ConfigTimestamp}
	names := r.Names
	for _, m := range r.Modes {
		n := min(int(m.NameLen), len(names))
		s.names = append(s.names, string(names[:n]))
		names = names[n:]
	}
	return s, nil
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
	r, err := randr.GetScreenSizeRange(c.x, c.root).Reply()
	if err != nil {
		return nil, fmt.Errorf("ask for the sizes of the screen: %w", err)
	}
	w, h, err := c.size()
	if err != nil {
		return nil, fmt.Errorf("ask for the size of the screen: %w", err)
	}
	out := []computer.Size{{Width: w, Height: h}, {Width: int(r.MaxWidth), Height: int(r.MaxHeight)}}
	for _, u := range usualSizes() {
		if u.Width <= int(r.MaxWidth) && u.Height <= int(r.MaxHeight) {
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
	mode, err := c.mode(s, w, h)
	if err != nil {
		return err
	}
	// The screen can't get smaller than what shows it, so that is off meanwhile.
	if _, err := randr.SetCrtcConfig(c.x, s.crtc, xproto.TimeCurrentTime, s.stamp, 0, 0, 0, randr.RotationRotate0, nil).Reply(); err != nil {
		return err
	}
	const perInch, mm = 96, 25.4
	size := randr.SetScreenSizeChecked(c.x, c.root, uint16(w), uint16(h), uint32(float64(w)*mm/perInch), uint32(float64(h)*mm/perInch)).Check()
	if size != nil {
		return size
	}
	r, err := randr.SetCrtcConfig(c.x, s.crtc, xproto.TimeCurrentTime, s.stamp, 0, 0, mode, randr.RotationRotate0, []randr.Output{s.output}).Reply()
	if err == nil && r.Status != randr.SetConfigSuccess {
		err = fmt.Errorf("the display refused it (status %d)", r.Status)
	}
	return err
}

// mode is the mode of a size: one that the output has, or a new one.
func (c *conn) mode(s *screen, w, h int) (randr.Mode, error) {
	name := fmt.Sprintf("agentenv-%dx%d", w, h)
	for i, m := range s.modes {
		if int(m.Width) == w && int(m.Height) == h && (s.names[i] == name || i == 0) {
			return randr.Mode(m.Id), nil
		}
	}
	m := randr.ModeInfo{
		Width: uint16(w), Height: uint16(h), DotClock: uint32(w * h * 60), HsyncStart: uint16(w), HsyncEnd: uint16(w), Htotal: uint16(w),
		VsyncStart: uint16(h), VsyncEnd: uint16(h), Vtotal: uint16(h), NameLen: uint16(len(name)),
	}
	r, err := randr.CreateMode(c.x, c.root, m, name).Reply()
	if err != nil {
		return 0, err
	}
	return r.Mode, randr.AddOutputModeChecked(c.x, s.output, r.Mode).Check()
}
