package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/term"
)

// drain is how long output is waited for after the command's end: a daemon that it left may hold the pipes open.
const drain = 200 * time.Millisecond

// pipes connect a command with this process's streams. Pipes without a name are handed over as they are, and so is /dev/null. Everything else is copied
// through pipes: a terminal's modes would be the sandbox's to change, a file could be opened anew by way of /proc/self/fd, to write what
// was given to be read and to read what was given to be written, and a folder leads to the whole of its file system.
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
	if err := p.openInput(ctx, in); err != nil {
		return err
	}
	if err := p.openOutput(1, s.Out, out); err != nil {
		return err
	}
	if out != nil && errs != nil && same(out, errs) { // what is one stream outside keeps its order
		p.stdio[2] = p.stdio[1]
		return nil
	}
	return p.openOutput(2, s.Err, errs)
}

func (p *pipes) openInput(ctx context.Context, in *os.File) error {
	if in == nil {
		return nil
	}
	if harmless(in) {
		p.stdio[0] = in
		return nil
	}
	if i, err := in.Stat(); err == nil && i.IsDir() {
		return verb.Usagef("standard input is a folder; give the command a file or a pipe")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	r.Fd() // clears O_NONBLOCK, which the command would share: programs don't expect EAGAIN
	p.stdio[0], p.given = r, append(p.given, r)
	p.typed.Go(func() { hand(ctx, w, in) })
	return nil
}

// openOutput connects stream i, 1 or 2, with w, which is the file f unless that is nil.
func (p *pipes) openOutput(i int, w io.Writer, f *os.File) error {
	if f != nil && harmless(f) {
		p.stdio[i] = f
		return nil
	}
	r, end, err := os.Pipe()
	if err != nil {
		return err
	}
	end.Fd() // see openInput
	p.stdio[i], p.given, p.readers = end, append(p.given, end), append(p.readers, r)
	p.shown.Go(func() {
		defer r.Close()
		if _, err := io.Copy(w, r); errors.Is(err, os.ErrDeadlineExceeded) { // Streams.Failed tells of a lost output
			rest(w, r)
		}
	})
	return nil
}

// pipefs is the file system of pipes without a name.
const pipefs = 0x50495045

// harmless tells whether a command may have f itself: a pipe without a name, or the device that is in every box too.
func harmless(f *os.File) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == pipefs {
		return true
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

func same(a, b *os.File) bool {
	i, err := a.Stat()
	if err != nil {
		return false
	}
	j, err := b.Stat()
	return err == nil && os.SameFile(i, j)
}

// pipeSize is what a pipe holds.
const pipeSize = 64 << 10

// rest copies what r holds now: what was written before the command's end, when w was too slow to take it in time.
func rest(w io.Writer, r *os.File) {
	raw, err := r.SyscallConn()
	if err != nil || r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	buf := make([]byte, pipeSize)
	for left := len(buf); left > 0; {
		n := 0
		err := raw.Read(func(fd uintptr) bool { n, _ = unix.Read(int(fd), buf[:left]); return true }) // it never waits
		if err != nil || n <= 0 {
			return
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return
		}
		left -= n
	}
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

// hand gives in on until its end or ctx's. A read that has begun can't be taken back, so none begins before there is something.
func hand(ctx context.Context, w, in *os.File) {
	defer w.Close()
	defer context.AfterFunc(ctx, func() { w.SetWriteDeadline(time.Now()) })() // a daemon may hold the other end and never read
	buf := make([]byte, 32<<10)
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}, 50)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n <= 0 {
			continue
		}
		n, err = in.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}
