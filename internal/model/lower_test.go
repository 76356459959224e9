package model_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/model"
)

// answer is a transport that answers every request alike.
type answer struct {
	body  []byte
	media string
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {a.media}}, Body: io.NopCloser(strings.NewReader(string(a.body))),
	}, nil
}

func TestLower(t *testing.T) {
	for _, c := range []struct{ name, model, in, want string }{
		{"kept byte for byte", "m", `{"type":"object", "properties":{"b":{},"a":{}}}`, `{"type":"object", "properties":{"b":{},"a":{}}}`},
		{"no schema", "m", `7`, `{"type":"object","properties":{}}`},
		{"no properties", "m", `{"type":"object"}`, `{"properties":{},"type":"object"}`},
		{
			"reference", "m", `{"type":"object","properties":{"a":{"$ref":"#/$defs/A","description":"d"}},"$defs":{"A":{"type":"string"}}}`,
			`{"properties":{"a":{"description":"d","type":"string"}},"type":"object"}`,
		},
		{"unknown reference", "m", `{"type":"object","properties":{"a":{"$ref":"http://x"}}}`, `{"properties":{"a":{}},"type":"object"}`},
		{
			"any of at the top", "m", `{"anyOf":[{"properties":{"a":{"type":"string"},"b":{}},"required":["a","b"]},{"properties":{"a":{"type":"integer"}},"required":["a"]}]}`,
			`{"properties":{"a":{},"b":{}},"required":["a"],"type":"object"}`,
		},
		{
			"all of at the top", "m", `{"type":"object","allOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]}`,
			`{"properties":{"a":{},"b":{}},"required":["a","b"],"type":"object"}`,
		},
		{
			"gemini", "google/gemini-3-pro", `{"type":"object","properties":{"a":{"type":["string","null"],"default":null,"format":"uri"},"b":{"const":1}},"additionalProperties":false}`,
			`{"properties":{"a":{"nullable":true,"type":"string"},"b":{"enum":[1]}},"type":"object"}`,
		},
	} {
		if got := string(model.Lower(json.RawMessage(c.in), c.model)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func FuzzLower(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}}}`)
	f.Add(`{"allOf":[{"$ref":"#/allOf/0"}]}`)
	f.Add(`{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"},"d":{"$ref":"#"},"e":{"$ref":"#"},"f":{"$ref":"#"},"g":{"$ref":"#"}}}`)
	f.Add(`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, m := range []string{"m", "gemini"} {
			var out map[string]any
			if err := json.Unmarshal(model.Lower(json.RawMessage(s), m), &out); err != nil || out["type"] != "object" {
				t.Errorf("%s became %v (%v)", s, out, err)
			}
		}
	})
}

func TestScripted(t *testing.T) {
	s, err := model.ParseScript([]byte(`{"variants":[
		{"turns":[{"say":"looking","calls":[{"tool":"list","args":{"q":"${user}"}}]},{"calls":[{"tool":"read","args":{"id":"${last.items[1].id}","why":"n=${result.0.n}"}}]}],
		 "rules":[{"when":"wrong","say":"sorry"},{"when":".","say":"done"}]},
		{"turns":[{"fail":"overloaded"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := model.NewScripted(s)
	r := &model.Request{Messages: []model.Message{model.Text(model.User, "find it")}}
	next := func() *model.Response {
		t.Helper()
		res, err := m.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		r.Messages = append(r.Messages, res.Message)
		return res
	}
	a := next()
	if a.Message.Text() != "looking" || a.Stop != model.StopTools || string(a.Message.Calls[0].Args) != `{"q":"find it"}` {
		t.Errorf("got %+v", a)
	}
	r.Messages = append(r.Messages, model.Message{Role: model.ToolRole, CallID: a.Message.Calls[0].ID, Parts: []model.Part{{Text: `{"n":2,"items":[{"id":1},{"id":"b"}]}`}}})
	if b := next(); string(b.Message.Calls[0].Args) != `{"id":"b","why":"n=2"}` {
		t.Errorf("got %s", b.Message.Calls[0].Args)
	}
	r.Messages = append(r.Messages, model.Text(model.User, "this is wrong"))
	if c := next(); c.Message.Text() != "sorry" || c.Stop != model.StopEnd || c.Model != model.ScriptedName {
		t.Errorf("got %+v", c)
	}
	r.Variant = 1
	r.Messages = r.Messages[:1]
	if _, err := m.Generate(t.Context(), r); !model.Infra(err) {
		t.Errorf("got %v", err)
	}
}

func TestScriptRefused(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{}`, "no variants"},
		{`{"variants":[{"turns":[{"tell":"x"}]}]}`, "unknown field"},
		{`{"variants":[{"turns":[{"when":"x"}]}]}`, "variants[0].turns[0]: when is for rules"},
		{`{"variants":[{"rules":[{"say":"x"}]}]}`, "a rule needs when"},
		{`{"variants":[{"rules":[{"when":"("}]}]}`, "when:"},
		{`{"variants":[{"turns":[{"calls":[{"tool":"t","args":[]}]}]}]}`, "calls[0]"},
		{`{"variants":[{}]} x`, "not valid"},
	} {
		if _, err := model.ParseScript([]byte(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.in, err)
		}
	}
	s, err := model.ParseScript([]byte(`{"variants":[{"turns":[{"say":"${last.a}"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.NewScripted(s).Generate(t.Context(), &model.Request{}); err == nil || model.Infra(err) || !strings.Contains(err.Error(), "no such tool result") {
		t.Errorf("got %v", err)
	}
}

func FuzzScript(f *testing.F) {
	f.Add([]byte(`{"variants":[{"turns":[{"say":"${last[0]}","calls":[{"tool":"t","args":{"a":"${user}"}}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := model.ParseScript(b)
		if err != nil {
			return
		}
		r := &model.Request{Messages: []model.Message{model.Text(model.User, "x"), {Role: model.ToolRole, Parts: []model.Part{{Text: `{"a":[1]}`}}}}}
		_, _ = model.NewScripted(s).Generate(t.Context(), r)
	})
}
