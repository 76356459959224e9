package exampleserver_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/exampleserver"
	"agentenv.internal/agentenv/sdk/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func none(string) (string, bool) { return "", false }

func connect(t *testing.T, name string) (string, *mcp.ClientSession) {
	t.Helper()
	e := exampleserver.New(name, none)
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
	})
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return srv.URL, s
}

func call(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil || r.IsError || len(r.Content) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.Content[0].(*mcp.TextContent).Text
}

func TestEcho(t *testing.T) {
	_, s := connect(t, "echo-mcp")
	for _, text := range []string{"hello", "", "<&> \"é\" \n 🜂"} {
		if got := call(t, s, "echo", map[string]any{"text": text}); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
	}
}

func TestMail(t *testing.T) {
	_, s := connect(t, "mail-mcp")
	for query, want := range map[string]string{"invoice": "[m-1]", "INVOICE october": "[m-1]", "example.com": "[m-2 m-3]", "": "[m-1 m-2 m-3]", "invoice lunch": "[]"} {
		var found []struct{ ID, From, Subject, Body string }
		if err := json.Unmarshal([]byte(call(t, s, "search_emails", map[string]any{"query": query})), &found); err != nil {
			t.Fatal(err)
		}
		got := "["
		for i, m := range found {
			if i > 0 {
				got += " "
			}
			got += m.ID
		}
		if got += "]"; got != want {
			t.Errorf("%q finds %s, want %s", query, got, want)
		}
	}
}

func TestConformance(t *testing.T) {
	for _, name := range exampleserver.Names() {
		url, _ := connect(t, name)
		r, err := conformance.Run(t.Context(), conformance.Target{URL: url})
		if err != nil || r.Problems() > 0 || r.Count(conformance.Passed) < 8 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func TestUnknown(t *testing.T) {
	if exampleserver.New("nothing", none) != nil {
		t.Error("a server was made of nothing")
	}
}
