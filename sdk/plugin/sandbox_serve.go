package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/plugin/rpc"
	"agentenv.internal/agentenv/sdk/plugin/stream"
)

// boxServer serves the sandboxes of a plugin's providers on one connection.
type boxServer struct {
	p       *Plugin
	peer    *rpc.Peer
	streams *stream.Mux
	work    sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	providers map[string]*opened
	boxes     map[boxKey]Sandbox
	execs     map[string]context.CancelFunc
	listeners map[string]net.Listener
}

type boxKey struct{ provider, id string }

func newBoxServer(p *Plugin, peer *rpc.Peer) *boxServer {
	return &boxServer{
		p: p, peer: peer, streams: stream.NewMux("p", peer.Notify), providers: map[string]*opened{},
		boxes: map[boxKey]Sandbox{}, execs: map[string]context.CancelFunc{}, listeners: map[string]net.Listener{},
	}
}

// close ends everything: the connection has ended.
func (b *boxServer) close() error {
	b.streams.Close()
	b.mu.Lock()
	b.closed = true
	for _, stop := range b.execs {
		stop()
	}
	var errs []error
	for _, l := range b.listeners {
		errs = append(errs, l.Close())
	}
	boxes := b.boxes
	b.boxes = map[boxKey]Sandbox{}
	b.mu.Unlock()
	for _, box := range boxes {
		errs = append(errs, box.Close())
	}
	for _, o := range b.providers {
		if o.p != nil {
			errs = append(errs, o.p.Close())
		}
	}
	b.work.Wait()
	return errors.Join(errs...)
}

// provider is a provider, which is opened when it is first asked for. One that can't be opened is tried again.
func (b *boxServer) provider(ctx context.Context, name string, h *Host) (SandboxProvider, error) {
	i := slices.IndexFunc(b.p.Sandboxes, func(s Sandboxes) bool { return s.Name == name })
	if i < 0 {
		return nil, rpc.Errorf(rpc.CodeParams, "there is no provider %q here", name)
	}
	b.mu.Lock()
	o := b.providers[name]
	if o == nil {
		o = &opened{}
		b.providers[name] = o
	}
	b.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.p != nil {
		return o.p, nil
	}
	p, err := b.p.Sandboxes[i].Open(ctx, h)
	if err == nil {
		o.p = p
	}
	return p, err
}

// opened is a provider once it has been opened.
type opened struct {
	mu sync.Mutex
	p  SandboxProvider
}

// serve answers one method. Errors are those of sandboxes.
func (b *boxServer) serve(ctx context.Context, method string, in SandboxParams, h *Host) (any, error) {
	switch method { // of what is already at work
	case MethodSandboxKill:
		b.mu.Lock()
		stop := b.execs[in.Exec]
		b.mu.Unlock()
		if stop != nil {
			stop()
		}
		return SandboxAnswer{}, nil
	case MethodSandboxUnlisten:
		b.mu.Lock()
		l := b.listeners[in.Listener]
		b.mu.Unlock()
		if l != nil {
			return SandboxAnswer{}, boxError(l.Close())
		}
		return SandboxAnswer{}, nil
	}
	p, err := b.provider(ctx, in.Entry.Name, h)
	if err != nil {
		return nil, boxError(err)
	}
	out, err := b.ask(ctx, method, in, p)
	if err != nil {
		return nil, boxError(err)
	}
	return out, nil
}

// boxError is an error as the host reads it.
func boxError(err error) error {
	if err == nil || rpc.CodeOf(err) != 0 {
		return err
	}
	data, merr := json.Marshal(FaultOf(err))
	return errors.Join(merr, &rpc.Error{Code: CodeFailed, Message: err.Error(), Data: data})
}

func (b *boxServer) ask(ctx context.Context, method string, in SandboxParams, p SandboxProvider) (out SandboxAnswer, err error) {
	switch method {
	case MethodSandboxCreate:
		if in.Spec == nil {
			return out, rpc.Errorf(rpc.CodeParams, "%s lacks its spec", method)
		}
		var info SandboxInfo
		info, err = p.Create(ctx, *in.Spec)
		out.Sandbox = &info
		return out, err
	case MethodSandboxList:
		out.Sandboxes, err = p.List(ctx)
		return out, err
	case MethodSandboxDestroy:
		return out, errors.Join(p.Destroy(ctx, in.ID), b.leave(boxKey{in.Entry.Name, in.ID}))
	case MethodSandboxSweep:
		out.IDs, err = p.Sweep(ctx)
		return out, err
	case MethodSandboxConnect: // looks again, so that a sandbox that has died isn't taken for a living one
		box, err := p.Connect(ctx, in.ID)
		if err != nil {
			return out, err
		}
		return out, b.enter(boxKey{in.Entry.Name, in.ID}, box)
	}
	box, err := b.box(ctx, boxKey{in.Entry.Name, in.ID}, p)
	if err != nil {
		return out, err
	}
	out, err = b.inBox(ctx, method, in, box)
	return out, b.lost(in, err)
}

// box is a sandbox that is connected to. One that was and has died is known as gone by its own answers.
func (b *boxServer) box(ctx context.Context, key boxKey, p SandboxProvider) (Sandbox, error) {
	b.mu.Lock()
	box := b.boxes[key]
	b.mu.Unlock()
	if box != nil {
		return box, nil
	}
	box, err := p.Connect(ctx, key.id)
	if errors.Is(err, ErrNoSandbox) {
		return nil, fmt.Errorf("%w: %w", ErrSandboxGone, err)
	}
	if err != nil {
		return nil, err
	}
	return box, b.enter(key, box)
}

// enter keeps a connection, in the place of one that there may be, which work that goes on still has.
func (b *boxServer) enter(key boxKey, box Sandbox) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.boxes[key] != nil {
		return box.Close()
	}
	b.boxes[key] = box
	return nil
}

func (b *boxServer) leave(key boxKey) error {
	b.mu.Lock()
	box := b.boxes[key]
	delete(b.boxes, key)
	b.mu.Unlock()
	if box == nil {
		return nil
	}
	return box.Close()
}

// lost is what went wrong in a sandbox: one that was let go of meanwhile, since it was destroyed, is gone, whichever of the two is noticed first.
func (b *boxServer) lost(in SandboxParams, err error) error {
	if !errors.Is(err, net.ErrClosed) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boxes[boxKey{in.Entry.Name, in.ID}] != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSandboxGone, err)
}

func (b *boxServer) inBox(ctx context.Context, method string, in SandboxParams, box Sandbox) (out SandboxAnswer, err error) {
	switch method {
	case MethodSandboxExec:
		return out, b.exec(ctx, in, box)
	case MethodSandboxDial:
		return out, b.dial(ctx, in, box)
	case MethodSandboxListen:
		out.Address, err = b.listen(ctx, in, box)
		return out, err
	case MethodSandboxRead:
		data, err := box.ReadFile(ctx, in.Path, in.Max)
		if err != nil {
			return out, err
		}
		return out, b.send(in.Stream, io.NopCloser(bytes.NewReader(data)))
	case MethodSandboxTree:
		lasts, stop := context.WithCancel(context.WithoutCancel(ctx)) // the tree is read after the request was answered
		asked := context.AfterFunc(ctx, stop)
		r, err := box.Tree(lasts, in.Path)
		asked()
		if err != nil {
			stop()
			return out, err
		}
		return out, b.send(in.Stream, treeReader{r, stop})
	case MethodSandboxExtract:
		s, err := b.streams.Take(in.Stream)
		if err != nil {
			return out, err
		}
		return out, errors.Join(box.Extract(ctx, in.Path, s), s.Close())
	case MethodSandboxStat:
		info, err := box.Stat(ctx, in.Path)
		if err != nil {
			return out, err
		}
		out.Stat = &SandboxStat{info.Size(), UnixMode(info.Mode()), info.ModTime()}
		return out, nil
	case MethodSandboxRenew:
		return out, box.Renew(ctx, time.Duration(in.LeaseMS)*time.Millisecond)
	default:
		return out, rpc.Errorf(rpc.CodeNoMethod, "there is no method %q here", method)
	}
}

// treeReader is a tree whose context ends with it.
type treeReader struct {
	io.ReadCloser
	stop context.CancelFunc
}

func (t treeReader) Close() error {
	err := t.ReadCloser.Close()
	t.stop()
	return err
}

// send streams what r gives, and closes it.
func (b *boxServer) send(name string, r io.ReadCloser) error {
	s, err := b.streams.Take(name)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	b.goes(func() {
		_, err := io.Copy(s, r)
		_ = errors.Join(s.CloseWith(streamFault(err)), s.CloseRead(), r.Close())
	})
	return nil
}

func streamFault(err error) *stream.Fault {
	f := FaultOf(err)
	if f == nil {
		return nil
	}
	return &stream.Fault{Message: f.Message, Code: f.Code, Errno: f.Errno}
}

// goes runs f until it ends by itself; a panic of the plugin's ends no process.
func (b *boxServer) goes(f func()) {
	b.work.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				fmt.Fprintf(os.Stderr, "panic in a sandbox: %v\n%s", v, debug.Stack())
			}
		}()
		f()
	})
}

// exec starts a command, whose end is told by a notification.
func (b *boxServer) exec(ctx context.Context, in SandboxParams, box Sandbox) error {
	if in.Exec == "" || in.Command == nil {
		return rpc.Errorf(rpc.CodeParams, "%s lacks exec or command", MethodSandboxExec)
	}
	var stdio Stdio
	var taken []*stream.Stream
	var errs []error
	for i, name := range []string{in.Stdin, in.Stdout, in.Stderr} {
		if name == "" {
			continue
		}
		s, err := b.streams.Take(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		taken = append(taken, s)
		switch i {
		case 0:
			stdio.In = input{s}
		case 1:
			stdio.Out = output{s}
		default:
			stdio.Err = output{s}
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, s := range taken {
			_ = s.Close()
		}
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.mu.Lock()
	if b.closed {
		stop()
	}
	b.execs[in.Exec] = stop
	b.mu.Unlock()
	b.goes(func() {
		told := SandboxExited{Exec: in.Exec, Error: &SandboxFault{Message: "the plugin panicked"}}
		defer func() {
			stop()
			b.mu.Lock()
			delete(b.execs, in.Exec)
			b.mu.Unlock()
			_ = b.peer.Notify(NotifySandboxExit, told) // the connection's end ends the command for the host too
		}()
		exit, err := box.Exec(ctx, *in.Command, stdio)
		told.Exit, told.Error = &exit, FaultOf(b.lost(in, err))
		if err != nil {
			told.Exit = nil
			for _, s := range taken { // nothing was started, or nothing is left
				_ = s.Close()
			}
		}
	})
	return nil
}

// input and output are one direction of a stream.
type input struct{ s *stream.Stream }

func (i input) Read(p []byte) (int, error) { return i.s.Read(p) }
func (i input) Close() error               { return i.s.Close() }

type output struct{ s *stream.Stream }

func (o output) Write(p []byte) (int, error) { return o.s.Write(p) }
func (o output) Close() error                { return o.s.Close() }
