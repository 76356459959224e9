package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"image"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/env"
)

// ScreenshotResult is what computer_screenshot answers beside the image.
type ScreenshotResult struct {
	Summary       string  `json:"summary"`
	FrameID       string  `json:"frame_id" jsonschema:"What later calls name this frame by."`
	Width         int     `json:"width" jsonschema:"Of the image, in pixels."`
	Height        int     `json:"height" jsonschema:"Of the image, in pixels."`
	Display       Display `json:"display"`
	ParentFrameID string  `json:"parent_frame_id,omitempty" jsonschema:"The frame that this one is a part of."`
	CapturedAt    string  `json:"captured_at" jsonschema:"When, in UTC."`
}

// WaitResult is what computer_wait answers.
type WaitResult struct {
	Summary  string       `json:"summary"`
	WaitedMS int          `json:"waited_ms"`
	Frame    *FrameResult `json:"frame,omitempty"`
}

// PositionResult is what computer_pointer_position answers. Without a frame, only the screen's point is told.
type PositionResult struct {
	Summary     string   `json:"summary"`
	Screen      Point    `json:"screen"`
	FrameID     string   `json:"frame_id,omitempty"`
	X           *float64 `json:"x,omitempty" jsonschema:"In the frame's pixels."`
	Y           *float64 `json:"y,omitempty" jsonschema:"In the frame's pixels."`
	InsideFrame *bool    `json:"inside_frame,omitempty"`
}

// PointerInfo tells of a pointer.
type PointerInfo struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Label   string `json:"label"`
	Default bool   `json:"default"`
}

// ListResult is what computer_pointer_list answers.
type ListResult struct {
	Summary  string        `json:"summary"`
	Pointers []PointerInfo `json:"pointers"`
}

// answer is a tool's result: what happened in words, the same for programs, and an image where there is one.
func answer(summary string, structured any, picture []byte, format Format) (*mcp.CallToolResult, error) {
	raw, err := json.Marshal(structured)
	if err != nil {
		return nil, Fail(Internal, "the result can't be written: %v", err)
	}
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: summary}}, StructuredContent: json.RawMessage(raw)}
	if picture != nil {
		r.Content = append(r.Content, &mcp.ImageContent{Data: picture, MIMEType: "image/" + string(format)})
	}
	return r, nil
}

func no() *bool { b := false; return &b }

func reads() env.ToolOption {
	return env.Annotations(mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()})
}

func acts() env.ToolOption {
	return env.Annotations(mcp.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()})
}

// pointTools are the tools that take points, with what they do; the space that points mean by default is told behind it.
func (c *Computer) pointTools() [][2]string {
	out := [][2]string{
		{"computer_screenshot", "Capture the screen as a new frame. With region, answer that part of a frame at its own resolution instead, again as a new frame."},
		{"computer_click", "Click a button of the mouse at a point."},
		{"computer_drag", "Hold a button of the mouse along a path, from its first point to its last."},
		{"computer_scroll", "Turn the wheel of the mouse at a point."},
	}
	if c.pointer != nil {
		out = append(out,
			[2]string{"computer_pointer_move", "Move the pointer to a point."},
			[2]string{"computer_pointer_down", "Press a button of the mouse and leave it down, at a point where one is given."},
			[2]string{"computer_pointer_up", "Release a button of the mouse, at a point where one is given."})
	}
	return out
}

// describe is a point tool's description under the settings.
func describe(what string, s *Settings) string {
	if s.DefaultSpace == SpaceNorm {
		return fmt.Sprintf("%s Points are on a grid from 0 to %d over the frame (space norm) unless space says otherwise.", what, s.DefaultNormScale)
	}
	return what + " Points are pixels of the frame's image (space frame) unless space says otherwise."
}

func (c *Computer) description(name string) string {
	s := c.chosen()
	for _, t := range c.pointTools() {
		if t[0] == name {
			return describe(t[1], &s)
		}
	}
	return ""
}

// addTool adds a tool that is refused until the computer is ready, and whose results are Out.
func addTool[Out, In any](c *Computer, name, description string, h func(ctx context.Context, in In) (*mcp.CallToolResult, error), opts ...env.ToolOption) {
	env.AddTool(c.env, name, description, func(ctx context.Context, in In) (*mcp.CallToolResult, error) {
		if err := c.ensureReady(ctx); err != nil {
			return nil, err
		}
		return h(ctx, in)
	}, append(opts, env.Returns[Out]())...)
}

func (c *Computer) addTools() {
	addTool[ScreenshotResult](c, "computer_screenshot", c.description("computer_screenshot"), c.screenshot, reads(), env.Nullable())
	addTool[InputResult](c, "computer_click", c.description("computer_click"), c.click, acts(), env.Nullable())
	addTool[InputResult](c, "computer_drag", c.description("computer_drag"), c.drag, acts(), env.Nullable())
	addTool[InputResult](c, "computer_scroll", c.description("computer_scroll"), c.scroll, acts(), env.Nullable())
	addTool[InputResult](c, "computer_type", "Type text into whatever has the focus.", c.typeText, acts(), env.Nullable())
	addTool[InputResult](c, "computer_key", "Press keys together and release them, e.g. [\"Control\", \"s\"].", c.key, acts(), env.Nullable())
	addTool[WaitResult](c, "computer_wait", "Let time pass.", c.wait, reads(), env.Nullable())
	if c.pointer != nil {
		addTool[InputResult](c, "computer_pointer_move", c.description("computer_pointer_move"), c.pointerMove, acts(), env.Nullable())
		addTool[InputResult](c, "computer_pointer_down", c.description("computer_pointer_down"), c.pointerDown, acts(), env.Nullable())
		addTool[InputResult](c, "computer_pointer_up", c.description("computer_pointer_up"), c.pointerUp, acts(), env.Nullable())
		addTool[PositionResult](c, "computer_pointer_position", "Tell where the pointer is.", c.pointerPosition, reads(), env.Nullable())
		addTool[ListResult](c, "computer_pointer_list", "Tell which pointers there are.", c.pointerList, reads())
	}
	if c.keyboard != nil {
		addTool[InputResult](c, "computer_keyboard_down", "Press keys and leave them down, or hold them for a time.", c.keyboardDown, acts(), env.Nullable())
		addTool[InputResult](c, "computer_keyboard_up", "Release keys that are held.", c.keyboardUp, acts(), env.Nullable())
	}
}

type screenshotInput struct {
	Region    []float64 `json:"region,omitempty" jsonschema:"Part of a frame to answer: x0, y0, x1, y1."`
	FrameID   *string   `json:"frame_id,omitempty" jsonschema:"The frame that region is a part of; the latest one unless given."`
	Format    string    `json:"format" enum:"png,jpeg" default:"png"`
	Quality   *int      `json:"quality,omitempty" jsonschema:"Of a jpeg, 1 to 95."`
	Space     *string   `json:"space,omitempty" enum:"frame,norm" jsonschema:"What the numbers of region mean: pixels of the frame's image, or a grid over it."`
	NormScale *int      `json:"norm_scale,omitempty" jsonschema:"Size of the grid of space norm."`
}

const defaultQuality = 85

func (c *Computer) screenshot(ctx context.Context, in screenshotInput) (*mcp.CallToolResult, error) {
	quality := defaultQuality
	if in.Quality != nil {
		if quality = *in.Quality; Format(in.Format) != JPEG || quality < 1 || quality > 95 {
			return nil, Fail(InvalidArgument, "quality is for format jpeg, from 1 to 95")
		}
	}
	var f *frame
	var summary string
	var err error
	switch {
	case in.Region != nil:
		f, summary, err = c.part(ctx, in)
	case in.FrameID != nil:
		return nil, Fail(InvalidArgument, "frame_id is the frame that a region is cut from: give region too")
	default:
		if f, err = c.capture(ctx); err == nil {
			summary = fmt.Sprintf("Captured %s: %d×%d of the %s display", f.id, f.width, f.height, f.display)
		}
	}
	if err != nil {
		return nil, err
	}
	r := f.result()
	out := ScreenshotResult{summary, r.FrameID, r.Width, r.Height, r.Display, r.ParentFrameID, r.CapturedAt}
	if Format(in.Format) != JPEG {
		return answer(summary, out, f.png, PNG)
	}
	p, err := c.frames.picture(f, image.Rect(0, 0, f.width, f.height))
	if err != nil {
		return nil, coded(ctx, Internal, err)
	}
	b, err := encodeJPEG(p, quality)
	if err != nil {
		return nil, coded(ctx, Internal, err)
	}
	return answer(summary, out, b, JPEG)
}

// part is a new frame that is a part of another.
func (c *Computer) part(ctx context.Context, in screenshotInput) (*frame, string, error) {
	parent, err := c.usable(ctx, in.FrameID)
	if err != nil {
		return nil, "", err
	}
	s, err := c.space(in.Space, in.NormScale)
	if err != nil {
		return nil, "", err
	}
	box, err := parent.region(in.Region, s)
	if err != nil {
		return nil, "", err
	}
	p, err := c.frames.picture(parent, box)
	if err != nil {
		return nil, "", coded(ctx, Internal, err)
	}
	cut := Image{RGBA, p.Rect.Dx(), p.Rect.Dy(), p.Pix}
	f := *parent
	if f.png, err = c.encode(cut); err != nil {
		return nil, "", coded(ctx, Internal, err)
	}
	f.width, f.height, f.parent = cut.Width, cut.Height, parent.id
	f.originX, f.originY = parent.originX+box.Min.X, parent.originY+box.Min.Y
	c.frames.add(&f, c.caller(ctx), cut)
	return &f, fmt.Sprintf("Cropped %s: %d×%d of %s at (%d, %d)", f.id, f.width, f.height, parent.id, box.Min.X, box.Min.Y), nil
}

// usable is a frame of the display as it is.
func (c *Computer) usable(ctx context.Context, id *string) (*frame, error) {
	f, err := c.frames.get(value(id), c.caller(ctx))
	if err != nil {
		return nil, err
	}
	now, err := c.displayNow(ctx)
	if err != nil {
		return nil, err
	}
	return f, f.current(now)
}

// space is what a call's numbers mean.
func (c *Computer) space(name *string, scale *int) (space, error) {
	s := c.chosen()
	out := space{s.DefaultSpace == SpaceNorm, s.DefaultNormScale}
	if name != nil {
		out.norm = *name == SpaceNorm
	}
	if scale != nil {
		if !out.norm {
			return out, Fail(InvalidArgument, "norm_scale is for space norm")
		}
		if out.scale = *scale; out.scale < 1 || out.scale > maxNormScale {
			return out, Fail(InvalidArgument, "norm_scale is from 1 to %d", maxNormScale)
		}
	}
	return out, nil
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

type waitInput struct {
	MS         int  `json:"ms" default:"1000" jsonschema:"How long, in milliseconds."`
	Screenshot bool `json:"screenshot" default:"false" jsonschema:"Capture a new frame afterwards."`
}

func (c *Computer) wait(ctx context.Context, in waitInput) (*mcp.CallToolResult, error) {
	if err := within("ms", in.MS, 0, c.features.MaxWait); err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Duration(in.MS)*time.Millisecond); err != nil {
		return nil, err
	}
	out := WaitResult{Summary: fmt.Sprintf("Waited %d ms", in.MS), WaitedMS: in.MS}
	if !in.Screenshot {
		return answer(out.Summary, out, nil, "")
	}
	f, err := c.capture(ctx)
	if err != nil {
		return nil, err
	}
	r := f.result()
	out.Summary += ", then captured " + f.id
	out.Frame = &r
	return answer(out.Summary, out, f.png, PNG)
}

// within refuses a number that is out of its range.
func within(name string, n, low, high int) error {
	if n >= low && n <= high {
		return nil
	}
	return Fail(InvalidArgument, "%s is %d, and this computer takes %d to %d", name, n, low, high)
}

// button is a button by its name; none is the left one.
func (c *Computer) button(name *string) (Button, error) {
	if name == nil || *name == "" {
		return Left, nil
	}
	if b := Button(*name); slices.Contains(c.features.Buttons, b) {
		return b, nil
	}
	var has []string
	for _, b := range c.features.Buttons {
		has = append(has, string(b))
	}
	return "", Fail(Unsupported, "this computer has no button %q; it has %s", *name, strings.Join(has, ", "))
}
