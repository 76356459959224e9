package keeper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// endTime is what a keeper has to end a tree, before it is killed itself.
const endTime = 10 * time.Second

// startTime is what a keeper has to tell that its program runs. A program that stops its keeper before would have its starter wait for ever.
const startTime = 30 * time.Second

// Keeper starts programs. Its methods may be called from several goroutines.
type Keeper struct {
	program *hostside.Program
	start   time.Duration
}

// New makes one that starts its keepers from the guest program that get answers, or from this binary where get is nil. Nothing is started. The caller
// closes it.
func New(get func() ([]byte, error)) *Keeper { return &Keeper{hostside.GuestProgram(get), startTime} }

// Close lets go of the guest program. What was started goes on.
func (k *Keeper) Close() { k.program.Close() }

// Kept is a program that was started. Its methods may be called from several goroutines.
type Kept struct {
	PID  int
	cmd  *exec.Cmd // the keeper
	conn *guest.Conn

	mu   sync.Mutex
	last *time.Timer // ends the keeper itself
	over bool
}

// Start starts a command, which is not started yet, below a keeper: its files, folder and environment count, its attributes don't. Where this program
// dies, the command gets SIGTERM and then grace before it is killed with all that it started; 0 kills it at once. The caller waits for it. The error is
// sandbox.ErrUnsupported where this program has no guest program.
func (k *Keeper) Start(cmd *exec.Cmd, grace time.Duration) (*Kept, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	program, err := k.program.Path()
	if err != nil {
		return nil, err
	}
	near, far, err := hostside.SocketPair()
	if err != nil {
		return nil, err
	}
	c, err := net.FileConn(near)
	if err = errors.Join(err, near.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("reach the keeper: %w", err), far.Close())
	}
	what := guest.Keeping{Path: cmd.Path, Argv: cmd.Args, Env: cmd.Environ(), Files: len(cmd.ExtraFiles), Grace: grace}
	cmd.Path, cmd.Args, cmd.ExtraFiles = program, []string{guest.KeeperArgv0}, append([]*os.File{far}, cmd.ExtraFiles...)
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.SysProcAttr, cmd.Cancel = &syscall.SysProcAttr{Setpgid: true}, nil
	out := &Kept{cmd: cmd, conn: guest.NewConn(c.(*net.UnixConn))}
	if err := errors.Join(cmd.Start(), far.Close()); err != nil {
		return nil, errors.Join(err, out.conn.Close())
	}
	var first guest.Kept
	err = errors.Join(out.conn.SetDeadline(time.Now().Add(k.start)), out.conn.SendJSON(guest.FrameRequest, what))
	if err == nil {
		err = out.conn.RecvJSON(guest.FrameReply, &first)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%s: whether it runs isn't told within %s", what.Path, k.start)
	}
	if err == nil {
		err = out.conn.SetDeadline(time.Time{})
	}
	if err == nil && first.Errno != 0 {
		err = &os.PathError{Op: "fork/exec", Path: what.Path, Err: first.Errno}
	}
	if err != nil {
		_ = out.conn.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // how a keeper ends that has kept nothing says nothing
		return nil, err
	}
	out.PID = first.PID
	return out, nil
}

// Signal sends a signal to the program's process group. SIGKILL ends all that it has started, wherever that went.
func (k *Kept) Signal(s syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	if s == syscall.SIGKILL {
		_ = k.cmd.Process.Signal(syscall.SIGCONT) // what it keeps may have stopped it
		if k.last == nil {
			k.last = time.AfterFunc(endTime, func() { _ = k.cmd.Process.Kill() })
		}
	}
	_ = k.conn.SendJSON(guest.FrameRequest, guest.KeepOrder{Signal: s}) // one that is gone is gone
}

// Wait waits until the program has ended and nothing of it is left. The error is *Ended for one that failed.
func (k *Kept) Wait() error {
	var last guest.Kept
	err := k.conn.RecvJSON(guest.FrameReply, &last)
	waited := k.cmd.Wait()
	k.mu.Lock()
	k.over = true
	if k.last != nil {
		k.last.Stop()
	}
	k.mu.Unlock()
	_ = k.conn.Close()
	switch {
	case err == nil && last.Ended && last.Status == 0:
		return nil
	case err == nil && last.Ended:
		return &Ended{last.Status}
	case waited != nil:
		return waited
	default:
		return errors.New("ended, and nobody knows how")
	}
}
