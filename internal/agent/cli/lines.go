package cli

import (
	"bytes"
	"encoding/json"
)

// Bounds of what a command writes in one run.
const (
	maxLine   = 32 << 20  // bytes of one event; a longer one is passed over
	maxKept   = 64 << 20  // bytes of native events that are kept
	maxOutput = 512 << 20 // bytes in all; a command that writes more is ended
)

// lines cuts what a command writes into events. It is used by one goroutine.
type lines struct {
	reader reader
	native *native
	flood  func() // called once, when there is too much

	part    []byte
	skip    bool // the rest of a line that is too long
	total   int64
	flooded bool
	other   tail // what is no event
}

// native are the events that are kept, over all runs of a turn.
type native struct {
	kept []json.RawMessage
	size int64
	left int // events that were not kept for want of room
}

func (l *lines) add(p []byte) {
	l.total += int64(len(p))
	if l.total > maxOutput {
		if !l.flooded {
			l.flooded = true
			l.flood()
		}
		return
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.hold(p)
			return
		}
		l.hold(p[:i])
		l.line()
		p = p[i+1:]
	}
}

func (l *lines) hold(p []byte) {
	if l.skip || len(l.part)+len(p) > maxLine {
		l.skip, l.part = true, nil
		return
	}
	l.part = append(l.part, p...)
}

// line ends the line that is held.
func (l *lines) line() {
	b := bytes.TrimSpace(l.part)
	if l.skip {
		l.native.left++
	} else if len(b) > 0 {
		l.event(b)
	}
	l.skip, l.part = false, l.part[:0]
}

func (l *lines) event(b []byte) {
	if b[0] != '{' || !json.Valid(b) {
		l.other.add(append(b, '\n'))
		return
	}
	raw := json.RawMessage(bytes.Clone(b))
	if !l.reader.read(raw) {
		return
	}
	if l.native.size+int64(len(raw)) > maxKept {
		l.native.left++
		return
	}
	l.native.size += int64(len(raw))
	l.native.kept = append(l.native.kept, raw)
}

// tail keeps the last bytes of a text.
type tail struct{ b []byte }

const maxTail = 4 << 10

func (t *tail) add(p []byte) {
	t.b = append(t.b, p...)
	if n := len(t.b) - maxTail; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
}

func (t *tail) String() string { return string(bytes.ToValidUTF8(bytes.TrimSpace(t.b), nil)) }
