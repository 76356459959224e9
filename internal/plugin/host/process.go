package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/subprocess"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Limits of processes.
const (
	handshakeTime = 30 * time.Second
	leaveTime     = 5 * time.Second // from the end of its input to SIGTERM
	brokenTime    = time.Second     // the same, when the connection has ended before
	termTime      = 2 * time.Second // from there to SIGKILL
	tailSize      = 4 << 10
	tailLines     = 2
	lineSize      = 64 << 10
)

// Program is how a plugin is started.
type Program struct {
	// Name is what people are told it is: "agentenv-acme 1.2.0".
	Name string
	// Distribution is whose program it is; nil for the Python host, which serves all.
	Distribution *plugin.Named
	// Git: it is a git plugin's, whose id and version stand for those of a distribution.
	Git  bool
	Argv []string
	// Env are variables beyond those that every plugin gets.
	Env []string
	// Extra are descriptors that the process holds from 3 on, such as the lock of its generation. The caller keeps them open.
	Extra []*os.File
	// Boxes: it provides sandboxes, which live on when its process ends, so that nothing keeps what it starts.
	Boxes bool
}

// Died is a process that ended while it was needed, or never came up.
type Died struct {
	Name string
	What string // "ended with exit code 3"
	Tail string // the end of its stderr
}

func (d *Died) Error() string {
	s := fmt.Sprintf("the plugin %s %s", d.Name, d.What)
	if d.Tail != "" {
		s += "; it said: " + d.Tail
	}
	return s
}

// process is one running program. It is up from start on, and over when done is closed.
type process struct {
	prog  Program
	child keeper.Child
	peer  *rpc.Peer
	stdin *os.File
	temp  *atomicfile.Scratch
	log   *slog.Logger
	tail  *tail
	done  chan struct{}
	how   string // how it ended, set before done is closed
	broke error  // what ended the connection, set before done is closed
}

// start begins a program and shakes hands. ctx bounds the handshake alone.
func start(ctx context.Context, prog Program, o Options, h rpc.Handler) (_ *process, err error) {
	temp, err := o.scratch()
	if err != nil {
		return nil, fmt.Errorf("make a folder for the plugin %s: %w", prog.Name, err)
	}
	p := &process{prog: prog, temp: temp, log: o.Log.With("plugin", prog.Name), tail: newTail(), done: make(chan struct{})}
	if err := p.spawn(ctx, o, h); err != nil {
		_ = temp.Remove()
		return nil, &Died{Name: prog.Name, What: "can't be started: " + reason(err)}
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := p.handshake(ctx, o); err != nil {
		p.stop(0)
		return nil, err
	}
	return p, nil
}

// reason is why a program can't be started, without the path twice.
func reason(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

// spawn makes the process and the goroutines that wait for it.
func (p *process) spawn(ctx context.Context, o Options, h rpc.Handler) error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, inR.Close(), inW.Close())
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, inR.Close(), inW.Close(), outR.Close(), outW.Close())
	}
	ctx = context.WithoutCancel(ctx)
	cmd := exec.CommandContext(ctx, p.prog.Argv[0], p.prog.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.temp.Dir, inR, outW, errW
	cmd.Env = append(subprocess.Environment(o.Env), "TMPDIR="+p.temp.Dir, plugin.Variable+"=stdio")
	cmd.Env = append(cmd.Env, p.prog.Env...)
	cmd.ExtraFiles = p.prog.Extra
	k := o.Keeper
	if p.prog.Boxes {
		k = nil
	}
	p.child, err = keeper.Begin(k, cmd, 0)
	err = errors.Join(err, inR.Close(), outW.Close(), errW.Close())
	if err != nil {
		return errors.Join(err, inW.Close(), outR.Close(), errR.Close())
	}
	p.stdin = inW
	p.peer = rpc.New(outR, inW, h)
	var streams sync.WaitGroup
	streams.Go(func() { p.stderr(errR) })
	streams.Go(func() {
		p.broke = p.peer.Run(ctx)
		// A side that broke the protocol, or closed its stdout, is of no use any more.
		_ = p.stdin.Close()
	})
	go func() {
		defer close(p.done)
		p.how = ended(p.child.Wait())
		// Who inherited its streams is gone with it, or has left its group where there is no keeper: nobody waits for those.
		_ = p.stdin.Close()
		past := time.AfterFunc(time.Second, func() { _ = errors.Join(outR.Close(), errR.Close()) })
		streams.Wait()
		past.Stop()
		_ = errors.Join(outR.Close(), errR.Close())
		if err := p.temp.Remove(); err != nil {
			p.log.Warn("remove a plugin's temporary folder", "error", err)
		}
	}()
	return nil
}

// stderr logs what the program prints, line by line, and keeps the end.
func (p *process) stderr(in io.Reader) {
	r := bufio.NewReaderSize(in, lineSize)
	for {
		b, err := r.ReadSlice('\n')
		if len(b) > 0 {
			_, _ = p.tail.Write(b)
			if line := strings.TrimRight(string(b), "\r\n"); line != "" {
				p.log.Debug(diag.Clean(line))
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (p *process) handshake(ctx context.Context, o Options) error {
	var got plugin.Initialized
	err := p.peer.Call(ctx, plugin.MethodInitialize, plugin.Initialize{
		Versions: []int{plugin.Version}, Host: o.Host, Distribution: p.prog.Distribution, TempDir: p.temp.Dir,
	}, &got, nil)
	switch {
	case errors.Is(err, rpc.ErrClosed) && p.stdin != nil:
		return p.died()
	case errors.Is(err, rpc.ErrClosed):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &Died{p.prog.Name, fmt.Sprintf("didn't answer initialize in %s", handshakeTime), p.tail.String()}
	case rpc.CodeOf(err) == plugin.CodeVersion:
		return &Died{Name: p.prog.Name, What: fmt.Sprintf("speaks another version of the plugin protocol than this agent-env, which speaks version %d: %s", plugin.Version, diag.Clean(err.Error()))}
	case rpc.CodeOf(err) != 0:
		return &Died{p.prog.Name, "refused to start: " + diag.Clean(err.Error()), p.tail.String()}
	case err != nil:
		return &Died{Name: p.prog.Name, What: "can't be started: " + err.Error()}
	case got.Version != plugin.Version:
		return &Died{Name: p.prog.Name, What: fmt.Sprintf("speaks version %d of the plugin protocol, and this agent-env version %d", got.Version, plugin.Version)}
	}
	p.log.Debug("the plugin is up", "name", diag.Clean(got.Plugin.Name), "version", diag.Clean(got.Plugin.Version))
	return nil
}

// died ends a process whose connection has ended, and tells of it.
func (p *process) died() error {
	p.stop(brokenTime)
	what := p.how
	if p.broke != nil {
		what = "broke the plugin protocol: " + p.broke.Error()
	}
	return &Died{p.prog.Name, what, p.tail.String()}
}

// stop ends the process: it gets grace to leave by itself, then a moment after SIGTERM. It returns when it has ended.
func (p *process) stop(grace time.Duration) {
	_ = p.stdin.Close()
	subprocess.StopBy(p.child.Signal, p.done, grace, termTime)
}

// tail keeps the end of a stream.
type tail struct{ subprocess.Tail }

func newTail() *tail { return &tail{subprocess.Tail{Max: tailSize}} }

// String is the end in one line: enough to recognize a fault by. The log has the rest.
func (t *tail) String() string {
	lines := t.Last(tailLines)
	for i, l := range lines {
		if l = strings.TrimSpace(l); len(l) > 200 {
			l = strings.ToValidUTF8(l[:200], "") + " …"
		}
		lines[i] = diag.Clean(l)
	}
	return strings.Join(lines, " | ")
}

// within tells whether a path that a plugin names is inside its temporary folder.
func (p *process) within(path string) bool { return inside(p.temp.Dir, path) }

// inside tells whether a path is below a folder.
func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
