package local

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pidfd is a process that can't be mistaken for another. Waiting for it costs no thread.
type pidfd struct{ f *os.File }

// newPidfd takes a non-blocking pid descriptor.
func newPidfd(fd int) *pidfd { return &pidfd{os.NewFile(uintptr(fd), "process")} }

func (p *pidfd) close() { p.f.Close() }

// signal sends s. os.ErrClosed: the process has ended and was let go of.
func (p *pidfd) signal(s unix.Signal) error {
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

// wait waits for the process's end without reaping it.
func (p *pidfd) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { p.f.SetReadDeadline(time.Now()) })
	defer stop()
	if err := p.ended(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

// ended returns when the process has ended, or when the descriptor is closed or its deadline passes.
func (p *pidfd) ended() error {
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
