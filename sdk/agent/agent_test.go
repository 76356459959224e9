package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nothing(string) (string, bool) { return "", false }

// rig is a served agent and its caller.
type rig struct {
	*testing.T
	url string
	a   *agent.Agent
}

func serve(t *testing.T, run agent.Run, opts ...agent.Option) *rig {
	t.Helper()
	a := agent.New("a", run, append([]agent.Option{agent.WithLookup(nothing)}, opts...)...)
	h, err := a.Handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &rig{t, srv.URL, a}
}

func (r *rig) do(method, path, body string, header ...string) (int, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// want calls and checks the status, and that the body holds text.
func (r *rig) want(method, path, body string, status int, text string, header ...string) string {
	r.Helper()
	got, out := r.do(method, path, body, header...)
	if got != status || !strings.Contains(out, text) {
		r.Errorf("%s %s %s: %d %s, want %d and %q", method, path, body, got, out, status, text)
	}
	return out
}

func (r *rig) rpc(method, params string) (wire.Task, *wire.Error) {
	r.Helper()
	_, out := r.do("POST", "/a2a", `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`)
	resp, err := wire.DecodeResponse([]byte(out))
	if err != nil || string(resp.ID) != "7" {
		r.Fatalf("%s: %v", out, err)
	}
	var t wire.Task
	if resp.Error == nil {
		if err := json.Unmarshal(resp.Result, &t); err != nil {
			r.Fatalf("%s: %v", out, err)
		}
	}
	return t, resp.Error
}

func send(text, contextID string, block bool) string {
	return fmt.Sprintf(`{"message":{"kind":"message","messageId":"m","role":"user","contextId":%q,"parts":[{"kind":"text","text":%q}]},"configuration":{"blocking":%v}}`, contextID, text, block)
}

// ask sends a text and waits for the task's end.
func (r *rig) ask(text, contextID string) wire.Task {
	r.Helper()
	t, rerr := r.rpc("message/send", send(text, contextID, true))
	if rerr != nil {
		r.Fatal(rerr)
	}
	return t
}

func echo(_ context.Context, t *agent.Turn) (agent.Result, error) { return agent.Text(t.Text()), nil }

// TestCodes: what is wrong with a call is told by the code that the protocol names, with the id as it was sent.
func TestCodes(t *testing.T) {
	r := serve(t, echo)
	for body, want := range map[string]string{
		``:     `"id":null,"error":{"code":-32700`,
		`{bad`: `"id":null,"error":{"code":-32700`,
		`[]`:   `"id":null,"error":{"code":-32600`,
		`{"jsonrpc":"1.0","id":"x","method":"a"}`:                                                                                                  `"id":"x","error":{"code":-32600`,
		`{"jsonrpc":"2.0","id":{"a":1},"method":"tasks/get"}`:                                                                                      `"id":null,"error":{"code":-32600`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`:                                                                                           `"id":1,"error":{"code":-32601`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":[]}`:                                                                                `"code":-32602`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":5}}`:                                                                          `"code":-32602`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x","historyLength":-1}}`:                                                     `"code":-32602`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/set","params":{}}`:                                                         `"code":-32004`,
		`{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}`:                                                                   `"code":-32603`,
		`{"jsonrpc":"2.0","id":1,"method":"message/stream","params":` + send("x", "", false) + `}`:                                                 `"code":-32603`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"x"}}`:                                                                `"code":-32603`,
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"video"}]}}}`:         `"code":-32602`,
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[null]}}}`:                     `"code":-32602`,
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":1,"role":"user","parts":[{"kind":"text","text":"x"}]}}}`: `"code":-32602`,
		`{"jsonrpc":"2.0","id":1,"method":"message/send"}`:                                                                                         `"code":-32602`,
	} {
		r.want("POST", "/a2a", body, 200, want)
	}
	r.want("POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"x","params":"`+strings.Repeat("x", wire.MaxA2ABody)+`"}`, 200, `{"code":-32600,"message":"Payload too large"}`)
	r.want("GET", "/a2a", "", 405, "")
	r.want("DELETE", "/ext/agent-config", "", 405, "")
	r.want("GET", "/ext/nothing", "", 404, "")
}

// TestReplies: a task's reply holds its parts, structured output and usage; failures and crashes are told apart, and a crash tells no text.
func TestReplies(t *testing.T) {
	var log strings.Builder
	r := serve(t, func(_ context.Context, t *agent.Turn) (agent.Result, error) {
		n := int64(3)
		u := &wire.AgentUsage{ToolCallCount: &n, ProviderDetails: json.RawMessage(`{"a":1}`)}
		switch t.Text() {
		case "fail":
			return agent.Result{Usage: u}, agent.Fail("mail.refused", "it <refused>")
		case "unable":
			return agent.Result{}, fmt.Errorf("turn: %w", agent.Unable("model.down", "no model"))
		case "error":
			return agent.Result{}, errors.New("s3cret")
		case "panic":
			panic("s3cret")
		case "empty":
			return agent.Result{}, nil
		}
		return agent.Result{Parts: []wire.Part{wire.TextPart("a"), wire.TextPart("b")}, Structured: map[string]int{"n": 1}, Usage: u}, nil
	}, agent.WithLog(logTo(&log)))
	got := r.ask("go", "")
	reply := wire.ReadReply(got.Status.Message)
	if got.Status.State != wire.TaskCompleted || reply.Text != "b" || string(reply.StructuredOutput) != `{"n":1}` || *reply.ToolCalls != 3 || string(reply.Usage.ProviderDetails) != `{"a":1}` {
		t.Errorf("%+v %+v", got, reply)
	}
	if len(got.History) != 1 || got.History[0].TaskID != got.ID || got.History[0].ContextID != got.ContextID || got.Status.Message.TaskID != got.ID {
		t.Errorf("%+v", got)
	}
	for text, want := range map[string]wire.Reply{
		"fail":   {ErrorType: wire.AgentError, ErrorCode: "mail.refused", ErrorMessage: "it <refused>"},
		"unable": {ErrorType: wire.InfraError, ErrorCode: "model.down", ErrorMessage: "no model"},
		"error":  {ErrorType: wire.InfraError, ErrorCode: "framework.unhandled_exception"},
		"panic":  {ErrorType: wire.InfraError, ErrorCode: "framework.unhandled_exception"},
		"empty":  {ErrorType: wire.InfraError, ErrorCode: "framework.unhandled_exception"},
	} {
		got := r.ask(text, "")
		reply := wire.ReadReply(got.Status.Message)
		if got.Status.State != wire.TaskFailed || reply.ErrorType != want.ErrorType || reply.ErrorCode != want.ErrorCode || want.ErrorMessage != "" && reply.ErrorMessage != want.ErrorMessage {
			t.Errorf("%s: %+v %+v", text, got.Status, reply)
		}
		if id, ok := strings.CutPrefix(reply.ErrorMessage, "An unexpected framework error occurred. Correlation ID: "); want.ErrorMessage == "" && (!ok || len(id) != 32 || !strings.Contains(log.String(), id)) {
			t.Errorf("%s: %q is not in the log", text, reply.ErrorMessage)
		}
		if (text == "fail") != (reply.ToolCalls != nil) {
			t.Errorf("%s: usage %v", text, reply.ToolCalls)
		}
	}
	if !strings.Contains(log.String(), "s3cret") {
		t.Error("the log doesn't tell why")
	}
}

// TestOrder: tasks of one context run one at a time, in order; another context doesn't wait for them. Cancelling one that waits keeps it from
// running, cancelling one that runs interrupts it.
func TestOrder(t *testing.T) {
	began := make(chan string, 10)
	var running atomic.Int32
	r := serve(t, func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		if t.ContextID == "c" {
			if running.Add(1) != 1 {
				return agent.Result{}, errors.New("two at a time")
			}
			defer running.Add(-1)
		}
		began <- t.Text()
		if t.Text() == "wait" {
			<-ctx.Done()
		}
		return agent.Text(t.Text()), nil
	})
	start := func(text, c string) wire.Task {
		t.Helper()
		v, rerr := r.rpc("message/send", send(text, c, false))
		if rerr != nil || v.Status.State == wire.TaskCompleted {
			t.Fatal(v, rerr)
		}
		return v
	}
	first, second, third := start("wait", "c"), start("skipped", "c"), start("last", "c")
	if got := r.ask("other", "d"); got.Status.State != wire.TaskCompleted {
		t.Errorf("another context waits: %+v", got.Status)
	}
	for _, id := range []string{second.ID, first.ID} {
		if v, rerr := r.rpc("tasks/cancel", `{"id":"`+id+`"}`); rerr != nil || v.Status.State != wire.TaskCanceled {
			t.Errorf("%+v %v", v.Status, rerr)
		}
	}
	if v := r.until(third.ID); v.Status.State != wire.TaskCompleted {
		t.Errorf("%+v", v.Status)
	}
	if _, rerr := r.rpc("tasks/cancel", `{"id":"`+third.ID+`"}`); rerr == nil || rerr.Code != wire.CodeNotCancelable {
		t.Errorf("%v", rerr)
	}
	close(began)
	var order []string
	for s := range began {
		order = append(order, s)
	}
	if got := strings.Join(order, " "); got != "wait other last" && got != "other wait last" {
		t.Errorf("ran: %s", got)
	}
	if _, rerr := r.rpc("message/send", `{"message":{"messageId":"m","role":"user","taskId":"`+third.ID+`","contextId":"d","parts":[{"kind":"text","text":"x"}]}}`); rerr == nil || rerr.Code != wire.CodeParams {
		t.Errorf("a task of another context: %v", rerr)
	}
}

func (r *rig) until(id string) wire.Task {
	r.Helper()
	for range 500 {
		v, rerr := r.rpc("tasks/get", `{"id":"`+id+`"}`)
		if rerr != nil || wire.TaskEnded(v.Status.State) {
			if rerr != nil {
				r.Fatal(rerr)
			}
			return v
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.Fatal("the task doesn't end")
	return wire.Task{}
}

// stream reads the events of a call.
func (r *rig) stream(method, params string, each func(event map[string]any)) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), "POST", r.url+"/a2a", strings.NewReader(`{"jsonrpc":"2.0","id":"s","method":"`+method+`","params":`+params+`}`))
	if err != nil {
		r.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		r.Fatal(resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			ID     string         `json:"id"`
			Result map[string]any `json:"result"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.ID != "s" {
			r.Fatalf("%s: %v", data, err)
		}
		each(e.Result)
	}
}

// TestStream: a stream tells the task, that it works, each progress, and the end; a second one joins while it runs.
func TestStream(t *testing.T) {
	go1, go2 := make(chan struct{}), make(chan struct{})
	r := serve(t, func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		if err := t.Progress("half", map[string]int{"done": 1}); err != nil {
			return agent.Result{}, err
		}
		close(go1)
		<-go2
		return agent.Text("all"), t.Progress("bad", []int{1})
	}, agent.WithStreaming())
	if !r.a.Card().Capabilities.Streaming {
		t.Error("the card doesn't tell")
	}
	var seen []string
	r.stream("message/stream", send("x", "", false), func(e map[string]any) {
		status, _ := e["status"].(map[string]any)
		s := fmt.Sprint(e["kind"], " ", status["state"], " ", e["final"], " ", e["metadata"])
		if seen = append(seen, s); strings.Contains(s, "done") {
			<-go1
			first := true
			id, _ := e["taskId"].(string)
			r.stream("tasks/resubscribe", `{"id":"`+id+`"}`, func(e map[string]any) {
				if first {
					first = false
					close(go2)
					if e["kind"] != "task" {
						t.Errorf("%v", e)
					}
				}
			})
			if _, rerr := r.rpc("tasks/resubscribe", `{"id":"`+id+`"}`); rerr == nil || rerr.Code != wire.CodeParams {
				t.Errorf("an ended task: %v", rerr)
			}
		}
	})
	want := "task submitted <nil> <nil>\nstatus-update working false <nil>\nstatus-update working false map[done:1]\nstatus-update failed true <nil>"
	if got := strings.Join(seen, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestBounds: of contexts in which nothing is under way, the least recently used are forgotten; those that work are kept.
func TestBounds(t *testing.T) {
	r := serve(t, func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		if t.Text() == "wait" {
			<-ctx.Done()
		}
		return agent.Text("x"), nil
	})
	busy, rerr := r.rpc("message/send", send("wait", "busy", false))
	if rerr != nil {
		t.Fatal(rerr)
	}
	first, second := r.ask("x", ""), r.ask("x", "")
	for i := range 1022 {
		r.ask("x", fmt.Sprint("c", i))
		if i == 500 { // a look is a use
			if _, rerr := r.rpc("tasks/get", `{"id":"`+first.ID+`"}`); rerr != nil {
				t.Fatal(rerr)
			}
		}
	}
	for id, kept := range map[string]bool{busy.ID: true, first.ID: true, second.ID: false} {
		if _, rerr := r.rpc("tasks/get", `{"id":"`+id+`"}`); kept != (rerr == nil) {
			t.Errorf("%s: kept %v: %v", id, kept, rerr)
		}
	}
}

// TestClose: an agent that ends cancels its tasks, and tells of one that ignores it.
func TestClose(t *testing.T) {
	free := make(chan struct{})
	began := make(chan struct{})
	a := agent.New("a", func(context.Context, *agent.Turn) (agent.Result, error) {
		close(began)
		<-free
		return agent.Text("x"), nil
	}, agent.WithLookup(nothing))
	h, err := a.Handler()
	if err != nil {
		t.Fatal(err)
	}
	call := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/a2a", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":`+send("x", "", false)+`}`)))
		return w.Body.String()
	}
	if out := call(); !strings.Contains(out, `"submitted"`) && !strings.Contains(out, `"working"`) {
		t.Fatal(out)
	}
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Close(ctx); err == nil || !strings.Contains(err.Error(), "go on") {
		t.Errorf("%v", err)
	}
	if out := call(); !strings.Contains(out, "-32603") {
		t.Error(out)
	}
	close(free)
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestProblems: everything that is wrong with how an agent is put together is told at once.
func TestProblems(t *testing.T) {
	type bad struct {
		Name string `json:"name"`
	}
	_, err := agent.New(" ", nil, agent.WithConfig(bad{}), agent.WithInstall(5), agent.WithSnapshots(nil, nil), agent.WithSkill(wire.AgentSkill{}),
		agent.WithExtension(wire.Extension{URI: wire.URNAgentConfig}), agent.WithRoute("/health", http.NotFoundHandler()),
		agent.WithLookup(func(name string) (string, bool) { return "-1", name == agent.StagingMaxBytesVariable })).Handler()
	if err == nil {
		t.Fatal("it was put together")
	}
	for _, want := range []string{"needs a name", "needs a function", "setting name", "WithInstall", "WithSnapshots", "a skill needs", "AGENTENV_STAGING_MAX_BYTES"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoesn't hold %q", err, want)
		}
	}
}
