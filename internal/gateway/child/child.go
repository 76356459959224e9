// Package child is the gateway's connection to one environment server's MCP endpoint.
//
// A child is up, or down while it is being reached again; its generation counts the MCP sessions that it has had. The package carries JSON-RPC by bytes and
// knows nothing of roles, of tools' names as agents see them, or of other children. A call is repeated only when it surely never reached the child.
package child

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What can be wrong with a call; errors.Is tells which.
var (
	ErrDown     = errors.New("can't be reached")                                // the call never reached it
	ErrLost     = errors.New("closed the connection")                           // the call may have been done
	ErrTimeout  = errors.New("didn't answer in time")                           // the call may have been done
	ErrTooLarge = errors.New("can't pass on what is too large")                 // of a request or an answer
	ErrBroken   = errors.New("answered what is no MCP answer")                  // the call may have been done
	errSession  = errors.New("session is gone")                                 // 404: never done
	errClosed   = fmt.Errorf("%w: the gateway is being shut down", ErrDown)     //
	errNotYet   = fmt.Errorf("%w: it hasn't answered since its start", ErrDown) //
)

const (
	// DefaultDeadline ends a call that has no earlier one.
	DefaultDeadline = 600 * time.Second
	// DefaultMaxAnswer bounds one answer.
	DefaultMaxAnswer = 256 << 20
	// grace is how long calls wait for a child that has just gone down; later ones fail at once until it is back.
	grace = 10 * time.Second
	// handshake bounds initialize and each page of a list.
	handshake = 30 * time.Second
)

// Options say where a child is and what to do when it is gone.
type Options struct {
	Name      string
	URL       string            // its base
	MCP       string            // its MCP endpoint, whole; "" is URL + /mcp unless Endpoint finds another
	Transport http.RoundTripper // nil: the host's network
	Restart   func(context.Context) error
	Changed   func()                       // its list of tools was read anew, or it went down or up; called from one goroutine at a time, never nil after New
	Endpoint  func(context.Context) string // asked before each initialize when MCP is empty; "" keeps the default
	Log       *slog.Logger
	Deadline  time.Duration
	MaxAnswer int64
}

// Child is one connection. Close ends it.
type Child struct {
	o      Options
	log    *slog.Logger
	rt     http.RoundTripper
	own    *http.Transport // rt, when it is ours to close
	ids    atomic.Uint64
	cancel context.CancelFunc
	wg     sync.WaitGroup
	lost   chan lostNote

	mu      sync.Mutex
	cur     *session
	gone    chan struct{} // closed when cur is set; replaced when it is lost
	downFor time.Time     // since when it is down; zero while it is up
	err     error         // why it is down
	list    [][]byte      // the entries of the last tools/list; nil until the first
	gen     uint64
	closed  bool
}

type lostNote struct {
	s    *session
	dead bool // it couldn't be dialled
	err  error
}

// New makes a child; Start connects it.
func New(o Options) *Child {
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = DefaultMaxAnswer
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Child{o: o, log: o.Log.With("server", o.Name), rt: o.Transport, gone: make(chan struct{}), downFor: time.Now(), err: errNotYet, lost: make(chan lostNote, 16)}
	if c.rt == nil {
		c.own = Transport(nil)
		c.rt = c.own
	}
	return c
}

// Transport is what connections to children need: many idle ones, given up before the servers close them, which a call could collide with.
func Transport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	return &http.Transport{
		DialContext:         dial,
		MaxIdleConnsPerHost: 512,
		IdleConnTimeout:     2500 * time.Millisecond,
		DisableCompression:  true,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      16 << 10,
	}
}

// Start connects, lists the tools, and keeps doing so until Close. It doesn't wait.
func (c *Child) Start(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	c.wg.Go(func() { c.run(ctx) })
}

// Close ends the session and waits for everything that the child had under way.
func (c *Child) Close() {
	if c.cancel == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Name is the environment's.
func (c *Child) Name() string { return c.o.Name }

// Base is the URL that its other routes are below.
func (c *Child) Base() string { return strings.TrimSuffix(c.o.URL, "/") }

// RoundTripper reaches it.
func (c *Child) RoundTripper() http.RoundTripper { return c.rt }

// Status is how a child is.
type Status struct {
	Up         bool
	Generation uint64 // MCP sessions so far
	Listed     bool   // its tools are known, from now or earlier
	Since      time.Time
	Err        error // why it is down
}

// Status tells how the child is now.
func (c *Child) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{Up: c.cur != nil, Generation: c.gen, Listed: c.list != nil, Since: c.downFor, Err: c.err}
}

// Tools are the entries of its last tools/list, in its order, as it wrote them.
func (c *Child) Tools() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list
}

// current is the session for a call. While there is none it waits, unless the child has been down for long.
func (c *Child) current(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		s, gone, since, err := c.cur, c.gone, c.downFor, c.err
		c.mu.Unlock()
		if s != nil {
			return s, nil
		}
		left := grace - time.Since(since)
		if left <= 0 {
			return nil, err
		}
		timer := time.NewTimer(left)
		select {
		case <-gone:
			timer.Stop()
		case <-timer.C:
			return nil, err
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// setDown takes the session away, if s still is it.
func (c *Child) setDown(s *session, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur != s {
		return false
	}
	if s != nil || c.downFor.IsZero() {
		c.gone, c.downFor = make(chan struct{}), time.Now()
	}
	c.cur, c.err = nil, err
	return true
}

func (c *Child) setUp(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cur, c.err, c.downFor = s, nil, time.Time{}
	close(c.gone)
}

// report tells the goroutine that owns the connection about a session that failed.
func (c *Child) report(n lostNote) {
	select {
	case c.lost <- n:
	default: // it has enough to look at
	}
}
