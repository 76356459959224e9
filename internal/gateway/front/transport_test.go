package front_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/front"
)

// TestTransport holds rows E21 and E22 as the gateway's clients meet them, and what MCP says beside them.
func TestTransport(t *testing.T) {
	_, srv := newGateway(t, front.Options{}, map[string]*server{"cal": newServer(t, "cal", true)})
	c := begin(t, srv.URL)
	js, both := "application/json", bothTypes
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	tests := []struct {
		name, method, body string
		headers            []string
		status             int
		want               string
	}{
		{"no session", "POST", ping, []string{"Content-Type", js, "Accept", both}, 400, "Missing session ID"},
		{"unknown session", "POST", ping, []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", strings.Repeat("0", 32)}, 404, "Session not found"},
		{"accept lacks one", "POST", ping, []string{"Content-Type", js, "Accept", js, "Mcp-Session-Id", c.session}, 406, `"id":"server-error"`},
		{"accept everything", "POST", ping, []string{"Content-Type", js, "Accept", "*/*", "Mcp-Session-Id", c.session}, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"content type", "POST", ping, []string{"Content-Type", "text/plain", "Accept", both, "Mcp-Session-Id", c.session}, 415, "Content-Type"},
		{"no JSON", "POST", "{bad", []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 400, "-32700"},
		{"batch", "POST", "[" + ping + "]", []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 400, "-32600"},
		{"old JSON-RPC", "POST", strings.Replace(ping, "2.0", "1.0", 1), []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 400, "-32600"},
		{"two methods", "POST", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 400, "twice"},
		{"bad id", "POST", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 400, "id must be"},
		{"odd but legal id", "POST", `{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"ping"}`, []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 200, `"id":123456789012345678901234567890,`},
		{"version", "POST", ping, []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session, "MCP-Protocol-Version", "1999-01-01"}, 400, "2025-11-25"},
		{"unknown method", "POST", strings.Replace(ping, "ping", "zip", 1), []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 200, "-32601"},
		{"bad call", "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cal_ping","arguments":[]}}`, []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 200, "-32602"},
		{"plain GET", "GET", "", nil, 406, "text/event-stream"},
		{"GET without session", "GET", "", []string{"Accept", both}, 400, "Missing session"},
		{"PUT", "PUT", "", nil, 405, "Not Allowed"},
		{"initialize again", "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, []string{"Content-Type", js, "Accept", both, "Mcp-Session-Id", c.session}, 400, "is initialized"},
	}
	for _, tt := range tests {
		if a := do(t, tt.method, c.url, tt.body, tt.headers...); a.status != tt.status || !strings.Contains(a.body, tt.want) {
			t.Errorf("%s: HTTP %d %s, want %d %q", tt.name, a.status, a.body, tt.status, tt.want)
		}
	}
	if a := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.status != 202 || a.body != "" {
		t.Errorf("a notification: %+v", a)
	}
	if got := c.call("tools/call", `{"name":"zip","arguments":{}}`); !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "Unknown tool: zip") {
		t.Errorf("an unknown tool: %s", got)
	}
	if a := do(t, "DELETE", c.url, "", "Mcp-Session-Id", c.session); a.status != 200 || a.body != "" {
		t.Errorf("DELETE: %+v", a)
	}
	if a := c.post(ping); a.status != 404 {
		t.Errorf("a session that was deleted: HTTP %d", a.status)
	}
	for _, v := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2031-01-01"} {
		a := do(t, "POST", c.url, `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"`+v+`"}}`, "Content-Type", js, "Accept", both)
		want := v
		if v == "2031-01-01" {
			want = "2025-11-25"
		}
		if !strings.Contains(a.body, `"protocolVersion":"`+want+`"`) {
			t.Errorf("asked for %s: %s", v, a.body)
		}
	}
}

// TestOfficialClient: the official Go client lists, pages, calls with progress, answers a question, and cancels.
func TestOfficialClient(t *testing.T) {
	s := newServer(t, "cal", false)
	started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	s.mcp.AddTool(&mcp.Tool{Name: "cal_slow", InputSchema: jsonObject{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	})
	s.mcp.AddTool(&mcp.Tool{Name: "cal_ask", InputSchema: jsonObject{"type": "object"}}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 2}); err != nil {
			return nil, err
		}
		r, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?", RequestedSchema: jsonObject{"type": "object"}})
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Action}}}, nil
	})
	_, srv := newGateway(t, front.Options{}, map[string]*server{"cal": s})
	var mu sync.Mutex
	var progress []any
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			progress = append(progress, r.Params.ProgressToken)
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	params := &mcp.CallToolParams{Name: "cal_ask", Arguments: jsonObject{}}
	params.SetProgressToken("mine")
	r, err := session.CallTool(t.Context(), params)
	if err != nil || r.IsError || r.Content[0].(*mcp.TextContent).Text != "decline" {
		t.Errorf("%+v, %v", r, err)
	}
	mu.Lock()
	if len(progress) != 1 || progress[0] != "mine" {
		t.Errorf("progress %v", progress)
	}
	mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "cal_slow", Arguments: jsonObject{}}); err == nil {
		t.Error("a cancelled call has a result")
	}
	<-ended // the server's tool was cancelled
}

// TestStandingStream: a session that listens is told that the list has changed; a second stream is refused.
func TestStandingStream(t *testing.T) {
	g, srv := newGateway(t, front.Options{}, map[string]*server{"cal": newServer(t, "cal", true)})
	c := begin(t, srv.URL)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", c.url, nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", c.session)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	if a := do(t, "GET", c.url, "", "Accept", "text/event-stream", "Mcp-Session-Id", c.session); a.status != 409 {
		t.Errorf("a second stream: HTTP %d", a.status)
	}
	g.SetAccess("default", []string{"cal_ping"}, false)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
			break
		}
	}
	if got := strings.Join(names(t, c.call("tools/list", `{}`)), " "); got != "cal_meta" {
		t.Errorf("tools %s", got)
	}
	// The stream ends with the session.
	do(t, "DELETE", c.url, "", "Mcp-Session-Id", c.session)
	for lines.Scan() {
	}
}

// TestSessions: idle ones expire, the longest idle one makes room, and each is known at its own door alone.
func TestSessions(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	g, srv := newGateway(t, front.Options{MaxSessions: 3, Now: clock}, map[string]*server{"cal": newServer(t, "cal", true)})
	first := begin(t, srv.URL)
	for range 3 {
		mu.Lock()
		now = now.Add(time.Second)
		mu.Unlock()
		begin(t, srv.URL)
	}
	if a := first.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != 404 {
		t.Errorf("the longest idle session: HTTP %d", a.status)
	}
	last := begin(t, srv.URL)
	for _, p := range []access.Principal{{Role: "bob"}, {Owner: true, Deployment: "x"}} {
		other := door(t, g, p)
		stolen := &raw{t: t, url: other.URL + "/mcp", session: last.session}
		if a := stolen.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != 404 {
			t.Errorf("a session of another door at %+v: HTTP %d", p, a.status)
		}
	}
}

// TestThousandSessions: 1,000 idle sessions cost little, and nothing once they are gone.
func TestThousandSessions(t *testing.T) {
	g, srv := newGateway(t, front.Options{}, map[string]*server{"cal": newServer(t, "cal", true)})
	before := heap()
	var all []*raw
	for range 1000 {
		all = append(all, begin(t, srv.URL))
	}
	grown := heap() - before
	t.Logf("1,000 idle sessions take %d KB, those of their clients included", grown>>10)
	if grown > 4<<20 {
		t.Errorf("1,000 idle sessions take %d KB", grown>>10)
	}
	state := do(t, "GET", srv.URL+"/state", "")
	if !strings.Contains(state.body, `"sessions":1000`) {
		t.Errorf("state %s", state.body)
	}
	if got := all[500].call("tools/call", `{"name":"cal_ping","arguments":{"text":"x"}}`); !strings.Contains(got, `"x"`) {
		t.Error(got)
	}
	_ = g
}

func TestDroppedMessagesAreNoFault(t *testing.T) {
	_, srv := newGateway(t, front.Options{}, map[string]*server{"cal": newServer(t, "cal", true)})
	c := begin(t, srv.URL)
	for _, m := range []string{
		`{"jsonrpc":"2.0","id":"gateway-1","result":{}}`, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, `{"jsonrpc":"2.0","method":"notifications/x"}`,
	} {
		if a := c.post(m); a.status != 202 {
			t.Errorf("%s: HTTP %d", m, a.status)
		}
	}
}

// TestBytes: a result passes byte for byte, whatever it holds.
func TestBytes(t *testing.T) {
	odd := `{"content":[{"type":"hologram","x":1.0},{"type":"text","text":"\u00e9\/"}],"structuredContent":{"n":12345678901234567890,"n":1},"own":[ ],"isError":false}`
	s := newServer(t, "cal", true)
	s.Config.Handler = oddServer(s.Config.Handler, odd)
	_, srv := newGateway(t, front.Options{}, map[string]*server{"cal": s})
	c := begin(t, srv.URL)
	if got := c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"odd"}}`); got != odd {
		t.Errorf("result %s", got)
	}
	a := do(t, "POST", srv.URL+"/step", `{"action":"call_tool","tool_name":"cal_ping","arguments":{"text":"odd"}}`)
	if want := `{"changelog_id":null,` + odd[1:]; a.body != want {
		t.Errorf("/step %s", a.body)
	}
}

// oddServer answers tools/call itself.
func oddServer(next http.Handler, result string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mcp" || r.Method != "POST" {
			next.ServeHTTP(w, r)
			return
		}
		b := new(strings.Builder)
		_, _ = bufio.NewReader(r.Body).WriteTo(b)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal([]byte(b.String()), &m)
		if m.Method != "tools/call" {
			r.Body = http.MaxBytesReader(w, readAgain{strings.NewReader(b.String())}, 1<<20)
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	})
}

type readAgain struct{ *strings.Reader }

func (readAgain) Close() error { return nil }
