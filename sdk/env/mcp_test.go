package env_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	both  = "application/json, text/event-stream"
)

func open(t *testing.T, url string, header ...string) string {
	t.Helper()
	status, h, body := ask(t, "POST", url+"/mcp", hello, append(header, "Accept", both, "Content-Type", "application/json")...)
	if status != 200 || h.Get("Content-Type") != "application/json" || !strings.Contains(body, `"serverInfo":{"name":"notes"`) {
		t.Fatal(status, h, body)
	}
	id := h.Get(wire.SessionHeader)
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		t.Fatalf("session %q", id)
	}
	return id
}

func say(t *testing.T, url, session, body string, header ...string) (int, string) {
	t.Helper()
	status, _, answer := ask(t, "POST", url+"/mcp", body, append(header, "Accept", both, "Content-Type", "application/json", wire.SessionHeader, session)...)
	return status, answer
}

// TestMCPAnswers: what the SDK under it would answer otherwise, or not at all.
func TestMCPAnswers(t *testing.T) {
	_, e := newNotes()
	srv := serve(t, e)
	id := open(t, srv.URL)
	for _, c := range []struct {
		body, want string
		status     int
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"no/such"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`, 200},
		{`{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}`, `"id must be a text or a whole number`, 400},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `id must be a text or a whole number`, 400},
		{`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, `id must be a text`, 400},
		{`{"jsonrpc":"2.0","id":2,"method":["ping"]}`, `method must be a text`, 400},
		{`{bad`, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32700,"message":"Parse error"}}`, 400},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `want one JSON-RPC message`, 400},
		{``, `Parse error`, 400},
		{`{"jsonrpc":"2.0","id":"é","method":"ping"}`, `{"jsonrpc":"2.0","id":"é","result":{}}`, 200},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"zip","arguments":{}}}`, `{"content":[{"type":"text","text":"Unknown tool: zip"}],"isError":true}`, 200},
		{
			`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"notes_add","arguments":{"text":"coded"}}}`,
			`{"content":[{"type":"text","text":"bad_note: no such note"}],"structuredContent":{"code":"bad_note","message":"no such note","retryable":false,"applied":"no","hint":"try another"},"isError":true}`, 200,
		},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"notes_add","arguments":{"pri":"up","more":1}}}`, `invalid_params: more: there is no such parameter; text: it is missing`, 200},
		{`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"notes_add"}}`, `invalid_params: text: it is missing`, 200},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"notes_add","arguments":[1]}}`, `invalid_params: want a JSON object`, 200},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, ``, 202},
	} {
		status, body := say(t, srv.URL, id, c.body)
		if status != c.status || !strings.Contains(body, strings.TrimPrefix(c.want, `"id must`)) {
			t.Errorf("%s: %d %s, want %d %s", c.body, status, body, c.status, c.want)
		}
	}
	if status, body := say(t, srv.URL, "0123", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != 404 || body != `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}` {
		t.Error(status, body)
	}
	if status, h, _ := ask(t, "PUT", srv.URL+"/mcp", ""); status != 405 || h.Get("Allow") != "DELETE, GET, POST" {
		t.Error(status, h)
	}
	if status, _, body := ask(t, "DELETE", srv.URL+"/mcp", "", wire.SessionHeader, id); status != 200 || body != "" {
		t.Error(status, body)
	}
	if status, _ := say(t, srv.URL, id, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != 404 {
		t.Error("a session that was ended answers", status)
	}
}

// TestSessionExpires: a session that was forgotten is 404 before anything is streamed, and a new one works (anchors 35).
func TestSessionExpires(t *testing.T) {
	_, e := newNotes(env.WithSessionTimeout(30 * time.Millisecond))
	srv := serve(t, e)
	id := open(t, srv.URL)
	deadline := time.Now().Add(10 * time.Second)
	for {
		time.Sleep(60 * time.Millisecond) // the timeout is the SDK's own timer, on the real clock
		status, body := say(t, srv.URL, id, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if status == 404 && strings.Contains(body, "Session not found") {
			break
		}
		if status != 200 || time.Now().After(deadline) {
			t.Fatal(status, body)
		}
	}
	open(t, srv.URL)
}

// TestRoles: rules by role decide what is listed and called, changes hold at once, and _meta wins over headers.
func TestRoles(t *testing.T) {
	_, e := newNotes(env.WithToolAccess())
	srv := serve(t, e)
	id := open(t, srv.URL)
	names := func(role string) string {
		t.Helper()
		status, body := say(t, srv.URL, id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, wire.RoleHeader, role)
		var r struct {
			Result struct{ Tools []struct{ Name string } }
		}
		if status != 200 || json.Unmarshal([]byte(body), &r) != nil {
			t.Fatal(status, body)
		}
		return fmt.Sprint(r.Result.Tools)
	}
	rule := func(path, body, want string) {
		t.Helper()
		if status, _, got := ask(t, "POST", srv.URL+path, body); status != 200 || got != want {
			t.Errorf("%s: %d %s, want %s", body, status, got, want)
		}
	}
	if got := names("bob"); got != "[{notes_add} {whoami}]" {
		t.Errorf("at first: %s", got)
	}
	rule("/tools/enable", `{"role":"bob","tools":["admin"]}`, `{"role":"bob","disabled":[],"allowed":["admin"]}`)
	rule("/tools/disable", `{"role":"*","tools":["whoami"]}`, `{"role":"*","disabled":["whoami"],"allowed":[]}`)
	if got := names("bob"); got != "[{notes_add} {admin}]" {
		t.Errorf("bob: %s", got)
	}
	if got := names("eve"); got != "[{notes_add}]" {
		t.Errorf("eve: %s", got)
	}
	_, body := say(t, srv.URL, id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{}}}`, wire.RoleHeader, "eve")
	if !strings.Contains(body, `permission_denied: Tool 'whoami' is disabled for role 'eve'`) {
		t.Error(body)
	}
	rule("/tools/enable", `{"role":"*","tools":"*"}`, `{"role":"*","disabled":[],"allowed":["*"]}`)
	if got := names(" default "); got != "[{notes_add} {whoami}]" {
		t.Errorf("a rule for all tools shows a hidden one: %s", got)
	}
	rule("/tools/disable", `{"role":"default","tools":"*"}`, `{"role":"default","disabled":["*"],"allowed":[]}`)
	if got := names(""); got != "[]" {
		t.Errorf("default: %s", got)
	}
	_, body = say(t, srv.URL, id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{},"_meta":{"agentenv.io/role":"judge","agentenv.io/session":"s"}}}`, wire.RoleHeader, "eve")
	if !strings.Contains(body, `"role":"judge"`) || !strings.Contains(body, `"session":"s"`) {
		t.Error(body)
	}
}

// TestStreamsOnlyWhatStreams: a call that tells progress is answered by events as they come, another by JSON.
func TestStreamsOnlyWhatStreams(t *testing.T) {
	e := env.New("notes", env.WithLookup(func(string) (string, bool) { return "", false }))
	env.AddTool(e, "slow", "Tell progress, then wait to be told to end.", func(ctx context.Context, _ struct{}) (string, error) {
		env.Progress(ctx, 1, 2, "half")
		return "done", nil
	})
	srv := serve(t, e)
	id := open(t, srv.URL)
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{}%s}}`
	for meta, want := range map[string]string{"": "application/json", `,"_meta":{"progressToken":"p"}`: "text/event-stream"} {
		_, h, body := ask(t, "POST", srv.URL+"/mcp", fmt.Sprintf(call, meta), "Accept", both, "Content-Type", "application/json", wire.SessionHeader, id)
		if h.Get("Content-Type") != want || !strings.Contains(body, `{"content":[{"type":"text","text":"done"}]`) {
			t.Errorf("%s: %s\n%s", meta, h.Get("Content-Type"), body)
		}
		if (meta != "") != strings.Contains(body, `"method":"notifications/progress"`) {
			t.Errorf("%s: progress: %s", meta, body)
		}
	}
}

// TestCancel: a cancelled call ends its tool.
func TestCancel(t *testing.T) {
	e := env.New("notes", env.WithLookup(func(string) (string, bool) { return "", false }))
	began, ended := make(chan struct{}), make(chan error, 1)
	env.AddTool(e, "wait", "Wait.", func(ctx context.Context, _ struct{}) (string, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return "", ctx.Err()
	})
	srv := serve(t, e)
	s, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "wait"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	<-began
	cancel()
	wg.Wait()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestManySessions: a thousand calls at once over many sessions, each told who it is.
func TestManySessions(t *testing.T) {
	_, e := newNotes()
	srv := serve(t, e)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			role := fmt.Sprintf("r%d", i)
			id := open(t, srv.URL, wire.RoleHeader, role)
			for range 50 {
				status, body := say(t, srv.URL, id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{}}}`, wire.RoleHeader, role)
				if status != 200 || !strings.Contains(body, `"role":"`+role+`"`) || !strings.Contains(body, id) {
					t.Error(status, body)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestServe: told to end, a server lets its calls finish, cancels those that take too long, and leaves nothing.
func TestServe(t *testing.T) {
	began := make(chan struct{}, 1)
	e := env.New("notes", env.WithLookup(func(string) (string, bool) { return "", false }))
	env.AddTool(e, "wait", "Wait for so many milliseconds.", func(ctx context.Context, in struct {
		For int `json:"for"`
	},
	) (string, error) {
		began <- struct{}{}
		select {
		case <-time.After(time.Duration(in.For) * time.Millisecond):
			return "done", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.ServeListener(ctx, l) }()
	url := "http://" + l.Addr().String()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	answer := make(chan string, 1)
	go func() {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "wait", Arguments: map[string]any{"for": 100}})
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- r.Content[0].(*mcp.TextContent).Text
	}()
	<-began
	at := time.Now()
	stop()
	if got := <-answer; got != "done" {
		t.Errorf("the call in flight: %s", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if took := time.Since(at); took > 4*time.Second {
		t.Errorf("it took %v to end", took)
	}
}
