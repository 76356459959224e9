package front_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/redact"
)

// addDriver serves the inputs of a computer, which answer their arguments; a key "refused" is refused.
func (s *server) addDriver() {
	for _, name := range []string{"computer_screenshot", "computer_click", "computer_type", "computer_key"} {
		s.mcp.AddTool(&mcp.Tool{Name: name, InputSchema: jsonObject{"type": "object"}}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if strings.Contains(string(req.Params.Arguments), "refused") {
				return &mcp.CallToolResult{IsError: true, StructuredContent: jsonObject{"code": "invalid_argument"}}, nil
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
		})
	}
}

// logged are the lines of a log of calls, without what differs each time.
func logged(t *testing.T, path string) []map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for line := range strings.Lines(string(b)) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if at, _ := m["timestamp_utc"].(string); at == "" {
			t.Errorf("no time: %s", line)
		}
		delete(m, "timestamp_utc")
		out = append(out, m)
	}
	return out
}

// TestHand: what a person does is in the log of calls, between its beginning and its end, as theirs and as no call of a tool. What they type isn't: only how much.
func TestHand(t *testing.T) {
	s := newServer(t, "notes", true)
	s.addDriver()
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	secrets := &redact.Redactor{}
	secrets.Add("s3cr3tbutton")
	g, _ := newGateway(t, front.Options{CallLog: path, Redact: secrets, Consistent: true}, map[string]*server{"notes": s})
	g.SetAccess("solver", []string{"computer_click"}, false)
	h, err := g.TakeOver("notes", front.Console)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, args, want string }{
		{"computer_screenshot", `{}`, `{}`},
		{"computer_click", `{"x":3,"y":4.5,"button":"s3cr3tbutton","other":"kept out"}`, `"x\":3`},
		{"computer_type", `{"text":"päss"}`, "päss"},
		{"computer_key", `{"keys":["Shift_L","p"]}`, "Shift_L"},
		{"computer_key", `{"keys":["refused"]}`, "invalid_argument"},
	} {
		if got, err := h.Call(t.Context(), c.tool, json.RawMessage(c.args)); err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s: %s %v", c.tool, got, err)
		}
	}
	if _, err := h.Call(t.Context(), "notes_ping", json.RawMessage(`{}`)); !errors.Is(err, front.ErrNoInput) {
		t.Errorf("a tool that is no input: %v", err)
	}
	if _, err := h.Call(t.Context(), "computer_click", json.RawMessage(`[]`)); err == nil {
		t.Error("arguments that are no object")
	}
	if _, err := g.CallTool(t.Context(), access.Principal{Role: "solver"}, "computer_key", json.RawMessage(`{"keys":["a"]}`)); err != nil {
		t.Error(err)
	}
	for range 2 {
		if n, err := h.End(); n != 3 || err != nil {
			t.Errorf("%d inputs, %v", n, err)
		}
	}
	var got []string
	for _, m := range logged(t, path) {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b))
	}
	input := func(id, next, told, outcome string) []string {
		return []string{
			`{"environment_name":"notes","event_id":"` + id + `","event_type":"person_input","input":` + told + `,"source":"console","taken_over_event_id":"event_1"}`,
			`{"changelog_id":null,"changelog_id_before":null,"environment_name":"notes","event_id":"` + next + `","event_type":"person_input_result","outcome":"` + outcome +
				`","person_input_event_id":"` + id + `","source":"console","taken_over_event_id":"event_1"}`,
		}
	}
	want := []string{`{"environment_name":"notes","event_id":"event_1","event_type":"taken_over","source":"console"}`}
	want = append(want, input("event_2", "event_3", `{"action":"click","button":"***","x":3,"y":4.5}`, "done")...)
	want = append(want, input("event_4", "event_5", `{"action":"type","characters":4}`, "done")...)
	want = append(want, input("event_6", "event_7", `{"action":"key","keys":2}`, "done")...)
	want = append(want, input("event_8", "event_9", `{"action":"key","keys":1}`, "invalid_argument")...)
	if len(got) != len(want)+3 || strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if last := got[len(got)-1]; last != `{"environment_name":"notes","event_id":"event_12","event_type":"given_back","inputs":3,"source":"console","taken_over_event_id":"event_1"}` {
		t.Error(last)
	}
	if n := strings.Count(strings.Join(got, "\n"), `"tool_call"`); n != 2 { // the type and the member of the agent's one
		t.Errorf("%d times tool_call", n)
	}
}

// TestHandOfNobody: there is none of what is not there.
func TestHandOfNobody(t *testing.T) {
	g, _ := newGateway(t, front.Options{}, map[string]*server{"notes": newServer(t, "notes", true)})
	if _, err := g.TakeOver("other", front.Console); err == nil {
		t.Error("of an environment that isn't there")
	}
}

// FuzzInput: whatever arguments are, what the log says of them is an object, and a text that was typed isn't in it.
func FuzzInput(f *testing.F) {
	for _, s := range []string{`{"text":"abc"}`, `{"x":1,"y":2,"modifiers":["a"]}`, `{"keys":[]}`, `{"keys":{"a":1},"text":["x"]}`, `[`, `{"path":[[1,2]]`, `{"text":"\ud800"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, args string) {
		for _, tool := range []string{"computer_click", "computer_drag", "computer_scroll", "computer_type", "computer_key"} {
			told, err := front.InputOf(tool, []byte(args))
			if err != nil {
				continue
			}
			var m map[string]any
			if json.Unmarshal(told, &m) != nil || m["text"] != nil || "computer_"+m["action"].(string) != tool {
				t.Errorf("%s %q: %s", tool, args, told)
			}
			if keys, ok := m["keys"]; ok {
				if _, number := keys.(float64); !number {
					t.Errorf("%s %q: %s", tool, args, told)
				}
			}
		}
	})
}
