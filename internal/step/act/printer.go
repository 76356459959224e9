package act

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"

	"agentenv.internal/agentenv/internal/guest"
)

// What of a script's stream is logged: its first half while the script runs, the newest half when it has ended.
const (
	maxPrinted = 128 << 10 // bytes
	maxLines   = 1000
)

// printer logs what a script writes to one of its streams, a line each.
type printer struct {
	log    *slog.Logger
	stream string
	logged int64  // bytes of the lines logged so far
	lines  int    // logged so far
	line   []byte // the beginning of the next one
	full   bool   // the rest waits for the end
}

// write takes the next piece of the stream.
func (p *printer) write(b []byte) {
	for !p.full && len(b) > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			end = len(b)
		}
		if p.logged+int64(len(p.line)+end) > maxPrinted/2 || p.lines == maxLines/2 {
			p.full = true
			return
		}
		p.line = append(p.line, b[:end]...)
		b = b[end:]
		if p.line[len(p.line)-1] == '\n' {
			p.next()
		}
	}
}

// next logs the line that is gathered.
func (p *printer) next() {
	p.logged += int64(len(p.line))
	p.emit(p.line)
	p.line = p.line[:0]
}

func (p *printer) emit(line []byte) {
	p.lines++
	p.log.Info(strings.TrimRight(strings.ToValidUTF8(string(line), "\uFFFD"), "\r\n"), "stream", p.stream)
}

// end logs what is left of the stream, and says how much is left out. c is the whole stream as it was kept.
func (p *printer) end(c guest.Captured) {
	if !p.full {
		if len(p.line) > 0 {
			p.next()
		}
		return
	}
	rest, out := c.Tail, c.Total-p.logged-int64(len(c.Tail))
	if !c.Truncated {
		rest, out = c.Head[p.logged:], 0
	}
	lines := bytes.SplitAfter(rest, []byte{'\n'})
	for len(lines) > maxLines/2 {
		out += int64(len(lines[0]))
		lines = lines[1:]
	}
	if out > 0 {
		p.log.Warn(fmt.Sprintf("%d bytes are left out here", out), "stream", p.stream)
	}
	for _, line := range lines {
		if len(line) > 0 {
			p.emit(line)
		}
	}
}
