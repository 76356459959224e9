package computer

import (
	"bytes"
	"context"
	"image"
	"iter"
	"time"
)

// Recapturer is a driver that can capture into memory that it is given, as what captures many times a second wants: Data of the Image is buf, made
// longer when it is too short.
type Recapturer interface {
	CaptureInto(ctx context.Context, buf []byte) (Image, error)
}

// Shot is the screen at a moment, with the pointer drawn where it is. Its memory is valid until the next one.
type Shot struct {
	At      time.Time
	Display Display
	Image   Image           // in a format of bytes
	Changed image.Rectangle // in pixels of Image, against the shot before; the whole of it at first, and after a change of size
}

// down is how long a screen that can't be captured is left alone.
const down = time.Second

// Watch is the screen as it changes: a shot at first, and then one whenever it differs from the last, looked at as often as every says. It makes no
// frames, waits for no turn and sends no input. While the screen can't be captured there is nothing; it ends with ctx or when the computer closes.
func (c *Computer) Watch(ctx context.Context, every time.Duration) iter.Seq[Shot] {
	return func(yield func(Shot) bool) {
		w := watcher{c: c}
		t := time.NewTimer(0)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.ending:
				return
			case <-t.C:
			}
			began, wait := time.Now(), every
			s, err := w.look(ctx)
			switch {
			case err != nil:
				wait = max(every, down)
			case !s.Changed.Empty():
				if !yield(s) {
					return
				}
			default:
			}
			t.Reset(max(wait-time.Since(began), time.Millisecond))
		}
	}
}

// watcher looks at the screen again and again.
type watcher struct {
	c         *Computer
	last, now Image
}

// look is the screen with what changed of it; nothing may have.
func (w *watcher) look(ctx context.Context) (Shot, error) {
	s := Shot{At: time.Now()}
	var err error
	if s.Display, err = w.c.displayNow(ctx); err != nil {
		return s, err
	}
	if into, ok := w.c.driver.(Recapturer); ok {
		w.now, err = into.CaptureInto(ctx, w.now.Data)
	} else {
		w.now, err = w.c.driver.Capture(ctx)
		if err == nil && w.c.pointer != nil && w.now.per() != 0 {
			w.now.Data = bytes.Clone(w.now.Data) // drawn on below
		}
	}
	if err != nil {
		return s, err
	}
	if w.now.per() == 0 {
		p, err := w.now.pixels()
		if err != nil {
			return s, err
		}
		w.now = Image{RGBA, p.Rect.Dx(), p.Rect.Dy(), p.Pix}
	}
	if err := w.now.Check(); err != nil {
		return s, err
	}
	if w.c.pointer != nil {
		if at, err := w.c.pointer.PointerPosition(ctx); err == nil {
			w.now.drawPointer(scaled(at.X, s.Display.Scale), scaled(at.Y, s.Display.Scale))
		}
	}
	s.Image, s.Changed = w.now, changed(w.last, w.now)
	if !s.Changed.Empty() { // else the next look may use the memory of this one
		w.last, w.now = w.now, w.last
	}
	return s, nil
}

// per is how many bytes a pixel has; 0 in an encoded image.
func (m Image) per() int {
	switch m.Format {
	case RGB:
		return 3
	case RGBA, BGRA, BGRX:
		return 4
	default:
		return 0
	}
}

// changed is the smallest part of an image that holds all differences to the one before.
func changed(before, now Image) image.Rectangle {
	if before.Format != now.Format || before.Width != now.Width || before.Height != now.Height {
		return image.Rect(0, 0, now.Width, now.Height)
	}
	row := now.Width * now.per()
	same := func(y int) bool { return bytes.Equal(before.Data[y*row:(y+1)*row], now.Data[y*row:(y+1)*row]) }
	top, bottom := 0, now.Height
	for top < bottom && same(top) {
		top++
	}
	for top < bottom && same(bottom-1) {
		bottom--
	}
	left, right := row, 0 // in bytes
	for y := top; y < bottom; y++ {
		a, b := before.Data[y*row:(y+1)*row], now.Data[y*row:(y+1)*row]
		for x := range left {
			if a[x] != b[x] {
				left = x
				break
			}
		}
		for x := row - 1; x >= right; x-- {
			if a[x] != b[x] {
				right = x + 1
				break
			}
		}
	}
	per := now.per()
	return image.Rect(left/per, top, (right+per-1)/per, bottom)
}

// part is a part of an image of bytes, which shares nothing with it; buf is used where it is long enough.
func (m Image) part(box image.Rectangle, buf []byte) Image {
	per := m.per()
	out := Image{m.Format, box.Dx(), box.Dy(), buf[:0]}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		out.Data = append(out.Data, m.Data[(y*m.Width+box.Min.X)*per:(y*m.Width+box.Max.X)*per]...)
	}
	return out
}

// arrow is the pointer as it is drawn: X is black, o white. Its tip is the pointer's place.
func arrow() []string {
	return []string{
		"o",
		"oo",
		"oXo",
		"oXXo",
		"oXXXo",
		"oXXXXo",
		"oXXXXXo",
		"oXXXXXXo",
		"oXXXXXXXo",
		"oXXXXXXXXo",
		"oXXXXXooooo",
		"oXXoXXo",
		"oXo oXXo",
		"oo  oXXo",
		"o    oXXo",
		"     oXXo",
		"      oo",
	}
}

// drawPointer draws the arrow at a pixel.
func (m Image) drawPointer(x, y int) {
	per := m.per()
	for dy, row := range arrow() {
		for dx, c := range []byte(row) {
			px, py := x+dx, y+dy
			if c == ' ' || px < 0 || py < 0 || px >= m.Width || py >= m.Height {
				continue
			}
			var v byte
			if c == 'o' {
				v = 255
			}
			at := (py*m.Width + px) * per
			m.Data[at], m.Data[at+1], m.Data[at+2] = v, v, v
		}
	}
}
