package x11

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"agentenv.internal/agentenv/sdk/computer"
)

// keysym is X's number of what a key means; keycode is its number of a key.
type (
	keysym  uint32
	keycode byte
)

// keysyms of keys that have names; keys without one can't be pressed on X.
func namedKeysym(k computer.Key) keysym {
	switch k {
	case "Alt":
		return 0xffe9
	case "AltGraph":
		return 0xfe03
	case "CapsLock":
		return 0xffe5
	case "Control":
		return 0xffe3
	case "Hyper":
		return 0xffed
	case "Meta":
		return 0xffe7
	case "NumLock":
		return 0xff7f
	case "ScrollLock":
		return 0xff14
	case "Shift":
		return 0xffe1
	case "Super":
		return 0xffeb
	case "Enter":
		return 0xff0d
	case "Tab":
		return 0xff09
	case "ArrowLeft":
		return 0xff51
	case "ArrowUp":
		return 0xff52
	case "ArrowRight":
		return 0xff53
	case "ArrowDown":
		return 0xff54
	case "End":
		return 0xff57
	case "Home":
		return 0xff50
	case "PageDown":
		return 0xff56
	case "PageUp":
		return 0xff55
	case "Backspace":
		return 0xff08
	case "Clear":
		return 0xff0b
	case "CrSel":
		return 0xfd1c
	case "Delete":
		return 0xffff
	case "EraseEof":
		return 0xfd06
	case "ExSel":
		return 0xfd1b
	case "Insert":
		return 0xff63
	case "Redo":
		return 0xff66
	case "Undo":
		return 0xff65
	case "Again":
		return 0xff66
	case "Attn":
		return 0xfd0e
	case "Cancel":
		return 0xff69
	case "ContextMenu":
		return 0xff67
	case "Escape":
		return 0xff1b
	case "Execute":
		return 0xff62
	case "Find":
		return 0xff68
	case "Help":
		return 0xff6a
	case "Pause":
		return 0xff13
	case "Play":
		return 0xfd16
	case "Select":
		return 0xff60
	case "PrintScreen":
		return 0xff61
	}
	return vendorKeysym(k)
}

// vendorKeysym is the number of keys that XFree86 named.
func vendorKeysym(k computer.Key) keysym {
	switch k {
	case "Copy":
		return 0x1008ff57
	case "Cut":
		return 0x1008ff58
	case "Paste":
		return 0x1008ff6d
	case "ZoomIn":
		return 0x1008ff8b
	case "ZoomOut":
		return 0x1008ff8c
	case "BrightnessDown":
		return 0x1008ff03
	case "BrightnessUp":
		return 0x1008ff02
	case "Eject":
		return 0x1008ff2c
	case "LogOff":
		return 0x1008ff61
	case "Power":
		return 0x1008ff2a
	case "PowerOff":
		return 0x1008ff2a
	case "Hibernate":
		return 0x1008ffa8
	case "Standby":
		return 0x1008ff10
	case "WakeUp":
		return 0x1008ff2b
	case "AudioVolumeDown":
		return 0x1008ff11
	case "AudioVolumeMute":
		return 0x1008ff12
	case "AudioVolumeUp":
		return 0x1008ff13
	case "MediaPlayPause":
		return 0x1008ff14
	case "MediaStop":
		return 0x1008ff15
	case "MediaTrackNext":
		return 0x1008ff17
	case "MediaTrackPrevious":
		return 0x1008ff16
	case "BrowserBack":
		return 0x1008ff26
	case "BrowserFavorites":
		return 0x1008ff30
	case "BrowserForward":
		return 0x1008ff27
	case "BrowserHome":
		return 0x1008ff18
	case "BrowserRefresh":
		return 0x1008ff29
	case "BrowserSearch":
		return 0x1008ff1b
	case "BrowserStop":
		return 0x1008ff28
	}
	var n int
	if _, err := fmt.Sscanf(string(k), "F%d", &n); err == nil && n >= 1 && n <= 24 && len(k) > 1 {
		return keysym(0xffbe + n - 1)
	}
	return 0
}

// symbol is a key's number; 0 for a key that X has none for.
func symbol(k computer.Key) keysym {
	if rs := []rune(string(k)); len(rs) == 1 {
		return runeSymbol(rs[0])
	}
	return namedKeysym(k)
}

// runeSymbol is the number of a character: Latin-1 is itself, everything else is beyond a million.
func runeSymbol(r rune) keysym {
	switch {
	case r == '\n':
		return namedKeysym("Enter")
	case r == '\t':
		return namedKeysym("Tab")
	case r < 0x100:
		return keysym(r)
	}
	return keysym(0x01000000 | r)
}

// stroke is how a symbol is made: by a key, with Shift or without.
type stroke struct {
	code  keycode
	shift bool
}

// keymap is which key makes which symbol. Symbols that no key makes get a spare key each, the longest unused one first.
type keymap struct {
	mu      sync.Mutex
	strokes map[keysym]stroke
	spare   []keycode // least recently used first
	given   map[keycode]keysym
	per     int // symbols of a key
	shift   keycode
}

func readKeymap(c *conn) (*keymap, error) {
	first, last := c.server.firstKey, c.server.lastKey
	r, err := c.ask(append(request(getKeyboardMapping, 0), byte(first), byte(last-first+1), 0, 0), 32)
	if err != nil {
		return nil, fmt.Errorf("read the keyboard's map: %w", err)
	}
	return parseKeymap(r, first), nil
}

// parseKeymap reads the server's answer: so many symbols for each key, from first on.
func parseKeymap(r []byte, first keycode) *keymap {
	m := &keymap{strokes: map[keysym]stroke{}, given: map[keycode]keysym{}, per: int(r[1])}
	var keys [][]keysym
	for b := r[32:]; m.per > 0 && len(b) >= 4*m.per && len(keys) < 256-int(first); b = b[4*m.per:] {
		syms := make([]keysym, m.per)
		for i := range syms {
			syms[i] = keysym(binary.LittleEndian.Uint32(b[4*i:]))
		}
		keys = append(keys, syms)
	}
	for level := range min(2, m.per) {
		for i, syms := range keys {
			if syms[level] != 0 {
				m.note(syms, level, first+keycode(i))
			}
		}
	}
	for i, syms := range keys {
		if !slices.ContainsFunc(syms, func(s keysym) bool { return s != 0 }) {
			m.spare = append(m.spare, first+keycode(i))
		}
	}
	m.shift = m.strokes[namedKeysym("Shift")].code
	return m
}

// note keeps the lowest key of a symbol. A letter alone on a key stands for both cases.
func (m *keymap) note(syms []keysym, level int, code keycode) {
	s := syms[level]
	if _, ok := m.strokes[s]; !ok { // what is there without Shift was noted first
		m.strokes[s] = stroke{code, level == 1}
	}
	alone := level == 0 && (len(syms) < 2 || syms[1] == 0)
	if upper := s - 0x20; alone && s >= 'a' && s <= 'z' {
		if _, ok := m.strokes[upper]; !ok {
			m.strokes[upper] = stroke{code, true}
		}
	}
}

// find is how a symbol is made; a spare key is given to one that no key makes. down tells which keys can't be given away.
func (m *keymap) find(c *conn, s keysym, down func(keycode) bool) (stroke, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, ok := m.strokes[s]; ok {
		m.used(st.code)
		return st, nil
	}
	for _, code := range m.spare {
		if down(code) {
			continue
		}
		// It makes the symbol with Shift as well as without.
		req := append(request(changeKeyboardMapping, 1), byte(code), byte(m.per), 0, 0)
		for i := range m.per {
			if i < 2 {
				req = u32(req, uint32(s))
			} else {
				req = u32(req, 0)
			}
		}
		if err := c.tell(req); err != nil {
			return stroke{}, err
		}
		delete(m.strokes, m.given[code])
		m.given[code], m.strokes[s] = s, stroke{code: code}
		m.used(code)
		return m.strokes[s], nil
	}
	return stroke{}, computer.Fail(computer.Unsupported, "the keyboard has no free key for U+%04X", s&0xffffff)
}

// room tells whether a symbol can be made at all.
func (m *keymap) room(s keysym, down func(keycode) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.strokes[s]; ok {
		return true
	}
	for _, code := range m.spare {
		if !down(code) {
			return true
		}
	}
	return false
}

// known is how a symbol is made already.
func (m *keymap) known(s keysym) (stroke, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, ok := m.strokes[s]
	return st, ok
}

// used makes a spare key the last to be given again.
func (m *keymap) used(code keycode) {
	for i, c := range m.spare {
		if c == code {
			m.spare = append(append(m.spare[:i], m.spare[i+1:]...), code)
			return
		}
	}
}
