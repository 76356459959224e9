//go:build unix

package plugin

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// drainTime bounds how long the end of a command waits for what it wrote to be sent.
const drainTime = 5 * time.Second

// Pipes are the streams of a command as descriptors, for sandboxes that run processes of this machine.
type Pipes struct {
	Files [3]*os.File // the command's ends; nil for /dev/null
	outs  []*pump
	work  sync.WaitGroup
}

// pump carries what a pipe gives to a stream.
type pump struct {
	r       *os.File
	w       io.WriteCloser
	drained chan struct{}
}

// Pipes makes pipes of streams. What the command writes is sent until nobody has the pipe any more. Who starts the command calls Started when it has its own
// copies of Files, and Drain when it has ended.
func (s Stdio) Pipes() (*Pipes, error) {
	p := &Pipes{}
	fail := func(err error) (*Pipes, error) {
		p.Started()
		for _, o := range p.outs {
			_ = o.r.Close()
		}
		return nil, err
	}
	var feed *os.File
	if s.In != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		p.Files[0], feed = r, w
	}
	for i, w := range []io.WriteCloser{s.Out, s.Err} {
		if w == nil {
			continue
		}
		r, theirs, err := os.Pipe()
		if err != nil {
			if feed != nil {
				_ = feed.Close()
			}
			return fail(err)
		}
		p.Files[1+i] = theirs
		p.outs = append(p.outs, &pump{r: r, w: w, drained: make(chan struct{})})
	}
	for _, f := range p.Files {
		if f != nil {
			f.Fd() // blocks from now on, as programs expect of what they share
		}
	}
	if feed != nil {
		p.work.Go(func() {
			_, _ = io.Copy(feed, s.In) // the command's end of stdin is no fault
			_ = errors.Join(s.In.Close(), feed.Close())
		})
	}
	for _, o := range p.outs {
		p.work.Go(o.run)
	}
	return p, nil
}

// Started closes the command's ends here.
func (p *Pipes) Started() {
	for i, f := range p.Files {
		if f != nil {
			_ = f.Close()
			p.Files[i] = nil
		}
	}
}

// Drain returns when all that the command wrote has been sent. Others may still have its pipes, and are listened to until they leave them.
func (p *Pipes) Drain() {
	p.Started()
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	for _, o := range p.outs {
		_ = o.r.SetReadDeadline(time.Now()) // wakes its reader; a pipe that has ended is drained
		select {
		case <-o.drained:
		case <-limit.C:
			return
		}
	}
}

// Wait returns when nothing of the streams is at work any more.
func (p *Pipes) Wait() { p.work.Wait() }

func (o *pump) run() {
	var once sync.Once
	done := func() { once.Do(func() { close(o.drained) }) }
	defer done()
	defer func() { _ = errors.Join(o.r.Close(), o.w.Close()) }()
	buf := make([]byte, 32<<10)
	for {
		n, err := o.r.Read(buf)
		if n > 0 {
			if _, werr := o.w.Write(buf[:n]); werr != nil {
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = o.r.SetReadDeadline(time.Time{})
			if o.drain(buf) != nil {
				return
			}
			done()
			continue
		}
		if err != nil {
			return
		}
	}
}

// drain sends what the pipe holds now, without waiting for more.
func (o *pump) drain(buf []byte) error {
	raw, err := o.r.SyscallConn()
	if err != nil {
		return err
	}
	for left := 1 << 20; left > 0; { // the most that a pipe holds: who goes on writing isn't the command
		n := 0
		if err := raw.Read(func(fd uintptr) bool { n = readNow(fd, buf); return true }); err != nil {
			return err
		}
		if n <= 0 { // nothing there, or the end, which the next read meets
			return nil
		}
		left -= n
		if _, err := o.w.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// readNow reads without waiting; 0 or less: nothing there, or the end.
func readNow(fd uintptr, p []byte) int {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return n
		}
	}
}
