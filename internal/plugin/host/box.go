package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/stream"
)

// killWait is how long a cancelled command waits for the plugin's word that its tree is dead.
const killWait = 5 * time.Second

// box is a sandbox of a plugin.
type box struct {
	s  *Sandboxes
	l  *life
	id string

	mu     sync.Mutex
	closed bool
	next   int
	active map[int]context.CancelCauseFunc
}

var _ guest.Box = (*box)(nil)

func newBox(s *Sandboxes, l *life, id string) *box {
	return &box{s: s, l: l, id: id, active: map[int]context.CancelCauseFunc{}}
}

// Close ends what goes on through this Box; the sandbox lives on.
func (b *box) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, cancel := range b.active {
		cancel(net.ErrClosed)
	}
	return nil
}

// begin begins an operation. The caller calls done.
func (b *box) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, fmt.Errorf("sandbox %s: %w", b.id, net.ErrClosed)
	}
	if err := b.s.p.enter(); err != nil {
		return nil, nil, b.gone(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b.next++
	n := b.next
	b.active[n] = cancel
	return ctx, func() {
		b.mu.Lock()
		delete(b.active, n)
		b.mu.Unlock()
		cancel(nil)
		b.s.p.work.Done()
	}, nil
}

func (b *box) gone(err error) error {
	return fmt.Errorf("sandbox %s: %w: %w", b.id, guest.ErrGone, err)
}

// call asks the plugin about this sandbox. A sandbox that isn't known any more is gone.
func (b *box) call(ctx context.Context, method string, p plugin.SandboxParams, out *plugin.SandboxAnswer) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.ask(ctx, method, p, out)
}

// ask is call within an operation.
func (b *box) ask(ctx context.Context, method string, p plugin.SandboxParams, out *plugin.SandboxAnswer) error {
	p.ID = b.id
	return b.told(ctx, b.l.ask(ctx, b.s, method, p, out))
}

// told is an error of an operation.
func (b *box) told(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), net.ErrClosed):
		return fmt.Errorf("sandbox %s: %w", b.id, net.ErrClosed)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sandbox.ErrNotFound):
		return b.gone(err)
	}
	return err
}

func (b *box) cannot(what string) error {
	return fmt.Errorf("sandboxes of the plugin %s can't %s: %w", b.s.whose, what, errors.ErrUnsupported)
}

// Dial connects to what listens in the sandbox.
func (b *box) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !b.s.can.Has(plugin.CanDial) {
		return nil, b.cannot("be connected to from outside")
	}
	s := b.l.boxes.streams.Make()
	if err := b.call(ctx, plugin.MethodSandboxDial, plugin.SandboxParams{Network: network, Address: addr, Stream: s.Name()}, nil); err != nil {
		s.Drop()
		return nil, err
	}
	s.SetAddrs(boxAddr{network, ""}, address(network, addr))
	return s, nil
}

// Listen opens a socket in the sandbox that is accepted here.
func (b *box) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	if !b.s.can.Has(plugin.CanListen) {
		return nil, b.cannot("have sockets that are accepted outside")
	}
	w := b.l.boxes
	l := &boxListener{l: b.l, s: b.s, name: w.name(), net: network, queue: make(chan plugin.SandboxAccepted, maxAccepted), done: make(chan struct{})}
	w.mu.Lock()
	w.listeners[l.name] = l
	w.mu.Unlock()
	var out plugin.SandboxAnswer
	if err := b.call(ctx, plugin.MethodSandboxListen, plugin.SandboxParams{Network: network, Address: addr, Listener: l.name}, &out); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.addr = address(network, out.Address)
	return l, nil
}

// ReadFile reads a regular file of at most max bytes.
func (b *box) ReadFile(ctx context.Context, name string, max int64) ([]byte, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	s := b.l.boxes.streams.Make()
	defer s.Drop()
	if err := b.ask(ctx, plugin.MethodSandboxRead, plugin.SandboxParams{Path: name, Max: max, Stream: s.Name()}, nil); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, s.Drop)()
	var out bytes.Buffer
	_, err = out.ReadFrom(io.LimitReader(s, max+1))
	switch {
	case err != nil:
		return nil, b.told(ctx, b.streamError(err))
	case int64(out.Len()) > max:
		return nil, errors.Join(&fs.PathError{Op: "read", Path: name, Err: guest.ErrTooBig}, s.Close())
	}
	return out.Bytes(), s.Close()
}

// streamError is why a stream of a sandbox ended early.
func (b *box) streamError(err error) error {
	if f, ok := errors.AsType[*stream.Fault](err); ok {
		return faultError(&plugin.SandboxFault{Message: f.Message, Code: f.Code, Errno: f.Errno})
	}
	if errors.Is(err, stream.ErrBroken) {
		return b.gone(err)
	}
	return err
}

// Stat follows links.
func (b *box) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	var out plugin.SandboxAnswer
	if err := b.call(ctx, plugin.MethodSandboxStat, plugin.SandboxParams{Path: name}, &out); err != nil {
		return nil, err
	}
	if out.Stat == nil {
		return nil, b.s.defectOf("what it says of a file can't be used", errors.New("it says nothing"))
	}
	return &guest.FileStat{Path: path.Base(name), Bytes: out.Stat.Size, Bits: plugin.FileMode(out.Stat.Mode), Time: out.Stat.Time}, nil
}

// Tree is a tar of a file or folder.
func (b *box) Tree(ctx context.Context, name string) (io.ReadCloser, error) {
	if !b.s.can.Has(plugin.CanTrees) {
		return nil, b.cannot("hand out folders")
	}
	s := b.l.boxes.streams.Make()
	if err := b.call(ctx, plugin.MethodSandboxTree, plugin.SandboxParams{Path: name, Stream: s.Name()}, nil); err != nil {
		s.Drop()
		return nil, err
	}
	return &boxTree{b, s, context.AfterFunc(ctx, s.Drop)}, nil
}

// boxTree is a tar that comes.
type boxTree struct {
	b    *box
	s    *stream.Stream
	stop func() bool
}

func (t *boxTree) Read(p []byte) (int, error) {
	n, err := t.s.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		err = t.b.streamError(err)
	}
	return n, err
}

func (t *boxTree) Close() error {
	t.stop()
	return t.s.Close()
}

// Extract unpacks a tar.
func (b *box) Extract(ctx context.Context, name string, tar io.Reader) error {
	if !b.s.can.Has(plugin.CanTrees) {
		return b.cannot("take folders")
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	s := b.l.boxes.streams.Make()
	defer s.Drop()
	source := make(chan error, 1)
	b.l.later(func() { // it ends with tar, which is its maker's to end, or with the next byte that nobody takes
		_, err := io.Copy(s, tarSource{tar, source})
		if err != nil {
			_ = s.CloseWith(&stream.Fault{Message: "the tar ended early", Code: "canceled"})
			return
		}
		_ = s.CloseWrite() // the call tells of a connection that has ended
	})
	err = b.ask(ctx, plugin.MethodSandboxExtract, plugin.SandboxParams{Path: name, Stream: s.Name()}, nil)
	select {
	case from := <-source:
		return from
	default:
		return err
	}
}

// tarSource tells why the source of a tar failed.
type tarSource struct {
	io.Reader
	failed chan<- error
}

func (t tarSource) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		select {
		case t.failed <- err:
		default:
		}
	}
	return n, err
}

// Renew moves the lease's end to d from now.
func (b *box) Renew(ctx context.Context, d time.Duration) error {
	return b.call(ctx, plugin.MethodSandboxRenew, plugin.SandboxParams{LeaseMS: millis(d, 0)}, nil)
}
