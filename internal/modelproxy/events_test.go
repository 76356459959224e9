package modelproxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/internal/model/serve"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/trajectory"
)

const canary = "canary-77\"é-4711"

// turns are requests of a conversation with one call, in each protocol: the question, and the result of the call that was answered. CALL is its id.
var turns = map[string]struct {
	path          string
	first, second string
}{
	serve.Chat: {
		"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"I look","tool_calls":[{"id":"CALL","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"CALL","content":"seen"}]}`,
	},
	serve.Messages: {
		"/v1/messages", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"text","text":"I look"},{"type":"tool_use","id":"CALL","name":"look","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"CALL","content":"seen"}]}]}`,
	},
	serve.Responses: {
		"/v1/responses", `{"model":"m","stream":true,"input":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","stream":true,"input":[{"role":"user","content":"hi"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look"}]},{"type":"function_call","call_id":"CALL","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"CALL","output":"seen"}]}`,
	},
	serve.Gemini: {
		"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`,
		`{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"text":"I look"},{"functionCall":{"id":"CALL","name":"look","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"CALL","name":"look","response":{"output":"seen"}}}]}]}`,
	},
}

// TestEvents: what passes the door makes the same trajectory in each protocol, streamed or not, and it is a valid one.
func TestEvents(t *testing.T) {
	for protocol, c := range turns {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprint(protocol, " whole=", whole), func(t *testing.T) {
				up := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
					a := modeltest.Say("all is " + canary + " well")
					if q.N == 0 {
						a = modeltest.Call("c1", "look", `{"at":"x`+strings.ReplaceAll(canary, `"`, `\"`)+`y"}`)
						a.Message.Parts = []model.Part{{Text: "I look"}}
					}
					a.Whole = whole
					return a
				})
				r := &record{}
				url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: up.URL}}, r)
				if status, text := post(t, url+c.path, c.first, nil); status != 200 {
					t.Fatal(status, text)
				}
				events := modelproxy.Events(t.Context(), r.all[0], nil)
				if len(events) != 1 || len(events[0].Calls) != 1 {
					t.Fatalf("%+v", events)
				}
				post(t, url+c.path, strings.ReplaceAll(c.second, "CALL", events[0].Calls[0].ID), nil)
				events = append([]trajectory.Event{{Kind: trajectory.Said, Source: trajectory.User, Text: "hi"}}, events...)
				events = append(events, modelproxy.Events(t.Context(), r.all[1], nil)...)
				var got []string
				for _, e := range events {
					line := fmt.Sprintf("%s %q", e.Kind, e.Text)
					for _, k := range e.Calls {
						line += fmt.Sprintf(" %s(%s)", k.Name, k.Arguments)
					}
					got = append(got, line)
				}
				args, _ := json.Marshal(map[string]string{"at": "x" + canary + "y"})
				want := []string{
					fmt.Sprintf("%s %q", trajectory.Said, "hi"), fmt.Sprintf("%s %q look(%s)", trajectory.Answered, "I look", args),
					fmt.Sprintf("%s %q", trajectory.Returned, "seen"), fmt.Sprintf("%s %q", trajectory.Answered, "all is "+canary+" well"),
				}
				if strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				doc, err := json.Marshal(trajectory.Fold(trajectory.AgentInfo{Name: "a", Version: "1"}, "s", events))
				if err != nil {
					t.Fatal(err)
				}
				parsed, err := trajectory.Parse(doc)
				if err != nil {
					t.Fatalf("%v: %s", err, doc)
				}
				if o := parsed.Steps[1].Observation; o == nil || len(o.Results) != 1 {
					t.Errorf("the result is not with its call: %s", doc)
				}
			})
		}
	}
}

// TestNoSecretAcrossChunks: a key that comes in pieces of a stream, in a call's arguments and in a text, and that a tool's result holds, is in no
// line of the record and in no event, and what remains can still be read.
func TestNoSecretAcrossChunks(t *testing.T) {
	var secrets redact.Redactor
	secrets.Add(canary)
	for protocol, c := range turns {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprint(protocol, " whole=", whole), func(t *testing.T) {
				up := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
					a := modeltest.Call("c1", "look", `{"at":"x`+strings.ReplaceAll(canary, `"`, `\"`)+`y"}`)
					a.Message.Parts = []model.Part{{Text: canary}} // streams cut texts in two
					a.Whole = whole
					return a
				})
				r := &record{}
				url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: up.URL}}, r)
				seen, _ := json.Marshal("seen " + canary)
				body := strings.Replace(strings.ReplaceAll(c.second, "CALL", "c1"), `"seen"`, string(seen), 1)
				if status, text := post(t, url+c.path, body, nil); status != 200 {
					t.Fatal(status, text)
				}
				line, err := modelproxy.Line(r.all[0], &secrets)
				if err != nil {
					t.Fatal(err)
				}
				var x modelproxy.Exchange
				if err := json.Unmarshal(line, &x); err != nil {
					t.Fatal(err)
				}
				events := modelproxy.Events(t.Context(), x, &secrets) // of what is on record
				answered := events[len(events)-1]
				if answered.Text != redact.Mask || len(answered.Calls) != 1 || string(answered.Calls[0].Arguments) != `{"at":"x***y"}` || events[0].Text != "seen ***" {
					t.Errorf("%+v\n%s", events, line)
				}
				all := string(line) + fmt.Sprintf("%+v", events)
				for _, part := range []string{"canary-", "4711"} {
					if strings.Contains(all, part) {
						t.Errorf("%q is left in %s", part, line)
					}
				}
			})
		}
	}
}

// TestGeminiWithoutIDs: calls without ids and their results find each other.
func TestGeminiWithoutIDs(t *testing.T) {
	const path = "/v1beta/models/m:generateContent"
	calls := `{"functionCall":{"name":"look","args":{"n":1}}},{"functionCall":{"name":"look","args":{"n":2}}}`
	asked := modelproxy.Events(t.Context(), modelproxy.Exchange{Protocol: serve.Gemini, Path: path, Status: 200, Response: `{"candidates":[{"content":{"parts":[` + calls + `]}}]}`}, nil)
	next := modelproxy.Events(t.Context(), modelproxy.Exchange{Protocol: serve.Gemini, Path: path, Status: 500, Request: json.RawMessage(`{"contents":[{"role":"model","parts":[` + calls + `]},
		{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"output":"one"}}},{"functionResponse":{"name":"look","response":{"output":"two"}}}]}]}`)}, nil)
	if len(asked) != 1 || len(asked[0].Calls) != 2 || len(next) != 2 {
		t.Fatalf("%+v %+v", asked, next)
	}
	for i, text := range []string{"one", "two"} {
		if next[i].Call != asked[0].Calls[i].ID || next[i].Text != text {
			t.Errorf("%+v answers %+v", next[i], asked[0].Calls[i])
		}
	}
}

// TestUnreadableAnswers: what is no answer of its protocol is in the trajectory as it is, without secrets.
func TestUnreadableAnswers(t *testing.T) {
	var secrets redact.Redactor
	secrets.Add("secret-one")
	for _, text := range []string{"secret-one", "data: {\"a\":\"secret-\"}\n\ndata: {\"a\":\"one\"}\n\n", `{"b":"secret-one"}`, "event: x\ndata: secret-one\n"} {
		for protocol := range turns {
			events := modelproxy.Events(t.Context(), modelproxy.Exchange{Protocol: protocol, Status: 200, Response: text}, &secrets)
			if len(events) != 1 || strings.Contains(strings.NewReplacer(`"}`, "", `{"a":"`, "", "data: ", "", "\n", "").Replace(events[0].Text), "secret-one") {
				t.Errorf("%s: %+v", protocol, events)
			}
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("data: {\"delta\":\"secret-\"}\n\ndata: {\"delta\":\"one\"}\n\n", serve.Responses)
	f.Add("data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"secret-one\"}]}}]}\n", serve.Gemini)
	f.Fuzz(func(t *testing.T, answer, protocol string) {
		var secrets redact.Redactor
		secrets.Add("secret-one")
		x := modelproxy.Exchange{Protocol: protocol, Status: 200, Response: answer}
		line, err := modelproxy.Line(x, &secrets)
		if err != nil || !json.Valid(line) || strings.Contains(string(line), "secret-one") {
			t.Errorf("%s, %v", line, err)
		}
		for _, e := range modelproxy.Events(t.Context(), x, &secrets) {
			for _, c := range e.Calls {
				if !json.Valid(c.Arguments) {
					t.Errorf("arguments %q", c.Arguments)
				}
			}
		}
	})
}
