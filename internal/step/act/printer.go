package act

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"

	"agentenv.internal/agentenv/internal/guest"
)

// What of a script's stream is logged line by line: its first half while the script runs, the newest half when it has ended. What is between
// them is one entry, which the record keeps as an object of its own when it is long.
const (
	maxPrinted = 128 << 10 // bytes
	maxLines   = 1000
	maxKept    = 15 << 20 // bytes of a stream that are kept at all, besides its end
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

// end logs what is left of the stream, and says how much is left out. c is the stream as it was captured, begins the beginning of one that was
// too long for that.
func (p *printer) end(c guest.Captured, begins []byte) {
	if !p.full {
		if len(p.line) > 0 {
			p.next()
		}
		return
	}
	rest, out := c.Tail, c.Total-p.logged-int64(len(c.Tail))
	if !c.Truncated {
		rest, out, begins = c.Head[p.logged:], 0, c.Head
	}
	lines := bytes.SplitAfter(rest, []byte{'\n'})
	for len(lines) > maxLines/2 {
		out += int64(len(lines[0]))
		lines = lines[1:]
	}
	if at := min(p.logged, int64(len(begins))); out > 0 && at < int64(len(begins)) {
		middle := begins[at:min(at+out, int64(len(begins)))]
		p.log.Info(strings.ToValidUTF8(string(middle), "\uFFFD"), "stream", p.stream, "bytes", len(middle))
		out -= int64(len(middle))
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
