package host

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/subprocess"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// interruptTime is what a command has to end after the person stopped it.
const interruptTime = 10 * time.Second

// Terminal is where a command of a plugin runs.
type Terminal struct {
	Dir   string
	Env   []string // the person's
	Stdio [3]*os.File
}

// Command runs a command of a plugin at a person's terminal and answers its exit code. The process is in this one's group, so that it hears what the terminal
// says. When ctx ends, it is waited for a while, and then ended.
func (p *Plugins) Command(ctx context.Context, c dist.Contribution, args []string, t Terminal) (int, error) {
	server, err := p.Server(c)
	if err != nil {
		return 0, err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	ours, theirs := os.NewFile(uintptr(fds[0]), "plugin"), os.NewFile(uintptr(fds[1]), "host")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return 0, errors.Join(err, theirs.Close())
	}
	defer conn.Close()
	prog := server.prog
	cmd := exec.CommandContext(context.WithoutCancel(ctx), prog.Argv[0], prog.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.Dir, t.Stdio[0], t.Stdio[1], t.Stdio[2]
	cmd.Env = append(append(without(t.Env, plugin.Variable), plugin.Variable+"=fd:3"), prog.Env...)
	cmd.ExtraFiles = append([]*os.File{theirs}, prog.Extra...)
	temp, err := p.setup.scratch()
	if err != nil {
		return 0, errors.Join(err, theirs.Close())
	}
	defer func() { _ = temp.Remove() }()
	subprocess.Tie(cmd)
	waited := make(chan error, 1)
	if err := errors.Join(keeper.Launch(cmd, func() { waited <- cmd.Wait() }), theirs.Close()); err != nil {
		return 0, &Died{Name: prog.Name, What: "can't be started: " + reason(err)}
	}
	return p.attend(ctx, server, attended{cmd, waited}, conn, temp, c, args)
}

// attended is a command's process, and how it ended.
type attended struct {
	*exec.Cmd
	ended <-chan error
}

// attend speaks with a command's process until it has ended.
func (p *Plugins) attend(ctx context.Context, server *Plugin, cmd attended, conn net.Conn, temp *atomicfile.Scratch, c dist.Contribution, args []string) (int, error) {
	proc := &process{prog: server.prog, temp: temp, log: p.setup.Log, tail: newTail(), done: make(chan struct{})}
	l := &life{p: server, proc: proc, calls: map[string]*Caller{}, queue: newLogQueue(p.setup.Log)}
	defer l.queue.close()
	proc.peer = rpc.New(conn, conn, handler{l})
	read := make(chan struct{})
	go func() { _ = proc.peer.Run(context.WithoutCancel(ctx)); close(read) }()
	var exit plugin.Exit
	hands, stop := context.WithTimeout(ctx, handshakeTime)
	err := proc.handshake(hands, server.o)
	stop()
	if err == nil {
		token := l.begin(nil)
		err = proc.peer.Call(ctx, plugin.MethodCommand, plugin.RunCommand{Call: token, Entry: entryOf(c.Group, c.Name, c.Value), Args: args}, &exit, nil)
		l.end(token)
	}
	answered := err == nil
	if ctx.Err() == nil {
		_ = conn.Close()
	}
	grace := time.NewTimer(interruptTime)
	defer grace.Stop()
	var end error
	select {
	case end = <-cmd.ended:
	case <-grace.C:
		_ = cmd.Process.Kill()
		end = <-cmd.ended
	}
	_ = conn.Close()
	<-read
	switch died, _ := errors.AsType[*exec.ExitError](end); {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case answered:
		return exit.Code, nil
	case rpc.CodeOf(err) != 0:
		return 0, &Died{Name: server.prog.Name, What: "can't run it: " + err.Error()}
	case died != nil && died.ExitCode() > 0: // it became another program, or left by itself
		return died.ExitCode(), nil
	case end == nil && errors.Is(err, rpc.ErrClosed):
		return 0, nil
	default:
		return 0, &Died{Name: server.prog.Name, What: ended(end)}
	}
}

// without is an environment without a variable.
func without(env []string, name string) []string {
	var out []string
	for _, v := range env {
		if !strings.HasPrefix(v, name+"=") {
			out = append(out, v)
		}
	}
	return out
}
