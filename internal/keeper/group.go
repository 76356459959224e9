package keeper

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/subprocess"
)

// Child is a program that was started.
type Child interface {
	// Signal sends a signal to its process group; SIGKILL ends what it started, too.
	Signal(s syscall.Signal)
	// Wait waits for its end, and for that of what it started. It is called once.
	Wait() error
}

// Begin starts a command, which is not started yet and dies with this program: below a keeper, as Start does, or, where there can be none, with what stays
// in its process group and without grace. k may be nil.
func Begin(k *Keeper, cmd *exec.Cmd, grace time.Duration) (Child, error) {
	if k != nil {
		kept, err := k.Start(cmd, grace)
		if err == nil {
			return kept, nil
		}
		if !errors.Is(err, sandbox.ErrUnsupported) {
			return nil, err
		}
	}
	subprocess.Own(cmd)
	subprocess.Tie(cmd)
	g := &group{cmd: cmd, done: make(chan struct{})}
	if err := Launch(cmd, func() {
		g.err = subprocess.Wait(cmd)
		close(g.done)
	}); err != nil {
		return nil, err
	}
	return g, nil
}

// group is a command with a group of its own.
type group struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (g *group) Signal(s syscall.Signal) { _ = syscall.Kill(-g.cmd.Process.Pid, s) } // a group that is gone is gone

func (g *group) Wait() error {
	<-g.done
	return g.err
}

// Launch starts a command and runs after, which waits for it, on the thread that started it: on Linux the command dies with that thread, and so with this
// program, however that ends.
func Launch(cmd *exec.Cmd, after func()) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the command
		err := cmd.Start()
		started <- err
		if err == nil {
			after()
		}
	}()
	return <-started
}
