package computer

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

func (c *Computer) addExtensions() {
	e := c.env
	c.declare(wire.URNComputer, "A desktop: what it can do, and its limits.", c.limits())
	env.AddExtension(e, wire.URNComputerReady, "status", c.status, env.Op(), env.Verb(http.MethodGet), env.ExtensionDescription("Tells whether the desktop can be used; sends no input."))
	env.AddExtension(e, wire.URNComputerDisplay, "get", c.displayGet, env.Op(), env.Verb(http.MethodGet), env.ExtensionDescription("The size of the screen."),
		env.ExtensionParam("modes", c.modes()))
	if c.display != nil {
		env.AddExtension(e, wire.URNComputerDisplay, "set", c.displaySet, env.Op())
	}
	env.AddExtension(e, wire.URNComputerSpaces, "get", c.spacesGet, env.Op(), env.Verb(http.MethodGet), env.ExtensionDescription("What points mean that say no space."),
		env.ExtensionParam("spaces", []string{SpaceFrame, SpaceNorm}))
	env.AddExtension(e, wire.URNComputerSpaces, "set", c.spacesSet, env.Op())
	if c.pointer != nil {
		c.declare(wire.URNComputerPointer, "The pointer can be moved, and its buttons held.", map[string]any{"buttons": c.features.Buttons, "kinds": []string{"foreground"}})
	}
	if c.keyboard != nil {
		env.AddExtension(e, wire.URNComputerKeyboard, "get", c.keyboardGet, env.Op(), env.Verb(http.MethodGet), env.ExtensionDescription("Keys can be held; how the keyboard is used."),
			env.ExtensionParam("tap_hold_ms", limits{0, maxTapHold}), env.ExtensionParam("type_delay_ms", limits{0, maxTypeDelay}),
			env.ExtensionParam("max_hold_ms", limits{0, maxHold}), env.ExtensionParam("layouts", c.features.Layouts))
		env.AddExtension(e, wire.URNComputerKeyboard, "set", c.keyboardSet, env.Op())
	}
	s := c.chosen()
	env.AddExtension(e, wire.URNComputerExec, "run", c.execRun, env.Op(), env.ExtensionDescription("Runs a command in the session."),
		env.ExtensionParam("max_output_bytes", s.ExecOutput), env.ExtensionParam("max_timeout_s", maxTimeout))
}

type limits struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// declare puts an extension on the card that has no calls.
func (c *Computer) declare(uri, description string, params any) {
	raw, err := json.Marshal(params)
	if err != nil {
		raw = nil // maps of texts and numbers always encode
	}
	c.env.Declare(wire.Extension{URI: uri, Description: description, Params: raw})
}

func (c *Computer) limits() map[string]any {
	f := &c.features
	var keys any = "all"
	if f.Keys != nil {
		keys = f.Keys
	}
	supports := c.supports
	if supports == nil {
		supports = []Support{{OS: SupportOS{Type: c.platform.OS}}}
	}
	return map[string]any{
		"buttons": f.Buttons, "max_click_count": f.MaxClickCount, "keys": keys, "max_text_length": f.MaxTextLength, "max_wait_ms": f.MaxWait,
		"max_drag_points": f.MaxDragPoints, "max_duration_ms": f.MaxDuration, "max_key_repeat": f.MaxKeyRepeat, "max_scroll_amount": f.MaxScrollAmount,
		"delivery": "foreground", "platform": c.platform, "supports": supports,
	}
}

// StatusResult is what computer-ready answers.
type StatusResult struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

func (c *Computer) status(ctx context.Context, _ struct{}) (StatusResult, error) {
	checks := c.checks(ctx)
	return StatusResult{!slices.ContainsFunc(checks, func(k Check) bool { return !k.OK }), checks}, nil
}

// DisplayResult is what computer-display answers.
type DisplayResult struct {
	Display
	Modes []Size `json:"modes"`
}

func (c *Computer) modes() []Size {
	if c.display == nil {
		return []Size{}
	}
	return c.features.Modes
}

func (c *Computer) displayGet(ctx context.Context, _ struct{}) (DisplayResult, error) {
	d, err := c.displayNow(ctx)
	return DisplayResult{d, c.modes()}, err
}

type displaySetInput struct {
	Width  int      `json:"width"`
	Height int      `json:"height"`
	Scale  *float64 `json:"scale,omitempty"`
}

func (c *Computer) displaySet(ctx context.Context, in displaySetInput) (DisplayResult, error) {
	want := Display{in.Width, in.Height, 1}
	if in.Scale != nil {
		want.Scale = *in.Scale
	}
	if !slices.Contains(c.features.Modes, Size{in.Width, in.Height}) {
		return DisplayResult{}, Fail(InvalidArgument, "this computer has no mode of %d×%d", in.Width, in.Height)
	}
	s := c.chosen()
	release, err := c.queue.turn(ctx, s.wait())
	if err != nil {
		return DisplayResult{}, coded(ctx, Internal, err)
	}
	defer release()
	if in.Scale == nil {
		now, err := c.displayNow(ctx)
		if err != nil {
			return DisplayResult{}, err
		}
		want.Scale = now.Scale
	}
	d, err := c.display.SetDisplay(ctx, want)
	if err == nil && !d.valid() {
		err = Fail(Internal, "the driver tells of a display of %s", d)
	}
	return DisplayResult{d, c.modes()}, coded(ctx, Internal, err)
}

// SpacesResult is what computer-spaces answers.
type SpacesResult struct {
	DefaultSpace     string `json:"default_space"`
	DefaultNormScale int    `json:"default_norm_scale"`
}

func (c *Computer) spacesGet(context.Context, struct{}) (SpacesResult, error) {
	s := c.chosen()
	return SpacesResult{s.DefaultSpace, s.DefaultNormScale}, nil
}

type spacesSetInput struct {
	DefaultSpace     string `json:"default_space"`
	DefaultNormScale *int   `json:"default_norm_scale,omitempty"`
}

// spacesSet changes the defaults, and with them what the point tools say of themselves.
func (c *Computer) spacesSet(_ context.Context, in spacesSetInput) (SpacesResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.settings
	s.DefaultSpace = in.DefaultSpace
	if in.DefaultNormScale != nil {
		s.DefaultNormScale = *in.DefaultNormScale
	}
	if err := s.Check(); err != nil {
		return SpacesResult{}, Fail(InvalidArgument, "%v", err)
	}
	for _, t := range c.pointTools() {
		if err := c.env.Describe(t[0], describe(t[1], &s)); err != nil {
			return SpacesResult{}, Fail(Internal, "%v", err)
		}
	}
	c.settings = s
	return SpacesResult{s.DefaultSpace, s.DefaultNormScale}, nil
}

// KeyboardResult is what computer-keyboard answers.
type KeyboardResult struct {
	TapHold   int    `json:"tap_hold_ms"`
	TypeDelay int    `json:"type_delay_ms"`
	Layout    string `json:"layout"`
	MaxHold   int    `json:"max_hold_ms"`
}

func (s *Settings) keyboard() KeyboardResult {
	return KeyboardResult{s.TapHold, s.TypeDelay, s.Layout, s.MaxHold}
}

func (c *Computer) keyboardGet(context.Context, struct{}) (KeyboardResult, error) {
	s := c.chosen()
	return s.keyboard(), nil
}

type keyboardSetInput struct {
	TapHold   *int    `json:"tap_hold_ms,omitempty"`
	TypeDelay *int    `json:"type_delay_ms,omitempty"`
	Layout    *string `json:"layout,omitempty"`
	MaxHold   *int    `json:"max_hold_ms,omitempty"`
}

func (c *Computer) keyboardSet(_ context.Context, in keyboardSetInput) (KeyboardResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.settings
	for _, v := range []struct {
		to   *int
		from *int
	}{{&s.TapHold, in.TapHold}, {&s.TypeDelay, in.TypeDelay}, {&s.MaxHold, in.MaxHold}} {
		if v.from != nil {
			*v.to = *v.from
		}
	}
	if in.Layout != nil {
		if s.Layout = *in.Layout; !slices.Contains(c.features.Layouts, s.Layout) {
			return KeyboardResult{}, Fail(Unsupported, "this computer has no layout %q", s.Layout)
		}
	}
	if err := s.Check(); err != nil {
		return KeyboardResult{}, Fail(InvalidArgument, "%v", err)
	}
	c.settings = s
	return s.keyboard(), nil
}
