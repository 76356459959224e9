package pid1

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// A minder stands between PID 1 and one command where PID 1 may not mark it: an engine's container has no CAP_SYS_ADMIN. It is the reaper
// of all that the command starts, so that no double fork and no session leaves its tree, and it ends when nothing is left of that.
// A root of the box may kill it. Then its orphans come to PID 1, whose only children are minders: whatever else comes there is killed.

// minding is what a minder starts.
type minding struct {
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	TTY  bool     `json:"tty,omitempty"`
	// As is who runs the command; nil: the box's root.
	As *syscall.Credential `json:"as,omitempty"`
}

// minded is what a minder tells of its command: its pid or what kept it from starting, then its end.
type minded struct {
	PID    int                `json:"pid,omitempty"`
	Errno  syscall.Errno      `json:"errno,omitempty"`
	Ended  bool               `json:"ended,omitempty"`
	Status syscall.WaitStatus `json:"status,omitempty"`
	CPU    time.Duration      `json:"cpu,omitempty"`
}

// mind lives a minder's life. Its stdio is the command's, its birth socket leads to PID 1.
func mind() error {
	conn, err := birthConn()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a reaper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the minder: %w", err)
	}
	// Signals to everybody in the box are not for it. A handler and not "ignore", which commands would inherit.
	signal.Notify(make(chan os.Signal, 1))
	var m minding
	if err := conn.RecvJSON(guest.FrameRequest, &m); err != nil {
		return err
	}
	pid, err := syscall.ForkExec(m.Path, m.Argv, &syscall.ProcAttr{
		Dir: m.Dir, Env: m.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: m.TTY, Credential: m.As},
	})
	if err != nil {
		errno := syscall.EIO
		errors.As(err, &errno)
		return conn.SendJSON(guest.FrameReply, minded{Errno: errno})
	}
	if err := dropStdio(); err != nil {
		return err
	}
	if err := conn.SendJSON(guest.FrameReply, minded{PID: pid}); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		got, err := syscall.Wait4(-1, &status, 0, &usage)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no child is left
			return nil
		case got == pid:
			pid = -1 // another process may have the number next
			end := minded{Ended: true, Status: status, CPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
			if err := conn.SendJSON(guest.FrameReply, end); err != nil {
				return err
			}
		}
	}
}

// dropStdio lets go of the command's stdio: a copy here would keep its readers from the end of file.
func dropStdio() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(null)
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("let go of the command's files: %w", err)
		}
	}
	return nil
}

// startMinded starts a command through a minder.
func (s *spawner) startMinded(path string, argv []string, attr *syscall.ProcAttr, over func(ending)) (started, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return started{}, err
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	defer near.Close()
	defer far.Close()
	c, err := net.FileConn(near)
	if err != nil {
		return started{}, err
	}
	conn := guest.NewConn(c.(*net.UnixConn))
	t := &brood{spawner: s, fd: -1, gone: make(chan struct{})}
	end := make(chan ending, 1)
	s.do(func() {
		t.minder, err = s.reaper.start(func() (int, error) {
			return syscall.ForkExec("/proc/self/exe", []string{guest.MinderArgv0}, &syscall.ProcAttr{
				Dir: "/", Env: runtimeEnv, Files: append(append([]uintptr{}, attr.Files...), far.Fd()), Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &t.fd},
			})
		}, func(e ending) { end <- e })
	})
	far.Close()
	if err != nil {
		conn.Close()
		return started{}, err
	}
	go t.await(end)
	pid, err := askMinder(conn, &minding{Path: path, Argv: argv, Env: attr.Env, Dir: attr.Dir, TTY: attr.Sys.Setctty, As: attr.Sys.Credential})
	if err != nil {
		conn.Close()
		t.signal(unix.SIGKILL)
		<-t.gone
		t.close()
		return started{}, err
	}
	if pid == 0 { // its command was quicker to kill it
		pid = t.minder
	}
	go func() {
		var last minded
		err := conn.RecvJSON(guest.FrameReply, &last)
		conn.Close()
		if err != nil || !last.Ended {
			<-t.gone
			over(ending{status: syscall.WaitStatus(unix.SIGKILL)})
			return
		}
		over(ending{last.Status, last.CPU})
	}()
	return started{pid: pid, mark: t}, nil
}

// askMinder tells a minder what to start and answers the command's pid; 0 when the minder was killed before it could tell.
func askMinder(conn *guest.Conn, m *minding) (int, error) {
	if err := conn.SendJSON(guest.FrameRequest, m); err != nil {
		return 0, err
	}
	var first minded
	if err := conn.RecvJSON(guest.FrameReply, &first); err != nil {
		return 0, nil
	}
	if first.PID == 0 {
		return 0, first.Errno
	}
	return first.PID, nil
}

// brood is the mark of a minded command: all that descends from its minder.
type brood struct {
	spawner *spawner
	minder  int
	fd      int           // of the minder
	gone    chan struct{} // the minder has been waited for, and its orphans, if any, are dead
}

func (t *brood) close() { unix.Close(t.fd) }

func (t *brood) signal(sig unix.Signal) { _ = unix.PidfdSendSignal(t.fd, sig, nil, 0) }

// await waits for the minder, and for the death of what it left.
func (t *brood) await(end <-chan ending) {
	defer close(t.gone)
	if e := <-end; e.status.Signaled() || e.status.ExitStatus() != 0 {
		_, err := hunt(t.spawner.reaper.orphans, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, "sandbox: end the box:", err)
			os.Exit(1)
		}
	}
}

// kill ends every process that the command started and tells how many there were.
func (t *brood) kill() (int, error) {
	return hunt(func() (map[int]process, error) {
		select {
		case <-t.gone:
			return nil, nil
		default:
		}
		all, err := processes()
		if err != nil {
			return nil, err
		}
		return all.below(map[int]bool{t.minder: true}), nil
	}, func() { t.signal(unix.SIGCONT) }) // the command may have stopped it
}
