package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/trajectory"
)

// stage is a box in which a test plays the command.
type stage struct {
	guest.Box
	play   func(n int, c guest.Command, stdin string, out io.Writer) guest.Exit
	closed map[string]bool   // addresses that nobody listens at
	files  map[string]string // by path
	runs   []guest.Command
	err    error // of Exec
}

func (s *stage) Exec(ctx context.Context, c guest.Command, stdio [3]*os.File) (guest.Exit, error) {
	if s.err != nil {
		return guest.Exit{}, s.err
	}
	var in []byte
	if stdio[0] != nil {
		in, _ = io.ReadAll(stdio[0])
	}
	s.runs = append(s.runs, c)
	e := s.play(len(s.runs), c, string(in), stdio[1])
	return e, ctx.Err()
}

func (s *stage) Dial(_ context.Context, _, addr string) (net.Conn, error) {
	if s.closed[addr] {
		return nil, errors.New("refused")
	}
	a, b := net.Pipe()
	_ = b.Close()
	return a, nil
}

func (s *stage) Extract(_ context.Context, path string, r io.Reader) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err != nil {
			_, _ = io.Copy(io.Discard, r)
			return nil
		}
		b, _ := io.ReadAll(t)
		s.files[path+"/"+h.Name] = string(b)
	}
}

func newStage(play func(n int, c guest.Command, stdin string, out io.Writer) guest.Exit) *stage {
	return &stage{play: play, closed: map[string]bool{}, files: map[string]string{}}
}

func agentOf(tb testing.TB, name string, box guest.Box) *Agent {
	tb.Helper()
	p, ok := ProfileOf(name)
	if !ok {
		tb.Fatal(name)
	}
	a := New(p, Options{Box: box, Command: "/opt/the-command", Version: p.Package.Version, Env: []string{"OF=tests"}})
	if err := a.AddServer(Server{Name: "echo", URL: "http://127.0.0.1:18765/mcp"}); err != nil {
		tb.Fatal(err)
	}
	return a
}

// TestPrompts: a first turn begins a session, the second goes on with it, and both are told as they happen.
func TestPrompts(t *testing.T) {
	for _, p := range Profiles() {
		box := newStage(func(_ int, _ guest.Command, _ string, out io.Writer) guest.Exit {
			_, _ = out.Write(recorded(t, p.Name))
			return guest.Exit{}
		})
		a := agentOf(t, p.Name, box)
		if err := a.AddSkill(Skill{Name: "counting", Files: []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte("count"))}}); err != nil {
			t.Fatal(err)
		}
		var heard []trajectory.Event
		ask := func() Reply {
			heard = nil
			r, err := a.Prompt(t.Context(), Prompt{
				Conversation: "c", Text: "call echo", Settings: Settings{Model: "scripted:@local/x/y", SystemPrompt: "be brief"},
				Files: []Attachment{{Name: "../a b.txt", Data: []byte("attached")}}, Heard: func(e trajectory.Event) error { heard = append(heard, e); return nil },
			})
			if err != nil || r.Fault != nil || r.ToolCalls != 1 || r.Session == "" || r.Tries != 1 {
				t.Errorf("%s: %+v %v", p.Name, r, err)
			}
			return r
		}
		first := ask()
		if !reflect.DeepEqual(heard, first.Events) || first.Events[0].Source != trajectory.System || first.Events[1].Text != "call echo\n\nAttached file: "+StateFolder+"/1/files/1-.._a b.txt" {
			t.Errorf("%s: heard %+v\nof %+v", p.Name, heard, first.Events)
		}
		if u := first.Usage; u == nil || u.Input != 30 || u.Output != 12 {
			t.Errorf("%s: used %+v", p.Name, first.Usage)
		}
		sum := *trajectory.Fold(trajectory.AgentInfo{Name: p.Name, Version: "1"}, "", first.Events).FinalMetrics.PromptTokens
		if sum != 30 || !json.Valid(first.Native) {
			t.Errorf("%s: the trajectory counts %d tokens; %s", p.Name, sum, first.Native)
		}
		_, counts := p.adapter.(interface{ countsSessions() })
		if second := ask(); counts && second.Usage.Input != 0 || !counts && second.Usage.Input != 30 {
			t.Errorf("%s: then used %+v", p.Name, second.Usage) // the recorded session has spent no more
		}
		var all strings.Builder
		for path, text := range box.files {
			all.WriteString(path + "\n" + text + "\n")
		}
		said := fmt.Sprint(box.runs[1].Argv, box.runs[1].Env)
		if !strings.Contains(all.String(), "count") || !strings.Contains(all.String(), "attached") || !strings.Contains(said, "OF=tests") {
			t.Errorf("%s: %s %s", p.Name, said, all.String())
		}
		if strings.Contains(all.String()+said, "scripted:") || strings.Contains(fmt.Sprint(box.runs[0].Argv), first.Session) {
			t.Errorf("%s: %s", p.Name, said)
		}
		if p.Name != "openhands" && !strings.Contains(fmt.Sprint(box.runs[1].Argv), first.Session) {
			t.Errorf("%s: the second turn is none of %s: %s", p.Name, first.Session, said)
		}
	}
}

// faultOf plays a turn of claude-code and answers its fault.
func faultOf(t *testing.T, box *stage, s Settings) Reply {
	t.Helper()
	r, err := agentOf(t, "claude-code", box).Prompt(t.Context(), Prompt{Text: "go", Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	if r.Fault == nil {
		t.Fatalf("no fault: %+v", r)
	}
	return r
}

func TestFaults(t *testing.T) {
	fine := func(_ int, _ guest.Command, _ string, out io.Writer) guest.Exit { return guest.Exit{} }
	box := newStage(fine)
	box.closed["127.0.0.1:18765"] = true
	if r := faultOf(t, box, Settings{}); r.Fault.Type != InfraError || r.Fault.Code != CodeTools || !strings.Contains(r.Fault.Message, "echo") || len(box.runs) != 0 || string(r.Native) != "[]" {
		t.Errorf("no tools: %+v", r)
	}
	box = newStage(fine)
	box.closed["127.0.0.1:18766"] = true
	if r := faultOf(t, box, Settings{}); r.Fault.Type != InfraError || r.Fault.Code != CodeModel {
		t.Errorf("no model: %+v", r.Fault)
	}
	box = newStage(fine)
	box.err = fs.ErrNotExist
	if r := faultOf(t, box, Settings{}); r.Fault.Type != InfraError || r.Fault.Code != CodeCommand || !strings.Contains(r.Fault.Message, "/opt/the-command") {
		t.Errorf("no command: %+v", r.Fault)
	}
	box = newStage(func(_ int, _ guest.Command, _ string, out io.Writer) guest.Exit {
		fmt.Fprintln(out, "it went wrong")
		return guest.Exit{Signal: 9, OOM: true}
	})
	if r := faultOf(t, box, Settings{}); r.Fault.Type != InfraError || r.Fault.Code != CodeNoReply || !strings.Contains(r.Fault.Message, "137") ||
		!strings.Contains(r.Fault.Message, "memory") || !strings.Contains(r.Fault.Message, "it went wrong") {
		t.Errorf("died: %+v", r.Fault)
	}
	box = newStage(func(_ int, _ guest.Command, _ string, out io.Writer) guest.Exit {
		fmt.Fprintln(out, `{"type":"result","subtype":"success"}`)
		return guest.Exit{}
	})
	if r := faultOf(t, box, Settings{}); r.Fault.Type != AgentError || r.Fault.Code != CodeNoReply {
		t.Errorf("said nothing: %+v", r.Fault)
	}
	box = newStage(fine)
	box.err = guest.ErrGone
	if _, err := agentOf(t, "pi", box).Prompt(t.Context(), Prompt{Text: "go"}); !errors.Is(err, guest.ErrGone) {
		t.Errorf("gone: %v", err)
	}
}

// TestAgain: what passes is tried again, as the same session once the agent has begun; an answer of another form is asked for again.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy = `{"type":"result","session_id":"s","is_error":true,"api_error_status":529,"result":"API Error: 529"}`
		var said []string
		box := newStage(func(n int, c guest.Command, stdin string, out io.Writer) guest.Exit {
			said = append(said, stdin)
			switch n {
			case 1:
				fmt.Fprintln(out, busy)
				return guest.Exit{Code: 1}
			case 2:
				fmt.Fprintln(out, `{"type":"assistant","session_id":"s","message":{"id":"a","content":[{"type":"tool_use","id":"1","name":"Bash","input":{}}]}}`)
				fmt.Fprintln(out, busy)
				return guest.Exit{Code: 1}
			}
			fmt.Fprintln(out, `{"type":"assistant","session_id":"s","message":{"id":"b","content":[{"type":"text","text":"done"}]}}`)
			fmt.Fprintln(out, `{"type":"result","session_id":"s","result":"done"}`)
			return guest.Exit{}
		})
		r, err := agentOf(t, "claude-code", box).Prompt(t.Context(), Prompt{Text: "go"})
		if err != nil || r.Fault != nil || r.Text != "done" || r.Tries != 3 || r.ToolCalls != 1 || !reflect.DeepEqual(said, []string{"go", "go", "Go on."}) {
			t.Errorf("%+v %v %q", r, err, said)
		}
		if r = faultOf(t, newStage(func(_ int, _ guest.Command, _ string, out io.Writer) guest.Exit {
			fmt.Fprintln(out, busy)
			return guest.Exit{Code: 1}
		}), Settings{}); r.Tries != maxTries || r.Fault.Type != InfraError {
			t.Errorf("%+v", r)
		}
	})
	schema := json.RawMessage(`{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`)
	texts := []string{"I think 42", `{"answer":"42"}`, "```json\n{\"answer\":42}\n```"}
	box := newStage(func(n int, c guest.Command, stdin string, out io.Writer) guest.Exit {
		if !strings.Contains(stdin, string(schema)) {
			t.Errorf("it was told %q", stdin)
		}
		fmt.Fprintf(out, `{"type":"text","sessionID":"s","part":{"text":%q}}`+"\n", texts[n-1])
		fmt.Fprintln(out, `{"type":"step_finish","sessionID":"s","part":{"reason":"stop"}}`)
		return guest.Exit{}
	})
	r, err := agentOf(t, "opencode", box).Prompt(t.Context(), Prompt{Text: "go", Settings: Settings{OutputFormat: schema}})
	if err != nil || r.Fault != nil || string(r.Structured) != `{"answer":42}` || r.Tries != 3 {
		t.Errorf("%+v %v", r, err)
	}
	texts[2] = "no"
	box.runs = nil
	r, err = agentOf(t, "opencode", box).Prompt(t.Context(), Prompt{Text: "go", Settings: Settings{OutputFormat: schema}})
	if err != nil || r.Fault == nil || r.Fault.Type != AgentError || r.Fault.Code != CodeSchema || r.Structured != nil {
		t.Errorf("%+v %v", r, err)
	}
}

// slow is a box whose command never ends by itself.
type slow struct{ *stage }

func (s slow) Exec(ctx context.Context, _ guest.Command, stdio [3]*os.File) (guest.Exit, error) {
	fmt.Fprintln(stdio[1], `{"type":"assistant","session_id":"s","message":{"id":"a","content":[{"type":"text","text":"hm"}]}}`)
	<-ctx.Done()
	return guest.Exit{}, ctx.Err()
}

func TestTooLong(t *testing.T) {
	a := agentOf(t, "claude-code", slow{newStage(nil)})
	r, err := a.Prompt(t.Context(), Prompt{Text: "go", Settings: Settings{Timeout: 20 * time.Millisecond}})
	if err != nil || r.Fault == nil || r.Fault.Type != AgentError || r.Fault.Code != CodeTimeout || len(r.Events) != 2 || !bytes.Contains(r.Native, []byte("hm")) {
		t.Errorf("%+v %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Prompt(ctx, Prompt{Text: "go"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	full := errors.New("the disk is full")
	if _, err := a.Prompt(t.Context(), Prompt{Text: "go", Heard: func(trajectory.Event) error { return full }}); !errors.Is(err, full) {
		t.Errorf("not recorded: %v", err)
	}
}

func TestSettings(t *testing.T) {
	s := Settings{
		Model: "m-1", SystemPrompt: "sys", AppendSystemPrompt: "more", Effort: "high", MaxTurns: 7, MaxThinking: 9, OutputFormat: json.RawMessage(`{}`),
		AllowedTools: []string{"Read"}, ContextWindow: 5, MaxTokens: 6,
	}
	for name, want := range map[string]struct {
		left string
		told []string
	}{
		"claude-code": {"append_system_prompt context_window max_tokens", []string{"--model m-1", "--effort high", "--max-turns 7", "MAX_THINKING_TOKENS=9", "--tools=Read", "sys"}},
		"codex":       {"append_system_prompt max_turns max_thinking_tokens allowed_tools context_window max_tokens", []string{`model = "m-1"`, `model_reasoning_effort = "high"`, "answer.schema.json"}},
		"gemini":      {"append_system_prompt effort max_turns max_thinking_tokens output_format context_window max_tokens", []string{"--model m-1", "GEMINI.md"}},
		"opencode":    {"append_system_prompt max_turns max_thinking_tokens allowed_tools context_window max_tokens", []string{`"reasoningEffort":"high"`, "agentenv/m-1", "instructions.md"}},
		"openhands":   {"max_thinking_tokens output_format allowed_tools context_window max_tokens", []string{`"max_iterations":7`, `"effort":"high"`, `"system_prompt":"sys"`}},
		"pi":          {"max_turns max_thinking_tokens output_format", []string{"--thinking high", "--tools Read", `"contextWindow":5`, `"maxTokens":6`, "--append-system-prompt more"}},
	} {
		p, _ := ProfileOf(name)
		a := New(p, Options{})
		if got := strings.Join(a.Left(s), " "); got != want.left {
			t.Errorf("%s leaves out %s", name, got)
		}
		r, err := p.adapter.prepare(&turn{Settings: s, model: p.modelName(s.Model), prompt: "go", state: "/s", api: ModelURL, command: "/c", node: "/n"})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(r.argv, " ") + "\n" + strings.Join(r.env, "\n") + "\n" + r.stdin
		for _, f := range r.files {
			in, _ := f.Open()
			b, _ := io.ReadAll(in)
			all += "\n" + f.Path + "\n" + string(b)
		}
		for _, w := range want.told {
			if !strings.Contains(all, w) {
				t.Errorf("%s is not told %s:\n%s", name, w, all)
			}
		}
	}
	a := New(Profiles()[0], Options{})
	for _, name := range []string{"", "..", "a/b"} {
		if a.AddSkill(Skill{Name: name}) == nil {
			t.Errorf("a skill is called %q", name)
		}
	}
	if a.AddServer(Server{"a", "u"}) != nil || !errors.Is(a.AddServer(Server{"b", "u"}), ErrTaken) || !errors.Is(a.AddServer(Server{"a", "v"}), ErrTaken) {
		t.Error("a server was added twice")
	}
}
