package term

import (
	"bytes"
	"fmt"
	"io"
	"os"

	xterm "golang.org/x/term"
)

// screen is the lines of live bars at the bottom of a terminal. It is mpb's console writer, so that other lines can be put above the bars
// at once and none is lost when the bars end. The console's lock guards it.
type screen struct {
	con   *console
	f     *os.File
	next  bytes.Buffer // the frame being built
	shown []byte       // the frame on the screen
	lines int          // of shown
	part  []byte       // a line for above that has no end yet
	ended bool
}

// Write and ReadFrom build the next frame; only the goroutine that renders calls them.
func (s *screen) Write(b []byte) (int, error)             { return s.next.Write(b) }
func (s *screen) ReadFrom(r io.Reader) (n int64, e error) { return s.next.ReadFrom(r) }
func (s *screen) IsTerminal() bool                        { return true }

// GetTermSize keeps bars going when the terminal is asked in a bad moment.
func (s *screen) GetTermSize() (width, height int, err error) {
	w, h, err := xterm.GetSize(int(s.f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return 80, 24, nil
	}
	return w, h, nil
}

// Flush shows the frame in the place of the one before.
func (s *screen) Flush(lines int) error {
	s.con.mu.Lock()
	defer s.con.mu.Unlock()
	defer s.next.Reset()
	if s.ended || s.con.held > 0 {
		return nil
	}
	_, err := s.f.Write(append(s.erase(), s.next.Bytes()...))
	s.shown = append(s.shown[:0], s.next.Bytes()...)
	s.lines = lines
	return err
}

// above writes whole lines to w, which is the same terminal, over the bars. The caller holds the lock.
func (s *screen) above(w io.Writer, b []byte) (int, error) {
	s.part = append(s.part, b...)
	end := bytes.LastIndexByte(s.part, '\n') + 1
	if end == 0 {
		return len(b), nil
	}
	text := append(s.erase(), s.part[:end]...)
	s.part = append(s.part[:0], s.part[end:]...)
	if _, err := w.Write(text); err != nil {
		return 0, err
	}
	_, err := s.f.Write(s.shown)
	return len(b), err
}

// end takes the bars off the screen. The caller holds the lock.
func (s *screen) end() {
	s.ended = true
	fmt.Fprintf(s.f, "%s%s", s.erase(), s.part)
	s.part, s.shown, s.lines = nil, nil, 0
}

// hold keeps bars off the screen until its answer is called.
func (c *console) hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.live
	c.held++
	if s != nil {
		fmt.Fprintf(s.f, "%s", s.erase())
		s.shown, s.lines = nil, 0
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held--
	}
}

func (s *screen) erase() []byte {
	if s.lines == 0 {
		return nil
	}
	return fmt.Appendf(nil, "\x1b[%dA\x1b[J", s.lines)
}
