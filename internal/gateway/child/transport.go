package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// small is the longest body that is sent by the caller itself: connections take so much without their reader's help.
	small = 32 << 10
	// maxHead bounds the head of an answer.
	maxHead = 1 << 20
	// maxEarly is how many answers of 1xx may come before one.
	maxEarly = 5
)

// Transport is what connections to children need: many idle ones, given up before the servers close them, which a call could collide with.
//
// A small message is written and its answer read by the caller's own goroutine: net/http's has two more for each connection, and the words between them cost
// more than the exchange. What it is asked else goes through net/http's. The head of an answer is read by net/http in both cases.
type Transport struct {
	*http.Transport
	blind atomic.Bool // its connections can't be asked whether their server has closed them

	mu      sync.Mutex
	idle    map[string][]*conn // by address, the one that was used last at the end
	sweeper *time.Timer        // runs while there are idle ones
	closing bool               // none is kept until the next one is asked for
}

// NewTransport makes one, whose connections dial makes; nil: the host's network.
func NewTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	return &Transport{idle: map[string][]*conn{}, Transport: &http.Transport{
		DialContext:         dial,
		MaxIdleConnsPerHost: 512,
		IdleConnTimeout:     2500 * time.Millisecond,
		DisableCompression:  true,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      16 << 10,
	}}
}

// RoundTrip sends one request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.blind.Load() || !simple(req) {
		return t.Transport.RoundTrip(req)
	}
	defer req.Body.Close()
	addr := req.URL.Host
	if req.URL.Port() == "" {
		addr = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	for {
		c, used, err := t.take(req.Context(), addr)
		if err != nil {
			return nil, err
		}
		resp, err := c.exchange(req, used)
		if err == nil || !used || c.sent || req.Context().Err() != nil {
			return resp, err
		}
		again := *req // nothing of it was sent: the server has closed the connection just now
		if again.Body, err = req.GetBody(); err != nil {
			return nil, fmt.Errorf("read the body again: %w", err)
		}
		req = &again
	}
}

// simple tells whether a request is a small message, in memory.
func simple(req *http.Request) bool {
	return req.Method == http.MethodPost && req.URL.Scheme == "http" && req.GetBody != nil && req.Body != nil &&
		0 < req.ContentLength && req.ContentLength <= small && !req.Close && len(req.TransferEncoding) == 0 && req.Trailer == nil &&
		req.Header["Expect"] == nil && req.Header["Upgrade"] == nil && req.Header["Connection"] == nil
}

// CloseIdleConnections closes the connections that nobody uses.
func (t *Transport) CloseIdleConnections() {
	t.Transport.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
	for addr, list := range t.idle {
		for _, c := range list {
			_ = c.Close() // nobody uses it
		}
		delete(t.idle, addr)
	}
	if t.sweeper != nil {
		t.sweeper.Stop()
		t.sweeper = nil
	}
}

// take gives a connection, an idle one (used) when there is one that its server holds open.
func (t *Transport) take(ctx context.Context, addr string) (c *conn, used bool, err error) {
	for {
		if c = t.pop(addr); c == nil {
			break
		}
		if time.Since(c.since) < t.IdleConnTimeout && c.open() {
			return c, true, nil
		}
		_ = c.Close() // nobody uses it
	}
	plain, err := t.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, false, err
	}
	c = &conn{Conn: plain, t: t, addr: addr}
	if s, ok := plain.(syscall.Conn); ok {
		c.raw, err = s.SyscallConn()
	}
	if c.raw == nil || err != nil {
		t.blind.Store(true) // this one is used once, and the next are net/http's
	}
	c.r, c.w = bufio.NewReaderSize(c, t.ReadBufferSize), bufio.NewWriterSize(c, t.WriteBufferSize)
	return c, false, nil
}

func (t *Transport) pop(addr string) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = false
	list := t.idle[addr]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	t.idle[addr] = list[:len(list)-1]
	return c
}

// put keeps a connection for the next request.
func (t *Transport) put(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[c.addr]
	if t.closing || len(list) >= t.MaxIdleConnsPerHost {
		_ = c.Close() // nobody uses it
		return
	}
	t.idle[c.addr] = append(list, c)
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(t.IdleConnTimeout, t.sweep)
	}
}

// sweep closes what has been idle for too long, and comes again when the next will have been.
func (t *Transport) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sweeper == nil {
		return
	}
	next := time.Duration(-1)
	for addr, list := range t.idle {
		n := 0
		for n < len(list) && time.Since(list[n].since) >= t.IdleConnTimeout {
			_ = list[n].Close() // nobody uses it
			n++
		}
		if n == len(list) {
			delete(t.idle, addr)
			continue
		}
		t.idle[addr] = append(list[:0:0], list[n:]...)
		if left := t.IdleConnTimeout - time.Since(list[n].since); next < 0 || left < next {
			next = left
		}
	}
	if next < 0 {
		t.sweeper = nil
		return
	}
	t.sweeper.Reset(max(next, time.Millisecond))
}

// conn is a connection, which one request has at a time.
type conn struct {
	net.Conn
	t     *Transport
	addr  string
	raw   syscall.RawConn
	r     *bufio.Reader
	w     *bufio.Writer
	head  int64 // how much more may be read before an answer's head ends
	body  bool  // the head has ended
	sent  bool  // something of the request has been sent
	quiet bool  // what look saw
	since time.Time
}

var errHead = errors.New("the head of the answer is too large")

// Read bounds the head of an answer.
func (c *conn) Read(p []byte) (int, error) {
	if c.body {
		return c.Conn.Read(p)
	}
	if c.head <= 0 {
		return 0, errHead
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.head)])
	c.head -= int64(n)
	return n, err
}

// Write notes that something was sent.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent = c.sent || n > 0
	return n, err
}

// open tells whether the server has neither closed an idle connection nor said what nobody asked for.
func (c *conn) open() bool {
	c.quiet = false
	return c.r.Buffered() == 0 && c.raw.Read(c.look) == nil && c.quiet
}

func (c *conn) look(fd uintptr) bool {
	var b [1]byte
	_, err := syscall.Read(int(fd), b[:])
	c.quiet = errors.Is(err, syscall.EAGAIN)
	return true
}

// cut ends the exchange under way.
func (c *conn) cut() { _ = c.Close() } // whoever reads or writes is told

// exchange sends a request and reads the head of its answer, whose body gives the connection back.
func (c *conn) exchange(req *http.Request, used bool) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, c.cut)
	resp, err := c.begin(req, used)
	if err != nil {
		stop()
		c.cut()
		return nil, err
	}
	b := &answerBody{from: resp.Body, c: c, stop: stop, keep: !resp.Close && c.raw != nil}
	if resp.Body == http.NoBody {
		b.end(bodyRead)
		return resp, nil
	}
	resp.Body = b
	return resp, nil
}

func (c *conn) begin(req *http.Request, used bool) (*http.Response, error) {
	c.sent, c.body = false, false
	trace := httptrace.ContextClientTrace(req.Context())
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.Conn, Reused: used, WasIdle: used})
	}
	err := req.Write(c.w)
	if err == nil {
		err = c.w.Flush()
	}
	if err != nil {
		return nil, err
	}
	for range maxEarly {
		c.head = maxHead
		resp, err := http.ReadResponse(c.r, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			c.body = true
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("the server changes the protocol, which nobody asked it to")
		}
		if trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.New("the server never comes to its answer")
}

// answerBody is the body of an answer. It may be closed while it is read.
type answerBody struct {
	from  io.ReadCloser
	c     *conn
	stop  func() bool // false: the request's end has cut the connection
	keep  bool        // the server takes more requests
	state atomic.Int32
}

// States of a body: it is open until it has been read to its end, or was given up.
const (
	bodyOpen int32 = iota
	bodyRead
	bodyClosed
)

// Read reads on; the end gives the connection back.
func (b *answerBody) Read(p []byte) (int, error) {
	switch b.state.Load() {
	case bodyRead:
		return 0, io.EOF
	case bodyClosed:
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.from.Read(p)
	if err == io.EOF {
		b.end(bodyRead)
	} else if err != nil {
		b.end(bodyClosed)
	}
	return n, err
}

// Close gives the connection up, unless all has been read.
func (b *answerBody) Close() error {
	b.end(bodyClosed)
	return nil
}

func (b *answerBody) end(state int32) {
	if !b.state.CompareAndSwap(bodyOpen, state) {
		return
	}
	if b.stop() && state == bodyRead && b.keep {
		b.c.t.put(b.c)
		return
	}
	_ = b.c.Close() // what it still holds is nobody's
}
