package x11

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/sleep"
)

// Requests of the core protocol that windows and their properties need.
const (
	createWindow = 1
	internAtom   = 16
	getProperty  = 20
	sendEvent    = 25
)

// managerPause is between questions to a window manager.
const managerPause = 20 * time.Millisecond

// AwaitManager waits until the window manager of a display does what programs ask for: until then, some leave windows unseen that want to be shown. It
// asks for the frame that a window would get, which those that follow the conventions of EWMH answer; one that says that it doesn't is waited for no
// longer. auth is the file that holds what clients of the display show. The error is ctx's when nobody answers.
func AwaitManager(ctx context.Context, display, auth string) error {
	w, err := dial(display, auth)
	if err != nil {
		return fmt.Errorf("connect to the display %s: %w", display, err)
	}
	defer w.close()
	var atoms [3]uint32
	for i, name := range []string{"_NET_SUPPORTED", "_NET_REQUEST_FRAME_EXTENTS", "_NET_FRAME_EXTENTS"} {
		if atoms[i], err = w.atom(name); err != nil {
			return err
		}
	}
	supported, ask, extents := atoms[0], atoms[1], atoms[2]
	window := w.newID() // never shown
	if err := w.tell(u32(u16(u32(request(createWindow, 0), window, w.server.root), 0, 0, 1, 1, 0, 0), 0, 0)); err != nil {
		return err
	}
	for {
		can, err := w.property(w.server.root, supported)
		if err != nil {
			return err
		}
		if len(can) > 0 && !slices.Contains(can, ask) {
			return nil
		}
		if len(can) > 0 {
			if err := w.message(window, ask); err != nil {
				return err
			}
			if frame, err := w.property(window, extents); err != nil || len(frame) > 0 {
				return err
			}
		}
		if err := sleep.For(ctx, managerPause); err != nil {
			return err
		}
	}
}

// atom is the number of a name.
func (w *wire) atom(name string) (uint32, error) {
	r, err := w.ask(text(u16(request(internAtom, 0), len(name), 0), name), 12)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(r[8:]), nil
}

// property is a property of a window as numbers of 32 bits; nil when the window has none of that name and kind.
func (w *wire) property(window, name uint32) ([]uint32, error) {
	const most = 1024
	r, err := w.ask(u32(request(getProperty, 0), window, name, 0, 0, most), 32)
	if err != nil || r[1] != 32 {
		return nil, err
	}
	var out []uint32
	for at, n := 32, int(binary.LittleEndian.Uint32(r[16:])); n > 0 && at+4 <= len(r); at, n = at+4, n-1 {
		out = append(out, binary.LittleEndian.Uint32(r[at:]))
	}
	return out, nil
}

// message tells whoever manages the windows something about one.
func (w *wire) message(window, kind uint32) error {
	const toManager, clientMessage = 1<<19 | 1<<20, 33
	event := u32([]byte{clientMessage, 32, 0, 0}, window, kind, 0, 0, 0, 0, 0)
	return w.tell(append(u32(request(sendEvent, 0), w.server.root, toManager), event...))
}
