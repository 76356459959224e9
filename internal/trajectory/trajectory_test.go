package trajectory

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

var (
	who = AgentInfo{Name: "loop", Version: "0.1.0", ModelName: "scripted"}
	at  = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
)

func TestFold(t *testing.T) {
	events := []Event{
		{At: at, Kind: Said, Source: System, Text: "be brief"},
		{At: at, Kind: Said, Source: User, Text: "hi"},
		{At: at, Kind: Answered, Model: "m", Reasoning: "hm", Tries: 2, Usage: &Usage{Input: 3, Output: 2, USD: new(0.5)}, Calls: []Call{
			{ID: "c1", Name: "mail_list", Arguments: json.RawMessage(`{"a":1.0}`)}, {ID: "c2", Name: "shot", Malformed: "nonsense"},
		}},
		{At: at, Kind: Returned, Call: "c2", Text: "seen", Images: []Image{{"image/png", "shots/1.png"}}},
		{At: at, Kind: Returned, Call: "c1", Text: "[]", Error: true, Spill: &Spill{"obj1", 70000}},
		{At: at, Kind: Returned, Call: "lost", Text: "late"},
		{At: at, Kind: Answered, Model: "m", Text: "done", Usage: &Usage{Input: 5, Cached: 4, Output: 1, USD: new(0.25)}},
	}
	tr := Fold(who, "run-1", events)
	b, err := json.Marshal(tr)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema_version":"ATIF-v1.8","session_id":"run-1","agent":{"name":"loop","version":"0.1.0","model_name":"scripted"},"steps":[` +
		`{"step_id":1,"timestamp":"2026-11-30T10:00:00Z","source":"system","message":"be brief"},` +
		`{"step_id":2,"timestamp":"2026-11-30T10:00:00Z","source":"user","message":"hi"},` +
		`{"step_id":3,"timestamp":"2026-11-30T10:00:00Z","source":"agent","message":"","model_name":"m","reasoning_content":"hm","tool_calls":[` +
		`{"tool_call_id":"c1","function_name":"mail_list","arguments":{"a":1.0}},` +
		`{"tool_call_id":"c2","function_name":"shot","arguments":{},"extra":{"malformed_arguments":"nonsense"}}],` +
		`"metrics":{"prompt_tokens":3,"completion_tokens":2,"cost_usd":0.5},"observation":{"results":[` +
		`{"source_call_id":"c2","content":[{"type":"text","text":"seen"},{"type":"image","source":{"media_type":"image/png","path":"shots/1.png"}}]},` +
		`{"source_call_id":"c1","content":"[]","extra":{"bytes":70000,"error":true,"handle":"obj1"}}]},"llm_call_count":2},` +
		`{"step_id":4,"timestamp":"2026-11-30T10:00:00Z","source":"system","message":"","observation":{"results":[{"content":"late","extra":{"answers":"lost"}}]}},` +
		`{"step_id":5,"timestamp":"2026-11-30T10:00:00Z","source":"agent","message":"done","model_name":"m","metrics":{"prompt_tokens":5,"completion_tokens":1,"cached_tokens":4,"cost_usd":0.25},"llm_call_count":1}],` +
		`"final_metrics":{"total_prompt_tokens":8,"total_completion_tokens":3,"total_cached_tokens":4,"total_cost_usd":0.75,"total_steps":5}}`
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
	if _, err := Parse(b); err != nil {
		t.Error(err)
	}
	for n := range events { // whatever the kill leaves folds
		if err := Fold(who, "run-1", events[:n]).Check(); err != nil {
			t.Errorf("%d events: %v", n, err)
		}
	}
}

func TestUnknownCostIsNotZero(t *testing.T) {
	tr := Fold(who, "", []Event{{Kind: Answered, Usage: &Usage{Input: 1, USD: new(1.0)}}, {Kind: Answered, Usage: &Usage{Input: 1}}})
	if tr.FinalMetrics.CostUSD != nil {
		t.Error(*tr.FinalMetrics.CostUSD)
	}
}

func TestRefused(t *testing.T) {
	const ok = `{"schema_version":"ATIF-v1.8","agent":{"name":"a","version":"1"},"steps":[{"step_id":1,"source":"user","message":"x"}]}`
	if _, err := Parse([]byte(ok)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`v1.8`, `v1.9`, "schema_version"},
		{`"name":"a"`, `"name":""`, "needs a name"},
		{`"step_id":1`, `"step_id":2`, "step_id is 2"},
		{`"source":"user"`, `"source":"tool"`, "none of system"},
		{`"message":"x"`, `"message":"x","model_name":"m"`, "only the agent's"},
		{`"source":"user"`, `"source":"agent","llm_call_count":0,"reasoning_content":"r"`, "asked no model"},
		{`"source":"user"`, `"source":"agent","tool_calls":[{"tool_call_id":"c","function_name":"f","arguments":"{}"}]`, "object as arguments"},
		{`"message":"x"`, `"message":"x","observation":{"results":[{"source_call_id":"c"}]}`, "doesn't call"},
		{`"message":"x"`, `"message":[{"type":"image","source":{"media_type":"image/bmp","path":"p"}}]`, "neither a text"},
		{`"message":"x"`, `"message":"x","more":1`, "unknown field"},
		{`[{"step_id"`, `[],"x":[{"step_id"`, "unknown field"},
		{`"message":"x"`, `"message":"x","timestamp":"noon"`, "no time"},
	} {
		if _, err := Parse([]byte(strings.Replace(ok, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

func TestReadEvents(t *testing.T) {
	es, torn, err := ReadEvents([]byte("{\"kind\":\"said\"}\n{\"kind\":\"answ"))
	if len(es) != 1 || !torn || err != nil {
		t.Error(es, torn, err)
	}
	if _, _, err := ReadEvents([]byte("{\"kind\":\"said\"}\nx\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}

// FuzzFold: whatever events there are, the document is valid and is read back.
func FuzzFold(f *testing.F) {
	f.Add([]byte("{\"kind\":\"answered\",\"calls\":[{\"id\":\"\",\"name\":\"\"}]}\n{\"kind\":\"returned\",\"call\":\"\"}\n"))
	f.Add([]byte("{\"kind\":\"said\",\"source\":\"x\",\"images\":[{}]}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		events, _, err := ReadEvents(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(Fold(who, "s", events))
		if err != nil {
			return // times beyond year 9999, arguments that are no JSON
		}
		if _, err := Parse(out); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"schema_version":"ATIF-v1.8","agent":{"name":"a","version":"1"},"steps":[{"step_id":1,"source":"user","message":[]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, err := Parse(b)
		if err != nil {
			return
		}
		if out, err := json.Marshal(tr); err == nil {
			if _, err := Parse(out); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
}
