package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"sync"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// hand is a watcher who may use the computer that they watch: one caller of its driver, whose inputs come one after another.
type hand struct {
	watch    string
	computer string
	screen   Screen

	turn          sync.Mutex // held during an input
	width, height int        // of the frame that points refer to; 0 before the first
}

// hands are the watchers there are, by the names of their streams.
type hands struct {
	mu sync.Mutex
	of map[string]*hand
}

func (x *hands) add(computer string, k Screen) *hand {
	h := &hand{watch: newWatch(), computer: computer, screen: k}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == nil {
		x.of = map[string]*hand{}
	}
	x.of[h.watch] = h
	return h
}

func (x *hands) remove(h *hand) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, h.watch)
}

func (x *hands) get(computer, watch string) *hand {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.of[watch]; h != nil && h.computer == computer {
		return h
	}
	return nil
}

// input does what a person does with mouse or keyboard on a screen that they watch: {watch, action, …}. Points are parts of the screen's width and height,
// from 0 to 1.
func (s *Server) input(ctx context.Context, c *call) (any, error) {
	if !s.o.TakeOver {
		return nil, &Failure{Status: http.StatusForbidden, Code: "take_over", Detail: "this console only shows computers; start it with agent-env up --take-over to use their mouse and keyboard"}
	}
	watch := c.body.text("watch")
	in := c.body.gesture()
	if err := c.body.done(); err != nil {
		return nil, err
	}
	h := s.hands.get(c.PathValue("id"), watch)
	if h == nil {
		return nil, &Failure{Status: http.StatusNotFound, Code: "watch", Detail: "nobody watches that computer by this stream any more; watch it to use it"}
	}
	said, err := h.do(ctx, in)
	if err != nil {
		return nil, err
	}
	return struct {
		OK   bool   `json:"ok"`
		Said string `json:"said"`
	}{true, said}, nil
}

// gesture is one input as a page sends it.
type gesture struct {
	tool   string
	points [][2]float64 // as parts of the screen
	rest   map[string]any
}

// Limits of what a page sends; the driver has its own.
const (
	mostPoints = 100
	mostText   = 10_000
	mostKeys   = 8
)

// gesture reads the members of an input.
func (b *body) gesture() gesture {
	in := gesture{rest: map[string]any{}}
	action := b.text("action")
	switch action {
	case "click", "drag":
		if button := b.text("button"); button != "" {
			in.rest["button"] = button
		}
	case "scroll":
		in.rest["direction"] = b.text("direction")
	}
	switch action {
	case "click", "scroll":
		in.points = b.points("at", 1, 1)
		number := map[string]string{"click": "count", "scroll": "amount"}[action]
		if n := b.get(number); !n.IsNull() {
			v, ok := n.Int()
			if !ok {
				b.fault(number, "has to be a whole number")
			}
			in.rest[number] = v
		}
	case "drag":
		in.points = b.points("path", 2, mostPoints)
	case "type":
		text := b.text("text")
		if text == "" || len(text) > mostText {
			b.fault("text", fmt.Sprintf("has to have 1 to %d bytes", mostText))
		}
		in.rest["text"] = text
	case "key":
		in.rest["keys"] = b.keys("keys", 1)
	default:
		b.fault("action", "has to be click, drag, scroll, type or key")
	}
	if action == "click" || action == "drag" || action == "scroll" {
		if held := b.keys("modifiers", 0); len(held) > 0 {
			in.rest["modifiers"] = held
		}
	}
	in.tool = "computer_" + action
	return in
}

// points is a list of [x, y], each from 0 to 1; one point stands for itself where one is the most.
func (b *body) points(name string, least, most int) [][2]float64 {
	n := b.get(name)
	items := []doc.Node{n}
	if most > 1 {
		items = items[:0]
		for _, i := range n.Items() {
			items = append(items, i)
		}
	}
	var out [][2]float64
	for _, i := range items {
		x, isX := i.At(0).Float()
		y, isY := i.At(1).Float()
		p := [2]float64{x, y}
		if !isX || !isY || i.Len() != len(p) || !(x >= 0 && x <= 1 && y >= 0 && y <= 1) {
			b.fault(name, "has to be made of [x, y], both from 0 to 1")
			return nil
		}
		out = append(out, p)
	}
	if len(out) < least || len(out) > most {
		b.fault(name, fmt.Sprintf("has to have %d to %d points", least, most))
	}
	return out
}

// keys is a list of names of keys.
func (b *body) keys(name string, least int) []string {
	n := b.get(name)
	var out []string
	for _, i := range n.Items() {
		k, ok := i.Str()
		if !ok || k == "" {
			b.fault(name, "has to be a list of names of keys")
			return nil
		}
		out = append(out, k)
	}
	if len(out) < least || len(out) > mostKeys || !n.IsNull() && n.Kind() != doc.Array {
		b.fault(name, fmt.Sprintf("has to be a list of %d to %d names of keys", least, mostKeys))
	}
	return out
}

// do does an input and answers what the driver says of it. Where the screen's size has changed since the last, a new frame is taken.
func (h *hand) do(ctx context.Context, in gesture) (string, error) {
	h.turn.Lock()
	defer h.turn.Unlock()
	if h.width == 0 {
		if err := h.look(ctx); err != nil {
			return "", err
		}
	}
	out, err := h.act(ctx, in)
	if err == nil && out.Structured.Code == "stale_frame" {
		if err = h.look(ctx); err == nil {
			out, err = h.act(ctx, in)
		}
	}
	if err == nil {
		err = out.fault()
	}
	return diag.Clean(out.Structured.Summary), err
}

// result is what is read of a driver's answer.
type result struct {
	IsError    bool `json:"isError"`
	Structured struct {
		Code    string `json:"code"`
		Summary string `json:"summary"`
		Width   int    `json:"width"`
		Height  int    `json:"height"`
	} `json:"structuredContent"`
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
}

// fault is what the driver refused; nil for nothing.
func (r *result) fault() error {
	if !r.IsError {
		return nil
	}
	text := "the computer refused"
	if len(r.Content) > 0 && r.Content[0].Text != "" {
		text = diag.Clean(r.Content[0].Text)
	}
	return &Failure{Status: http.StatusConflict, Code: "computer", Detail: text}
}

func (h *hand) call(ctx context.Context, tool string, args map[string]any) (result, error) {
	b, err := json.Marshal(args)
	if err != nil {
		return result{}, err
	}
	raw, err := h.screen.Call(ctx, tool, b)
	if errors.Is(err, deploy.ErrNoHand) {
		return result{}, &Failure{http.StatusConflict, "unrecorded", diag.Clean(err.Error()), err}
	}
	if err != nil {
		return result{}, &Failure{http.StatusBadGateway, "computer", diag.Clean(err.Error()), err}
	}
	var r result
	if err := json.Unmarshal(raw, &r); err != nil {
		return result{}, &Failure{http.StatusBadGateway, "computer", "what the computer answered can't be read", err}
	}
	return r, nil
}

// look takes a frame, which points refer to.
func (h *hand) look(ctx context.Context) error {
	r, err := h.call(ctx, "computer_screenshot", map[string]any{})
	if err == nil {
		err = r.fault()
	}
	if err == nil && (r.Structured.Width <= 0 || r.Structured.Height <= 0) {
		err = &Failure{http.StatusBadGateway, "computer", "the computer's screenshot has no size", errors.New("no size")}
	}
	if err == nil {
		h.width, h.height = r.Structured.Width, r.Structured.Height
	}
	return err
}

// act calls the tool of an input.
func (h *hand) act(ctx context.Context, in gesture) (result, error) {
	args := maps.Clone(in.rest)
	var path [][2]float64
	for _, p := range in.points {
		path = append(path, [2]float64{pixel(p[0], h.width), pixel(p[1], h.height)})
	}
	if in.tool == "computer_drag" {
		args["path"] = path
	} else if path != nil {
		args["x"], args["y"] = path[0][0], path[0][1]
	}
	return h.call(ctx, in.tool, args)
}

// pixel is the one under a part of a length.
func pixel(part float64, length int) float64 {
	return min(math.Floor(part*float64(length)), float64(length-1))
}
