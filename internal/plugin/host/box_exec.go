package host

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/stream"
)

// deliverTime bounds how long the end of a command waits for who should read what it wrote.
const deliverTime = 2 * time.Second

// Exec runs c and waits for it.
func (b *box) Exec(ctx context.Context, c guest.Command, stdio [3]*os.File) (guest.Exit, error) {
	switch {
	case c.TTY != nil:
		return guest.Exit{}, b.cannot("give a command a terminal, which is a descriptor")
	case c.User != "" && !b.s.can.Has(plugin.CanUsers):
		return guest.Exit{}, b.cannot("run commands as users")
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return guest.Exit{}, err
	}
	defer done()
	token := b.l.begin(&Caller{Log: b.s.p.o.Log}) // a process that is retired lives until its commands have ended
	defer b.l.end(token)
	w := b.l.boxes
	f, err := openFiles(w, stdio)
	if err != nil {
		return guest.Exit{}, err
	}
	name, ended := w.begin()
	defer w.forget(name)
	cmd := &plugin.SandboxExec{Argv: c.Argv, Env: c.Env, Dir: c.Dir, User: c.User, KillTree: c.KillTree}
	if c.Timeout > 0 {
		cmd.TimeoutMS = millis(c.Timeout, 0)
	}
	p := plugin.SandboxParams{Exec: name, Command: cmd, Stdin: f.name(0), Stdout: f.name(1), Stderr: f.name(2)}
	if err := b.ask(ctx, plugin.MethodSandboxExec, p, nil); err != nil {
		if ctx.Err() == nil {
			f.drop()
			return guest.Exit{}, err
		}
		return guest.Exit{}, b.killed(ctx, f, name, ended) // it may have been started
	}
	f.run(b.l)
	select {
	case e := <-ended:
		f.finish(deliverTime)
		if ctx.Err() != nil {
			return guest.Exit{}, b.told(ctx, ctx.Err())
		}
		return b.exit(e)
	case <-w.over:
		f.finish(0)
		return guest.Exit{}, b.gone(errors.New("its plugin has ended"))
	case <-ctx.Done():
		return guest.Exit{}, b.killed(ctx, f, name, ended)
	}
}

// killed has the plugin kill a command, and waits for its word.
func (b *box) killed(ctx context.Context, f *files, name string, ended <-chan plugin.SandboxExited) error {
	cause := b.told(ctx, context.Cause(ctx))
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	_ = b.l.ask(limited, b.s, plugin.MethodSandboxKill, plugin.SandboxParams{ID: b.id, Exec: name}, nil) // its word is awaited below
	select {
	case <-ended:
	case <-b.l.boxes.over:
	case <-limited.Done():
	}
	f.finish(0)
	f.drop()
	return cause
}

// exit is how a command ended.
func (b *box) exit(e plugin.SandboxExited) (guest.Exit, error) {
	switch {
	case e.Error != nil:
		return guest.Exit{}, b.told(b.l.base(), faultError(e.Error))
	case e.Exit == nil:
		return guest.Exit{}, b.s.defectOf("how a command ended can't be used", errors.New("it doesn't say"))
	}
	x := e.Exit
	return guest.Exit{
		Code: x.Code, Signal: x.Signal, TimedOut: x.TimedOut, OOM: x.OOM, DiskFull: x.DiskFull, PidsFull: x.PidsFull, Left: max(0, x.Left),
		Elapsed: time.Duration(x.ElapsedUS) * time.Microsecond, CPU: time.Duration(x.CPUUS) * time.Microsecond,
	}, nil
}

// files are the streams of a command and this program's copies of its files.
type files struct {
	s    [3]*stream.Stream
	f    [3]*os.File
	in   sync.WaitGroup
	over chan struct{} // closed when nothing of the command's output is awaited any more
	outs sync.WaitGroup
}

// openFiles takes copies of a command's files, so that who handed them in may close them, as if they were in the sandbox.
func openFiles(w *boxWire, stdio [3]*os.File) (*files, error) {
	out := &files{over: make(chan struct{})}
	for i, f := range stdio {
		if f == nil {
			continue
		}
		c, err := copyOf(f, i > 0)
		if err != nil {
			out.drop()
			return nil, err
		}
		out.f[i], out.s[i] = c, w.streams.Make()
	}
	return out, nil
}

func (f *files) name(i int) string {
	if f.s[i] == nil {
		return ""
	}
	return f.s[i].Name()
}

// drop forgets a command that was not started.
func (f *files) drop() {
	for i, s := range f.s {
		if s != nil {
			s.Drop()
		}
		if f.f[i] != nil {
			_ = f.f[i].Close()
		}
	}
}

// run carries bytes. What is written to comes to its end with its stream, which others of the sandbox may keep open.
func (f *files) run(l *life) {
	if s := f.s[0]; s != nil {
		f.in.Go(func() {
			_, err := io.Copy(s, f.f[0])
			if err == nil {
				_ = s.CloseWrite() // the connection's end ends the command too
			}
			_ = errors.Join(s.Close(), f.f[0].Close())
		})
	}
	for i := 1; i < 3; i++ {
		s, w := f.s[i], f.f[i]
		if s == nil {
			continue
		}
		f.outs.Add(1)
		l.later(func() {
			defer f.outs.Done()
			_, _ = s.WriteTo(w) // who doesn't read any more is told to the sandbox
			_ = errors.Join(s.Close(), w.Close())
		})
	}
	l.later(func() { // a reader that never reads must not hold the end of the plugin up
		done := make(chan struct{})
		go func() { f.outs.Wait(); close(done) }()
		select {
		case <-done:
			return
		case <-l.boxes.over:
		}
		for _, w := range f.f[1:] {
			if w != nil {
				_ = w.SetWriteDeadline(time.Now().Add(deliverTime))
			}
		}
		<-done
	})
}

// finish waits until what came has been written, at most for d, and ends the reading of stdin.
func (f *files) finish(d time.Duration) {
	for _, s := range f.s[1:] {
		if s != nil && d > 0 {
			s.Delivered(d)
		}
	}
	if f.f[0] == nil {
		return
	}
	_ = f.s[0].Close() // a command that has ended reads nothing
	if f.f[0].SetReadDeadline(time.Now()) == nil {
		f.in.Wait()
	}
}

// copyOf is another descriptor of a file. Pipes are opened anew, so that the copy can be waited for without a thread; others share their place in the file.
func copyOf(f *os.File, write bool) (*os.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var failed error
	err = raw.Control(func(have uintptr) {
		if info.Mode()&os.ModeNamedPipe != 0 {
			if fd, failed = reopen(have, write); failed == nil {
				return
			}
		}
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if fd, failed = syscall.Dup(int(have)); failed == nil {
			syscall.CloseOnExec(fd)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
