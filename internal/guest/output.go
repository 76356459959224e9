package guest

import (
	"context"
	"io"
	"os"
	"time"
)

// Limits bounds what Output keeps of each stream, in bytes. 0 is DefaultLimit, a negative number keeps everything.
type Limits struct {
	Stdout, Stderr int64
	Stdin          []byte // given to the command, then end of file; nil is /dev/null
	// Live, when set, is given every piece of both streams as it is read, kept or not, from one goroutine a stream. It must not keep p.
	Live func(stderr bool, p []byte)
	// Spill, when set, is asked for a place for a stream once it is longer than what is kept: the whole stream is written there, from its
	// first byte. A stream that can't be written there is cut all the same; Captured.SpillErr tells why.
	Spill func(stderr bool) (io.Writer, error)
}

// DefaultLimit is what Output keeps of a stream whose limit is 0.
const DefaultLimit = 1 << 20

// patience is how long a command runs before its output is read while it runs. Most end earlier and wrote less than a pipe holds: then nothing
// has to be woken for them.
const patience = 5 * time.Millisecond

// drainGrace is how long Output waits, after the command has ended, for the end of a stream that a process left behind holds open.
// Everything written before the command's end is kept whatever this is.
const drainGrace = 100 * time.Millisecond

// Captured is what is kept of one stream: all of it, or its head and its tail. Bytes are never changed.
type Captured struct {
	Head      []byte
	Tail      []byte // empty unless Truncated
	Total     int64  // bytes that were written, kept or not
	Truncated bool
	// SpillErr is why what was written to Limits.Spill is not the whole of a truncated stream.
	SpillErr error
}

// Bytes is the stream as kept: the whole, or head and tail with nothing between them.
func (c Captured) Bytes() []byte {
	if !c.Truncated {
		return c.Head
	}
	return append(append(make([]byte, 0, len(c.Head)+len(c.Tail)), c.Head...), c.Tail...)
}

// String is Bytes as a string.
func (c Captured) String() string { return string(c.Bytes()) }

// Result is a command's end with what it wrote.
type Result struct {
	Exit   Exit
	Stdout Captured
	Stderr Captured
}

// Output runs c in b and captures its output within l. The streams it could read are answered beside an error too.
// It returns soon after the command's end even when a daemon that the command left holds its output open.
func Output(ctx context.Context, b Box, c Command, l Limits) (Result, error) {
	out, outW, err := capturePipe(l.Stdout, l, false)
	if err != nil {
		return Result{}, err
	}
	defer out.close()
	errs, errW, err := capturePipe(l.Stderr, l, true)
	if err != nil {
		outW.Close()
		return Result{}, err
	}
	defer errs.close()
	in, feed, err := stdinPipe(l.Stdin)
	if err != nil {
		outW.Close()
		errW.Close()
		return Result{}, err
	}
	both := func() { out.start(); errs.start() }
	settle := func() {}
	if l.Live != nil {
		both()
	} else {
		var own Later
		later := &own
		if c, ok := b.(*Client); ok {
			later = &c.later
		}
		settle = later.After(patience, both).Settle
	}
	exit, err := b.Exec(ctx, c, [3]*os.File{in, outW, errW})
	settle()
	outW.Close()
	errW.Close()
	feed.stop()
	if in != nil {
		in.Close()
	}
	until := time.Now().Add(drainGrace)
	if err != nil {
		until = time.Now()
	}
	return Result{Exit: exit, Stdout: out.finish(until), Stderr: errs.finish(until)}, err
}

// capture reads one pipe into a head and a ring that holds the newest bytes.
type capture struct {
	fd   int           // of the read end, which doesn't block
	r    *os.File      // the same, once a goroutine reads it while the command runs; nil before
	done chan struct{} // that goroutine has ended
	keep int64         // bytes kept in head, and as many in the ring; negative: all in head
	live func([]byte)

	spill    func() (io.Writer, error) // nil: none is wanted
	spilled  io.Writer                 // nil: not yet, or no more
	spillErr error

	head  []byte
	ring  []byte
	at    int
	total int64
}

func (l Limits) live(stderr bool) func([]byte) {
	if l.Live == nil {
		return nil
	}
	return func(p []byte) { l.Live(stderr, p) }
}

func (l Limits) spill(stderr bool) func() (io.Writer, error) {
	if l.Spill == nil {
		return nil
	}
	return func() (io.Writer, error) { return l.Spill(stderr) }
}

func capturePipe(limit int64, l Limits, stderr bool) (*capture, *os.File, error) {
	if limit == 0 {
		limit = DefaultLimit
	}
	r, w, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	return &capture{fd: r, keep: limit, live: l.live(stderr), spill: l.spill(stderr)}, w, nil
}

// start reads from now on, until finish.
func (c *capture) start() {
	c.r, c.done = os.NewFile(uintptr(c.fd), "|0"), make(chan struct{})
	go func() {
		defer close(c.done)
		buf := make([]byte, 4<<10) // most commands write little
		for {
			n, err := c.r.Read(buf)
			c.add(buf[:n])
			if err != nil {
				return
			}
			if n == len(buf) && n < 32<<10 {
				buf = make([]byte, 32<<10)
			}
		}
	}()
}

// finish takes what the pipe holds, and waits for its end until the time until.
func (c *capture) finish(until time.Time) Captured {
	if c.r == nil {
		if c.drain() {
			return c.captured()
		}
		c.start() // somebody still has the other end
	}
	c.r.SetReadDeadline(until)
	<-c.done
	c.r.SetReadDeadline(time.Time{})
	c.drain()
	return c.captured()
}

// drain takes what is in the pipe, never more than a pipe's size, so that a talkative daemon can't hold it, and tells whether it met the end.
func (c *capture) drain() (ended bool) {
	buf := make([]byte, 512)
	for got, size := 0, len(buf)+1; got < size; {
		n := readNow(c.fd, buf[:min(size-got, len(buf))])
		if n <= 0 {
			return n == 0
		}
		c.add(buf[:n])
		if got == 0 && n == len(buf) {
			size, buf = pipeSize(c.fd), make([]byte, 32<<10)
		}
		got += n
	}
	return false
}

func (c *capture) add(p []byte) {
	c.total += int64(len(p))
	c.spillOver(p)
	if c.live != nil && len(p) > 0 {
		c.live(p)
	}
	if c.keep < 0 {
		c.head = append(c.head, p...)
		return
	}
	half := c.keep - c.keep/2
	if room := half - int64(len(c.head)); room > 0 {
		n := min(room, int64(len(p)))
		c.head = append(c.head, p[:n]...)
		p = p[n:]
	}
	tail := int(c.keep / 2)
	if len(p) > tail {
		p = p[len(p)-tail:]
		c.ring, c.at = c.ring[:0], 0
	}
	if room := tail - len(c.ring); room > 0 {
		n := min(room, len(p))
		c.ring = append(c.ring, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(c.ring[c.at:], p)
		p, c.at = p[n:], (c.at+n)%len(c.ring)
	}
}

// spillOver writes the next piece of a stream that is too long to its spill, after all that came before.
func (c *capture) spillOver(p []byte) {
	if c.spill == nil || c.keep < 0 || c.total <= c.keep || c.spillErr != nil {
		return
	}
	if c.spilled == nil {
		if c.spilled, c.spillErr = c.spill(); c.spillErr != nil {
			return
		}
		// All of it is still kept: head, then the ring, which isn't full before.
		for _, b := range [][]byte{c.head, c.ring[c.at:], c.ring[:c.at]} {
			if _, c.spillErr = c.spilled.Write(b); c.spillErr != nil {
				return
			}
		}
	}
	_, c.spillErr = c.spilled.Write(p)
}

func (c *capture) captured() Captured {
	tail := append(append(make([]byte, 0, len(c.ring)), c.ring[c.at:]...), c.ring[:c.at]...)
	if c.keep < 0 || c.total <= c.keep {
		return Captured{Head: append(c.head, tail...), Total: c.total}
	}
	return Captured{Head: c.head, Tail: tail, Total: c.total, Truncated: true, SpillErr: c.spillErr}
}

func (c *capture) close() {
	if c.r == nil {
		closeRaw(c.fd)
		return
	}
	c.r.Close()
}

// feeder writes the bytes of a command's stdin.
type feeder struct {
	w    *os.File
	done chan struct{}
}

func stdinPipe(b []byte) (*os.File, *feeder, error) {
	if b == nil {
		return nil, &feeder{}, nil
	}
	r, w, err := feedPipe()
	if err != nil {
		return nil, nil, err
	}
	f := &feeder{w: w, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer w.Close()
		_, _ = w.Write(b) // an error means that the command closed its stdin or ended: what it didn't read is nobody's
	}()
	return r, f, nil
}

// stop ends a write that nobody reads any more and waits for it.
func (f *feeder) stop() {
	if f.w == nil {
		return
	}
	f.w.SetWriteDeadline(time.Now())
	<-f.done
}
