package env_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, e *env.Env) *httptest.Server {
	t.Helper()
	h, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return srv
}

func ask(t *testing.T, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestCard(t *testing.T) {
	_, e := newNotes(env.WithClock(), env.WithToolAccess())
	srv := serve(t, e)
	status, _, body := ask(t, "GET", srv.URL+wire.CardPath, "")
	if status != 200 {
		t.Fatal(status, body)
	}
	const want = `{"name":"notes","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","additionalInterfaces":[{"url":"/mcp","transport":"mcp"}],"capabilities":{"extensions":[` +
		`{"uri":"urn:agentenv:clock/v1","description":"Tells the environment where to read its time.","params":{"endpoint":"/agentenv/ext/sync_time","methods":{"sync_time":{"method":"POST","request":{"type":"object","properties":{"env_get_time_url":{"type":"string","description":"Where the time is read from; the answer holds virtual_time."}},"required":["env_get_time_url"],"additionalProperties":false}}}},"required":null},` +
		`{"uri":"urn:example:fault/v1","description":"Makes faults.","params":{"features":["x"],"methods":{"set":{"method":"POST","endpoint":"/agentenv/ext/example/fault/set","request":{"type":"object","properties":{"mode":{"type":"string","enum":["live","fixed"]},"rate":{"type":"number","default":0.0}},"required":["mode"],"additionalProperties":false}},` +
		`"read":{"method":"GET","endpoint":"/agentenv/ext/example/fault/read","request":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}}},"required":null},`
	if !strings.HasPrefix(body, want) {
		t.Errorf("card\n%s\nwant\n%s", body, want)
	}
	const tail = `"operations":["data/reset","data/add","data/get"]},"children_environments":null}`
	if !strings.HasSuffix(body, tail) {
		t.Errorf("card ends otherwise: %s", body)
	}
	for _, part := range []string{
		`{"uri":"urn:agentenv:data-objects/v1"`, `{"name":"notes_add","description":"Add a note.","inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"Note text."},"pri":{"type":"string","default":"lo","enum":["lo","hi"]}},"required":["text"]`,
		`{"name":"whoami","description":"Tell who calls.","inputSchema":{"type":"object","properties":{}`, `"required":false`,
	} {
		if !strings.Contains(body, part) {
			t.Errorf("card lacks %s:\n%s", part, body)
		}
	}
}

// TestGoClient: the Go SDK's client sees and calls tools, and progress arrives.
func TestGoClient(t *testing.T) {
	_, e := newNotes()
	srv := serve(t, e)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 3 || list.Tools[0].Name != "notes_add" || list.Tools[2].Meta[wire.HiddenMeta] != true {
		t.Fatalf("%+v, %v", list, err)
	}
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "notes_add", Arguments: map[string]any{"text": "a <b>"}})
	if err != nil || r.IsError || r.Content[0].(*mcp.TextContent).Text != "ok a <b>" {
		t.Fatalf("%+v, %v", r, err)
	}
	b, err := json.Marshal(r.StructuredContent)
	if err != nil || string(b) != `{"result":"ok a \u003cb\u003e"}` {
		t.Errorf("%s, %v", b, err)
	}
	for name, want := range map[string]string{"coded": "bad_note: no such note", "broken": "Error executing tool notes_add: kaboom", "crash": "Error executing tool notes_add: an internal fault"} {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "notes_add", Arguments: map[string]any{"text": name}})
		if err != nil || !r.IsError || !strings.HasPrefix(r.Content[0].(*mcp.TextContent).Text, want) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
