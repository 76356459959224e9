package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/term"
)

// drain is how long output is waited for after the command's end: a daemon that it left may hold the pipes open.
const drain = 200 * time.Millisecond

// pipes connect a command with this process's streams. Files and pipes are handed over as they are; a terminal never is, since its modes would
// be the sandbox's to change, so what is typed and shown there is copied through pipes.
type pipes struct {
	stdio   [3]*os.File
	given   []*os.File // ends made for the command: this process's copies are closed once it has them
	readers []*os.File
	shown   sync.WaitGroup // copies of output
	typed   sync.WaitGroup // the copy of input
}

// streamed runs c on this process's own streams.
func streamed(ctx context.Context, s *term.Streams, box guest.Box, c guest.Command) (guest.Exit, error) {
	typing, stop := context.WithCancel(ctx)
	var p pipes
	defer func() {
		stop()
		p.typed.Wait()
	}()
	if err := p.open(typing, s); err != nil {
		p.close()
		return guest.Exit{}, err
	}
	exit, err := box.Exec(ctx, c, p.stdio)
	p.close()
	return exit, err
}

func (p *pipes) open(ctx context.Context, s *term.Streams) error {
	in, out, errs := s.Files()
	p.stdio = [3]*os.File{in, out, errs}
	if in != nil && s.InTTY {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		p.stdio[0], p.given = r, append(p.given, r)
		p.typed.Go(func() { hand(ctx, w, in) })
	}
	for i, to := range []struct {
		w     io.Writer
		whole bool // it can be handed over
	}{{s.Out, out != nil && !s.OutTTY}, {s.Err, errs != nil && !s.ErrTTY}} {
		if to.whole {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		p.stdio[i+1], p.given, p.readers = w, append(p.given, w), append(p.readers, r)
		p.shown.Go(func() {
			_, _ = io.Copy(to.w, r) // Streams.Failed tells of a lost output
			r.Close()
		})
	}
	return nil
}

// close ends what was made, after what the command wrote has been shown.
func (p *pipes) close() {
	for _, f := range p.given {
		f.Close()
	}
	for _, r := range p.readers {
		r.SetReadDeadline(time.Now().Add(drain))
	}
	p.shown.Wait()
}

// hand gives a terminal's lines on until ctx ends. A read that has begun can't be taken back, so none begins before there is something.
func hand(ctx context.Context, w, tty *os.File) {
	defer w.Close()
	buf := make([]byte, 4096)
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(tty.Fd()), Events: unix.POLLIN}}, 50)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n <= 0 {
			continue
		}
		n, err = tty.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}
