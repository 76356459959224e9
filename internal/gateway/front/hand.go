package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/gateway/calllog"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/rawjson"
)

// Console is who takes over a computer on a page of agent-env up.
const Console = "console"

// Events of the log of calls that tell of a person's hand. None of them is a tool_call: whoever counts what agents did counts nothing of a person's.
const (
	eventTakenOver = "taken_over"
	eventGivenBack = "given_back"
	eventInput     = "person_input"
	eventInputDone = "person_input_result"
)

// screenshotTool gives a hand the frame that its inputs refer to. It changes nothing, and isn't on record.
const screenshotTool = "computer_screenshot"

// inputs are the tools that a hand may use beside it, with what of their arguments goes into the log as it is. What a person types is told by its length
// alone: it may be a secret that the program doesn't know.
var inputs = [...]struct {
	tool, action string
	told         []string
	counted      string // an argument whose length is told
	as           string
}{
	{tool: "computer_click", action: "click", told: []string{"x", "y", "button", "count", "modifiers"}},
	{tool: "computer_drag", action: "drag", told: []string{"path", "button", "modifiers"}},
	{tool: "computer_scroll", action: "scroll", told: []string{"x", "y", "direction", "amount", "modifiers"}},
	{tool: "computer_type", action: "type", counted: "text", as: "characters"},
	{tool: "computer_key", action: "key", counted: "keys", as: "keys"},
}

// ErrNoInput: a tool is none that a person's hand uses.
var ErrNoInput = errors.New("is no input of mouse or keyboard")

// Hand is a person at the mouse and keyboard of one computer. It is past what roles may, has frames of its own at the driver, and everything that it does is on
// record before it is done. Its methods may be called from several goroutines; End it before the gateway is closed.
type Hand struct {
	g    *Gateway
	b    *backing
	by   string
	id   string // of the event that began it
	mcp  *child.Child
	done atomic.Int64
	end  sync.Once
}

// TakeOver begins a person's hand on the computer of an environment's name, as who takes it says: Console.
func (g *Gateway) TakeOver(env, by string) (*Hand, error) {
	b, err := g.find(env)
	if err != nil {
		return nil, err
	}
	if b.mcp == nil {
		return nil, fmt.Errorf("environment %q has no tools", env)
	}
	h := &Hand{g: g, b: b, by: by}
	if h.id, err = g.calls.Append(calllog.Event{Type: eventTakenOver, Members: h.members(nil)}); err != nil {
		return nil, err
	}
	o := g.childOptions(b)
	o.Restart, o.Changed = nil, nil // the gateway's own connection does both
	h.mcp = child.New(o)
	h.mcp.Start(g.ctx)
	return h, nil
}

// members begin each event of the hand's.
func (h *Hand) members(more []byte) []byte {
	m := rawjson.AppendString([]byte(`"source":`), h.by)
	m = rawjson.AppendString(append(m, `,"environment_name":`...), h.b.Name)
	if h.id != "" {
		m = append(append(append(m, `,"taken_over_event_id":"`...), h.id...), '"')
	}
	return append(m, more...)
}

// Call calls a tool of the driver and gives the result, a CallToolResult as JSON, isError or not. It is ErrNoInput for any but screenshots and inputs.
func (h *Hand) Call(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error) {
	if tool == screenshotTool {
		return h.call(ctx, tool, args)
	}
	told, err := inputOf(tool, args)
	if err != nil {
		return nil, err
	}
	g := h.g
	id, err := g.calls.Append(calllog.Event{Type: eventInput, Members: h.members(append([]byte(`,"input":`), told...))})
	if err != nil {
		return nil, err
	}
	var result json.RawMessage
	out, before, err := g.exclusive(ctx, func() (*outcome, error) {
		var err error
		result, err = h.call(ctx, tool, args)
		return &outcome{}, err
	})
	changes := ""
	if err == nil {
		changes = out.changes
	} else {
		changes = g.lastChange(context.WithoutCancel(ctx))
	}
	h.observe(id, told, before, changes)
	how := h.how(result, err)
	m := h.members([]byte(`,"person_input_event_id":"` + id + `","outcome":`))
	m = append(rawjson.AppendString(m, how), `,"changelog_id_before":`+before+`,"changelog_id":`+changes...)
	if _, logErr := g.calls.Append(calllog.Event{Type: eventInputDone, Members: m}); logErr != nil {
		return nil, errors.Join(err, logErr)
	}
	return result, err
}

// how tells how an input ended: "done", the code that the driver refused it with, or "failed", after which nobody knows whether it was done.
func (h *Hand) how(result json.RawMessage, err error) string {
	switch {
	case err != nil:
		return "failed"
	case string(rawjson.Get(result, "isError")) != "true":
		h.done.Add(1)
		return "done"
	}
	if code, ok := rawjson.Text(rawjson.Get(rawjson.Get(result, "structuredContent"), "code")); ok && code != "" {
		return code
	}
	return "refused"
}

// observe remembers when an input could write.
func (h *Hand) observe(id string, told []byte, before, after string) {
	if h.g.o.Changes == nil {
		return
	}
	m := rawjson.AppendString([]byte(`{"kind":"`+eventInput+`","event_id":"`+id+`","source":`), h.by)
	m = append(append(m, `,"action":`...), rawjson.Get(told, "action")...)
	h.g.windows.add(before, after, append(m, '}'))
}

func (h *Hand) call(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error) {
	a, err := h.mcp.CallTool(ctx, tool, args)
	if err != nil {
		return nil, fmt.Errorf("the computer %w", err)
	}
	defer a.Close()
	if !a.Error.None() {
		return nil, errors.New("the computer refused the call: " + message(a.Error))
	}
	return all(a.Result)
}

// End ends the hand and tells how many inputs were done. A second call does nothing but tell it.
func (h *Hand) End() (done int64, err error) {
	h.end.Do(func() {
		h.mcp.Close()
		_, err = h.g.calls.Append(calllog.Event{Type: eventGivenBack, Members: h.members([]byte(`,"inputs":` + strconv.FormatInt(h.done.Load(), 10)))})
	})
	return h.done.Load(), err
}

// inputOf is what the log says of an input: an object.
func inputOf(tool string, args []byte) ([]byte, error) {
	for _, in := range inputs {
		if in.tool != tool {
			continue
		}
		if !json.Valid(args) || rawjson.Kind(args) != '{' {
			return nil, errors.New("arguments must be a JSON object")
		}
		out := append([]byte(`{"action":"`+in.action), '"')
		for _, name := range in.told {
			if v := rawjson.Get(args, name); v != nil {
				out = append(append(out, `,"`+name+`":`...), v...)
			}
		}
		if in.counted != "" {
			out = strconv.AppendInt(append(out, `,"`+in.as+`":`...), int64(length(rawjson.Get(args, in.counted))), 10)
		}
		return append(out, '}'), nil
	}
	return nil, fmt.Errorf("tool %q %w", tool, ErrNoInput)
}

// length is that of a text in characters, or of a list.
func length(value []byte) int {
	if s, ok := rawjson.Text(value); ok {
		return utf8.RuneCountInString(s)
	}
	n := 0
	if rawjson.Kind(value) == '[' {
		for range rawjson.Elements(value) {
			n++
		}
	}
	return n
}

// ID is the id of the event that began it.
func (h *Hand) ID() string { return h.id }
