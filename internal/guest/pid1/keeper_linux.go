package pid1

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// A keeper stands between this program on the host and one program that is in no box, such as a plugin. It is the reaper of all that the program starts,
// so that no double fork and no session leaves its tree. When the program has ended, or is to end, or who wanted it is gone, however that went, the
// keeper ends what is left of the tree. What became another user's meanwhile it can't.
type keeper struct {
	conn  *guest.Conn
	grace time.Duration
	pid   int // of the program
	ended bool
	how   syscall.WaitStatus
	alone bool // no process is left that it would have to wait for
}

// keep lives a keeper's life. Its stdio is the program's, its birth socket leads to whoever wants the program.
func keep() error {
	conn, err := birthConn()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a reaper: %w", err)
	}
	// What ends programs is not for it: who wants it to end closes the socket. A handler and not "ignore", which programs would inherit.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	var what guest.Keeping
	if err := conn.RecvJSON(guest.FrameRequest, &what); err != nil {
		return err
	}
	files := []uintptr{0, 1, 2}
	for i := range what.Files {
		files = append(files, uintptr(guest.BirthFD+1+i))
	}
	k := &keeper{conn: conn, grace: what.Grace}
	// The program dies with the thread that started it, which no Go program ends before itself: no goroutine here is locked to one.
	k.pid, err = syscall.ForkExec(what.Path, what.Argv, &syscall.ProcAttr{
		Env: what.Env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		errno := syscall.EIO
		errors.As(err, &errno)
		return conn.SendJSON(guest.FrameReply, guest.Kept{Errno: errno})
	}
	if err := dropStdio(); err != nil {
		return errors.Join(err, k.end())
	}
	told := conn.SendJSON(guest.FrameReply, guest.Kept{PID: k.pid}) // if nobody hears it, its end says more
	k.attend(signals, k.orders())
	if err := errors.Join(told, k.end()); err != nil {
		return err
	}
	return conn.SendJSON(guest.FrameReply, guest.Kept{Ended: k.ended, Status: k.how})
}

// orders are what the other side wants, closed when it is gone.
func (k *keeper) orders() <-chan syscall.Signal {
	out := make(chan syscall.Signal)
	go func() { // until the process ends
		defer close(out)
		for {
			var o guest.KeepOrder
			if err := k.conn.RecvJSON(guest.FrameRequest, &o); err != nil {
				return
			}
			out <- o.Signal
		}
	}()
	return out
}

// attend does what is ordered until the program has ended, or is to be ended with all that it started.
func (k *keeper) attend(signals <-chan os.Signal, orders <-chan syscall.Signal) {
	var late <-chan time.Time
	for k.reap(); !k.ended; k.reap() {
		select {
		case <-signals: // of children, mostly
		case <-late:
			return
		case s, ok := <-orders:
			switch {
			case ok && s == syscall.SIGKILL, !ok && k.grace == 0:
				return
			case !ok:
				s, orders, late = syscall.SIGTERM, nil, time.After(k.grace)
			}
			_ = syscall.Kill(-k.pid, s) // it is not waited for yet, so the group is its own
		}
	}
}

// reap takes the dead away.
func (k *keeper) reap() {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || got == 0:
			k.alone = errors.Is(err, syscall.ECHILD)
			return
		case got == k.pid:
			k.ended, k.how = true, status
		}
	}
}

// end ends all that descends from the keeper: mostly nothing, which one call tells.
func (k *keeper) end() error {
	if k.reap(); k.alone {
		return nil
	}
	self := os.Getpid()
	_, err := hunt(func() (map[int]process, error) {
		if k.reap(); k.alone {
			return nil, nil
		}
		all, err := processes()
		if err != nil {
			return nil, err
		}
		return all.below(map[int]bool{self: true}), nil
	}, nil)
	k.reap()
	return err
}
