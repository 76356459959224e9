package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Dialer opens one connection to a box's PID 1. An error that is ErrGone tells that the box doesn't live.
type Dialer func(ctx context.Context) (*net.UnixConn, error)

// killWait is how long a cancelled operation waits for the guest's word that its tree is dead.
const killWait = 5 * time.Second

// Client is a Box over connections to its PID 1, one for each operation.
type Client struct {
	name  string
	dial  Dialer
	close func() error
	why   func() string

	mu     sync.Mutex
	closed bool
	active map[*Conn]struct{}
	idle   []*Conn // kept for other commands
	later  Later
}

// maxIdle is how many connections a Client keeps.
const maxIdle = 4

var _ Box = (*Client)(nil)

// NewClient makes a Box that reaches its PID 1 by dial; name is for messages. close is called once, by Close; it may be nil.
func NewClient(name string, dial Dialer, close func() error) *Client {
	return &Client{name: name, dial: dial, close: close, active: map[*Conn]struct{}{}}
}

// Explain makes the errors of a box that is gone tell why: why says it in words, "" where nobody knows. It is to be called before the
// Box is used.
func (b *Client) Explain(why func() string) { b.why = why }

// open connects and sends the request. The caller ends it with done, or with keep where the guest said so.
func (b *Client) open(ctx context.Context, r *Request, files ...*os.File) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, kept, err := b.take(r.Keep)
	if err != nil {
		return nil, err
	}
	for {
		if c == nil {
			uc, err := b.dial(ctx)
			if err != nil {
				return nil, b.wrap(ctx, err)
			}
			c = NewConn(uc)
			if !b.enter(c) {
				c.Close()
				return nil, b.shut()
			}
		}
		err := c.SendJSON(FrameRequest, r, files...)
		if err == nil {
			return c, nil
		}
		b.done(c)
		if !kept || !broken(err) {
			return nil, b.wrap(ctx, err)
		}
		c, kept = nil, false // whoever kept it has gone, and never saw the request
	}
}

// take is a connection that was kept, where the request is for one, or nil.
func (b *Client) take(kept bool) (*Conn, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, b.shut()
	}
	n := len(b.idle) - 1
	if !kept || n < 0 {
		return nil, false, nil
	}
	c := b.idle[n]
	b.idle = b.idle[:n]
	b.active[c] = struct{}{}
	return c, true, nil
}

// enter takes a connection that was just made, unless Close has been called meanwhile: nobody would end what goes on through it.
func (b *Client) enter(c *Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.active[c] = struct{}{}
	}
	return !b.closed
}

func (b *Client) shut() error { return fmt.Errorf("sandbox %s: %w", b.name, net.ErrClosed) }

func (b *Client) done(c *Conn) {
	b.mu.Lock()
	delete(b.active, c)
	b.mu.Unlock()
	c.Close()
}

// keep is done for a connection that takes another request.
func (b *Client) keep(c *Conn) {
	b.mu.Lock()
	delete(b.active, c)
	room := !b.closed && len(b.idle) < maxIdle
	if room {
		b.idle = append(b.idle, c)
	}
	b.mu.Unlock()
	if !room {
		c.Close()
	}
}

// wrap names the box; a broken connection is a box that is gone.
func (b *Client) wrap(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("sandbox %s: %w", b.name, net.ErrClosed)
	case errors.Is(err, ErrGone), broken(err):
		if b.why != nil {
			if why := b.why(); why != "" {
				return fmt.Errorf("sandbox %s: %w: %s", b.name, ErrGone, why)
			}
		}
		return fmt.Errorf("sandbox %s: %w", b.name, ErrGone)
	}
	return fmt.Errorf("sandbox %s: %w", b.name, err)
}

// call sends one request and waits for its reply. When ctx ends the guest is told to stop, and its word is awaited for a while.
func (b *Client) call(ctx context.Context, r *Request) (*Reply, []*os.File, error) {
	return b.callEarly(ctx, nil, r)
}

// callEarly is call for an operation that hands a descriptor out before its reply; early takes it.
func (b *Client) callEarly(ctx context.Context, early func([]*os.File) error, r *Request, files ...*os.File) (*Reply, []*os.File, error) {
	c, err := b.open(ctx, r, files...)
	if err != nil {
		return nil, nil, err
	}
	unwatch := watch(ctx, c)
	var reply Reply
	err = c.recvReply(&reply, early)
	got := c.TakeFiles()
	if undisturbed := unwatch(); undisturbed && err == nil && reply.Kept && r.Keep {
		b.keep(c)
	} else {
		b.done(c)
	}
	if err != nil {
		closeAll(got)
		return nil, nil, b.wrap(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		closeAll(got)
		return nil, nil, err
	}
	if err := reply.Fault.Err(); err != nil {
		closeAll(got)
		return nil, nil, err
	}
	return &reply, got, nil
}

// watch tells the guest to stop when ctx ends. The function it answers takes the watch away, or waits for it and answers false.
func watch(ctx context.Context, c *Conn) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		c.CloseWrite()
		c.c.SetReadDeadline(time.Now().Add(killWait))
	})
	return func() bool {
		if stop() {
			return true
		}
		<-ended
		return false
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Exec runs c and waits for it.
func (b *Client) Exec(ctx context.Context, c Command, stdio [3]*os.File) (Exit, error) {
	r := &Request{Op: OpExec, Command: &c, Keep: c.TTY == nil}
	var files []*os.File
	for i, f := range stdio {
		if f != nil && c.TTY == nil {
			openable(f)
			r.Stdio[i] = true
			files = append(files, f)
		}
	}
	var early func([]*os.File) error
	if c.TTY != nil {
		early = c.TTY.opened
	}
	reply, _, err := b.callEarly(ctx, early, r, files...)
	if err != nil {
		return Exit{}, err
	}
	if reply.Exit == nil {
		return Exit{}, b.wrap(ctx, errFrame)
	}
	return *reply.Exit, nil
}

// Die asks PID 1 to end the box at once; it is for owners that can't signal it.
func (b *Client) Die(ctx context.Context) error {
	_, _, err := b.call(ctx, &Request{Op: OpDie})
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// Renew moves the lease's end to d from now.
func (b *Client) Renew(ctx context.Context, d time.Duration) error {
	_, _, err := b.call(ctx, &Request{Op: OpRenew, Lease: d})
	return err
}

// Dial connects inside the box's net namespace; the connection itself is direct.
func (b *Client) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f, err := b.socket(ctx, &Request{Op: OpDial, Network: network, Addr: addr})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// Listen opens a socket inside the box that is accepted here.
func (b *Client) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	f, err := b.socket(ctx, &Request{Op: OpListen, Network: network, Addr: addr})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if ul, ok := l.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false) // the path is one of the box, not of this process
	}
	return l, err
}

func (b *Client) socket(ctx context.Context, r *Request) (*os.File, error) {
	_, files, err := b.call(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, b.wrap(ctx, errFrame)
	}
	return files[0], nil
}

// Close ends what goes on through this Box; the box itself lives on.
func (b *Client) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	for c := range b.active {
		c.CloseWrite()
		c.c.SetDeadline(time.Now())
	}
	idle := b.idle
	b.idle = nil
	b.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
	if b.close != nil {
		return b.close()
	}
	return nil
}

// broken tells whether err means that the other end has gone.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isBroken(err)
}
