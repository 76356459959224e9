package pid1

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
)

// ptmx makes the terminals of the box's own file system of them.
const ptmx = "/dev/pts/ptmx"

// terminal is one that a command gets: the box's processes have the slave, the client has the master.
type terminal struct{ master, slave *os.File }

// openTerminal makes a terminal of t's size and puts it in the place of p's stdio.
func openTerminal(t *guest.TTY, p *program) (*terminal, error) {
	fd, err := tree.OpenPlain(ptmx, unix.O_RDWR|unix.O_NOCTTY)
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", &fs.PathError{Op: "open", Path: ptmx, Err: err})
	}
	term := &terminal{master: os.NewFile(uintptr(fd), "terminal")}
	if err := term.open(t, p); err != nil {
		term.close()
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	p.tty = true
	for i := range p.stdio {
		p.stdio[i] = term.slave.Fd()
	}
	return term, nil
}

func (t *terminal) open(size *guest.TTY, p *program) error {
	fd := int(t.master.Fd())
	// A command may have put something else there.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(5, 2) {
		return fmt.Errorf("%s is no maker of terminals: %w", ptmx, fs.ErrInvalid)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	// By the master, not by a name, which a command could have changed.
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return errno
	}
	t.slave = os.NewFile(slave, "terminal")
	if p.as != nil {
		if err := t.slave.Chown(p.as.uid, -1); err != nil {
			if refused := p.as.refused(unix.EINVAL); refused != nil {
				return refused
			}
			return err
		}
	}
	if size.Rows == 0 || size.Cols == 0 {
		return nil
	}
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
}

// handOver gives the master to the client. Copies here would keep it from the terminal's end.
func (t *terminal) handOver(c *guest.Conn) error {
	err := c.Send(guest.FrameFile, nil, t.master)
	t.close()
	return err
}

func (t *terminal) close() {
	t.master.Close()
	if t.slave != nil {
		t.slave.Close()
	}
}
