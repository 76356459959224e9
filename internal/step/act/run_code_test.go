package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// python3 does what the first word of the script says, as the harness would.
func python3(ctx context.Context, p *fake.Proc) guest.Exit {
	folder, entry := p.Argv[3], p.Argv[4]
	script, err := p.Machine.Files.ReadFile(folder + "/src/" + entry)
	if err != nil {
		_, _ = io.WriteString(p.Stderr, err.Error())
		return fake.Code(2)
	}
	put := func(name, text string) { p.Machine.Files.WriteFile(folder+"/"+name, []byte(text), 0o644) }
	switch word := strings.Fields(string(script))[0]; word {
	case "input":
		b, _ := p.Machine.Files.ReadFile(folder + "/input.json")
		put("result.json", `{"entry": "`+entry+`", "function": "`+p.Argv[5]+`", "dir": "`+p.Dir+`", "given": `+string(b)+`}`)
	case "prints":
		_, _ = io.WriteString(p.Stdout, "one\r\ntwo\xff\n"+strings.Repeat("three\n", 60000))
		_, _ = io.WriteString(p.Stderr, "warned")
		put("result.json", "null")
	case "raises":
		_, _ = io.WriteString(p.Stderr, "Traceback\n  …\nZeroDivisionError: division by zero\n")
		put("failure.json", `{"type": "ZeroDivisionError", "message": "division by zero"}`)
		return fake.Code(1)
	case "crashes":
		_, _ = io.WriteString(p.Stderr, "line\nSegmentation fault\n")
		return guest.Exit{Signal: 11}
	case "hangs":
		<-ctx.Done()
	case "silent":
	case "nonsense":
		put("result.json", "{")
	case "huge":
		put("result.json", `"`+strings.Repeat("x", maxResult)+`"`)
	}
	return fake.Code(0)
}

func rig(t *testing.T) *steptest.Rig {
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"python3": python3}, Files: map[string]string{"/app/keep": ""}})
	r.Box()
	return r
}

// code stores a script and answers a step that runs it.
func code(r *steptest.Rig, word, fields string) string {
	r.PutFile("@local/b/"+word, steptest.File{Path: "any name.txt", Text: word})
	return `{"id": "` + word + `", "type": "run_code", "script_artifact_id": "@local/b/` + word + `", "sandbox_name": "box"` + fields + `}`
}

func TestRunCode(t *testing.T) {
	r := rig(t)
	e := NewRunCode(r.Store, r.Deploy)
	r.Must(e, code(r, "prints", `, "result_id": "a/b"`))
	r.Must(e, code(r, "input", `, "args": {"n": 1.50, "s": ["é"]}, "entrypoint": "go"`))
	var got json.RawMessage
	if ok, err := r.View().Get(step.Child(ResultsPath, "input"), &got); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.Equal("result", got, json.RawMessage(`{"entry":"script.py","function":"go","dir":"/app","given":{"args":{"n":1.5,"s":["é"]},"results":{"a/b":null}}}`))
	for _, want := range []string{
		`msg=one stream=stdout`, "two�", `stream=stdout bytes=`, "msg=warned stream=stderr",
	} {
		if !strings.Contains(r.Log(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if n := strings.Count(r.Log(), "\n"); n > maxLines+10 {
		t.Errorf("%d lines of log", n)
	}
}

// TestPrinter feeds streams in pieces of every size: what is logged never depends on the pieces.
func TestPrinter(t *testing.T) {
	long := strings.Repeat("y", maxPrinted/2+10) + "\n"
	many := strings.Repeat("z\n", maxLines+100)
	for name, c := range map[string]struct {
		text, want string
		begins     int // bytes that are kept of one that is too long
	}{
		"lines":      {"one\ntwo\r\n\nthree", "one|two||three", 0},
		"nothing":    {"", "", 0},
		"no newline": {"x", "x", 0},
		"not UTF-8":  {"a\xffb\nü", "a\uFFFDb|ü", 0},
		"long line":  {"a\n" + long + "b\n", "a|" + strings.TrimSpace(long) + "|b", 0},
		"many lines": {many, strings.TrimSuffix(strings.Repeat("z|", 500), "|") + "|" + strings.Repeat("z\n", 101) + "|" + strings.TrimSuffix(strings.Repeat("z|", 499), "|"), 0},
		"too much, not kept": {
			strings.Repeat("q", maxPrinted) + "\nlast\n",
			fmt.Sprintf("WARN %d bytes are left out here|%s|last", maxPrinted/2+6, strings.Repeat("q", maxPrinted/2-6)), 0,
		},
		"too much, kept": {
			strings.Repeat("q", maxPrinted) + "\nlast\n",
			strings.Repeat("q", maxPrinted/2+6) + "|" + strings.Repeat("q", maxPrinted/2-6) + "|last", maxPrinted + 6,
		},
		"too much, kept in part": {
			"first\n" + strings.Repeat("q", maxPrinted) + "\nlast\n",
			fmt.Sprintf("first|%s|WARN %d bytes are left out here|%s|last", strings.Repeat("q", 94), maxPrinted/2+6-94, strings.Repeat("q", maxPrinted/2-6)), 100,
		},
	} {
		for _, size := range []int{1, 7, 32 << 10, 1 << 20} {
			var got []string
			p := printer{stream: "stdout", log: slog.New(lines{&got})}
			for piece := range slices.Chunk([]byte(c.text), size) {
				p.write(piece)
			}
			b := []byte(c.text)
			all := guest.Captured{Head: b, Total: int64(len(b))}
			if len(b) > maxPrinted {
				all = guest.Captured{Head: b[:maxPrinted/2], Tail: b[len(b)-maxPrinted/2:], Total: int64(len(b)), Truncated: true}
			}
			p.end(all, b[:min(c.begins, len(b))])
			if text := strings.Join(got, "|"); text != c.want {
				t.Errorf("%s in pieces of %d: %.300q, want %.300q", name, size, text, c.want)
			}
		}
	}
}

// lines is a slog.Handler that keeps messages.
type lines struct{ to *[]string }

func (lines) Enabled(context.Context, slog.Level) bool { return true }
func (h lines) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h lines) WithGroup(string) slog.Handler          { return h }
func (h lines) Handle(_ context.Context, r slog.Record) error {
	m := r.Message
	if r.Level == slog.LevelWarn {
		m = "WARN " + m
	}
	*h.to = append(*h.to, m)
	return nil
}

func TestRunCodeFailures(t *testing.T) {
	r := rig(t)
	e := NewRunCode(r.Store, r.Deploy)
	for word, want := range map[string]string{
		"raises":   "RunCodeError: the script failed: ZeroDivisionError: division by zero",
		"crashes":  "RunCodeError: the script ended with exit 139: Segmentation fault",
		"silent":   "ResultError: the script ended before its function returned",
		"nonsense": "ResultError: the result is not JSON",
		"huge":     "ResultError: the result has more than 52428800 bytes",
	} {
		err := r.Do(e, code(r, word, ""))
		if got := steptest.ErrorType(err) + ": " + err.Error(); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
	err := r.Do(e, code(r, "hangs", `, "timeout_seconds": 0.05`))
	if got := steptest.ErrorType(err) + ": " + err.Error(); got != "TimeoutError: the script timed out after 0.05s (exit 124)" {
		t.Error(got)
	}
	r.Fake.Machines()[0].Kill()
	if err := r.Do(e, code(r, "input", "")); !step.IsInfra(err) {
		t.Errorf("dead sandbox: %v", err)
	}
}

func TestNoPython(t *testing.T) {
	r := steptest.New(t, fake.Options{Files: map[string]string{"/app/keep": ""}})
	r.Box()
	err := r.Do(NewRunCode(r.Store, r.Deploy), code(r, "input", ""))
	if steptest.ErrorType(err) != "RunCodeError" || !strings.Contains(err.Error(), "the sandbox has no python3") {
		t.Error(err)
	}
}

func TestCancelledScript(t *testing.T) {
	r := rig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.DoCtx(ctx, NewRunCode(r.Store, r.Deploy), code(r, "hangs", "")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestScriptOfAUniverse(t *testing.T) {
	r := rig(t)
	e := NewRunCode(r.Store, r.Deploy)
	py := func(names ...string) []steptest.File {
		var out []steptest.File
		for _, n := range names {
			out = append(out, steptest.File{Path: n, Text: "input"})
		}
		return out
	}
	r.PutUniverse("@local/b/one", py("a/only.py", "data.json", "README")...)
	r.PutUniverse("@local/b/usual", py("a/x.py", "b/run.py")...)
	r.PutUniverse("@local/b/two", py("a/run.py", "b/run.py")...)
	r.PutUniverse("@local/b/none", py("data.json")...)
	r.PutUniverse("@local/b/odd", py("x.py", "y.py")...)
	r.PutUniverse("@local/b/big", steptest.File{Path: "x.py", Text: strings.Repeat("#", maxScripts)}, steptest.File{Path: "y.py", Text: "#"})
	r.PutOther("@local/b/skill", "skill")
	r.PutFile("@local/b/file", steptest.File{Path: "x.py", Text: "input"})
	for _, c := range []struct{ id, file, want string }{
		{"one", "", "a/only.py"},
		{"usual", "", "b/run.py"},
		{"usual", "a/x.py", "a/x.py"},
		{"usual", "a/y.py", "ValueError: '@local/b/usual': script_file 'a/y.py' is none of its Python files (a/x.py, b/run.py)"},
		{"one", "data.json", "ValueError: '@local/b/one': script_file 'data.json' is none of its Python files (a/only.py)"},
		{"two", "", "ValueError: '@local/b/two': holds several files named run.py; name one of a/run.py, b/run.py in script_file"},
		{"odd", "", "ValueError: '@local/b/odd': holds several Python files and none named run.py; name one of x.py, y.py in script_file"},
		{"none", "", "ValueError: '@local/b/none': holds no Python file"},
		{"big", "x.py", "ValueError: '@local/b/big': its Python files have 5242881 bytes, and scripts may have 5242880"},
		{"file", "x.py", "ValueError: script_file: '@local/b/file' is a single file; leave script_file out"},
		{"skill", "", "ValueError: script_artifact_id: '@local/b/skill' is of type skill; a script is a file or a file_artifact_universe"},
		{"gone", "", "NotFoundError: artifact @local/b/gone: not in the store"},
	} {
		fields := ""
		if c.file != "" {
			fields = `, "script_file": "` + c.file + `"`
		}
		err := r.Do(e, `{"id": "x", "type": "run_code", "sandbox_name": "box", "script_artifact_id": "@local/b/`+c.id+`"`+fields+`}`)
		var got string
		if err != nil {
			got = steptest.ErrorType(err) + ": " + err.Error()
		} else {
			var res struct{ Entry string }
			_, _ = r.View().Get(step.Child(ResultsPath, "x"), &res)
			got = res.Entry
		}
		if got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.id, c.file, got, c.want)
		}
	}
}

func TestRunCodePreflight(t *testing.T) {
	r := rig(t)
	r.PutOther("@local/b/skill", "skill")
	for text, want := range map[string]string{
		`"script_artifact_id": "@local/b/x", "sandbox_name": "box"`: "",
		`"script_artifact_id": "@local/b/x"`:                        "env_id: scripts can only run in sandboxes, also of agents, with this version of agent-env; name the sandbox in sandbox_name, or the agent in agent_name",
		`"script_artifact_id": "@local/b/skill", "env_id": "e"`: "env_id: scripts can only run in sandboxes, also of agents, with this version of agent-env; name the sandbox in sandbox_name, or the agent in agent_name\n" +
			"script_artifact_id: '@local/b/skill' is of type skill, which holds no script; use an artifact of type file or file_artifact_universe",
	} {
		d := r.Doc(`{"id": "x", "type": "run_code", ` + text + `}`)
		if got := steptest.Texts(NewRunCode(r.Store, r.Deploy).Preflight(t.Context(), d, step.Plan{Type: r.Types})); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}
