package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
)

func full() *model.Request {
	return &model.Request{
		Model: "m", System: "be brief", MaxTokens: 77, Temperature: new(0.5),
		Messages: []model.Message{
			model.Text(model.User, "hi"),
			{Role: model.Assistant, Parts: []model.Part{{Text: "I look"}}, Calls: []model.ToolCall{{ID: "a", Name: "look", Args: json.RawMessage(`{"at":1.0}`)}}},
			{Role: model.ToolRole, CallID: "a", Parts: []model.Part{{Text: "seen"}}},
			{Role: model.User, Parts: []model.Part{{Text: "and this?"}, {Media: "image/png", Data: []byte("PNG")}}},
		},
		Tools: []model.Tool{{Name: "look", Description: "looks", Schema: json.RawMessage(`{"type":"object","properties":{"at":{"type":"number"}}}`)}},
	}
}

func answered() *model.Response {
	return &model.Response{
		Stop: model.StopTools, Usage: model.Usage{Input: 100, Cached: 40, Output: 7},
		Message: model.Message{Role: model.Assistant, Parts: []model.Part{{Text: "größer"}}, Calls: []model.ToolCall{{ID: "c", Name: "look", Args: json.RawMessage(`{"at":2.0}`)}}},
	}
}

// TestRoundTrip puts our client before our server: what is asked arrives, what is answered comes back.
func TestRoundTrip(t *testing.T) {
	for _, dialect := range []string{model.OpenAI, model.Anthropic} {
		var got *serve.Question
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q, err := serve.Read(r)
			if err != nil {
				serve.Fail(w, serve.ProtocolOf(r.URL.Path), err)
				return
			}
			got = q
			serve.Write(w, q, answered())
		}))
		defer s.Close()
		c, err := model.New(model.Endpoint{Dialect: dialect, BaseURL: s.URL}, model.Patience{Tries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		res, err := c.Generate(t.Context(), full())
		if err != nil {
			t.Fatal(err)
		}
		want := answered()
		if res.Message.Text() != "größer" || !reflect.DeepEqual(res.Message.Calls, want.Message.Calls) || res.Usage.Input != 100 || res.Usage.Cached != 40 || res.Stop != want.Stop {
			t.Errorf("%s: %+v", dialect, res)
		}
		if w := full(); !got.Stream || !reflect.DeepEqual(got.Request, *w) {
			t.Errorf("%s: asked\n%+v\nwant\n%+v", dialect, got.Request, *w)
		}
	}
}

func ask(t *testing.T, path, body string) *serve.Question {
	t.Helper()
	q, err := serve.Read(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestResponsesRequest(t *testing.T) {
	q := ask(t, "/v1/responses", `{"model":"m","stream":true,"instructions":"be brief","max_output_tokens":77,"temperature":0.5,"input":[
		{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
		{"type":"reasoning","summary":[]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look"}]},
		{"type":"function_call","call_id":"a","name":"look","arguments":"{\"at\":1.0}"},
		{"type":"function_call_output","call_id":"a","output":"seen"},
		{"role":"user","content":[{"type":"input_text","text":"and this?"},{"type":"input_image","image_url":"data:image/png;base64,UE5H"}]}],
		"tools":[{"type":"web_search"},{"type":"function","name":"look","description":"looks","parameters":{"type":"object","properties":{"at":{"type":"number"}}}}]}`)
	if !q.Stream || !reflect.DeepEqual(q.Request, *full()) {
		t.Errorf("got %+v", q.Request)
	}
}

// TestNamespaces: tools within a namespace have one name for a Model, and the agent's two in its answer.
func TestNamespaces(t *testing.T) {
	body := `{"model":"m","stream":true,"input":[{"role":"user","content":"hi"},
		{"type":"function_call","call_id":"a","namespace":"mcp__echo","name":"echo","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"seen"}],
		"tools":[{"type":"namespace","name":"mcp__echo","tools":[{"type":"function","name":"echo","parameters":{"type":"object"}},{"type":"custom","name":"x"}]},
			{"type":"function","name":"look","parameters":{"type":"object"}}]}`
	q := ask(t, "/v1/responses", body)
	if n := len(q.Request.Tools); n != 2 || q.Request.Tools[0].Name != "mcp__echo__echo" || q.Request.Messages[1].Calls[0].Name != "mcp__echo__echo" {
		t.Fatalf("got %+v", q.Request)
	}
	res := &model.Response{Stop: model.StopTools, Message: model.Message{Calls: []model.ToolCall{
		{ID: "b", Name: "mcp__echo__echo", Args: json.RawMessage(`{}`)}, {ID: "c", Name: "look", Args: json.RawMessage(`{}`)},
	}}}
	for _, stream := range []bool{true, false} {
		q.Stream = stream
		w := httptest.NewRecorder()
		serve.Write(w, q, res)
		got := w.Body.String()
		if !strings.Contains(got, `"name":"echo","namespace":"mcp__echo"`) || strings.Contains(got, "mcp__echo__echo") || !strings.Contains(got, `"name":"look"`) {
			t.Errorf("stream %v: %s", stream, got)
		}
	}
}

// TestSystemWithin: some agents say more of the system's in the middle of a conversation.
func TestSystemWithin(t *testing.T) {
	q := ask(t, "/v1/messages", `{"system":"be brief","messages":[{"role":"user","content":"hi"},{"role":"system","content":[{"type":"text","text":"and kind"}]}]}`)
	if q.Request.System != "be brief\n\nand kind" || len(q.Request.Messages) != 1 {
		t.Errorf("got %+v", q.Request)
	}
}

func TestGeminiRequest(t *testing.T) {
	q := ask(t, "/v1beta/models/m:streamGenerateContent", `{"systemInstruction":{"parts":[{"text":"be brief"}]},"contents":[
		{"role":"user","parts":[{"text":"hi"}]},
		{"role":"model","parts":[{"text":"hm","thought":true},{"text":"I look"},{"functionCall":{"name":"look","args":{"at":1.0}}}]},
		{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"output":"seen"}}}]},
		{"role":"user","parts":[{"text":"and this?"},{"inlineData":{"mimeType":"image/png","data":"UE5H"}}]}],
		"tools":[{"functionDeclarations":[{"name":"look","description":"looks","parametersJsonSchema":{"type":"object","properties":{"at":{"type":"number"}}}}]}],
		"generationConfig":{"maxOutputTokens":77,"temperature":0.5}}`)
	want := full()
	want.Messages[1].Calls[0].ID, want.Messages[2].CallID = "call_1", "call_1"
	if !q.Stream || !reflect.DeepEqual(q.Request, *want) {
		t.Errorf("got\n%+v\nwant\n%+v", q.Request, *want)
	}
}

func TestEventsAreWhole(t *testing.T) {
	for _, p := range []string{serve.Chat, serve.Messages, serve.Responses, serve.Gemini} {
		var all strings.Builder
		for _, e := range serve.Events(p, "m", answered()) {
			for line := range strings.SplitSeq(e, "\n") {
				if d, ok := strings.CutPrefix(line, "data: "); ok && d != "[DONE]" && !json.Valid([]byte(d)) {
					t.Errorf("%s: %s", p, d)
				}
			}
			all.WriteString(e)
		}
		if !strings.Contains(all.String(), "look") || !json.Valid([]byte(serve.Whole(p, "m", answered()))) {
			t.Errorf("%s: %s", p, all.String())
		}
	}
}

// TestIDs: agents take messages of one id for one message.
func TestIDs(t *testing.T) {
	for _, p := range []string{serve.Chat, serve.Messages, serve.Responses, serve.Gemini} {
		whole, first := serve.Whole(p, "m", answered()), serve.Events(p, "m", answered())[0]
		if serve.Whole(p, "m", answered()) == whole || serve.Events(p, "m", answered())[0] == first {
			t.Errorf("%s: two answers have one id", p)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions":               `{"n":2}`,
		"/v1/messages":                       `{"messages":[{"role":"tool","content":"x"}]}`,
		"/v1/responses":                      `{"previous_response_id":"r"}`,
		"/v1beta/models/m:generateContent":   `{"contents":[{"role":"x"}]}`,
		"/v1/embeddings":                     `{}`,
		"/x/chat/completions":                `[`,
		"/v1/models/m:streamGenerateContent": `"`,
		"/a/messages":                        `{"messages":[{"role":"user","content":7}]}`,
		"/b/responses":                       `{"input":[{"type":"computer_call_output"}]}`,
		"/c/chat/completions":                `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/y.png"}}]}]}`,
	} {
		if _, err := serve.Read(httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body))); err == nil {
			t.Errorf("%s took %s", path, body)
		}
	}
}

// TestFail: our own client reads a failure as the kind that it was.
func TestFail(t *testing.T) {
	for _, kind := range []string{model.RateLimited, model.Overloaded, model.Denied, model.NoModel, model.Invalid} {
		for _, dialect := range []string{model.OpenAI, model.Anthropic} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				serve.Fail(w, serve.ProtocolOf(r.URL.Path), fmt.Errorf("wrapped: %w", &model.Error{Kind: kind, Message: "why"}))
			}))
			c, err := model.New(model.Endpoint{Dialect: dialect, BaseURL: s.URL}, model.Patience{Tries: 1, First: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Generate(t.Context(), full())
			var e *model.Error
			if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(err.Error(), "why") {
				t.Errorf("%s %s: %v", kind, dialect, err)
			}
			c.Close()
			s.Close()
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("/v1/chat/completions", `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"arguments":"["}}]}]}`)
	f.Add("/v1/messages", `{"system":[{"type":"text","text":"x"}],"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}`)
	f.Add("/v1/responses", `{"input":[{"type":"function_call"},{"type":"function_call_output","output":[]}]}`)
	f.Add("/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"functionResponse":{}},{"functionCall":{}}]}]}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader(body))
		r.URL.Path = path
		q, err := serve.Read(r)
		if err != nil {
			return
		}
		for _, m := range q.Request.Messages {
			for _, c := range m.Calls {
				if len(c.Args) == 0 || c.Args[0] != '{' && c.Args[0] != ' ' && c.Args[0] != '\n' && c.Args[0] != '\t' && c.Args[0] != '\r' || !json.Valid(c.Args) {
					t.Errorf("arguments %q", c.Args)
				}
			}
		}
	})
}
