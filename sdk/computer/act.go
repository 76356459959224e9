package computer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// action is an input call, as far as all of them are alike.
type action struct {
	summary    string
	frame      *frame // what the caller saw; nil for nothing
	mapped     bool   // at comes from frame
	at         Point
	atPointer  bool // at is where the pointer is once the turn came
	moveFirst  bool // the pointer is moved to at before
	run        func(ctx context.Context, at Point) (*Effect, error)
	repeat     int
	hold       time.Duration // how long keys are held, with holding
	holding    []Key
	then       func() // as soon as the input is delivered
	screenshot bool
}

// InputResult is what tools that act answer.
type InputResult struct {
	Summary          string       `json:"summary"`
	Applied          string       `json:"applied" enum:"yes,no,unknown"`
	Delivery         string       `json:"delivery" enum:"foreground,background"`
	OthersSinceFrame int          `json:"others_since_frame" jsonschema:"How many inputs of other callers came since the frame was captured."`
	Effect           *Effect      `json:"effect,omitempty" jsonschema:"What was noticed of it."`
	Frame            *FrameResult `json:"frame,omitempty"`
}

// act does an action in a turn of its own.
func (c *Computer) act(ctx context.Context, a action) (*mcp.CallToolResult, error) {
	others, effect, err := c.deliver(ctx, &a)
	if err != nil {
		return nil, err
	}
	out := InputResult{Summary: a.summary, Applied: string(wire.AppliedYes), Delivery: "foreground", OthersSinceFrame: others, Effect: effect}
	if effect != nil && *effect == (Effect{}) {
		out.Effect = nil
	}
	if !a.screenshot {
		return answer(out.Summary, out, nil, "")
	}
	f, err := c.capture(ctx)
	if err != nil { // the input stands
		out.Summary += fmt.Sprintf("; the screenshot after it failed: %v", err)
		return answer(out.Summary, out, nil, "")
	}
	r := f.result()
	out.Summary += ", then captured " + f.id
	out.Frame = &r
	return answer(out.Summary, out, f.png, PNG)
}

// deliver does the part of an action that has the desktop to itself.
func (c *Computer) deliver(ctx context.Context, a *action) (others int, effect *Effect, err error) {
	s := c.chosen()
	release, err := c.queue.turn(ctx, s.wait())
	if err != nil {
		return 0, nil, err
	}
	defer release()
	if a.mapped { // the display may have changed while it waited
		now, err := c.displayNow(ctx)
		if err == nil {
			err = a.frame.current(now)
		}
		if err != nil {
			return 0, nil, err
		}
	}
	if a.atPointer {
		if a.at, err = c.pointer.PointerPosition(ctx); err != nil {
			return 0, nil, coded(ctx, Internal, err)
		}
		a.summary += fmt.Sprintf(" at the pointer, screen (%d, %d)", a.at.X, a.at.Y)
	}
	caller := c.caller(ctx)
	if a.frame != nil {
		others = c.queue.othersSince(a.frame.inputs, caller)
	}
	sent := false
	effect, err = c.send(ctx, a, &sent)
	if err != nil {
		err = coded(ctx, DeliveryFailed, err)
		if sent {
			err = appliedUnknown(err)
		}
		if f, ok := errors.AsType[*env.Failure](err); !ok || f.Applied != wire.AppliedNo {
			sent = true // maybe
		}
	}
	if sent {
		c.queue.deliver(caller)
	}
	if err == nil && a.then != nil {
		a.then()
	}
	return others, effect, err
}

func (c *Computer) send(ctx context.Context, a *action, sent *bool) (effect *Effect, err error) {
	if a.moveFirst {
		if err := c.pointer.PointerMove(ctx, a.at); err != nil {
			return nil, err
		}
		*sent = true
	}
	for range max(a.repeat, 1) {
		if effect, err = a.run(ctx, a.at); err != nil {
			return nil, err
		}
		*sent = true
	}
	if a.holding != nil {
		held := pause(ctx, a.hold)
		keys := slices.Clone(a.holding)
		slices.Reverse(keys)
		// Released also for a caller that left.
		if err := c.keyboard.KeyUp(context.WithoutCancel(ctx), keys); err != nil {
			return nil, err
		}
		return effect, held
	}
	return effect, nil
}

// pause waits, or less when the caller leaves.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holds are the keys that callers hold, and what releases them when they forget.
type holds struct {
	mu      sync.Mutex
	keys    map[string][]Key
	forgive map[string]chan struct{} // closed when the release is put off or not needed
}

// hold notes keys that a caller holds; they are released after the longest hold there may be.
func (c *Computer) hold(ctx context.Context, caller string, keys []Key) {
	h := &c.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys == nil {
		h.keys, h.forgive = map[string][]Key{}, map[string]chan struct{}{}
	}
	for _, k := range keys {
		if !slices.Contains(h.keys[caller], k) {
			h.keys[caller] = append(h.keys[caller], k)
		}
	}
	if old := h.forgive[caller]; old != nil {
		close(old)
	}
	stop := make(chan struct{})
	h.forgive[caller] = stop
	after := time.Duration(c.chosen().MaxHold) * time.Millisecond
	ctx = context.WithoutCancel(ctx)
	c.work.Go(func() { c.releaseAfter(ctx, caller, after, stop) })
}

// heldBy are the keys that a caller holds, in the order they were pressed.
func (c *Computer) heldBy(caller string) []Key {
	c.holds.mu.Lock()
	defer c.holds.mu.Unlock()
	return slices.Clone(c.holds.keys[caller])
}

// unhold notes that keys are up.
func (c *Computer) unhold(caller string, keys []Key) {
	h := &c.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.keys[caller], func(k Key) bool { return slices.Contains(keys, k) })
	if len(left) > 0 {
		h.keys[caller] = left
		return
	}
	delete(h.keys, caller)
	if stop := h.forgive[caller]; stop != nil {
		close(stop)
		delete(h.forgive, caller)
	}
}

// releaseAfter releases what a caller holds once the time is over, however long other input keeps the desktop busy, or when the computer closes.
func (c *Computer) releaseAfter(ctx context.Context, caller string, after time.Duration, stop <-chan struct{}) {
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-stop:
		return
	case <-t.C:
	case <-c.closing:
	}
	for {
		s := c.chosen()
		release, err := c.queue.turn(ctx, s.wait())
		if err != nil {
			select {
			case <-stop:
				return
			case <-c.closing: // nobody can press anything any more
				return
			default:
				continue
			}
		}
		keys := c.heldBy(caller)
		select {
		case <-stop: // released, or pressed again, while this waited
			keys = nil
		default:
		}
		if len(keys) > 0 {
			up := slices.Clone(keys)
			slices.Reverse(up)
			if err := c.keyboard.KeyUp(ctx, up); err != nil {
				c.log.WarnContext(ctx, "keys that were held too long can't be released", "keys", joined(keys), "error", err)
			}
			c.unhold(caller, keys)
		}
		release()
		return
	}
}
