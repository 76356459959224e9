package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler is a Handler made of functions.
type handler struct {
	handle func(ctx context.Context, method string, params json.RawMessage) (any, error)
	notify func(method string, params json.RawMessage)
}

func (h handler) Handle(ctx context.Context, method string, params json.RawMessage) (any, error) {
	return h.handle(ctx, method, params)
}

func (h handler) Notify(method string, params json.RawMessage) {
	if h.notify != nil {
		h.notify(method, params)
	}
}

// side is a running peer.
type side struct {
	*Peer
	conn net.Conn
	err  chan error
}

// pair connects two peers; the test's end closes both and waits for them.
func pair(t testing.TB, a, b Handler) (*side, *side) {
	t.Helper()
	return pairOf(t, MaxMessage, a, b)
}

// pairOf is a pair whose messages have at most longest bytes.
func pairOf(t testing.TB, longest int, a, b Handler) (*side, *side) {
	t.Helper()
	x, y := net.Pipe()
	run := func(c net.Conn, h Handler) *side {
		s := &side{New(c, c, h), c, make(chan error, 1)}
		s.max = longest
		go func() { s.err <- s.Run(context.WithoutCancel(t.Context())) }()
		return s
	}
	l, r := run(x, a), run(y, b)
	t.Cleanup(func() {
		_ = x.Close()
		_ = y.Close()
		<-l.Done()
		<-r.Done()
	})
	return l, r
}

func echo(_ context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case "echo":
		return params, nil
	case "fail":
		return nil, &Error{Code: -32010, Message: "no <luck>", Data: json.RawMessage(`{"type":"X"}`)}
	case "defect":
		return nil, errors.New("oh")
	default:
		return nil, Errorf(CodeNoMethod, "no method %s", method)
	}
}

func TestCalls(t *testing.T) {
	a, b := pair(t, handler{handle: echo}, handler{handle: echo})
	var wg sync.WaitGroup
	for _, p := range []*side{a, b} {
		for i := range 200 {
			wg.Go(func() {
				var got []string
				want := fmt.Sprintf("%d <&>\u2028", i)
				if err := p.Call(t.Context(), "echo", []string{want}, &got, nil); err != nil || len(got) != 1 || got[0] != want {
					t.Error(got, err)
				}
			})
		}
	}
	wg.Wait()
	err := a.Call(t.Context(), "fail", nil, nil, nil)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != -32010 || e.Message != "no <luck>" || string(e.Data) != `{"type":"X"}` {
		t.Errorf("%#v", err)
	}
	if err := a.Call(t.Context(), "defect", nil, nil, nil); CodeOf(err) != CodeInternal || err.Error() != "oh" {
		t.Error(err)
	}
	if err := a.Call(t.Context(), "nothing", nil, nil, nil); CodeOf(err) != CodeNoMethod {
		t.Error(err)
	}
	if err := a.Call(t.Context(), "echo", 5, new(string), nil); err == nil || !strings.Contains(err.Error(), "answer to echo") {
		t.Error(err)
	}
}

// TestCallsBackWhileAllWorkersAreBusy: both sides work on as many requests as they can, and each needs an answer of the other.
func TestCallsBackWhileAllWorkersAreBusy(t *testing.T) {
	var a, b *side
	back := func(other func() *side) handler {
		return handler{handle: func(ctx context.Context, method string, params json.RawMessage) (any, error) {
			if method == "echo" {
				return params, nil
			}
			var n int
			err := other().Call(ctx, "echo", 7, &n, nil)
			return n, err
		}}
	}
	ready := make(chan struct{})
	a, b = pair(t, back(func() *side { <-ready; return a }), back(func() *side { <-ready; return b }))
	close(ready)
	var wg sync.WaitGroup
	for _, p := range []*side{a, b} {
		for range MaxWorkers {
			wg.Go(func() {
				var n int
				if err := p.Call(t.Context(), "nested", nil, &n, nil); err != nil || n != 7 {
					t.Error(n, err)
				}
			})
		}
	}
	wg.Wait()
}

func TestCancelReachesTheOtherSide(t *testing.T) {
	started, stopped := make(chan struct{}), make(chan error, 1)
	a, _ := pair(t, nil, handler{handle: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		close(started)
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return nil, ctx.Err()
	}})
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	settled := make(chan struct{})
	go func() { <-started; cancel(cause) }()
	if err := a.Call(ctx, "wait", nil, nil, func(json.RawMessage) { close(settled) }); !errors.Is(err, cause) {
		t.Error(err)
	}
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-settled
}

// TestCancelsAreReadWhileAllWorkersAreBusy: a cancel of what waits for a worker is heard as well.
func TestCancelsAreReadWhileAllWorkersAreBusy(t *testing.T) {
	var begun atomic.Int64
	a, _ := pair(t, nil, handler{handle: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		begun.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var settled sync.WaitGroup
	for range MaxWorkers + 40 {
		settled.Add(1)
		wg.Go(func() {
			if err := a.Call(ctx, "wait", nil, nil, func(json.RawMessage) { settled.Done() }); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for begun.Load() < MaxWorkers {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
	settled.Wait()
	if n := begun.Load(); n > MaxWorkers+40 {
		t.Error(n)
	}
}

func TestQueueIsBounded(t *testing.T) {
	free := make(chan struct{})
	a, _ := pair(t, nil, handler{handle: func(context.Context, string, json.RawMessage) (any, error) {
		<-free
		return 1, nil
	}})
	var busy, done atomic.Int64
	var wg sync.WaitGroup
	for range MaxWorkers + MaxWaiting + 50 {
		wg.Go(func() {
			switch err := a.Call(t.Context(), "wait", nil, nil, nil); CodeOf(err) {
			case CodeBusy:
				if busy.Add(1) == 1 {
					close(free)
				}
			case 0:
				if err != nil {
					t.Error(err)
				}
				done.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if busy.Load() == 0 || done.Load() < MaxWaiting {
		t.Error(busy.Load(), done.Load())
	}
}

func TestEndFailsEveryCall(t *testing.T) {
	began := make(chan struct{}, 3)
	a, b := pair(t, nil, handler{handle: func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	errs := make(chan error)
	for range 3 {
		go func() { errs <- a.Call(t.Context(), "wait", nil, nil, nil) }()
	}
	for range 3 {
		<-began
	}
	_ = b.conn.Close()
	for range 3 {
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	<-a.Done()
	if err := a.Call(t.Context(), "wait", nil, nil, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestASideThatIsGone: a call that can't be sent, since nobody reads any more, fails as one whose connection has ended, before the reader has found that out.
func TestASideThatIsGone(t *testing.T) {
	in, end := io.Pipe()
	r, w, err := os.Pipe()
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	p := New(in, w, nil)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.WithoutCancel(t.Context())) }()
	if err := p.Call(t.Context(), "x", nil, nil, nil); !errors.Is(err, ErrClosed) || !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	_ = errors.Join(end.Close(), w.Close())
	<-ended
}

// TestASideThatDoesNotRead: a call to it can be given up, and the connection ended.
func TestASideThatDoesNotRead(t *testing.T) {
	x, y := net.Pipe() // nobody reads y
	p := New(x, x, nil)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.WithoutCancel(t.Context())) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Call(ctx, "x", strings.Repeat("x", 1<<20), nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	_ = x.Close()
	_ = y.Close()
	<-ended
}

// TestBrokenInput: what can't be trusted ends the connection, and says why.
func TestBrokenInput(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want error
	}{
		"empty":             {"", nil},
		"blank lines":       {"\n  \r\n\t\n", nil},
		"whole":             {`{"jsonrpc":"2.0","method":"x"}` + "\n", nil},
		"unknown answer":    {`{"jsonrpc":"2.0","id":9,"result":null}` + "\r\n", nil},
		"unknown members":   {`{"jsonrpc":"2.0","method":"x","more":{"a":[]}}` + "\n", nil},
		"cut":               {`{"jsonrpc":"2.0"`, io.ErrUnexpectedEOF},
		"cut and long":      {strings.Repeat("x", 1<<17), io.ErrUnexpectedEOF},
		"text":              {"hello\n", ErrNotMessage},
		"batch":             {"[]\n", ErrNotMessage},
		"version":           {`{"jsonrpc":"1.0","method":"x"}` + "\n", ErrNotMessage},
		"id is an object":   {`{"jsonrpc":"2.0","id":{},"method":"x"}` + "\n", ErrNotMessage},
		"nothing":           {`{"jsonrpc":"2.0"}` + "\n", ErrNotMessage},
		"answer of nothing": {`{"jsonrpc":"2.0","id":1}` + "\n", ErrNotMessage},
		"too long":          {`{"jsonrpc":"2.0","method":"` + strings.Repeat("x", 1<<20) + `"}` + "\n", ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(strings.NewReader(c.in), io.Discard, handler{})
			p.max = 1 << 19
			if err := p.Run(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestSameIDTwice(t *testing.T) {
	x, y := net.Pipe()
	free := make(chan struct{})
	p := New(x, x, handler{handle: func(context.Context, string, json.RawMessage) (any, error) { <-free; return 1, nil }})
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.WithoutCancel(t.Context())) }()
	go func() {
		_, _ = io.WriteString(y, strings.Repeat(`{"jsonrpc":"2.0","id":"a","method":"x"}`+"\n", 2))
	}()
	r := newReader(y, MaxMessage)
	for i := range 2 {
		line, err := r.line()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(line); i == 0 && !strings.Contains(got, "-32600") || i == 1 && got != `{"jsonrpc":"2.0","id":"a","result":1}` {
			t.Error(got)
		}
		if i == 0 {
			close(free)
		}
	}
	_ = y.Close()
	_ = x.Close()
	<-ended
}

func TestAnswersThatAreTooLong(t *testing.T) {
	a, _ := pairOf(t, 1<<15, nil, handler{handle: func(context.Context, string, json.RawMessage) (any, error) { return strings.Repeat("x", 1<<16), nil }})
	if err := a.Call(t.Context(), "x", nil, nil, nil); CodeOf(err) != CodeInternal || !strings.Contains(err.Error(), "put it into a file") {
		t.Error(err)
	}
	if err := a.Call(t.Context(), "x", strings.Repeat("x", 1<<16), nil, nil); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
}

// FuzzReader: whatever the other side sends, the reader ends, with lines within bounds, and every line that decodes is a message.
func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":[]}\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}\n"))
	f.Add([]byte("x\ny"))
	f.Add(append(bytes.Repeat([]byte("a"), 90), '\n')) // longer than the buffer
	f.Add(bytes.Repeat([]byte("a"), 120))              // too long
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 100 // and a buffer of half of that: the fuzzer makes long inputs shorter for a minute each
		r := newReader(bytes.NewReader(in), limit)
		var got []byte
		for {
			line, err := r.line()
			if err != nil {
				break
			}
			if len(line) > limit || bytes.ContainsRune(line, '\n') || len(bytes.TrimSpace(line)) != len(line) {
				t.Fatalf("a line of %d bytes", len(line))
			}
			got = append(append(got, line...), '\n')
			if m, err := decode(line); err == nil && m.Method == "" && m.ID == nil && m.Error == nil {
				t.Fatalf("%s", line)
			}
		}
		if len(got) > len(in)+1 {
			t.Fatal("more than came")
		}
		p := New(bytes.NewReader(in), io.Discard, handler{handle: echo})
		p.max = limit
		_ = p.Run(t.Context())
	})
}

func BenchmarkCall(b *testing.B) {
	a, _ := pair(b, nil, handler{handle: echo})
	for b.Loop() {
		var n int
		if err := a.Call(b.Context(), "echo", 1, &n, nil); err != nil {
			b.Fatal(err)
		}
	}
}
