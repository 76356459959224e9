package hostside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// Launcher is a small process that forks boxes and network hosts for this one: a fork into a new user namespace copies the page tables of the
// process that forks, and those of a large one take tens of milliseconds. It is started by the first box and ends with its owner, whom
// what it forked may outlive.
type Launcher struct {
	program *Program

	mu   sync.Mutex
	conn *guest.Conn // nil: not running
	pid  int

	once sync.Once
	work chan func() // for the thread that starts the process
	done chan struct{}
}

// NewLauncher makes a launcher that p plays. Stop ends it.
func NewLauncher(p *Program) *Launcher {
	return &Launcher{program: p, work: make(chan func()), done: make(chan struct{})}
}

// LaunchError is the kernel's word on a fork.
type LaunchError struct{ Err error }

func (e *LaunchError) Error() string { return e.Err.Error() }
func (e *LaunchError) Unwrap() error { return e.Err }

// Fork starts a process with the files of guest.Launch, and answers it. A fork that failed is a *LaunchError.
func (l *Launcher) Fork(ctx context.Context, req *guest.Launch, files ...*os.File) (int, *Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pid, p, err := l.ask(ctx, req, files)
	if err != nil && l.conn == nil && ctx.Err() == nil { // it was killed: the next one may live
		pid, p, err = l.ask(ctx, req, files)
	}
	return pid, p, err
}

func (l *Launcher) ask(ctx context.Context, req *guest.Launch, files []*os.File) (int, *Process, error) {
	if l.conn == nil {
		if err := l.start(); err != nil {
			return 0, nil, err
		}
	}
	conn := l.conn
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	var reply guest.Reply
	err := conn.SendJSON(guest.FrameRequest, &guest.Request{Op: guest.OpLaunch, Launch: req}, files...)
	if err == nil {
		err = conn.RecvJSON(guest.FrameReply, &reply)
	}
	if err != nil { // what it would say next is not for the next caller
		l.end()
		return 0, nil, fmt.Errorf("ask the launcher of sandboxes: %w", err)
	}
	got := conn.TakeFiles()
	defer func() {
		for _, f := range got {
			f.Close()
		}
	}()
	if err := reply.Fault.Err(); err != nil {
		return 0, nil, &LaunchError{err}
	}
	if len(got) != 1 {
		return 0, nil, errors.New("the launcher of sandboxes gave no process")
	}
	fd, err := unix.FcntlInt(got[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("watch the sandbox: %w", err)
	}
	return reply.PID, NewProcess(fd), nil
}

// start runs the process.
func (l *Launcher) start() error {
	program, err := l.program.Path()
	if err != nil {
		return err
	}
	near, far, err := SocketPair()
	if err != nil {
		return err
	}
	defer near.Close()
	defer far.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		return fmt.Errorf("open the launcher's socket: %w", err)
	}
	// In a session of its own: what a terminal sends to this program is not for it.
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=2"}, Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), far.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	l.onThread(func() { l.pid, err = syscall.ForkExec(program, []string{guest.LauncherArgv0}, attr) })
	if err != nil {
		conn.Close()
		return fmt.Errorf("start the launcher of sandboxes: %w", err)
	}
	l.conn = guest.NewConn(conn.(*net.UnixConn))
	return nil
}

// onThread runs f on one thread that lasts as long as the launcher: the kernel ties a child's death to the thread that forked it.
func (l *Launcher) onThread(f func()) {
	l.once.Do(func() {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the loop
			defer close(l.done)
			for f := range l.work {
				f()
			}
		}()
	})
	done := make(chan struct{})
	l.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// end closes the process's socket, which ends it, and takes its zombie away.
func (l *Launcher) end() {
	if l.conn == nil {
		return
	}
	l.conn.Close()
	l.conn = nil
	_ = unix.Kill(l.pid, unix.SIGKILL) // it is this process's child and not waited for, so the pid is its own
	for {
		if _, err := unix.Wait4(l.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Stop ends the process and the thread. Leased boxes live on.
func (l *Launcher) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	started := true
	l.once.Do(func() { started = false })
	close(l.work)
	if started {
		<-l.done
	}
}

// SocketPair is two ends of a stream socket.
func SocketPair() (near, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far"), nil
}
