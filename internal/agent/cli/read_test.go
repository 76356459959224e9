package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/trajectory"
)

// heardOf reads a recorded stream of native events, in pieces of n bytes.
func heardOf(tb testing.TB, p *Profile, t *turn, stream []byte, n int) (*heard, *native) {
	tb.Helper()
	var kept native
	l := lines{reader: p.adapter.reader(t), native: &kept, flood: func() { tb.Error("flood") }}
	for piece := range slices.Chunk(stream, n) {
		l.add(piece)
	}
	l.line()
	var h heard
	l.reader.end(&h)
	return &h, &kept
}

func recorded(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name + ".jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// story is what happened in one line per event.
func story(events []trajectory.Event) string {
	var out []string
	for _, e := range events {
		switch e.Kind {
		case trajectory.Answered:
			s := fmt.Sprintf("says %q", e.Text)
			for _, c := range e.Calls {
				s += fmt.Sprintf(" calls %s %s", c.Name, c.Arguments)
			}
			out = append(out, s)
		case trajectory.Returned:
			out = append(out, fmt.Sprintf("returned %q error %v", e.Text, e.Error))
		}
	}
	return strings.Join(out, "; ")
}

// TestRecordedTurns: what the real commands wrote is read as what happened.
func TestRecordedTurns(t *testing.T) {
	for name, want := range map[string]struct {
		profile, text, story string
		in, out              int64
		native               int // events that are kept
	}{
		"claude-code":       {"claude-code", `the answer is 42: {"result":"hello"}`, `says "I will call it." calls mcp__echo__echo {"text":"hello"}; returned "{\"result\":\"hello\"}" error false; says "the answer is 42: {\"result\":\"hello\"}"`, 30, 12, 6},
		"codex":             {"codex", "the answer is 42: Wall time: 0.0018 seconds\nOutput:\n{\"result\":\"hello\"}", `says "I will call it." calls mcp__echo__echo {"text":"hello"}; returned "hello" error false; says "the answer is 42: Wall time: 0.0018 seconds\nOutput:\n{\"result\":\"hello\"}"`, 30, 12, 8},
		"gemini":            {"gemini", "the answer is 42: hello", `says "I will call it." calls mcp_echo_echo {"text":"hello"}; returned "hello" error false; says "the answer is 42: hello"`, 30, 12, 7},
		"opencode":          {"opencode", "the answer is 42: hello", `says "I will call it." calls echo_echo {"text":"hello"}; returned "hello" error false; says "the answer is 42: hello"`, 30, 12, 7},
		"pi":                {"pi", "the answer is 42: hello", `says "I will call it." calls mcp__echo__echo {"text":"hello"}; returned "hello" error false; says "the answer is 42: hello"`, 30, 12, 10},
		"openhands":         {"openhands", "the answer is 42: [Tool 'echo' executed.]hello", `says "I will call it." calls echo {"text": "hello"}; returned "[Tool 'echo' executed.]hello" error false; says "the answer is 42: [Tool 'echo' executed.]hello"`, 30, 12, 5},
		"openhands-resumed": {"openhands", "the answer is 42: [Tool 'echo' executed.]hello", `says "I will call it." calls echo {"text": "hello"}; returned "[Tool 'echo' executed.]hello" error false; says "the answer is 42: [Tool 'echo' executed.]hello"`, 60, 24, 4},
	} {
		p, _ := ProfileOf(want.profile)
		for _, n := range []int{1, 7, 1 << 20} {
			h, kept := heardOf(t, p, &turn{}, recorded(t, name), n)
			if !h.done || h.fault != nil || h.text != want.text || h.calls != 1 || h.session == "" {
				t.Errorf("%s: %+v", name, h)
			}
			if got := story(h.events); got != want.story {
				t.Errorf("%s: got\n%s\nwant\n%s", name, got, want.story)
			}
			if h.usage == nil || h.usage.Input != want.in || h.usage.Output != want.out {
				t.Errorf("%s: used %+v", name, h.usage)
			}
			if len(kept.kept) != want.native || kept.left != 0 {
				t.Errorf("%s: %d events kept, %d left out", name, len(kept.kept), kept.left)
			}
			for _, e := range h.events {
				if e.At.IsZero() {
					t.Errorf("%s: %+v has no time", name, e)
				}
			}
			if err := trajectory.Fold(trajectory.AgentInfo{Name: p.Name, Version: "1"}, h.session, h.events).Check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestRecordedStructured(t *testing.T) {
	for _, name := range []string{"claude-code", "codex"} {
		p, _ := ProfileOf(name)
		h, _ := heardOf(t, p, &turn{Settings: Settings{OutputFormat: json.RawMessage(`{}`)}}, recorded(t, name+"-structured"), 1<<20)
		var got struct{ Answer int }
		if h.fault != nil || json.Unmarshal(h.structured, &got) != nil || got.Answer != 42 {
			t.Errorf("%s: %s %+v", name, h.structured, h.fault)
		}
	}
}

// TestRecordedFaults: a request that the endpoint refused is the agent's doing, an endpoint that is down the machinery's.
func TestRecordedFaults(t *testing.T) {
	for name, want := range map[string]Fault{
		"claude-code-failed": {AgentError, CodeRequest, "no such thing", false},
		"codex-failed":       {AgentError, CodeRequest, "no such thing", false},
		"codex-down":         {InfraError, CodeModel, "stream disconnected", true},
		"gemini-failed":      {AgentError, CodeRequest, "no such thing", false},
		"opencode-failed":    {AgentError, CodeRequest, "no such thing", false},
		"pi-failed":          {AgentError, CodeRequest, "no such thing", false},
		"openhands-failed":   {AgentError, CodeRequest, "no such thing", false},
	} {
		name, _, _ := strings.Cut(name, "-failed")
		name, down := strings.CutSuffix(name, "-down")
		p, ok := ProfileOf(name)
		if !ok {
			t.Fatal(name)
		}
		suffix := "-failed"
		if down {
			suffix = "-down"
		}
		h, _ := heardOf(t, p, &turn{}, recorded(t, name+suffix), 1<<20)
		f := h.fault
		if f == nil || f.Type != want.Type || f.Code != want.Code || f.Passing != want.Passing || !strings.Contains(f.Message, want.Message) {
			t.Errorf("%s%s: %+v", name, suffix, f)
		}
		if h.calls != 0 {
			t.Errorf("%s%s: %d calls", name, suffix, h.calls)
		}
	}
}

// TestOddEvents: what no recorded stream holds, as the commands' own sources and documents describe it.
func TestOddEvents(t *testing.T) {
	for _, c := range []struct {
		profile, stream, story string
		fault                  *Fault
	}{
		{
			"claude-code", `{"type":"assistant","message":{"id":"a","content":[{"type":"thinking","thinking":"hm"}]}}
{"type":"assistant","message":{"id":"a","content":[{"type":"tool_use","id":"1","name":"Bash","input":{"command":"ls"}}]}}
{"type":"assistant","message":{"id":"a","content":[{"type":"tool_use","id":"2","name":"Bash","input":"x"}]}}
{"type":"assistant","parent_tool_use_id":"1","message":{"id":"s","content":[{"type":"text","text":"a helper's"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"},{"type":"image","source":{"media_type":"image/png"}}]}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"2","is_error":true,"content":"no"}]}}
{"type":"result","subtype":"error_max_turns","is_error":true}`,
			`says "" calls Bash {"command":"ls"} calls Bash {}; returned "x[image image/png]" error false; returned "no" error true`,
			&Fault{Type: AgentError, Code: CodeMaxTurns},
		},
		{"claude-code", `{"type":"system","subtype":"init","mcp_servers":[{"name":"echo","status":"failed"}]}`, "", &Fault{Type: InfraError, Code: CodeTools}},
		{"claude-code", `{"type":"result","subtype":"success","is_error":true,"api_error_status":529,"result":"API Error: 529"}`, "", &Fault{Type: InfraError, Code: CodeModel, Passing: true}},
		{"claude-code", `{"type":"result","subtype":"success","is_error":true,"result":"API Error: Connection error."}`, "", &Fault{Type: InfraError, Code: CodeModel, Passing: true}},
		{"claude-code", `{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"no key"}`, "", &Fault{Type: InfraError, Code: CodeModel}},
		{"claude-code", `{"type":"result","subtype":"error_max_structured_output_retries","is_error":true}`, "", &Fault{Type: AgentError, Code: CodeSchema}},
		{
			"codex", `{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"ls","status":"in_progress"}}
{"type":"item.started","item":{"id":"item_1","type":"mcp_tool_call","server":"m","tool":"t","arguments":{}}}
{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"ls","aggregated_output":"no","exit_code":2,"status":"failed"}}
{"type":"item.completed","item":{"id":"item_1","type":"mcp_tool_call","server":"m","tool":"t","arguments":{},"error":{"message":"gone"},"status":"failed"}}
{"type":"item.completed","item":{"id":"item_2","type":"reasoning","text":"hm"}}
{"type":"item.completed","item":{"id":"item_3","type":"file_change","changes":[{"path":"a","kind":"add"}],"status":"completed"}}
{"type":"turn.failed","error":{"message":"unexpected status 503 Service Unavailable"}}`,
			`says "" calls exec_command {"cmd":"ls"} calls mcp__m__t {}; returned "no" error true; returned "gone" error true; says "" calls apply_patch {"changes":[{"path":"a","kind":"add"}]}; returned "completed" error false`,
			&Fault{Type: InfraError, Code: CodeModel, Passing: true},
		},
		{"codex", `{"type":"turn.failed","error":{"message":"exceeded retry limit, last status: 429 Too Many Requests"}}`, "", &Fault{Type: InfraError, Code: CodeModel, Passing: true}},
		{"codex", `{"type":"turn.failed","error":{"message":"something of its own"}}`, "", &Fault{Type: AgentError, Code: CodeCommand}},
		{"gemini", `{"type":"result","status":"error","error":{"type":"FatalTurnLimitedError","message":"Reached max session turns"}}`, "", &Fault{Type: AgentError, Code: CodeMaxTurns}},
		{"gemini", `{"type":"tool_result","tool_id":"x","status":"error","error":{"type":"t","message":"denied"}}
{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: {\"error\":{\"code\":503}}]"}}`, `returned "denied" error true`, &Fault{Type: InfraError, Code: CodeModel, Passing: true}},
		{"opencode", `{"type":"error","error":{"name":"APIError","data":{"message":"busy","statusCode":503,"isRetryable":true}}}`, "", &Fault{Type: InfraError, Code: CodeModel, Passing: true}},
		{"opencode", `{"type":"error","error":{"name":"ProviderAuthError","data":{"message":"key"}}}`, "", &Fault{Type: InfraError, Code: CodeModel}},
		{"opencode", `{"type":"error","error":{"name":"ContextOverflowError","data":{"message":"long"}}}`, "", &Fault{Type: AgentError, Code: CodeRequest}},
		{"pi", `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"503 busy"}}
{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"well"}],"stopReason":"stop"}}`, `says "well"`, nil},
		{"pi", `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"Connection error."}}`, "", &Fault{Type: InfraError, Code: CodeModel, Passing: true}},
		{"openhands", `{"kind":"AgentEnvResult","status":"error","error":"x","http_status":500,"error_types":["LLMServiceUnavailableError"]}`, "", &Fault{Type: InfraError, Code: CodeModel, Passing: true}},
		{"openhands", `{"kind":"ConversationErrorEvent","code":"MaxIterationsReached","detail":"d"}
{"kind":"AgentEnvResult","status":"error"}`, "", &Fault{Type: AgentError, Code: CodeMaxTurns}},
		{"openhands", `{"kind":"AgentEnvResult","status":"stuck"}`, "", &Fault{Type: AgentError, Code: CodeCommand}},
	} {
		p, _ := ProfileOf(c.profile)
		h, _ := heardOf(t, p, &turn{}, []byte(c.stream), 1<<20)
		if got := story(h.events); got != c.story {
			t.Errorf("%s: got %s\nwant %s", c.profile, got, c.story)
		}
		if (h.fault == nil) != (c.fault == nil) || c.fault != nil && (h.fault.Type != c.fault.Type || h.fault.Code != c.fault.Code || h.fault.Passing != c.fault.Passing) {
			t.Errorf("%s: %s\ngot %+v", c.profile, c.stream, h.fault)
		}
	}
}

// TestLines: what is no event is kept apart, what is too long passed over, and a flood told once.
func TestLines(t *testing.T) {
	p, _ := ProfileOf("gemini")
	var kept native
	floods := 0
	l := lines{reader: p.adapter.reader(&turn{}), native: &kept, flood: func() { floods++ }}
	l.add([]byte("hello\n{\"type\":\"init\",\"session_id\":\"s\"}\n{broken\n"))
	long := []byte(strings.Repeat("x", maxLine/2+1))
	l.add(long)
	l.add(long)
	l.add([]byte("\n{\"type\":\"other\"}"))
	l.line()
	if len(kept.kept) != 2 || kept.left != 1 || l.other.String() != "hello\n{broken" {
		t.Errorf("kept %s, %d left out, beside %q", kept.kept, kept.left, l.other.String())
	}
	l.total = maxOutput
	l.add([]byte("x"))
	l.add([]byte("x"))
	if floods != 1 {
		t.Errorf("told %d times", floods)
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"2.1.280 (Claude Code)": "2.1.280", "codex-cli 0.147.0": "0.147.0", "v20.11.1\n": "20.11.1", "Python 3.12": "3.12.0", "1.17.18": "1.17.18", "no": "",
		"git 1.2.3.4": "1.2.3", "99999999999999.1": "",
	} {
		v, ok := ParseVersion(text)
		if ok != (want != "") || ok && v.String() != want {
			t.Errorf("%q is %s %v", text, v, ok)
		}
	}
	for _, p := range Profiles() {
		v, ok := ParseVersion(p.Package.Version)
		if !ok || p.Fit(v) != Checked || p.Fit(p.Before) != Newer || p.Fit(Version{}) != Older {
			t.Errorf("%s: %s is not within %s and %s", p.Name, v, p.From, p.Before)
		}
	}
}

// FuzzRead: whatever a command writes, in whatever pieces, its events can be kept and folded, nothing is repeated or grows, and how it is cut changes nothing.
func FuzzRead(f *testing.F) {
	profiles := Profiles()
	for i, p := range profiles {
		// Short seeds: what is found is made smaller a byte at a time, and long ones leave no time for anything else.
		for _, name := range []string{p.Name, p.Name + "-failed"} {
			lines := bytes.SplitAfter(recorded(f, name), []byte("\n"))
			lines = slices.DeleteFunc(lines, func(l []byte) bool { return len(l) > 1000 })
			for pair := range slices.Chunk(lines, 2) {
				f.Add(uint8(i), bytes.Join(pair, nil), uint16(7))
			}
			if len(lines) > 2 {
				f.Add(uint8(i), slices.Concat(lines[1], lines[2], lines[1]), uint16(1)) // told twice
			}
		}
	}
	for _, text := range []string{
		`{"type":"item.completed","item":{"type":"file_change"}}`, `{"kind":"ActionEvent","tool_call":{"arguments":"{"}}`, `{"type":"assistant","message":{"content":"x","usage":null}}`,
		`{"type":"tool_result","tool_call_id":7,"content":[[]]}`, `{"type":"turn.completed","usage":{"input_tokens":-1,"output_tokens":1e400}}`, "null\n[]\n{}\n\"\"", `{"type":{"type":{}}}`,
	} {
		for i := range profiles {
			f.Add(uint8(i), []byte(text), uint16(3))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, stream []byte, piece uint16) {
		p := profiles[int(which)%len(profiles)]
		format := &turn{Settings: Settings{OutputFormat: json.RawMessage(`{}`)}}
		h, kept := heardOf(t, p, format, stream, max(int(piece), 1))
		events, err := json.Marshal(h.events)
		if err != nil {
			t.Fatalf("%s: the events can't be kept: %v", p.Name, err)
		}
		if h.structured != nil && !json.Valid(h.structured) {
			t.Errorf("%s: structured %q", p.Name, h.structured)
		}
		doc := trajectory.Fold(trajectory.AgentInfo{Name: "a", Version: "1"}, "", h.events)
		if err := doc.Check(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if b, err := json.Marshal(doc); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		} else if _, err := trajectory.Parse(b); err != nil {
			t.Errorf("%s: what is kept can't be read: %v", p.Name, err)
		}
		for _, e := range h.events {
			if u := e.Usage; u != nil && (u.Input < 0 || u.Output < 0 || u.Cached < 0) {
				t.Errorf("%s: a use of less than nothing: %+v", p.Name, u)
			}
		}
		if n := bytes.Count(stream, []byte("\n")) + 1; len(kept.kept) > n {
			t.Errorf("%s: %d events of %d lines", p.Name, len(kept.kept), n)
		}
		for _, raw := range kept.kept {
			if !json.Valid(raw) {
				t.Errorf("%s: kept %q", p.Name, raw)
			}
		}
		whole, _ := heardOf(t, p, format, stream, len(stream)+1)
		if again, _ := json.Marshal(whole.events); undated(again) != undated(events) {
			t.Errorf("%s: in pieces of %d it is\n%s\nand whole\n%s", p.Name, piece, events, again)
		}
	})
}

// undated are events without their times.
func undated(b []byte) string { return dates.ReplaceAllString(string(b), "") }

var dates = regexp.MustCompile(`"at":"[^"]*"`)

func FuzzVersion(f *testing.F) {
	f.Add("v1.2.3")
	f.Fuzz(func(t *testing.T, text string) {
		if v, ok := ParseVersion(text); ok && v.Compare(v) != 0 {
			t.Error(v)
		}
	})
}
