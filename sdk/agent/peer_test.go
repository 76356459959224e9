package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// TestPeers: an agent asks another by the tools that it serves to itself, and nobody else may use them.
func TestPeers(t *testing.T) {
	other := serve(t, func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		switch t.Text() {
		case "wait":
			<-ctx.Done()
		case "fail":
			return agent.Result{}, agent.Fail("no", "won't")
		}
		return agent.Result{Parts: []wire.Part{wire.TextPart("heard " + t.Text() + " in " + t.ContextID)}, Structured: 1}, nil
	})
	r := serve(t, func(_ context.Context, t *agent.Turn) (agent.Result, error) {
		return agent.Text(fmt.Sprint(t.Servers)), nil
	}, agent.WithPeers(), agent.WithMCP())
	const p = "/ext/peer-agents"
	for _, body := range []string{`{}`, `{"peers":[{"name":"x"}]}`, `{"peers":[{"name":"x","url":"x"}]}`, `{"peers":[{"name":"x","url":"http://x"},{"name":"x","url":"http://y"}]}`, `{"peers":[{"name":"x","url":"http://x","card":5}]}`, `{"peers":[{"name":"x","url":"http://x","more":5}]}`} {
		r.want("POST", p, body, 400, "")
	}
	r.want("POST", p, `{"peers":[{"name":"other","url":"`+other.url+`/","description":"helps"},{"name":"gone","url":"http://127.0.0.1:9","card":{"name":"g","description":"gd","url":"/rpc"}}]}`, 200, `{"peers":2,"status":"updated"}`)
	r.want("GET", p, "", 200, `{"peers":[{"name":"other","url":"`+other.url+`","description":"helps"},{"name":"gone","url":"http://127.0.0.1:9"}]}`)
	server := r.url + p + "/mcp"
	r.want("GET", "/ext/mcp-config", "", 200, `"peer_agents":{"url":"`+server+`","has_headers":false}`)
	if got := r.ask("x", "").Status.Message.Text(); got != "[{peer_agents "+server+" map[]}]" {
		t.Error(got)
	}
	r.want("POST", p+"/mcp", "{}", http.StatusMisdirectedRequest, "", "Host", "evil.example")
	r.want("POST", p+"/mcp", "{}", http.StatusForbidden, "", "Origin", "http://evil.example")

	c, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tools, err := c.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 6 {
		t.Fatalf("%v %v", tools, err)
	}
	call := func(name, args string, fails bool) map[string]any {
		t.Helper()
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		if err != nil || res.IsError != fails || len(res.Content) != 1 {
			t.Fatalf("%s %s: %+v %v", name, args, res, err)
		}
		text, _ := res.Content[0].(*mcp.TextContent)
		out := map[string]any{"text": text.Text}
		_ = json.Unmarshal([]byte(text.Text), &out) // a list or words stay text
		return out
	}
	if out := call("peer_list", `{}`, false)["text"].(string); !strings.Contains(out, `"description":"helps"`) || !strings.Contains(out, `"description":"gd"`) {
		t.Error(out)
	}
	if out := call("peer_get_card", `{"name":"other"}`, false); out["protocolVersion"] != "0.3.0" {
		t.Error(out)
	}
	if out := call("peer_get_card", `{"name":"gone"}`, false); out["description"] != "gd" {
		t.Error(out)
	}
	out := call("peer_send_message", `{"name":"other","prompt":"hi"}`, false)
	if out["state"] != "completed" || out["response"] != fmt.Sprint("heard hi in ", out["context_id"]) || out["parts"] == nil {
		t.Error(out)
	}
	again := call("peer_send_message", fmt.Sprintf(`{"name":"other","parts":[{"kind":"text","text":"more"}],"context_id":%q}`, out["context_id"]), false)
	if again["response"] != fmt.Sprint("heard more in ", out["context_id"]) {
		t.Error(again)
	}
	if out := call("peer_send_message", `{"name":"other","prompt":"fail"}`, false); out["state"] != "failed" || out["error"] == nil {
		t.Error(out)
	}
	if out := call("peer_send_message", `{"name":"other","prompt":"wait","timeout_seconds":1}`, false); out["state"] != "working" {
		t.Error(out)
	}
	id := fmt.Sprintf(`{"task_id":%q}`, call("peer_start_task", `{"name":"other","prompt":"wait"}`, false)["task_id"])
	if out := call("peer_get_task", strings.TrimSuffix(id, "}")+`,"history_length":1}`, false); out["history"] == nil {
		t.Error(out)
	}
	if out := call("peer_cancel_task", id, false); out["state"] != "canceled" {
		t.Error(out)
	}
	for name, args := range map[string]string{"peer_cancel_task": id, "peer_get_task": `{"task_id":"none"}`, "peer_send_message": `{"name":"other"}`, "peer_start_task": `{"name":"who","prompt":"x"}`, "peer_get_card": `{"nam":"other"}`} {
		if out := call(name, args, true)["text"].(string); out == "" || strings.Contains(out, "Correlation") {
			t.Errorf("%s: %s", name, out)
		}
	}
}
