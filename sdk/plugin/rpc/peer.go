package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// Handler serves what the other side asks. Its methods are called from several goroutines.
type Handler interface {
	// Handle answers a request. ctx ends when the other side cancels it or the connection ends. An error that isn't an *Error is answered as CodeInternal,
	// a nil result as null.
	Handle(ctx context.Context, method string, params json.RawMessage) (any, error)
	// Notify takes a notification. It is called from the reader, in the order in which they came, and must not block.
	Notify(method string, params json.RawMessage)
}

// Peer is one side of a connection.
type Peer struct {
	h       Handler
	w       writer
	in      io.Reader
	max     int
	long    bool // a message that is too long fails its call and not the connection
	next    atomic.Int64
	queue   chan task
	refused atomic.Int64   // refusals being sent
	loose   sync.WaitGroup // goroutines and calls that end with the connection

	mu      sync.Mutex
	pending map[string]chan<- *message         // our calls
	running map[string]context.CancelCauseFunc // theirs
	closed  error
	done    chan struct{}
}

type task struct {
	ctx context.Context //nolint:containedctx // the request's: it ends with its cancel, while it waits too
	m   *message
}

// New makes a peer that reads in and writes out; Run makes it work. h may be nil: then every request is refused.
func New(in io.Reader, out io.Writer, h Handler) *Peer {
	return &Peer{
		h: h, w: writer{out: out}, in: in, max: MaxMessage, queue: make(chan task, MaxWaiting),
		pending: map[string]chan<- *message{}, running: map[string]context.CancelCauseFunc{}, done: make(chan struct{}),
	}
}

// Long makes the peer take messages of up to most bytes, and fail the one call whose answer is longer in place of the connection: for other sides that are
// not under the limits of plugins. It is called before Run.
func (p *Peer) Long(most int) { p.max, p.long = most, true }

// Run reads messages until the input ends or the other side breaks the protocol. Who owns the streams closes both to end it. All calls of both sides have
// ended when it returns; its error is nil when the input ended between messages.
func (p *Peer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	err := p.read(ctx, &workers)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	p.end(err)
	cancel(ErrClosed)
	close(p.queue)
	workers.Wait()
	p.loose.Wait()
	return err
}

// read dispatches messages. Workers are started as they are needed.
func (p *Peer) read(ctx context.Context, workers *sync.WaitGroup) error {
	r := newReader(p.in, p.max)
	idle := make(chan struct{}, MaxWorkers)
	started := 0
	for {
		line, err := r.line()
		if p.long && errors.Is(err, ErrTooLong) {
			head, tail, err := r.skip()
			if err != nil {
				return err
			}
			p.tooLong(head, tail)
			continue
		}
		if err != nil {
			return err
		}
		m, err := decode(bytes.Clone(line))
		if err != nil {
			return err
		}
		switch {
		case m.Method == "":
			p.answered(m)
		case m.Method == CancelMethod:
			p.cancelled(m.Params)
		case m.ID == nil:
			if p.h != nil {
				p.h.Notify(m.Method, m.Params)
			}
		default:
			if !p.enqueue(ctx, m) {
				continue
			}
			select {
			case <-idle: // somebody is free, or will be at once
			default:
				if started < MaxWorkers {
					started++
					workers.Go(func() { p.work(idle) })
				}
			}
		}
	}
}

// enqueue makes a request wait for a worker.
func (p *Peer) enqueue(ctx context.Context, m *message) bool {
	id := string(m.ID)
	p.mu.Lock()
	if _, twice := p.running[id]; twice {
		p.mu.Unlock()
		p.refuse(m.ID, Errorf(CodeInvalidRequest, "a request of id %s is being worked on", id))
		return false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p.running[id] = cancel
	p.mu.Unlock()
	select {
	case p.queue <- task{ctx, m}:
		return true
	default:
		p.settle(id)
		p.refuse(m.ID, Errorf(CodeBusy, "%d requests are waiting; try again later", MaxWaiting))
		return false
	}
}

// refuse answers from a goroutine of its own: the reader must never wait for the other side to read. There are never more of them than the other side
// has requests open beyond those that wait.
func (p *Peer) refuse(id json.RawMessage, e *Error) {
	if p.refused.Add(1) > MaxWaiting { // it doesn't read answers at all
		p.refused.Add(-1)
		return
	}
	p.loose.Go(func() {
		defer p.refused.Add(-1)
		_ = p.send(&message{ID: id, Error: e})
	})
}

// settle forgets a request of theirs.
func (p *Peer) settle(id string) {
	p.mu.Lock()
	cancel := p.running[id]
	delete(p.running, id)
	p.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

func (p *Peer) work(idle chan<- struct{}) {
	for t := range p.queue {
		p.serve(t)
		select {
		case idle <- struct{}{}:
		default:
		}
	}
}

// serve answers one request.
func (p *Peer) serve(t task) {
	defer p.settle(string(t.m.ID))
	result, err := p.handle(t)
	out := &message{ID: t.m.ID}
	if err == nil {
		if out.Result, err = encode(result); err != nil {
			err = Errorf(CodeInternal, "the answer can't be written as JSON")
		}
	}
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		switch {
		case ok:
		case errors.Is(err, context.Canceled) && t.ctx.Err() != nil:
			e = Errorf(CodeCancelled, "cancelled")
		default:
			e = Errorf(CodeInternal, "%v", err)
		}
		out.Result, out.Error = nil, e
	}
	if errors.Is(p.send(out), ErrTooLong) {
		_ = p.send(&message{ID: t.m.ID, Error: Errorf(CodeInternal, "the answer is longer than %d MiB: put it into a file", p.max>>20)})
	}
}

func (p *Peer) handle(t task) (any, error) {
	if t.ctx.Err() != nil {
		return nil, t.ctx.Err()
	}
	if p.h == nil {
		return nil, Errorf(CodeNoMethod, "there is no method %q here", t.m.Method)
	}
	return p.h.Handle(t.ctx, t.m.Method, t.m.Params)
}

// answered gives an answer to who waits for it.
func (p *Peer) answered(m *message) {
	p.mu.Lock()
	c := p.pending[string(m.ID)]
	delete(p.pending, string(m.ID))
	p.mu.Unlock()
	if c != nil {
		c <- m
	}
}

func (p *Peer) cancelled(params json.RawMessage) {
	var c struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(params, &c) != nil {
		return
	}
	p.mu.Lock()
	cancel := p.running[string(c.ID)]
	p.mu.Unlock()
	if cancel != nil {
		cancel(context.Canceled)
	}
}

// end fails all calls of ours.
func (p *Peer) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = ErrClosed
	if why != nil {
		p.closed = fmt.Errorf("%w: %w", ErrClosed, why)
	}
	close(p.done)
}

// Done is closed when the connection has ended.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Call asks the other side and decodes its answer into result, which may be nil. When ctx ends first, the other side is told, and Call returns the cause
// at once; settled, which may be nil, is called when the answer has come, after all, or the connection has ended: with the result that came too
// late, if one did. An error of the other side is an *Error, of a connection that ended ErrClosed.
func (p *Peer) Call(ctx context.Context, method string, params, result any, settled func(late json.RawMessage)) error {
	if settled == nil {
		settled = func(json.RawMessage) {}
	}
	err := context.Cause(ctx)
	var b json.RawMessage
	if err == nil {
		b, err = encode(params)
	}
	if err != nil {
		settled(nil)
		return err
	}
	id := strconv.FormatInt(p.next.Add(1), 10)
	c := make(chan *message, 1)
	if err := p.enter(id, c); err != nil {
		settled(nil)
		return err
	}
	sent := make(chan error, 1)
	go func() { // the other side may be slow to read
		defer p.loose.Done()
		sent <- p.send(&message{ID: json.RawMessage(id), Method: method, Params: b})
	}()
	for {
		select {
		case err := <-sent:
			if err == nil {
				sent = nil
				continue
			}
			p.leave(id, settled, nil)
			if closed := p.isClosed(); closed != nil {
				return closed
			}
			return fmt.Errorf("send %s: %w", method, err)
		case m := <-c:
			p.leave(id, settled, nil)
			return take(m, method, result)
		case <-p.done:
			p.leave(id, settled, nil)
			select {
			case m := <-c: // the answer was the last that came
				return take(m, method, result)
			default:
				return p.isClosed()
			}
		case <-ctx.Done():
			go p.abandon(id, c, settled)
			return context.Cause(ctx)
		}
	}
}

// enter begins a call, whose answer goes to c: the call and the sending of it are waited for by Run.
func (p *Peer) enter(id string, c chan<- *message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return p.closed
	}
	p.pending[id] = c
	p.loose.Add(2)
	return nil
}

// leave ends a call.
func (p *Peer) leave(id string, settled func(json.RawMessage), late json.RawMessage) {
	p.mu.Lock()
	delete(p.pending, id)
	p.mu.Unlock()
	settled(late)
	p.loose.Done()
}

// abandon tells the other side that an answer isn't needed, and waits for it all the same. It ends with the connection.
func (p *Peer) abandon(id string, c <-chan *message, settled func(json.RawMessage)) {
	var late json.RawMessage
	defer func() { p.leave(id, settled, late) }()
	_ = p.Notify(CancelMethod, map[string]json.RawMessage{"id": json.RawMessage(id)})
	select {
	case m := <-c:
		if m.Error == nil {
			late = m.Result
		}
	case <-p.done:
	}
}

func (p *Peer) isClosed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func take(m *message, method string, result any) error {
	if m.Error != nil {
		return m.Error
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		return fmt.Errorf("the answer to %s is not what it should be: %w", method, err)
	}
	return nil
}

// Notify tells the other side something that has no answer.
func (p *Peer) Notify(method string, params any) error {
	b, err := encode(params)
	if err != nil {
		return err
	}
	return p.send(&message{Method: method, Params: b})
}

// send writes a message whole.
func (p *Peer) send(m *message) error {
	m.Version = "2.0"
	if m.Method == "" && m.Error == nil && m.Result == nil {
		m.Result = json.RawMessage("null")
	}
	b, err := encode(m)
	if err != nil {
		return err
	}
	if len(b) > p.max {
		return ErrTooLong
	}
	if err = p.w.line(append(b, '\n')); errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err) // the reader is about to find the end too
	}
	return err
}

// encode is JSON without the escapes that HTML needs, and without its end of line.
func encode(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok && raw != nil {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
