package front_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/front"
)

// server is an environment's server for tests: an MCP server of the official SDK, a card, a data plane.
type server struct {
	*httptest.Server
	mcp  *mcp.Server
	name string
	card string
	mu   sync.Mutex
	seen []seen // requests other than MCP's
}

type seen struct {
	Method, Path, Body string
	Header             http.Header
}

type textArgs struct {
	Text string `json:"text"`
}

// newServer serves <name>_ping, which gives its text back, and <name>_meta, which gives its _meta and arguments as they came.
func newServer(t *testing.T, name string, json bool) *server {
	t.Helper()
	s := &server{name: name, mcp: mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)}
	s.card = `{"name":"` + name + `","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","additionalInterfaces":[{"url":"/mcp","transport":"mcp"}],` +
		`"capabilities":{"extensions":[{"uri":"urn:agentenv:clock/v1","description":"x","required":null,"params":{"endpoint":"/agentenv/ext/sync_time","methods":{"sync_time":{"method":"POST"}}}},` +
		`{"uri":"urn:agentenv:disable-tool/v1","params":{"endpoint":"/tools/disable","methods":{"disable":{"method":"POST"}}}}],"tools":[{"name":"` + name + `_ping","description":"x","inputSchema":{"type":"object"}}],` +
		`"operations":["data/reset","data/add","data/get"]},"children_environments":null,"x-own":{"kept":1.0}}`
	mcp.AddTool(s.mcp, &mcp.Tool{Name: name + "_ping", Title: "Ping", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in textArgs) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	s.mcp.AddTool(&mcp.Tool{Name: name + "_meta", InputSchema: jsonObject{"type": "object"}}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		meta, err := jsonText(req.Params.Meta)
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: meta}, &mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{JSONResponse: json})
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	mux.HandleFunc("/.well-known/agent-env.json", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s.card) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, seen{r.Method, r.URL.RequestURI(), string(b), r.Header.Clone()})
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"from":"`+name+`"}}`)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// addEcho adds a tool that tells whose it is.
func (s *server) addEcho(name string) {
	s.mcp.AddTool(&mcp.Tool{Name: name, InputSchema: jsonObject{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " of " + s.name}}}, nil
	})
}

// addBig adds a tool whose result is as large as it is asked for.
func (s *server) addBig(name string) {
	mcp.AddTool(s.mcp, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Bytes int `json:"bytes"`
	},
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "HEAD" + strings.Repeat("é", in.Bytes/2) + "TAIL"}}}, nil, nil
	})
}

func (s *server) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

type jsonObject map[string]any

func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// newGateway is a gateway in front of the servers, ready, and its owner's door.
func newGateway(t *testing.T, o front.Options, servers map[string]*server) (*front.Gateway, *httptest.Server) {
	t.Helper()
	if o.CallLog == "" {
		o.CallLog = filepath.Join(t.TempDir(), "calls.jsonl")
	}
	for _, name := range []string{"cal", "notes", "svc0", "svc1"} {
		if s := servers[name]; s != nil {
			o.Children = append(o.Children, front.Child{Name: name, URL: s.URL})
		}
	}
	g, err := front.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := g.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return g, door(t, g, access.Principal{Owner: true})
}

func door(t *testing.T, g *front.Gateway, p access.Principal) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(g.Door(p))
	t.Cleanup(srv.Close)
	return srv
}

// answer is what a raw request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a raw request; headers come as name, value.
func do(t *testing.T, method, url, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// raw is an MCP session by hand.
type raw struct {
	t       *testing.T
	url     string
	session string
	id      int
}

const bothTypes = "application/json, text/event-stream"

func begin(t *testing.T, url string, headers ...string) *raw {
	t.Helper()
	a := do(t, "POST", url+"/mcp", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`,
		append(headers, "Accept", bothTypes, "Content-Type", "application/json")...)
	if a.status != 200 || a.header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("initialize: %+v", a)
	}
	return &raw{t: t, url: url + "/mcp", session: a.header.Get("Mcp-Session-Id")}
}

func (c *raw) post(body string, headers ...string) answer {
	c.t.Helper()
	return do(c.t, "POST", c.url, body, append(headers, "Accept", bothTypes, "Content-Type", "application/json", "Mcp-Session-Id", c.session)...)
}

// call sends one request and gives the result, or the error, of its answer.
func (c *raw) call(method, params string, headers ...string) string {
	c.t.Helper()
	c.id++
	id, _ := jsonText(c.id)
	a := c.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`, headers...)
	var m struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  json.RawMessage
	}
	body := a.body
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.SplitSeq(body, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				body = data
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || a.status != 200 || !bytes.Equal(m.ID, []byte(id)) {
		c.t.Fatalf("%s: HTTP %d %s %v", method, a.status, a.body, err)
	}
	if m.Error != nil {
		return string(m.Error)
	}
	return string(m.Result)
}
