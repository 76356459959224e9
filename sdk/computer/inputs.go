package computer

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// aim fills in where an action is done: at a point of a frame, or, without one, at the pointer.
func (c *Computer) aim(ctx context.Context, a *action, x, y *float64, frameID, spaceName *string, scale *int) error {
	if x == nil && y == nil && frameID == nil && c.pointer != nil {
		a.frame, a.atPointer = c.frames.latestOf(c.caller(ctx)), true
		return nil
	}
	if x == nil || y == nil {
		if c.pointer != nil && frameID == nil {
			return Fail(InvalidArgument, "give both x and y, or neither to act at the pointer")
		}
		return Fail(InvalidArgument, "give both x and y")
	}
	f, err := c.usable(ctx, frameID)
	if err != nil {
		return err
	}
	s, err := c.space(spaceName, scale)
	if err != nil {
		return err
	}
	fx, fy, err := f.point(*x, *y, s)
	if err != nil {
		return err
	}
	a.frame, a.mapped, a.at = f, true, f.toScreen(fx, fy)
	a.summary += fmt.Sprintf(" at (%g, %g)", *x, *y)
	if s.norm {
		a.summary += fmt.Sprintf(" (norm %d)", s.scale)
	}
	a.summary += " in " + f.id
	return nil
}

type clickInput struct {
	X          *float64 `json:"x,omitempty" jsonschema:"Without x and y: at the pointer, where the computer has the pointer tools."`
	Y          *float64 `json:"y,omitempty" jsonschema:"Without x and y: at the pointer, where the computer has the pointer tools."`
	FrameID    *string  `json:"frame_id,omitempty" jsonschema:"The frame that the point refers to; the latest one unless given."`
	Button     *string  `json:"button,omitempty" jsonschema:"left unless given."`
	Count      int      `json:"count" default:"1" jsonschema:"2 is a double click."`
	Modifiers  []string `json:"modifiers,omitempty" jsonschema:"Keys that are held meanwhile, by their W3C names."`
	Screenshot bool     `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
	Space      *string  `json:"space,omitempty" enum:"frame,norm" jsonschema:"What x and y mean: pixels of the frame's image, or a grid over it."`
	NormScale  *int     `json:"norm_scale,omitempty" jsonschema:"Size of the grid of space norm."`
}

func (c *Computer) click(ctx context.Context, in clickInput) (*mcp.CallToolResult, error) {
	button, err := c.button(in.Button)
	if err != nil {
		return nil, err
	}
	if err := within("count", in.Count, 1, c.features.MaxClickCount); err != nil {
		return nil, err
	}
	modifiers, err := c.keys.modifiers(in.Modifiers)
	if err != nil {
		return nil, err
	}
	a := action{summary: fmt.Sprintf("Clicked %s%s", button, times(in.Count)), screenshot: in.Screenshot}
	if err := c.aim(ctx, &a, in.X, in.Y, in.FrameID, in.Space, in.NormScale); err != nil {
		return nil, err
	}
	a.run = func(ctx context.Context, at Point) (*Effect, error) {
		return c.driver.Click(ctx, Click{at, button, in.Count, modifiers})
	}
	return c.act(ctx, a)
}

func times(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" ×%d", n)
}

type dragInput struct {
	Path       [][]float64 `json:"path" jsonschema:"Points [x, y]: where the button is pressed, maybe some on the way, where it is released."`
	FrameID    *string     `json:"frame_id,omitempty" jsonschema:"The frame that the points refer to; the latest one unless given."`
	Button     *string     `json:"button,omitempty" jsonschema:"left unless given."`
	DurationMS *int        `json:"duration_ms,omitempty" jsonschema:"How long the way takes, in milliseconds."`
	Modifiers  []string    `json:"modifiers,omitempty" jsonschema:"Keys that are held meanwhile, by their W3C names."`
	Screenshot bool        `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
	Space      *string     `json:"space,omitempty" enum:"frame,norm" jsonschema:"What the points mean: pixels of the frame's image, or a grid over it."`
	NormScale  *int        `json:"norm_scale,omitempty" jsonschema:"Size of the grid of space norm."`
}

func (c *Computer) drag(ctx context.Context, in dragInput) (*mcp.CallToolResult, error) {
	button, err := c.button(in.Button)
	if err != nil {
		return nil, err
	}
	if len(in.Path) < 2 || len(in.Path) > c.features.MaxDragPoints {
		return nil, Fail(InvalidArgument, "path has %d points, and this computer takes 2 to %d", len(in.Path), c.features.MaxDragPoints)
	}
	duration := c.chosen().DragDuration
	if in.DurationMS != nil {
		duration = *in.DurationMS
	}
	if err := within("duration_ms", duration, 0, c.features.MaxDuration); err != nil {
		return nil, err
	}
	modifiers, err := c.keys.modifiers(in.Modifiers)
	if err != nil {
		return nil, err
	}
	f, path, err := c.path(ctx, in)
	if err != nil {
		return nil, err
	}
	return c.act(ctx, action{
		summary: fmt.Sprintf("Dragged %s through %d points of %s in %d ms", button, len(path), f.id, duration),
		frame:   f, mapped: true, screenshot: in.Screenshot,
		run: func(ctx context.Context, _ Point) (*Effect, error) {
			return c.driver.Drag(ctx, Drag{path, button, time.Duration(duration) * time.Millisecond, modifiers})
		},
	})
}

// path is the way of a drag on the screen.
func (c *Computer) path(ctx context.Context, in dragInput) (*frame, []Point, error) {
	f, err := c.usable(ctx, in.FrameID)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.space(in.Space, in.NormScale)
	if err != nil {
		return nil, nil, err
	}
	var out []Point
	for _, p := range in.Path {
		if len(p) != 2 {
			return nil, nil, Fail(InvalidArgument, "each point of path is [x, y]")
		}
		fx, fy, err := f.point(p[0], p[1], s)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, f.toScreen(fx, fy))
	}
	return f, out, nil
}

type scrollInput struct {
	Direction  string   `json:"direction" enum:"up,down,left,right" jsonschema:"Where the view moves: down shows what is further down."`
	X          *float64 `json:"x,omitempty" jsonschema:"Without x and y: at the pointer, where the computer has the pointer tools."`
	Y          *float64 `json:"y,omitempty" jsonschema:"Without x and y: at the pointer, where the computer has the pointer tools."`
	FrameID    *string  `json:"frame_id,omitempty" jsonschema:"The frame that the point refers to; the latest one unless given."`
	Amount     int      `json:"amount" default:"3" jsonschema:"Notches of the wheel."`
	Modifiers  []string `json:"modifiers,omitempty" jsonschema:"Keys that are held meanwhile, by their W3C names."`
	Screenshot bool     `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
	Space      *string  `json:"space,omitempty" enum:"frame,norm" jsonschema:"What x and y mean: pixels of the frame's image, or a grid over it."`
	NormScale  *int     `json:"norm_scale,omitempty" jsonschema:"Size of the grid of space norm."`
}

func (c *Computer) scroll(ctx context.Context, in scrollInput) (*mcp.CallToolResult, error) {
	if err := within("amount", in.Amount, 1, c.features.MaxScrollAmount); err != nil {
		return nil, err
	}
	modifiers, err := c.keys.modifiers(in.Modifiers)
	if err != nil {
		return nil, err
	}
	a := action{summary: fmt.Sprintf("Scrolled %s %d", in.Direction, in.Amount), screenshot: in.Screenshot}
	if err := c.aim(ctx, &a, in.X, in.Y, in.FrameID, in.Space, in.NormScale); err != nil {
		return nil, err
	}
	a.run = func(ctx context.Context, at Point) (*Effect, error) {
		return c.driver.Scroll(ctx, Scroll{at, Direction(in.Direction), in.Amount, modifiers})
	}
	return c.act(ctx, a)
}

type typeInput struct {
	Text       string `json:"text" jsonschema:"Any characters; a line feed is the key Enter, a tab is Tab."`
	Screenshot bool   `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
}

func (c *Computer) typeText(ctx context.Context, in typeInput) (*mcp.CallToolResult, error) {
	if err := checkText(in.Text, c.features.MaxTextLength); err != nil {
		return nil, err
	}
	return c.act(ctx, action{
		summary: fmt.Sprintf("Typed %d characters", utf8.RuneCountInString(in.Text)), frame: c.frames.latestOf(c.caller(ctx)), screenshot: in.Screenshot,
		run: func(ctx context.Context, _ Point) (*Effect, error) {
			s := c.chosen()
			return c.driver.Type(ctx, in.Text, s.timing())
		},
	})
}

type keyInput struct {
	Keys       []string `json:"keys" jsonschema:"Keys by their W3C names, or single characters; pressed in order, released in reverse."`
	Repeat     int      `json:"repeat" default:"1" jsonschema:"How often."`
	Screenshot bool     `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
}

func (c *Computer) key(ctx context.Context, in keyInput) (*mcp.CallToolResult, error) {
	keys, err := c.keys.chord(in.Keys)
	if err != nil {
		return nil, err
	}
	if err := within("repeat", in.Repeat, 1, c.features.MaxKeyRepeat); err != nil {
		return nil, err
	}
	return c.act(ctx, action{
		summary: fmt.Sprintf("Pressed %s%s", joined(keys), times(in.Repeat)), frame: c.frames.latestOf(c.caller(ctx)), screenshot: in.Screenshot, repeat: in.Repeat,
		run: func(ctx context.Context, _ Point) (*Effect, error) {
			s := c.chosen()
			return c.driver.Press(ctx, keys, s.timing())
		},
	})
}

type moveInput struct {
	X          float64 `json:"x"`
	Y          float64 `json:"y"`
	FrameID    *string `json:"frame_id,omitempty" jsonschema:"The frame that the point refers to; the latest one unless given."`
	Screenshot bool    `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
	Space      *string `json:"space,omitempty" enum:"frame,norm" jsonschema:"What x and y mean: pixels of the frame's image, or a grid over it."`
	NormScale  *int    `json:"norm_scale,omitempty" jsonschema:"Size of the grid of space norm."`
}

func (c *Computer) pointerMove(ctx context.Context, in moveInput) (*mcp.CallToolResult, error) {
	a := action{summary: "Moved the pointer", screenshot: in.Screenshot}
	if err := c.aim(ctx, &a, &in.X, &in.Y, in.FrameID, in.Space, in.NormScale); err != nil {
		return nil, err
	}
	a.run = func(ctx context.Context, at Point) (*Effect, error) { return nil, c.pointer.PointerMove(ctx, at) }
	return c.act(ctx, a)
}

type buttonInput struct {
	Button     *string  `json:"button,omitempty" jsonschema:"left unless given."`
	X          *float64 `json:"x,omitempty" jsonschema:"The pointer is moved there before; without x and y it stays."`
	Y          *float64 `json:"y,omitempty" jsonschema:"The pointer is moved there before; without x and y it stays."`
	FrameID    *string  `json:"frame_id,omitempty" jsonschema:"The frame that the point refers to; the latest one unless given."`
	Screenshot bool     `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
	Space      *string  `json:"space,omitempty" enum:"frame,norm" jsonschema:"What x and y mean: pixels of the frame's image, or a grid over it."`
	NormScale  *int     `json:"norm_scale,omitempty" jsonschema:"Size of the grid of space norm."`
}

func (c *Computer) pointerDown(ctx context.Context, in buttonInput) (*mcp.CallToolResult, error) {
	return c.pointerButton(ctx, in, "Pressed", c.pointer.PointerDown)
}

func (c *Computer) pointerUp(ctx context.Context, in buttonInput) (*mcp.CallToolResult, error) {
	return c.pointerButton(ctx, in, "Released", c.pointer.PointerUp)
}

func (c *Computer) pointerButton(ctx context.Context, in buttonInput, verb string, do func(context.Context, Button) error) (*mcp.CallToolResult, error) {
	button, err := c.button(in.Button)
	if err != nil {
		return nil, err
	}
	a := action{summary: verb + " " + string(button), screenshot: in.Screenshot, frame: c.frames.latestOf(c.caller(ctx))}
	if in.X != nil || in.Y != nil || in.FrameID != nil {
		if err := c.aim(ctx, &a, in.X, in.Y, in.FrameID, in.Space, in.NormScale); err != nil {
			return nil, err
		}
		a.moveFirst = true
	}
	a.run = func(ctx context.Context, _ Point) (*Effect, error) { return nil, do(ctx, button) }
	return c.act(ctx, a)
}

type positionInput struct {
	FrameID *string `json:"frame_id,omitempty" jsonschema:"The frame to tell the position in; the latest one unless given."`
}

func (c *Computer) pointerPosition(ctx context.Context, in positionInput) (*mcp.CallToolResult, error) {
	at, err := c.pointer.PointerPosition(ctx)
	if err != nil {
		return nil, coded(ctx, Internal, err)
	}
	out := PositionResult{Summary: fmt.Sprintf("The pointer is at screen (%d, %d)", at.X, at.Y), Screen: at}
	f := c.frames.latestOf(c.caller(ctx))
	if in.FrameID != nil {
		if f, err = c.frames.get(*in.FrameID, c.caller(ctx)); err != nil {
			return nil, err
		}
	}
	if f != nil {
		x, y := f.fromScreen(at)
		inside := f.contains(x, y)
		out.FrameID, out.X, out.Y, out.InsideFrame = f.id, &x, &y, &inside
		where := "in"
		if !inside {
			where = "outside of"
		}
		out.Summary += fmt.Sprintf(", %s %s at (%g, %g)", where, f.id, x, y)
	}
	return answer(out.Summary, out, nil, "")
}

func (c *Computer) pointerList(context.Context, struct{}) (*mcp.CallToolResult, error) {
	out := ListResult{"1 pointer: default (foreground)", []PointerInfo{{"default", "foreground", "The pointer of this computer", true}}}
	return answer(out.Summary, out, nil, "")
}

type keyboardDownInput struct {
	Keys       []string `json:"keys" jsonschema:"Keys by their W3C names, or single characters; pressed in order."`
	HoldMS     *int     `json:"hold_ms,omitempty" jsonschema:"Release them after that many milliseconds; without it they stay down until computer_keyboard_up."`
	Screenshot bool     `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
}

func (c *Computer) keyboardDown(ctx context.Context, in keyboardDownInput) (*mcp.CallToolResult, error) {
	keys, err := c.keys.chord(in.Keys)
	if err != nil {
		return nil, err
	}
	caller := c.caller(ctx)
	a := action{frame: c.frames.latestOf(caller), screenshot: in.Screenshot}
	a.run = func(ctx context.Context, _ Point) (*Effect, error) { return nil, c.keyboard.KeyDown(ctx, keys) }
	if in.HoldMS == nil {
		a.summary = "Pressed and held " + joined(keys)
		a.then = func() { c.hold(ctx, caller, keys) }
		return c.act(ctx, a)
	}
	if err := within("hold_ms", *in.HoldMS, 0, c.chosen().MaxHold); err != nil {
		return nil, err
	}
	a.summary = fmt.Sprintf("Held %s for %d ms", joined(keys), *in.HoldMS)
	a.holding, a.hold = keys, time.Duration(*in.HoldMS)*time.Millisecond
	return c.act(ctx, a)
}

type keyboardUpInput struct {
	Keys       []string `json:"keys,omitempty" jsonschema:"Which; every key that you hold unless given."`
	Screenshot bool     `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
}

func (c *Computer) keyboardUp(ctx context.Context, in keyboardUpInput) (*mcp.CallToolResult, error) {
	caller := c.caller(ctx)
	keys := c.heldBy(caller)
	if in.Keys != nil {
		var err error
		if keys, err = c.keys.chord(in.Keys); err != nil {
			return nil, err
		}
	} else if len(keys) == 0 {
		return nil, Fail(InvalidArgument, "you hold no keys")
	}
	return c.act(ctx, action{
		summary: "Released " + joined(keys), frame: c.frames.latestOf(caller), screenshot: in.Screenshot,
		run:  func(ctx context.Context, _ Point) (*Effect, error) { return nil, c.keyboard.KeyUp(ctx, keys) },
		then: func() { c.unhold(caller, keys) },
	})
}
