package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/agent/loop"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/internal/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tools answers calls by functions.
type tools map[string]func(ctx context.Context, args json.RawMessage) (loop.Result, error)

func (t tools) List(context.Context) ([]model.Tool, error) {
	var out []model.Tool
	for name := range t {
		out = append(out, model.Tool{Name: name, Schema: json.RawMessage(`{"type":"object","properties":{}}`)})
	}
	return out, nil
}

func (t tools) Call(ctx context.Context, name string, args json.RawMessage) (loop.Result, error) {
	return t[name](ctx, args)
}

func says(s string) func(context.Context, json.RawMessage) (loop.Result, error) {
	return func(context.Context, json.RawMessage) (loop.Result, error) {
		return loop.Result{Parts: []model.Part{{Text: s}}}, nil
	}
}

// record keeps events in memory.
type record struct {
	mu     sync.Mutex
	events []trajectory.Event
	fail   error
}

func (r *record) Record(e trajectory.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	return r.fail
}

func (r *record) Image(media string, _ []byte) (string, error) {
	return "images/1." + strings.TrimPrefix(media, "image/"), nil
}

func (r *record) valid(t *testing.T) *trajectory.Trajectory {
	t.Helper()
	tr := trajectory.Fold(trajectory.AgentInfo{Name: "loop", Version: "1"}, "s", r.events)
	if err := tr.Check(); err != nil {
		t.Error(err)
	}
	return tr
}

func config(m model.Model, ts loop.Tools, r *record) loop.Config {
	return loop.Config{Model: m, Tools: ts, Record: r, Now: time.Now, Request: model.Request{Model: "m", System: "be good"}}
}

func endpoint(t *testing.T, play func(modeltest.Asked) modeltest.Answer) model.Model {
	t.Helper()
	s := modeltest.New(t, play)
	c, err := model.New(model.Endpoint{BaseURL: s.URL}, model.Patience{Tries: 2, First: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func user(s string) []model.Part { return []model.Part{{Text: s}} }

func TestTurn(t *testing.T) {
	s, err := model.ParseScript([]byte(`{"variants":[{"turns":[
		{"say":"I look.","calls":[{"tool":"list","args":{"q":"${user}"}},{"tool":"shot"},{"tool":"missing"}]},
		{"calls":[{"tool":"read","args":{"id":"${result.0.ids[1]}"}}]},
		{"say":"It is ${last.text}."},
		{"say":"Nothing more."}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ts := tools{
		"list": func(_ context.Context, a json.RawMessage) (loop.Result, error) {
			return loop.Result{Parts: []model.Part{{Text: `{"ids":["a","b"]}`}}}, nil
		},
		"shot": func(context.Context, json.RawMessage) (loop.Result, error) {
			return loop.Result{Parts: []model.Part{{Media: "image/png", Data: []byte("x")}}}, nil
		},
		"read": func(_ context.Context, a json.RawMessage) (loop.Result, error) {
			got = append(got, string(a))
			return loop.Result{Parts: []model.Part{{Text: `{"text":"blue"}`}}}, nil
		},
	}
	r := &record{}
	a := loop.New(config(model.NewScripted(s), ts, r), nil)
	reply, err := a.Turn(t.Context(), user("the colour"))
	if err != nil {
		t.Fatal(err)
	}
	if reply.Text != "It is blue." || reply.ToolCalls != 4 || reply.Answers != 3 || reply.Stop != model.StopEnd || fmt.Sprint(got) != `[{"id":"b"}]` {
		t.Errorf("%+v %v", reply, got)
	}
	if reply, err = a.Turn(t.Context(), user("anything else?")); err != nil || reply.Text != "Nothing more." {
		t.Errorf("%+v %v", reply, err)
	}
	tr := r.valid(t)
	var told []string
	for _, st := range tr.Steps {
		told = append(told, st.Source)
	}
	if want := "system user agent agent agent user agent"; strings.Join(told, " ") != want {
		t.Errorf("steps are %v", told)
	}
	if n := len(tr.Steps[2].Observation.Results); n != 3 {
		t.Errorf("%d results", n)
	}
	var missing string
	for _, m := range a.Messages() {
		if m.Role == model.ToolRole && m.Error {
			missing = m.Text()
		}
	}
	if !strings.Contains(missing, `no tool "missing"`) {
		t.Errorf("the model was told %q", missing)
	}
}

func TestSideBySide(t *testing.T) {
	var waiting sync.WaitGroup
	waiting.Add(3)
	meet := func(ctx context.Context, _ json.RawMessage) (loop.Result, error) {
		waiting.Done()
		waiting.Wait() // all three are being made
		return loop.Result{}, nil
	}
	m := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
		if q.N > 0 {
			return modeltest.Say("done")
		}
		a := modeltest.Call("same", "meet", `{}`)
		a.Message.Calls = append(a.Message.Calls, a.Message.Calls[0], a.Message.Calls[0]) // one id for all
		for i := range a.Message.Calls {
			a.Message.Calls[i].ID = fmt.Sprint("c", i)
		}
		return a
	})
	r := &record{}
	a := loop.New(config(m, tools{"meet": meet}, r), nil)
	if _, err := a.Turn(t.Context(), user("x")); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range a.Messages() {
		if m.Role == model.ToolRole {
			ids = append(ids, m.CallID+"="+m.Text())
		}
	}
	if fmt.Sprint(ids) != "[c0=(nothing) c1=(nothing) c2=(nothing)]" {
		t.Error(ids)
	}
	r.valid(t)
}

func TestMalformedCall(t *testing.T) {
	called := false
	m := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
		if q.N == 0 {
			a := modeltest.Call("c", "do", "")
			a.Message.Calls[0].Malformed = `{"a":`
			return a
		}
		if !strings.Contains(q.Flat(), "not a JSON object") {
			t.Errorf("the model was told %s", q.Flat())
		}
		return modeltest.Say("sorry")
	})
	r := &record{}
	a := loop.New(config(m, tools{"do": func(context.Context, json.RawMessage) (loop.Result, error) { called = true; return loop.Result{}, nil }}, r), nil)
	if _, err := a.Turn(t.Context(), user("x")); err != nil || called {
		t.Error(err, called)
	}
	r.valid(t)
}

func TestFailures(t *testing.T) {
	refusal := modeltest.Say("no")
	refusal.Stop = model.StopRefusal
	length := modeltest.Say("and so")
	length.Stop = model.StopLength
	for _, c := range []struct {
		name   string
		answer modeltest.Answer
		code   string // "": the machinery's
	}{
		{"refusal", refusal, "refusal"},
		{"length", length, "length"},
		{"bad request", modeltest.Answer{Status: 400, Text: "no such parameter"}, "request"},
		{"too long at once", modeltest.Answer{Status: 400, Text: "prompt is too long"}, "context"},
		{"schema", modeltest.Say("that is no JSON"), "schema"},
		{"endpoint down", modeltest.Answer{Status: 503, Text: "down"}, ""},
		{"rate limit", modeltest.Answer{Status: 429, Text: "slow"}, ""},
		{"key", modeltest.Answer{Status: 401, Text: "key"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(endpoint(t, func(modeltest.Asked) modeltest.Answer { return c.answer }), tools{}, &record{})
			if c.code == "schema" {
				cfg.Request.Schema = json.RawMessage(`{"type":"object"}`)
			}
			_, err := loop.New(cfg, nil).Turn(t.Context(), user("x"))
			var f *loop.Failure
			if c.code == "" {
				if errors.As(err, &f) || !model.Infra(err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if !errors.As(err, &f) || f.Code != c.code {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSchema(t *testing.T) {
	m := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
		if q.N == 0 {
			return modeltest.Say("here you are: {")
		}
		return modeltest.Say("```json\n{\"a\": 1.0}\n```")
	})
	cfg := config(m, tools{}, &record{})
	cfg.Request.Schema = json.RawMessage(`{"type":"object"}`)
	r, err := loop.New(cfg, nil).Turn(t.Context(), user("x"))
	if err != nil || string(r.Structured) != `{"a": 1.0}` || r.Answers != 2 {
		t.Errorf("%+v %v", r, err)
	}
}

// TestContextRunsOut: older results make room, and the agent goes on.
func TestContextRunsOut(t *testing.T) {
	const calls = 6
	refused := 0
	m := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
		n := strings.Count(q.Flat(), "LONG")
		if n > 2 {
			refused++
			return modeltest.Answer{Status: 400, Text: "this model's maximum context length is exceeded"}
		}
		if q.N-refused < calls {
			return modeltest.Call(fmt.Sprint("c", q.N), "get", `{}`)
		}
		return modeltest.Say("done")
	})
	r := &record{}
	reply, err := loop.New(config(m, tools{"get": says("LONG")}, r), nil).Turn(t.Context(), user("x"))
	if err != nil || reply.Text != "done" || reply.ToolCalls != calls || refused == 0 {
		t.Errorf("%+v %v, refused %d", reply, err, refused)
	}
	if b, _ := json.Marshal(r.valid(t)); strings.Count(string(b), "LONG") != calls {
		t.Error("the record lost a result")
	}
}

func TestBounds(t *testing.T) {
	m := endpoint(t, func(q modeltest.Asked) modeltest.Answer { return modeltest.Call(fmt.Sprint("c", q.N), "get", `{}`) })
	cfg := config(m, tools{"get": says(strings.Repeat("é", 200<<10))}, &record{})
	cfg.MaxTurns = 3
	a := loop.New(cfg, nil)
	r, err := a.Turn(t.Context(), user("x"))
	if err != nil || r.Stop != loop.StopTurns || r.Answers != 3 || r.ToolCalls != 3 {
		t.Errorf("%+v %v", r, err)
	}
	for _, m := range a.Messages() {
		if n := len(m.Text()); n > 65<<10 {
			t.Errorf("the model was shown %d bytes", n)
		}
	}
}

// TestKilledTurn: what is recorded is valid and ends with what was completed, whenever the turn ends.
func TestKilledTurn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := endpoint(t, func(q modeltest.Asked) modeltest.Answer { return modeltest.Call(fmt.Sprint("c", q.N), "get", `{}`) })
	n := 0
	r := &record{}
	_, err := loop.New(config(m, tools{"get": func(ctx context.Context, _ json.RawMessage) (loop.Result, error) {
		if n++; n == 3 {
			cancel()
			return loop.Result{}, context.Cause(ctx)
		}
		return loop.Result{Parts: user("x")}, nil
	}}, r), nil).Turn(ctx, user("x"))
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	tr := r.valid(t)
	last := tr.Steps[len(tr.Steps)-1]
	if last.Source != trajectory.Agent || len(last.ToolCalls) != 1 || last.Observation != nil || *tr.FinalMetrics.PromptTokens != 30 {
		t.Errorf("%+v", last)
	}
}

func TestRecordFails(t *testing.T) {
	called := false
	m := endpoint(t, func(modeltest.Asked) modeltest.Answer { return modeltest.Call("c", "do", `{}`) })
	r := &record{fail: errors.New("disk full")}
	_, err := loop.New(config(m, tools{"do": func(context.Context, json.RawMessage) (loop.Result, error) { called = true; return loop.Result{}, nil }}, r), nil).Turn(t.Context(), user("x"))
	if err == nil || called {
		t.Errorf("acted without a record: %v %v", err, called)
	}
}
