package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env is an MCP server by hand, so that it can misbehave.
type env struct {
	t        *testing.T
	mu       sync.Mutex
	sessions map[string]bool
	inits    int
	seen     []string         // methods
	tools    []string         // pages of tools/list: the elements, with commas
	call     http.HandlerFunc // answers tools/call; the body is in body(r)
	standing chan string      // events of the standing stream
	caps     string
	notes    chan string // notifications that came
}

type bodyKey struct{}

func body(r *http.Request) string { s, _ := r.Context().Value(bodyKey{}).(string); return s }

func id(b string) string {
	var m struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(b), &m)
	return string(m.ID)
}

func newEnv(t *testing.T) *env {
	return &env{t: t, sessions: map[string]bool{}, tools: []string{`{"name":"a","inputSchema":{"type":"object"}}`}, caps: `{"tools":{}}`, notes: make(chan string, 100)}
}

func (e *env) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, string(b)))
	var m struct {
		Method string
		ID     json.RawMessage
		Params struct{ Cursor string }
	}
	_ = json.Unmarshal(b, &m)
	e.mu.Lock()
	known := e.sessions[r.Header.Get("Mcp-Session-Id")]
	e.seen = append(e.seen, m.Method)
	if m.Method == "initialize" {
		e.inits++
		s := fmt.Sprint("s", e.inits)
		e.sessions[s] = true
		w.Header().Set("Mcp-Session-Id", s)
		known = true
	}
	e.mu.Unlock()
	switch {
	case !known:
		http.Error(w, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`, http.StatusNotFound)
	case r.Method == http.MethodGet:
		e.stand(w, r)
	case r.Method == http.MethodDelete:
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
		select {
		case e.notes <- string(b):
		default:
		}
	case m.Method == "initialize":
		reply(w, m.ID, `{"protocolVersion":"2025-06-18","capabilities":`+e.caps+`}`)
	case m.Method == "tools/list":
		page := 0
		_, _ = fmt.Sscanf(m.Params.Cursor, "p%d", &page)
		next := ""
		if page+1 < len(e.tools) {
			next = fmt.Sprintf(`,"nextCursor":"p%d"`, page+1)
		}
		reply(w, m.ID, `{"tools":[`+e.tools[page]+`]`+next+`}`)
	case m.Method == "ping":
		reply(w, m.ID, `{}`)
	default:
		e.call(w, r)
	}
}

func reply(w http.ResponseWriter, id json.RawMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (e *env) stand(w http.ResponseWriter, r *http.Request) {
	if e.standing == nil {
		http.Error(w, "no", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case ev := <-e.standing:
			fmt.Fprintf(w, "event: message\r\ndata: %s\r\n\r\n", ev)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (e *env) count(method string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, m := range e.seen {
		if m == method {
			n++
		}
	}
	return n
}

func start(t *testing.T, o Options) *Child {
	t.Helper()
	o.Name = "x"
	c := New(o)
	c.Start(t.Context())
	t.Cleanup(c.Close)
	return c
}

func up(t *testing.T, c *Child) {
	t.Helper()
	until(t, "the child", func() bool { return c.Status().Up })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 5000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s didn't come", what)
}

// callOnce gives the result's or error's bytes.
func callOnce(t *testing.T, c *Child, sink Sink, token []byte) (string, error) {
	t.Helper()
	a, err := c.Call(t.Context(), "tools/call", func(id uint64, b []byte) []byte {
		return fmt.Appendf(b, `{"name":"a","arguments":{"n":1.0},"_meta":{"progressToken":%d}}`, id)
	}, token, sink)
	if err != nil {
		return "", err
	}
	defer a.Close()
	v := a.Result
	if v.None() {
		v = a.Error
	}
	b := make([]byte, v.Len())
	if n, err := v.ReadAt(b, 0); n < len(b) {
		t.Fatal(err)
	}
	return string(b), nil
}

type sink struct {
	mu    sync.Mutex
	notes []string
	asked []string
	reply string
}

func (s *sink) Notify(m []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, string(m))
}

func (s *sink) Ask(_ context.Context, method string, params []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, method+string(params))
	return []byte(s.reply)
}

func TestPagesAndChanges(t *testing.T) {
	e := newEnv(t)
	e.caps, e.standing = `{"tools":{"listChanged":true}}`, make(chan string)
	e.tools = []string{`{"name":"a"},{"name":"b"}`, `{"name":"c"}`, ``, `{"name":"d"}`}
	srv := httptest.NewServer(e)
	defer srv.CloseClientConnections()
	c := start(t, Options{URL: srv.URL})
	up(t, c)
	if n := len(c.Tools()); n != 4 {
		t.Errorf("%d tools: %s", n, c.Tools())
	}
	e.mu.Lock()
	e.tools = []string{`{"name":"z"}`}
	e.mu.Unlock()
	e.standing <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	until(t, "the changed list", func() bool { l := c.Tools(); return len(l) == 1 && strings.Contains(string(l[0]), "z") })
	c.Close()
	srv.Close()
}

func TestStream(t *testing.T) {
	e := newEnv(t)
	e.call = func(w http.ResponseWriter, r *http.Request) {
		n := id(body(r))
		w.Header().Set("Content-Type", "text/event-stream")
		events := []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":` + n + `,"total":3.0}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":99999}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`,
			`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"?"}}`,
		}
		for _, ev := range events {
			fmt.Fprintf(w, ": c\nid: 7\nevent: message\ndata: %s\n\n", ev)
			_ = http.NewResponseController(w).Flush()
		}
		answer := <-e.notes // the reply to the question comes as a POST of its own
		for strings.Contains(answer, "initialized") {
			answer = <-e.notes
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\ndata: \"result\":{\"got\":%s}}\n\n", n, answer)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // a server that leaves the stream open
	}
	srv := httptest.NewServer(e)
	c := start(t, Options{URL: srv.URL})
	up(t, c)
	s := &sink{reply: `"result":{"action":"accept"}`}
	got, err := callOnce(t, c, s, []byte(`"mine"`))
	if err != nil || !strings.Contains(got, `"id":"q1","result":{"action":"accept"}`) {
		t.Errorf("%s, %v", got, err)
	}
	want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"mine","total":3.0}}`
	if len(s.notes) != 2 || s.notes[0] != want || len(s.asked) != 1 || s.asked[0] != `elicitation/create{"message":"?"}` {
		t.Errorf("notes %q, asked %q", s.notes, s.asked)
	}
	c.Close()
	srv.Close()
}

// TestLostSession: a call on a session that the server has forgotten was not done, so it is repeated on a new one, which is made once.
func TestLostSession(t *testing.T) {
	e := newEnv(t)
	e.call = func(w http.ResponseWriter, r *http.Request) { reply(w, json.RawMessage(id(body(r))), `{"ok":1}`) }
	srv := httptest.NewServer(e)
	defer srv.Close()
	c := start(t, Options{URL: srv.URL})
	up(t, c)
	e.mu.Lock()
	e.sessions = map[string]bool{}
	e.mu.Unlock()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got, err := callOnce(t, c, nil, nil); err != nil || got != `{"ok":1}` {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	wg.Wait()
	if n := e.count("initialize"); n != 2 {
		t.Errorf("%d sessions were made", n)
	}
	if g := c.Status().Generation; g != 2 {
		t.Errorf("generation %d", g)
	}
	c.Close()
}

// TestNotRepeated: a call whose connection breaks after it was sent may have been done.
func TestNotRepeated(t *testing.T) {
	e := newEnv(t)
	var calls atomic.Int32
	e.call = func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	srv := httptest.NewServer(e)
	defer srv.Close()
	c := start(t, Options{URL: srv.URL})
	up(t, c)
	if _, err := callOnce(t, c, nil, nil); !errors.Is(err, ErrLost) || calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	// The server lives: the session stays.
	e.call = func(w http.ResponseWriter, r *http.Request) { reply(w, json.RawMessage(id(body(r))), `{}`) }
	if _, err := callOnce(t, c, nil, nil); err != nil || c.Status().Generation != 1 {
		t.Errorf("%v, generation %d", err, c.Status().Generation)
	}
	c.Close()
}

// TestCutStream: a call whose stream of events breaks off fails at once, whoever waits for it, and the next one works in the same session.
func TestCutStream(t *testing.T) {
	e := newEnv(t)
	e.call = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{}}\n\ndata: {\"jsonrpc\":\"2.0\",")
		_ = http.NewResponseController(w).Flush()
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}
	srv := httptest.NewServer(e)
	defer srv.Close()
	c := start(t, Options{URL: srv.URL})
	up(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // far beyond what a cut takes, and far below a call's deadline
	defer cancel()
	if _, err := c.Call(ctx, "tools/call", func(_ uint64, b []byte) []byte { return append(b, `{"name":"x"}`...) }, nil, &sink{}); err == nil || ctx.Err() != nil {
		t.Errorf("a stream that was cut: %v", err)
	}
	e.call = func(w http.ResponseWriter, r *http.Request) { reply(w, json.RawMessage(id(body(r))), `{"ok":1}`) }
	if got, err := callOnce(t, c, nil, nil); err != nil || got != `{"ok":1}` {
		t.Errorf("the call after: %s %v", got, err)
	}
	c.Close()
}

// TestRestart: a dead server is restarted once for many calls that wait, and they are done then.
func TestRestart(t *testing.T) {
	e := newEnv(t)
	e.call = func(w http.ResponseWriter, r *http.Request) { reply(w, json.RawMessage(id(body(r))), `{"ok":1}`) }
	srv := httptest.NewServer(e)
	addr := srv.Listener.Addr().String()
	var restarts atomic.Int32
	var second *httptest.Server
	c := start(t, Options{URL: "http://" + addr, Restart: func(ctx context.Context) error {
		restarts.Add(1)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		second = httptest.NewUnstartedServer(e)
		second.Listener.Close()
		second.Listener = l
		second.Start()
		return nil
	}})
	up(t, c)
	srv.CloseClientConnections()
	srv.Close()
	c.own.CloseIdleConnections() // a call into one that the server has closed may have been done, and would not be repeated
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := callOnce(t, c, nil, nil); err != nil || got != `{"ok":1}` {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	wg.Wait()
	if n := restarts.Load(); n != 1 {
		t.Errorf("%d restarts", n)
	}
	c.Close()
	second.Close()
}

// TestBreaker: what has been down for long is not waited for.
func TestBreaker(t *testing.T) {
	c := New(Options{Name: "x", URL: "http://127.0.0.1:1"})
	c.mu.Lock()
	c.downFor = time.Now().Add(-grace)
	c.mu.Unlock()
	c.Start(t.Context())
	defer c.Close()
	began := time.Now()
	if _, err := callOnce(t, c, nil, nil); !errors.Is(err, ErrDown) || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func TestCancelAndDeadline(t *testing.T) {
	e := newEnv(t)
	var last atomic.Value
	e.call = func(_ http.ResponseWriter, r *http.Request) {
		last.Store(id(body(r)))
		<-r.Context().Done()
	}
	srv := httptest.NewServer(e)
	c := start(t, Options{URL: srv.URL, Deadline: 50 * time.Millisecond})
	up(t, c)
	if _, err := callOnce(t, c, nil, nil); !errors.Is(err, ErrTimeout) {
		t.Errorf("a call without an answer: %v", err)
	}
	told := func() string {
		for {
			if n := <-e.notes; strings.Contains(n, "cancelled") {
				return n
			}
		}
	}
	if got, want := told(), `"requestId":`+last.Load().(string); !strings.Contains(got, want) {
		t.Errorf("told %s, want %s", got, want)
	}
	why := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	_, err := c.Call(ctx, "tools/call", func(_ uint64, b []byte) []byte { return append(b, "{}"...) }, nil, nil)
	if !errors.Is(err, why) {
		t.Errorf("a cancelled call: %v", err)
	}
	told()
	c.Close()
	srv.Close()
}

func TestBadAnswers(t *testing.T) {
	e := newEnv(t)
	srv := httptest.NewServer(e)
	defer srv.Close()
	c := start(t, Options{URL: srv.URL, MaxAnswer: 3 << 20})
	up(t, c)
	for name, tt := range map[string]struct {
		kind, body string
		status     int
		want       error
	}{
		"no JSON":         {"application/json", `{"jsonrpc":`, 200, ErrBroken},
		"another request": {"application/json", `{"jsonrpc":"2.0","id":123456,"result":{}}`, 200, ErrBroken},
		"no result":       {"application/json", `{"jsonrpc":"2.0","id":ID}`, 200, ErrBroken},
		"a text":          {"application/json", `{"jsonrpc":"2.0","id":ID,"result":"surprise"}`, 200, ErrBroken},
		"a large list":    {"application/json", `{"jsonrpc":"2.0","id":ID,"result":["` + strings.Repeat("x", 2<<20) + `"]}`, 200, ErrBroken},
		"an error's text": {"text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":\"no\"}\n\n", 200, ErrBroken},
		"two results":     {"application/json", `{"jsonrpc":"2.0","id":ID,"result":{},"result":{}}`, 200, ErrBroken},
		"no kind":         {"text/html", `<p>`, 200, ErrBroken},
		"an error":        {"text/plain", "boom", 500, ErrBroken},
		"request size":    {"text/plain", "", 413, ErrTooLarge},
		"stream ends":     {"text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n", 200, ErrLost},
		"too large":       {"application/json", `{"jsonrpc":"2.0","id":ID,"result":{"t":"` + strings.Repeat("x", 4<<20) + `"}}`, 200, ErrTooLarge},
	} {
		e.call = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", tt.kind)
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, strings.Replace(tt.body, "ID", id(body(r)), 1))
		}
		if got, err := callOnce(t, c, nil, nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: %.80s, %v, want %v", name, got, err, tt.want)
		}
	}
	if g := c.Status().Generation; g != 1 {
		t.Errorf("generation %d", g)
	}
	c.Close()
}

// TestLarge: an answer beyond memoryLimit passes, as JSON and as one event, and is told apart from a message of that size.
func TestLarge(t *testing.T) {
	e := newEnv(t)
	srv := httptest.NewServer(e)
	defer srv.Close()
	c := start(t, Options{URL: srv.URL})
	up(t, c)
	want := `{"t":"` + strings.Repeat("0123456789", 400_000) + `","n":1.0}`
	for _, kind := range []string{"application/json", "text/event-stream"} {
		e.call = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			m := `{"jsonrpc":"2.0", "result" : ` + want + ` ,"id":` + id(body(r)) + `}`
			if kind == "text/event-stream" {
				m = "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"p\":\"" + strings.Repeat("y", 2<<20) + "\"}}\n\ndata: " + m + "\n\n"
			}
			_, _ = io.WriteString(w, m)
		}
		if got, err := callOnce(t, c, &sink{}, nil); err != nil || got != want {
			t.Errorf("%s: %d bytes, %v", kind, len(got), err)
		}
	}
	c.Close()
}

func FuzzNextEvent(f *testing.F) {
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"), uint8(5))
	f.Add([]byte(":c\r\n\r\nevent: x\r\ndata:a\r\ndata: b\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		sp := newSpool(1 << 16)
		defer sp.free()
		br := bufio.NewReaderSize(bytes.NewReader(b), 16+int(size))
		for range 1000 {
			if err := nextEvent(br, sp); err != nil {
				return
			}
			if sp.n == 0 {
				t.Fatal("an event without data")
			}
			_, _ = sp.message()
		}
	})
}

// asker answers what a server asks when it may.
type asker struct {
	open, most atomic.Int64
	may        chan struct{}
}

func (*asker) Notify([]byte) {}

func (a *asker) Ask(ctx context.Context, _ string, _ []byte) []byte {
	n := a.open.Add(1)
	defer a.open.Add(-1)
	for m := a.most.Load(); n > m && !a.most.CompareAndSwap(m, n); m = a.most.Load() {
	}
	select {
	case <-a.may:
	case <-ctx.Done():
	}
	return []byte(`"result":{}`)
}

// A server that asks without end has a few of its questions open at a time: what it sends is read no faster than it is answered.
func TestAsksWithoutEnd(t *testing.T) {
	e := newEnv(t)
	const asks = 2000
	var sent atomic.Int64
	e.call = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		pad := strings.Repeat("x", 8<<10)
		for i := range asks {
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q%d\",\"method\":\"sampling/createMessage\",\"params\":{\"pad\":\"%s\"}}\n\n", i, pad)
			sent.Add(1)
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id(body(r)))
	}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	c := start(t, Options{URL: srv.URL})
	up(t, c)
	sink := &asker{may: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		a, err := c.Call(t.Context(), "tools/call", func(_ uint64, b []byte) []byte { return append(b, `{"name":"a"}`...) }, nil, sink)
		if err == nil {
			a.Close()
		}
		done <- err
	}()
	for last := int64(-1); sink.open.Load() < maxAsks || sent.Load() != last; time.Sleep(50 * time.Millisecond) {
		last = sent.Load()
	}
	if n := sent.Load(); n == asks {
		t.Errorf("all of %d questions were taken", n)
	}
	close(sink.may)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := sink.most.Load(); n != maxAsks {
		t.Errorf("%d questions were open at once", n)
	}
}

// A list of tools that is too large in all is refused, however its pages are cut.
func TestListWithoutEnd(t *testing.T) {
	e := newEnv(t)
	page := strings.TrimSuffix(strings.Repeat(`{"name":"a","description":"`+strings.Repeat("x", 1<<20)+`"},`, 10), ",")
	e.tools = nil
	for range 8 {
		e.tools = append(e.tools, page)
	}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	c := start(t, Options{URL: srv.URL})
	for end := time.Now().Add(20 * time.Second); !errors.Is(c.Status().Err, ErrTooLarge); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", c.Status())
		}
	}
	if c.Tools() != nil || c.Status().Up {
		t.Errorf("%d tools, %+v", len(c.Tools()), c.Status())
	}
}
