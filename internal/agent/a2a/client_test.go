package a2a_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an agent whose answers a test writes.
type fake struct {
	mu     sync.Mutex
	seen   []string
	rpc    func(method string, params json.RawMessage) string // the result or error member
	other  http.HandlerFunc
	status int
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+r.URL.Path+" "+string(body))
	f.mu.Unlock()
	if f.status != 0 {
		w.WriteHeader(f.status)
		io.WriteString(w, "the body of a failure")
		return
	}
	if r.URL.Path != "/base/a2a" {
		f.other(w, r)
		return
	}
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(body, &q) != nil {
		w.WriteHeader(400)
		return
	}
	io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,`+f.rpc(q.Method, q.Params)+`}`)
}

func (f *fake) methods() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.seen, "\n")
}

func start(t *testing.T, f *fake) *a2a.Client {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	c, err := a2a.New(s.URL+"/base/", tr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func hello() wire.Message {
	return wire.Message{MessageID: "m1", Role: wire.RoleUser, Parts: []wire.Part{wire.TextPart("hi")}}
}

func task(state, more string) string {
	return `"result":{"kind":"task","id":"t1","contextId":"c1","status":{"state":"` + state + `"` + more + `}}`
}

func TestAsk(t *testing.T) {
	var looks atomic.Int64
	f := &fake{rpc: func(method string, params json.RawMessage) string {
		if method == wire.A2ASend {
			if want := `{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hi"}]},"configuration":{"blocking":false}}`; string(params) != want {
				t.Errorf("sent %s", params)
			}
			return task("submitted", "")
		}
		if looks.Add(1) < 3 {
			return task("working", "")
		}
		return task("completed", `,"message":{"kind":"message","messageId":"r","role":"agent","parts":[{"kind":"text","text":"first"},{"kind":"text","text":"done"},`+
			`{"kind":"data","data":{"structured_output":{"ok":1}}},{"kind":"data","data":{"usage":{"tool_call_count":2,"input_tokens":5}}}]}`)
	}}
	var states []string
	got, err := start(t, f).Ask(t.Context(), hello(), a2a.Wait{Seen: func(t wire.Task) { states = append(states, t.Status.State) }})
	if err != nil {
		t.Fatal(err)
	}
	r := wire.ReadReply(got.Status.Message)
	if r.Text != "done" || string(r.StructuredOutput) != `{"ok":1}` || *r.ToolCalls != 2 || *r.Usage.InputTokens != 5 {
		t.Errorf("%+v", r)
	}
	if s := strings.Join(states, " "); s != "submitted working working completed" {
		t.Error(s)
	}
}

// TestAnswersAtOnce: an agent may answer by a message and no task, which is completed then.
func TestAnswersAtOnce(t *testing.T) {
	f := &fake{rpc: func(string, json.RawMessage) string {
		return `"result":{"kind":"message","messageId":"r","role":"agent","contextId":"c9","parts":[{"kind":"text","text":"done"}]}`
	}}
	got, err := start(t, f).Ask(t.Context(), hello(), a2a.Wait{})
	if err != nil || got.Status.State != wire.TaskCompleted || got.ContextID != "c9" || wire.ReadReply(got.Status.Message).Text != "done" {
		t.Errorf("%+v, %v", got, err)
	}
	if n := strings.Count(f.methods(), "\n"); n != 0 {
		t.Errorf("it was asked again: %s", f.methods())
	}
}

func TestTimeoutCancels(t *testing.T) {
	f := &fake{rpc: func(string, json.RawMessage) string { return task("working", "") }}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := start(t, f).Ask(ctx, hello(), a2a.Wait{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(f.methods(), `"tasks/cancel"`) {
		t.Errorf("%v\n%s", err, f.methods())
	}
}

func TestErrors(t *testing.T) {
	f := &fake{rpc: func(string, json.RawMessage) string {
		return `"error":{"code":-32602,"message":"bad","data":[{"loc":["parts"]}]}` // a list where others have an object
	}}
	c := start(t, f)
	_, err := c.Ask(t.Context(), hello(), a2a.Wait{})
	var rpc *wire.Error
	if !errors.As(err, &rpc) || rpc.Code != wire.CodeParams || errors.Is(err, a2a.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(f.methods(), "message/send"); n != 1 {
		t.Errorf("sent %d times", n)
	}
	f.status = 503
	_, err = c.Get(t.Context(), "t1")
	var status *a2a.StatusError
	if !errors.As(err, &status) || status.Status != 503 || !strings.Contains(err.Error(), "the body of a failure") {
		t.Errorf("got %v", err)
	}
}

func TestGone(t *testing.T) {
	f := &fake{rpc: func(string, json.RawMessage) string { return task("working", "") }}
	s := httptest.NewServer(f)
	tr := &http.Transport{DisableKeepAlives: true}
	c, err := a2a.New(s.URL+"/base", tr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Ask(t.Context(), hello(), a2a.Wait{Seen: func(wire.Task) { s.Close() }, Alive: func(context.Context) error { return errors.New("gone") }})
	if !errors.Is(err, a2a.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

const card = `{"name":"echo","description":"d","version":"1","url":"/a2a","protocolVersion":"0.3.0","defaultInputModes":["text"],"defaultOutputModes":["text"],"skills":[],
 "capabilities":{"streaming":false,"extensions":[
 {"uri":"urn:agentenv:agent-config/v1","params":{"endpoint":"/ext/agent-config","methods":{"set":{"method":"POST","request":{"supported":["model","name"]}},"get":{"method":"GET"}}}},
 {"uri":"urn:agentenv:trajectory/v1","params":{"endpoint":"/ext/trajectory","methods":{"get":{"method":"POST","request":{"oneOf":[{"required":["task_id"]},{"required":["task_id","after"],"optional":["limit"]}]}}}}}]}}`

func TestOperation(t *testing.T) {
	f := &fake{other: func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/base/.well-known/agent.json":
			io.WriteString(w, card)
		case "/base/ext/agent-config":
			io.WriteString(w, `{"status":"updated"}`)
		default:
			w.WriteHeader(410)
			io.WriteString(w, `{"error":{"code":"grant_expired","message":"https://secret","retryable":false}}`)
		}
	}}
	c := start(t, f)
	got, err := c.Card(t.Context())
	if err != nil || len(got.Missing()) > 0 || string(got.Raw) != card {
		t.Fatal(err, got.Missing())
	}
	var out struct{ Status string }
	if err := c.Operation(t.Context(), &got, wire.URNAgentConfig, "set", map[string]any{"model": "m"}, &out, false); err != nil || out.Status != "updated" {
		t.Error(err, out)
	}
	for _, in := range []map[string]any{{"colour": "red"}, {"model": "m", "colour": "red"}} {
		if err := c.Operation(t.Context(), &got, wire.URNAgentConfig, "set", in, nil, false); !errors.Is(err, a2a.ErrNotServed) {
			t.Errorf("%v: %v", in, err)
		}
	}
	if err := c.Operation(t.Context(), &got, wire.URNSkillConfig, "add", nil, nil, false); !errors.Is(err, a2a.ErrNotServed) {
		t.Error(err)
	}
	err = c.Operation(t.Context(), &got, wire.URNTrajectory, "get", map[string]any{"task_id": "t", "after": 0}, nil, true)
	var status *a2a.StatusError
	if !errors.As(err, &status) || status.Code != "grant_expired" || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	if err := c.Operation(t.Context(), &got, wire.URNTrajectory, "get", map[string]any{"after": 0}, nil, false); !errors.Is(err, a2a.ErrNotServed) {
		t.Error(err)
	}
}

func TestAddress(t *testing.T) {
	for _, base := range []string{"", "ftp://x", "unix:///x", "http://"} {
		if _, err := a2a.New(base, nil); err == nil {
			t.Errorf("%q was taken", base)
		}
	}
}

// way is an agent without a network.
type way func(r *http.Request, method string) (*http.Response, error)

func (f way) RoundTrip(r *http.Request) (*http.Response, error) {
	b, _ := io.ReadAll(r.Body)
	var q struct{ Method string }
	_ = json.Unmarshal(b, &q)
	return f(r, q.Method)
}

func answer(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// TestPatience: how long an agent may not answer, by the clock.
func TestPatience(t *testing.T) {
	const working = `{"jsonrpc":"2.0","id":"1",` + `"result":{"kind":"task","id":"t1","contextId":"c1","status":{"state":"working"}}}`
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	refuse := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	for name, tt := range map[string]struct {
		way   way
		alive error
		limit time.Duration
		tries int
		want  error
		took  time.Duration
		sends int
	}{
		"nobody is there": {way: func(*http.Request, string) (*http.Response, error) { return nil, refuse }, want: a2a.ErrUnreachable, took: 29 * time.Second, sends: 5},
		"tried once":      {way: func(*http.Request, string) (*http.Response, error) { return nil, refuse }, tries: 1, want: a2a.ErrUnreachable, sends: 1},
		"it is dead":      {way: func(*http.Request, string) (*http.Response, error) { return nil, refuse }, alive: errors.New("dead"), want: a2a.ErrUnreachable, sends: 1},
		"500 for ever": {way: func(_ *http.Request, method string) (*http.Response, error) {
			if method == wire.A2AGet {
				return answer(500, "oops")
			}
			return answer(200, working)
		}, want: a2a.ErrUnreachable, took: time.Minute, sends: 1},
		"looks hang": {way: func(r *http.Request, method string) (*http.Response, error) {
			if method == wire.A2AGet {
				return hang(r)
			}
			return answer(200, working)
		}, want: a2a.ErrUnreachable, took: 90 * time.Second, sends: 1},
		"hangs at the cancel": {way: func(r *http.Request, method string) (*http.Response, error) {
			if method == wire.A2ACancel {
				return hang(r)
			}
			return answer(200, working)
		}, limit: time.Minute, want: context.DeadlineExceeded, took: 70 * time.Second, sends: 1},
		"malformed": {way: func(_ *http.Request, method string) (*http.Response, error) {
			if method == wire.A2AGet {
				return answer(200, "[]")
			}
			return answer(200, working)
		}, want: a2a.ErrMalformed, took: 140 * time.Millisecond, sends: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sends := 0
				c, err := a2a.New("http://agent.test", way(func(r *http.Request, method string) (*http.Response, error) {
					if method == wire.A2ASend {
						sends++
					}
					return tt.way(r, method)
				}))
				if err != nil {
					t.Fatal(err)
				}
				w := a2a.Wait{Tries: tt.tries}
				if tt.alive != nil {
					w.Alive = func(context.Context) error { return tt.alive }
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
				if tt.limit > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), tt.limit)
				}
				defer cancel()
				began := time.Now()
				_, err = c.Ask(ctx, hello(), w)
				if took := time.Since(began).Round(time.Millisecond); !errors.Is(err, tt.want) || took < tt.took || took > tt.took+3*time.Second || sends != tt.sends {
					t.Errorf("%s, %d sends, %v", took, sends, err)
				}
			})
		})
	}
}
