package x11

import (
	"context"
	"errors"
	"slices"

	"agentenv.internal/agentenv/sdk/computer"
)

// down tells which keys are pressed at the moment, by whomever.
func (c *conn) down() (func(keycode) bool, error) {
	r, err := c.ask(request(queryKeymap, 0), 40)
	if err != nil {
		return nil, err
	}
	return func(k keycode) bool { return r[8+k/8]&(1<<(k%8)) != 0 }, nil
}

// press presses keys in order, with Shift before those that need it when it isn't down. It answers what it pressed. Before the first is pressed, all
// are known to exist.
func (c *conn) press(keys []computer.Key) (pressed []keycode, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	down, err := c.down()
	if err != nil {
		return nil, err
	}
	var strokes []stroke
	for _, k := range keys {
		s := symbol(k)
		if s == 0 {
			return nil, computer.Fail(computer.Unsupported, "this computer has no key %s", k)
		}
		taken := func(code keycode) bool {
			return down(code) || slices.ContainsFunc(strokes, func(st stroke) bool { return st.code == code })
		}
		st, err := c.keys.find(c, s, taken)
		if err != nil {
			return nil, err
		}
		strokes = append(strokes, st)
	}
	shifted := down(c.keys.shift)
	for _, st := range strokes {
		if st.shift && !shifted {
			if err := c.key(c.keys.shift, true); err != nil {
				return pressed, err
			}
			pressed, shifted = append(pressed, c.keys.shift), true
		}
		if err := c.key(st.code, true); err != nil {
			return pressed, err
		}
		pressed = append(pressed, st.code)
		shifted = shifted || st.code == c.keys.shift
	}
	return pressed, nil
}

// release releases keys in reverse, all of them whatever goes wrong.
func (c *conn) release(pressed []keycode) error {
	var errs []error
	for _, code := range slices.Backward(pressed) {
		errs = append(errs, c.key(code, false))
	}
	return errors.Join(errs...)
}

// Press presses keys and releases them.
func (d *Driver) Press(ctx context.Context, keys []computer.Key, t computer.Timing) (*computer.Effect, error) {
	return nil, d.with(keys, func(*conn) error { return pause(ctx, t.Hold) })
}

// Type types text, a character after another. It is refused as a whole when the keyboard has no key for one of them.
func (d *Driver) Type(ctx context.Context, text string, t computer.Timing) (*computer.Effect, error) {
	c, err := d.connection()
	if err != nil {
		return nil, err
	}
	down, err := c.down()
	if err != nil {
		return nil, err
	}
	for _, r := range text {
		if s := runeSymbol(r); !c.keys.room(s, down) {
			return nil, computer.Fail(computer.Unsupported, "the keyboard has no free key for %q", r)
		}
	}
	for _, r := range text {
		if err := c.tap(ctx, r, t); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (c *conn) tap(ctx context.Context, r rune, t computer.Timing) error {
	key := computer.Key(r)
	switch r {
	case '\n':
		key = "Enter"
	case '\t':
		key = "Tab"
	}
	pressed, err := c.press([]computer.Key{key})
	if err == nil {
		err = pause(ctx, t.Hold)
	}
	if err := errors.Join(err, c.release(pressed)); err != nil {
		return err
	}
	return pause(ctx, t.Delay)
}

// KeyDown presses keys and leaves them down; when one fails, none stays down.
func (d *Driver) KeyDown(_ context.Context, keys []computer.Key) error {
	c, err := d.connection()
	if err != nil {
		return err
	}
	for i, k := range keys {
		pressed, err := c.press([]computer.Key{k})
		if err != nil {
			err = errors.Join(err, c.release(pressed))
			return errors.Join(err, d.up(c, keys[:i]))
		}
		d.mu.Lock()
		d.held[k] = append(d.held[k], pressed...)
		d.mu.Unlock()
	}
	return nil
}

// KeyUp releases keys, in the order given.
func (d *Driver) KeyUp(_ context.Context, keys []computer.Key) error {
	c, err := d.connection()
	if err != nil {
		return err
	}
	return d.up(c, keys)
}

func (d *Driver) up(c *conn, keys []computer.Key) error {
	var errs []error
	for _, k := range keys {
		d.mu.Lock()
		pressed := d.held[k]
		delete(d.held, k)
		d.mu.Unlock()
		if pressed == nil {
			s := symbol(k)
			if s == 0 {
				errs = append(errs, computer.Fail(computer.Unsupported, "this computer has no key %s", k))
				continue
			}
			if st, ok := c.keys.known(s); ok {
				pressed = []keycode{st.code}
			}
		}
		errs = append(errs, c.release(pressed))
	}
	return errors.Join(errs...)
}
