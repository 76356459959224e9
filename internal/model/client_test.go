package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-very-secret"

func client(t *testing.T, s *modeltest.Server, dialect string, p model.Patience) *model.Client {
	t.Helper()
	if p.First == 0 {
		p.First = time.Millisecond
	}
	c, err := model.New(model.Endpoint{
		Dialect: dialect, BaseURL: s.URL, Key: key,
		Prices: map[string]model.Price{"m": {Input: 1, Output: 10}},
	}, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func both(t *testing.T, f func(t *testing.T, dialect string)) {
	for _, d := range []string{model.OpenAI, model.Anthropic} {
		t.Run(d, func(t *testing.T) { f(t, d) })
	}
}

func ask() *model.Request {
	return &model.Request{
		Model: "m", System: "be brief", Messages: []model.Message{model.Text(model.User, "hi")},
		Tools: []model.Tool{{Name: "look", Description: "looks", Schema: json.RawMessage(`{"type":"object","properties":{"at":{"type":"string"}}}`)}},
	}
}

func TestAnswer(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		for _, whole := range []bool{false, true} {
			want := model.Response{
				Stop: model.StopTools, Usage: model.Usage{Input: 1000, Cached: 400, Output: 50},
				Message: model.Message{Role: model.Assistant, Parts: []model.Part{{Text: "größer \"x\""}}, Calls: []model.ToolCall{
					{ID: "a", Name: "look", Args: json.RawMessage(`{"at":"1.0"}`)}, {ID: "b", Name: "look", Args: json.RawMessage(`{"n":12345678901234567890}`)},
				}},
			}
			s := modeltest.New(t, func(modeltest.Asked) modeltest.Answer { return modeltest.Answer{Response: want, Whole: whole} })
			got, err := client(t, s, d, model.Patience{}).Generate(t.Context(), ask())
			if err != nil {
				t.Fatal(err)
			}
			if got.Message.Text() != want.Message.Text() || got.Stop != want.Stop || len(got.Message.Calls) != 2 || got.Tries != 1 || got.Model != "m" {
				t.Errorf("whole=%v: got %+v", whole, got)
			}
			for i, c := range got.Message.Calls {
				if w := want.Message.Calls[i]; c.ID != w.ID || c.Name != w.Name || string(c.Args) != string(w.Args) {
					t.Errorf("whole=%v: call %d is %+v, want %+v", whole, i, c, w)
				}
			}
			if u := got.Usage; u.Input != 1000 || u.Cached != 400 || u.Output != 50 || !u.Priced || u.USD != (1000+500)/1e6 {
				t.Errorf("whole=%v: usage %+v", whole, u)
			}
		}
	})
}

func TestRequest(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s := modeltest.New(t, func(modeltest.Asked) modeltest.Answer { return modeltest.Say("ok") })
		r := ask()
		r.Messages = append(r.Messages,
			model.Message{Role: model.Assistant, Calls: []model.ToolCall{{ID: "a", Name: "look", Args: json.RawMessage(`{}`)}, {ID: "b", Name: "look", Args: json.RawMessage(`{}`)}}},
			model.Message{Role: model.ToolRole, CallID: "a", Parts: []model.Part{{Text: "one"}, {Media: "image/png", Data: []byte("PNG")}}},
			model.Message{Role: model.ToolRole, CallID: "b", Error: true, Parts: []model.Part{{Text: "two"}}},
			model.Text(model.User, "go on"),
		)
		if _, err := client(t, s, d, model.Patience{}).Generate(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		q := s.Asked()[0]
		b, _ := json.Marshal(q.Body["messages"])
		var want string
		if d == model.OpenAI {
			want = `[{"content":"be brief","role":"system"},{"content":"hi","role":"user"},` +
				`{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"look"},"id":"a","type":"function"},{"function":{"arguments":"{}","name":"look"},"id":"b","type":"function"}]},` +
				`{"content":"one","role":"tool","tool_call_id":"a"},{"content":"two","role":"tool","tool_call_id":"b"},` +
				`{"content":[{"text":"The images of the results above:","type":"text"},{"image_url":{"url":"data:image/png;base64,UE5H"},"type":"image_url"}],"role":"user"},` +
				`{"content":"go on","role":"user"}]`
			if q.Header.Get("Authorization") != "Bearer "+key {
				t.Error("the key is not where this dialect wants it")
			}
		} else {
			want = `[{"content":[{"text":"hi","type":"text"}],"role":"user"},` +
				`{"content":[{"id":"a","input":{},"name":"look","type":"tool_use"},{"id":"b","input":{},"name":"look","type":"tool_use"}],"role":"assistant"},` +
				`{"content":[{"content":[{"text":"one","type":"text"},{"source":{"data":"UE5H","media_type":"image/png","type":"base64"},"type":"image"}],"is_error":false,"tool_use_id":"a","type":"tool_result"},` +
				`{"content":[{"text":"two","type":"text"}],"is_error":true,"tool_use_id":"b","type":"tool_result"},{"text":"go on","type":"text"}],"role":"user"}]`
			if q.Header.Get("X-Api-Key") != key || q.Body["system"] != "be brief" || q.Body["max_tokens"] == nil {
				t.Errorf("got %v %v", q.Header, q.Body)
			}
		}
		if string(b) != want {
			t.Errorf("messages are\n%s\nwant\n%s", b, want)
		}
	})
}

func TestThinkingGoesBack(t *testing.T) {
	s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		a := modeltest.Call("a", "look", `{}`)
		a.Message.Reasoning = "hm"
		return a
	})
	c := client(t, s, model.Anthropic, model.Patience{})
	r := ask()
	res, err := c.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Messages = append(r.Messages, res.Message, model.Message{Role: model.ToolRole, CallID: "a", Parts: []model.Part{{Text: "x"}}})
	if _, err := c.Generate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(s.Asked()[1].Body["messages"])
	if want := `{"signature":"sig","thinking":"hm","type":"thinking"},{"id":"a"`; !strings.Contains(string(b), want) {
		t.Errorf("%s lacks %s", b, want)
	}
}

// TestFaults injects each fault once and then answers: what may pass is tried again, what may not is told at once.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault modeltest.Answer
		kind  string // "": it passes
		infra bool
	}{
		{"rate limit", modeltest.Answer{Status: 429, Text: "slow down", RetryAfter: "0.01"}, "", true},
		{"500", modeltest.Answer{Status: 500, Text: "oops"}, "", true},
		{"529", modeltest.Answer{Status: 529, Text: "overloaded"}, "", true},
		{"cut stream", func() modeltest.Answer { a := modeltest.Say("half an answer"); a.CutAfter = 2; return a }(), "", true},
		{"early end", func() modeltest.Answer { a := modeltest.Say("half an answer"); a.EndAfter = 2; return a }(), "", true},
		{"error in the stream", func() modeltest.Answer { a := modeltest.Say("x"); a.StreamFail = "overloaded_error"; return a }(), "", true},
		{"a page", modeltest.Answer{Raw: true, Media: "text/html", Text: "<h1>proxy</h1>"}, "", true},
		{"no JSON", modeltest.Answer{Raw: true, Text: "{"}, "", true},
		{"nothing as 200", modeltest.Answer{Response: model.Response{Stop: model.StopEnd, Message: model.Message{Role: model.Assistant}}}, "", true},
		{"error as 200", modeltest.Answer{Raw: true, Text: `{"error":{"message":"rate limit","code":429},"type":"error"}`}, "", true},
		{"silence", func() modeltest.Answer { a := modeltest.Say("x"); a.Hang = true; return a }(), "", true},
		{"key", modeltest.Answer{Status: 401, Text: "bad key"}, model.Denied, true},
		{"model", modeltest.Answer{Status: 404, Text: "no such model"}, model.NoModel, true},
		{"too long", modeltest.Answer{Status: 400, Text: "prompt is too long: 9 > 8"}, model.TooLong, false},
		{"invalid", modeltest.Answer{Status: 422, Text: "bad tool"}, model.Invalid, false},
		{"asks too much patience", modeltest.Answer{Status: 429, Text: "tomorrow", RetryAfter: "86400"}, model.RateLimited, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, d string) {
				s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
					if q.N == 0 {
						return c.fault
					}
					return modeltest.Say("fine")
				})
				res, err := client(t, s, d, model.Patience{Idle: 300 * time.Millisecond}).Generate(t.Context(), ask())
				if c.kind == "" {
					if err != nil || res.Message.Text() != "fine" || res.Tries != 2 {
						t.Fatalf("got %+v, %v", res, err)
					}
					return
				}
				var e *model.Error
				if !errors.As(err, &e) || e.Kind != c.kind || model.Infra(err) != c.infra {
					t.Fatalf("got %v (infra %v)", err, model.Infra(err))
				}
				if n := len(s.Asked()); n != 1 {
					t.Errorf("asked %d times", n)
				}
				if strings.Contains(err.Error(), key) {
					t.Error("the key is in the error")
				}
			})
		})
	}
}

func TestEndpointDown(t *testing.T) {
	c, err := model.New(model.Endpoint{BaseURL: "http://127.0.0.1:1/?key=" + key, Key: key}, model.Patience{Outage: 20 * time.Millisecond, First: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Generate(t.Context(), ask())
	var e *model.Error
	if !errors.As(err, &e) || e.Kind != model.Unreachable || e.Tries < 2 || !model.Infra(err) || strings.Contains(err.Error(), key) {
		t.Errorf("got %v", err)
	}
}

func TestCancel(t *testing.T) {
	started := make(chan struct{})
	s := modeltest.New(t, func(modeltest.Asked) modeltest.Answer {
		close(started)
		a := modeltest.Say("x")
		a.Hang = true
		return a
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	_, err := client(t, s, model.OpenAI, model.Patience{}).Generate(ctx, ask())
	if !errors.Is(err, context.Canceled) || model.Infra(err) {
		t.Errorf("got %v", err)
	}
}

func TestRedirectKeepsTheKey(t *testing.T) {
	var reached atomic.Bool
	other := modeltest.New(t, func(modeltest.Asked) modeltest.Answer { reached.Store(true); return modeltest.Say("x") })
	front := modeltest.New(t, func(modeltest.Asked) modeltest.Answer {
		return modeltest.Answer{Status: http.StatusTemporaryRedirect, Location: other.URL + "/v1/chat/completions"}
	})
	_, err := client(t, front, model.OpenAI, model.Patience{}).Generate(t.Context(), ask())
	if err == nil || reached.Load() {
		t.Errorf("followed: %v", err)
	}
}

func TestMalformedArguments(t *testing.T) {
	for _, args := range []string{`{"at":`, `[1]`, `"x"`, `nonsense`} {
		s := modeltest.New(t, func(modeltest.Asked) modeltest.Answer {
			a := modeltest.Call("a", "look", "")
			a.Message.Calls[0].Malformed = args
			return a
		})
		both(t, func(t *testing.T, d string) {
			res, err := client(t, s, d, model.Patience{}).Generate(t.Context(), ask())
			if err != nil {
				t.Fatal(err)
			}
			if c := res.Message.Calls[0]; string(c.Args) != "{}" || c.Malformed != args {
				t.Errorf("%s: got %+v", args, c)
			}
		})
	}
}

// TestLimitHalves: an endpoint that bears few at once is asked few at once, and nothing is lost.
func TestLimitHalves(t *testing.T) {
	var open, most atomic.Int64
	s := modeltest.New(t, func(modeltest.Asked) modeltest.Answer {
		n := open.Add(1)
		defer open.Add(-1)
		if n > 4 {
			return modeltest.Answer{Status: 429, Text: "slow", RetryAfter: "0.02"}
		}
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		return modeltest.Say("ok")
	})
	c := client(t, s, model.OpenAI, model.Patience{Tries: 100, Total: time.Minute})
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if _, err := c.Generate(t.Context(), ask()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(s.Asked()); n > 600 {
		t.Errorf("%d requests for 60 answers", n)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":9999999,\"id\":\"a\"}]}}]}\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, d := range []string{model.OpenAI, model.Anthropic} {
			for _, media := range []string{"text/event-stream", "application/json"} {
				c, err := model.New(model.Endpoint{Dialect: d, BaseURL: "http://x", HTTP: &http.Client{Transport: answer{b, media}}}, model.Patience{Tries: 1})
				if err != nil {
					t.Fatal(err)
				}
				res, err := c.Generate(t.Context(), ask())
				if err == nil {
					for _, call := range res.Message.Calls {
						if !json.Valid(call.Args) || call.Args[0] != '{' {
							t.Errorf("arguments %q", call.Args)
						}
					}
				}
			}
		}
	})
}
