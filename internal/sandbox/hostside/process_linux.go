package hostside

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process that can't be mistaken for another. Waiting for it costs no thread.
type Process struct{ f *os.File }

// NewProcess takes a non-blocking pid descriptor.
func NewProcess(fd int) *Process { return &Process{os.NewFile(uintptr(fd), "process")} }

// Close lets go of the process; who waits for it returns.
func (p *Process) Close() { p.f.Close() }

// Signal sends s. os.ErrClosed: the process has ended and was let go of.
func (p *Process) Signal(s unix.Signal) error {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return os.ErrClosed
	}
	var sent error
	if raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }) != nil {
		return os.ErrClosed
	}
	return sent
}

// Wait waits for the process's end without reaping it.
func (p *Process) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { p.f.SetReadDeadline(time.Now()) })
	defer stop()
	if err := p.Ended(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

// LetGo makes Ended return although the process lives.
func (p *Process) LetGo() { p.f.SetReadDeadline(time.Now()) }

// Ended returns when the process has ended, or when it is let go of.
func (p *Process) Ended() error {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, 0)
			if !errors.Is(err, unix.EINTR) {
				return err != nil || n > 0
			}
		}
	})
}
