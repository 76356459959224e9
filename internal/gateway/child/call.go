package child

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/internal/sleep"
)

// Sink takes what a child sends to the caller before its answer. Its methods are called one at a time, but Ask may still be waiting while Notify is called.
type Sink interface {
	// Notify takes one notification, whole; a progress token in it is the caller's own. The bytes are good during the call.
	Notify(message []byte)
	// Ask takes a request of the child (sampling, elicitation) and gives the member of the answer: `"result":…` or `"error":…`.
	Ask(ctx context.Context, method string, params []byte) []byte
}

// Answer is what a child answered: a result or an error, whichever is not None. Close it once both are used up.
type Answer struct {
	Result, Error Value
	session       string
	spool         *spool
	body          io.ReadCloser
	lines         *bufio.Reader
	drain         bool
	cancel        context.CancelFunc
	asks          *sync.WaitGroup // what a stream asked the caller
	asking        chan struct{}   // holds a token for each of them
	stopAsks      context.CancelFunc
}

// Close gives the connection back for the next call, for which it may have to read the stream's end: write the answer on before.
func (a *Answer) Close() {
	if a.body != nil {
		if a.drain {
			t := time.AfterFunc(200*time.Millisecond, func() { a.body.Close() })
			_, _ = io.CopyN(io.Discard, a.body, 64<<10)
			t.Stop()
		}
		a.body.Close()
		a.body = nil
	}
	if a.lines != nil {
		a.lines.Reset(nil)
		lineReaders.Put(a.lines)
		a.lines = nil
	}
	if a.spool != nil {
		a.spool.free()
		a.spool = nil
	}
	if a.cancel != nil {
		a.cancel()
	}
	if a.asks != nil {
		a.stopAsks()
		a.asks.Wait()
	}
}

// call is what the answer's stream needs to know of the call.
type call struct {
	token []byte // the caller's progress token; nil: none
	sink  Sink   // nil: what comes before the answer is dropped
}

// Call sends one request and waits for its answer, at most Options.Deadline. params appends the params; id is what a progress token may be made of: when
// token is the caller's, params must carry id as the token. The error is one of this package's, or the cause of ctx's end, of which the child is told.
func (c *Child) Call(ctx context.Context, method string, params func(id uint64, b []byte) []byte, token []byte, sink Sink) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Deadline)
	req := c.body(method, params)
	for attempt := 0; ; attempt++ {
		s, err := c.current(ctx)
		if err != nil {
			cancel()
			return nil, err
		}
		a, err := c.send(ctx, s, req, call{token, sink})
		if err == nil {
			a.cancel = cancel
			return a, nil
		}
		again := errors.Is(err, errSession) || errors.Is(err, ErrDown)
		switch {
		case again:
			c.lose(s, err)
		case errors.Is(err, ErrLost):
			c.report(lostNote{s: s, err: err})
		case ctx.Err() != nil:
			c.cancelled(ctx, s, req.id)
		}
		if !again || attempt >= 2 || ctx.Err() != nil {
			cancel()
			return nil, err
		}
	}
}

// CallTool calls a tool by its own name; arguments is a JSON object.
func (c *Child) CallTool(ctx context.Context, tool string, arguments []byte) (*Answer, error) {
	return c.Call(ctx, "tools/call", func(_ uint64, b []byte) []byte {
		b = rawjson.AppendString(append(b, `{"name":`...), tool)
		return append(append(append(b, `,"arguments":`...), arguments...), '}')
	}, nil, nil)
}

// lose makes callers wait for the next session instead of trying this one again.
func (c *Child) lose(s *session, err error) {
	if c.setDown(s, err) {
		c.report(lostNote{s: s, dead: errors.Is(err, ErrDown), err: err})
	}
}

// cancelled tells the child that nobody waits for an answer any more.
func (c *Child) cancelled(ctx context.Context, s *session, id uint64) {
	ctx = context.WithoutCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		b := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), strconv.FormatUint(id, 10)...)
		if err := s.notify(ctx, append(b, `,"reason":"the caller left"}}`...)); err != nil {
			c.log.Debug("a cancelled call couldn't be told", "error", err)
		}
	})
}

// send is one attempt.
func (c *Child) send(ctx context.Context, s *session, req request, cl call) (*Answer, error) {
	resp, err := s.post(ctx, req.body) //nolint:bodyclose // the answer closes it
	if err != nil {
		return nil, err
	}
	a := &Answer{body: resp.Body, session: resp.Header.Get("Mcp-Session-Id")}
	if resp.StatusCode != http.StatusOK {
		err := statusError(resp)
		a.Close()
		if s.id == "" && errors.Is(err, errSession) {
			err = fmt.Errorf("%w: %s isn't there (HTTP 404)", ErrBroken, s.url)
		}
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		err = a.whole(c, req.id)
	case "text/event-stream":
		a.drain = true
		err = a.stream(ctx, c, s, req.id, cl)
	default:
		err = fmt.Errorf("%w: its content type is %q", ErrBroken, kind)
	}
	if err != nil {
		a.drain = false
		a.Close()
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		return nil, err
	}
	return a, nil
}

// whole reads an answer that is one JSON message.
func (a *Answer) whole(c *Child, id uint64) error {
	a.spool = newSpool(c.o.MaxAnswer)
	if _, err := a.spool.ReadFrom(a.body); err != nil {
		return readError(err)
	}
	m, err := a.spool.message()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return a.take(m, id)
}

func readError(err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, rawjson.ErrSyntax) {
		if errors.Is(err, rawjson.ErrSyntax) {
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func (a *Answer) take(m message, id uint64) error {
	var buf [20]byte
	if want := strconv.AppendUint(buf[:0], id, 10); !bytes.Equal(m.id, want) && !bytes.Equal(bytes.Trim(m.id, `"`), want) {
		return fmt.Errorf("%w: it answers another request", ErrBroken)
	}
	if a.Result, a.Error = m.result, m.err; a.Result.None() && a.Error.None() {
		return fmt.Errorf("%w: neither a result nor an error", ErrBroken)
	}
	for name, v := range map[string]Value{"result": a.Result, "error": a.Error} {
		if !v.None() && !v.object() {
			return fmt.Errorf("%w: its %s is no object", ErrBroken, name)
		}
	}
	return nil
}

var lineReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 16<<10) }}

// stream reads events until the answer comes.
func (a *Answer) stream(ctx context.Context, c *Child, s *session, id uint64, cl call) error {
	a.lines = lineReaders.Get().(*bufio.Reader)
	a.lines.Reset(a.body)
	a.spool = newSpool(c.o.MaxAnswer)
	a.asks, a.asking = new(sync.WaitGroup), make(chan struct{}, maxAsks)
	ctx, a.stopAsks = context.WithCancel(ctx)
	for {
		if err := nextEvent(a.lines, a.spool); err != nil {
			return readError(err)
		}
		m, err := a.spool.message()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		if m.method == nil {
			return a.take(m, id)
		}
		if a.spool.file != nil {
			c.log.Warn("a message before an answer was too large to pass on")
			continue
		}
		c.early(ctx, s, m, a, id, cl)
	}
}

// early takes a message that comes before the answer.
func (c *Child) early(ctx context.Context, s *session, m message, a *Answer, id uint64, cl call) {
	method, _ := rawjson.Text(m.method)
	switch {
	case m.id != nil && method == "ping":
		c.reply(ctx, s, m.id, []byte(`"result":{}`), a)
	case m.id != nil && cl.sink == nil:
		c.reply(ctx, s, m.id, []byte(`"error":{"code":-32601,"message":"nobody can be asked here"}`), a)
	case m.id != nil:
		childID, params := bytes.Clone(m.id), bytes.Clone(m.params)
		a.aside(ctx, func() { c.reply(ctx, s, childID, cl.sink.Ask(ctx, method, params), nil) })
	case method == "notifications/tools/list_changed":
		s.noteChange()
	case cl.sink == nil:
	case method == "notifications/progress":
		if cl.token != nil {
			if b := retoken(a.spool.mem, m.params, id, cl.token); b != nil {
				cl.sink.Notify(b)
			}
		}
	default:
		cl.sink.Notify(a.spool.mem)
	}
}

// maxAsks is how many requests of a server may wait for their answers within one call; more of its stream is read only when one of them has its own.
const maxAsks = 32

// aside does something beside the reading of the stream.
func (a *Answer) aside(ctx context.Context, do func()) {
	select {
	case a.asking <- struct{}{}:
	case <-ctx.Done():
		return
	}
	a.asks.Go(func() {
		defer func() { <-a.asking }()
		do()
	})
}

func (s *session) noteChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// reply answers a request of the child; beside, when there is one, has it done beside what comes next in its stream.
func (c *Child) reply(ctx context.Context, s *session, id, member []byte, beside *Answer) {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(append(append(b, ','), member...), '}')
	send := func() {
		if err := s.notify(ctx, b); err != nil && ctx.Err() == nil {
			c.log.Debug("an answer to a server's request couldn't be sent", "error", err)
		}
	}
	if beside == nil {
		send()
		return
	}
	beside.aside(ctx, send)
}

// retoken is a progress notification with the caller's token in place of ours; nil when it is about another call.
func retoken(msg, params []byte, id uint64, token []byte) []byte {
	ours := rawjson.Get(params, "progressToken")
	if string(bytes.Trim(ours, `"`)) != strconv.FormatUint(id, 10) {
		return nil
	}
	at := cap(msg) - cap(ours) // ours is a part of msg
	out := make([]byte, 0, len(msg)+len(token))
	out = append(append(out, msg[:at]...), token...)
	return append(out, msg[at+len(ours):]...)
}

// nextEvent reads the data of the next event of a stream that has any.
func nextEvent(r *bufio.Reader, into *spool) error {
	into.reset()
	data, begin := false, true // begin: at a line's beginning
	var keep bool              // the line under way is data
	for {
		line, err := r.ReadSlice('\n')
		whole := err == nil
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if whole {
			line = bytes.TrimRight(line, "\r\n")
		}
		if begin {
			if len(line) == 0 && whole {
				if data && into.n > 0 {
					return nil
				}
				data = false
				into.reset()
				continue
			}
			line, keep = bytes.CutPrefix(line, []byte("data:"))
			if keep {
				line = bytes.TrimPrefix(line, []byte(" "))
				if data {
					line = append([]byte("\n"), line...)
				}
				data = true
			}
		}
		if begin = whole; !keep {
			continue
		}
		if _, err := into.Write(line); err != nil {
			return err
		}
	}
}

// listen follows the child's standing stream, which tells of changes of its list.
func (c *Child) listen(ctx context.Context, s *session) {
	for pause := connectPause; ctx.Err() == nil; pause = min(2*pause, maxRestartPause) {
		began := time.Now()
		if err := c.listenOnce(ctx, s); errors.Is(err, errNoStream) || errors.Is(err, errSession) {
			return // the next call meets a lost session by itself
		}
		if time.Since(began) > time.Minute {
			pause = connectPause
		}
		s.noteChange() // whatever was told meanwhile is lost
		if sleep.For(ctx, pause) != nil {
			return
		}
	}
}

var errNoStream = errors.New("no standing stream")

func (c *Child) listenOnce(ctx context.Context, s *session) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoStream, err)
	}
	req.Header = s.header.Clone()
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return errSession
	case resp.StatusCode != http.StatusOK:
		return errNoStream
	}
	r, sp := bufio.NewReader(resp.Body), newSpool(memoryLimit)
	defer sp.free()
	for {
		if err := nextEvent(r, sp); err != nil {
			return err
		}
		m, err := sp.message()
		if err != nil {
			continue
		}
		switch method, _ := rawjson.Text(m.method); {
		case method == "notifications/tools/list_changed":
			s.noteChange()
		case m.id != nil && method == "ping":
			c.reply(ctx, s, m.id, []byte(`"result":{}`), nil)
		case m.id != nil && m.method != nil:
			c.reply(ctx, s, m.id, []byte(`"error":{"code":-32601,"message":"nobody can be asked outside of a call"}`), nil)
		}
	}
}
