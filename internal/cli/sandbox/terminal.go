package sandbox

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/term"
)

// interactive runs c with a terminal of the sandbox, connected with this process's own, whose keys go to it as they are.
func interactive(ctx context.Context, s *term.Streams, box guest.Box, c guest.Command) (guest.Exit, error) {
	in, out, _ := s.Files()
	if in == nil || out == nil || !s.InTTY || !s.OutTTY {
		return guest.Exit{}, verb.Usagef("-t needs a terminal on standard input and output; leave it out to use pipes")
	}
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return guest.Exit{}, err
	}
	raw := *before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
		return guest.Exit{}, err
	}
	defer func() { _ = unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, before) }() // its person can type reset

	keys, w, err := os.Pipe()
	if err != nil {
		return guest.Exit{}, err
	}
	defer keys.Close()
	typing, stop := context.WithCancel(ctx)
	var p pipes
	defer func() {
		stop()
		p.typed.Wait()
	}()
	p.typed.Go(func() { hand(typing, w, in) })
	sizes := make(chan guest.Size)
	p.typed.Go(func() { resized(typing, out, sizes) })
	return guest.Attach(ctx, box, c, guest.Terminal{In: keys, Out: s.Out, Size: sizeOf(out), Sizes: sizes})
}

// resized tells of new sizes of a terminal until ctx ends.
func resized(ctx context.Context, tty *os.File, sizes chan<- guest.Size) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case sizes <- sizeOf(tty):
		}
	}
}

// sizeOf is a terminal's size; that of old ones where it has none.
func sizeOf(tty *os.File) guest.Size {
	w, err := unix.IoctlGetWinsize(int(tty.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Row == 0 || w.Col == 0 {
		return guest.Size{Rows: 24, Cols: 80}
	}
	return guest.Size{Rows: w.Row, Cols: w.Col}
}
