package toolcmd

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/store/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const listed = `{"name":"send_mail","description":"Sends a mail.\nNow.","inputSchema":{"type":"object","properties":{
	"body":{"type":"string","description":"The text.","default":"hi"},"to":{"type":"array","items":{"type":"string"}},"count":{"type":"integer"},
	"ratio":{"type":["number","null"]},"urgent":{"type":"boolean"},"extra":{"type":"object"},"any":{"description":"Anything"},
	"mood":{"anyOf":[{"type":"string"},{"type":"null"}],"enum":["good","bad"]},"parts":{"type":"array","items":{"type":"object"}}
	},"required":["to"]}}`

func command(t *testing.T) Command {
	t.Helper()
	c, err := New("mail", "office", []json.RawMessage{[]byte(listed), []byte(`{"name":"bare"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFile(t *testing.T) {
	c := command(t)
	b, err := c.File()
	if err != nil || !strings.HasPrefix(string(b), "#!/usr/local/bin/agent-env tool-command\n{") {
		t.Fatalf("%v: %.60s", err, b)
	}
	back, err := Parse(b)
	if err != nil || back.Name != "mail" || back.Environment != "office" || len(back.Tools) != 2 || string(back.Tools[1].Schema) != `{"type":"object"}` {
		t.Errorf("%+v, %v", back, err)
	}
	for text, want := range map[string]string{
		"":                     "no command that agent-env has made",
		"#!/bin/sh\necho":      "no command that agent-env has made",
		`{"format_version":9}`: "another version of agent-env",
		`{"format_version":1,"tools":[{"name":""}]}`: "damaged",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestOpen(t *testing.T) {
	b, err := command(t).File()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, link := filepath.Join(dir, "mail"), filepath.Join(t.TempDir(), "m")
	if err := errors.Join(os.WriteFile(file, b, 0o755), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	getenv := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	at := func() string {
		t.Helper()
		_, url, err := Open(link, getenv)
		if err != nil {
			t.Fatal(err)
		}
		return url
	}
	if got := at(); got != "" {
		t.Errorf("nothing says where, and it is %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, EnvFile), append([]byte("OTHER=x\n"), EnvFileOf("http://h:1")...), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := at(); got != "http://h:1" {
		t.Errorf("beside the link's target: %q", got)
	}
	if vars[URLVariable] = "http://h:2"; at() != "http://h:2" {
		t.Error("the environment doesn't win")
	}
}

// TestArguments: what command lines become, or why they can't be meant.
func TestArguments(t *testing.T) {
	c := command(t)
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`{"to":["f"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string // divided at |
		want string
	}{
		{`--to|a|--to=b`, `{"to":["a","b"]}`},
		{`--to|["a", "b"]|--to|c`, `{"to":["a","b","c"]}`},
		{`--to|[]`, `{"to":[]}`},
		{`--to|a|--body|{"not": "an object"}`, `{"to":["a"],"body":"{\"not\": \"an object\"}"}`},
		{`--to|a|--count|3|--ratio|-0.5|--urgent`, `{"to":["a"],"count":3,"ratio":-0.5,"urgent":true}`},
		{`--to|a|--urgent=false|--extra|{"a":[1]}`, `{"to":["a"],"urgent":false,"extra":{"a":[1]}}`},
		{`--to|a|--any|{"x": 1}`, `{"to":["a"],"any":{"x": 1}}`},
		{`--to|a|--any|word`, `{"to":["a"],"any":"word"}`},
		{`--to|a|--mood|good`, `{"to":["a"],"mood":"good"}`},
		{`--to|a|--parts|[{"x":1}]`, `{"to":["a"],"parts":[{"x":1}]}`},
		{`{"to": ["x"],  "z": null}`, `{"to": ["x"],  "z": null}`}, // byte for byte
		{`{"to":["x"],"body":"old"}|--body|new`, `{"to":["x"],"body":"new"}`},
		{`@` + file, `{"to":["f"]}`},
		{`-`, `{"to":["stdin"]}`},
		{``, `send_mail needs --to; see mail send_mail --help`},
		{`--to`, `--to needs a value: text, repeatable, or a JSON list`},
		{`--too|a`, `send_mail has no parameter 'too'; did you mean --to?`},
		{`--nothing-like-it|a`, `send_mail has no parameter 'nothing-like-it'; see mail send_mail --help`},
		{`--to|a|--count|1.5`, `--count takes a whole number, not '1.5'`},
		{`--to|a|--count|x`, `--count takes a whole number, not 'x'`},
		{`--to|a|--ratio|NaN`, `--ratio takes a number, not 'NaN'`},
		{`--to|a|--urgent=maybe`, `--urgent takes true or false, not 'maybe'`},
		{`--to|a|--extra|[]`, `--extra takes a JSON object, not '[]'`},
		{`--to|a|--parts|x`, `--parts takes a JSON list, not 'x'`},
		{`--to|a|--body|x|--body|y`, `--body is given twice`},
		{`x`, `'x' is no JSON object; write --name value for each parameter, a JSON object, @FILE, or - for standard input`},
		{`{}|{}`, `arguments are flags and at most one JSON object, and '{}' is a second one`},
	} {
		args := []string{"send-mail"}
		if tc.args != "" {
			args = append(args, strings.Split(tc.args, "|")...)
		}
		call, err := Split(args)
		if err != nil {
			t.Fatal(err)
		}
		tool, ok := c.Find(call.Tool)
		if !ok || tool.Name != "send_mail" {
			t.Fatal(call.Tool)
		}
		call, err = call.Read("mail", tool, strings.NewReader(`{"to":["stdin"]}`))
		got := string(call.Arguments)
		if err != nil {
			got = err.Error()
			if !errors.Is(err, ErrUsage) {
				t.Errorf("%s: no usage error: %v", tc.args, err)
			}
		}
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.args, got, tc.want)
		}
	}
}

func TestHelp(t *testing.T) {
	c := command(t)
	for _, want := range []string{"Usage: mail [--json] TOOL", "  send_mail  Sends a mail.\n", "  bare\n"} {
		if !strings.Contains(c.Help(), want) {
			t.Errorf("%q is not in\n%s", want, c.Help())
		}
	}
	tool, _ := c.Find("send_mail")
	text := c.ToolHelp(tool)
	for _, want := range []string{
		"Sends a mail.\nNow.\n", "Usage: mail send_mail --to VALUE […]\n", "  --body  The text; text; \"hi\" when left out\n", "  --to  text, repeatable, or a JSON list; required\n",
		"  --mood  one of \"good\", \"bad\"\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Index(text, "--to  ") > strings.Index(text, "--body  ") {
		t.Error("what is needed isn't first")
	}
	for args, want := range map[string]Call{"": {}, "--help": {Help: true}, "help": {Help: true}, "--json bare": {JSON: true, Tool: "bare"}} {
		if got, err := Split(strings.Fields(args)); err != nil || got.Tool != want.Tool || got.Help != want.Help || got.JSON != want.JSON {
			t.Errorf("%q: %+v, %v", args, got, err)
		}
	}
	if _, err := Split([]string{"--nope"}); !errors.Is(err, ErrUsage) {
		t.Error(err)
	}
}

func TestPut(t *testing.T) {
	s := mem.New(mem.Options{})
	c := command(t)
	env := artifact.Pin{ID: "@local/office", Version: 1}
	put := func(c Command, env artifact.Pin, again bool, version int, fresh bool) {
		t.Helper()
		p, new, err := Put(t.Context(), s, "@local/office__cli", env, c, again)
		if err != nil || p.Version != version || new != fresh {
			t.Errorf("%+v, %v, %v; want version %d, new %v", p, new, err, version, fresh)
		}
	}
	put(c, env, false, 1, true)
	put(c, env, false, 1, false) // it says the same
	put(c, env, true, 2, true)
	env.Version = 2
	put(c, env, false, 3, true)
	c.Name = "post"
	put(c, env, false, 4, true)
	c.Tools = c.Tools[:1]
	put(c, env, false, 5, true)
	put(c, env, false, 5, false)
	if _, _, err := Put(t.Context(), s, "", env, c, false); err == nil {
		t.Error("an id that is none was taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("#!x\n"+`{"format_version":1,"command":"c","tools":[`+strings.ReplaceAll(strings.ReplaceAll(listed, "\n", ""), "\t", "")+`]}`), "--to")
	f.Add([]byte(`{"format_version":1,"tools":[{"name":"a","inputSchema":{"properties":{"x":{"anyOf":[{"type":["null","integer"]}]}}}}]}`), "--x")
	f.Fuzz(func(t *testing.T, b []byte, arg string) {
		c, err := Parse(b)
		if err != nil {
			return
		}
		_ = c.Help()
		for _, tool := range c.Tools {
			_ = c.ToolHelp(tool)
			for _, more := range []string{"1", "x", "[1]", `{"a":1}`} {
				call, err := Call{rest: []string{arg, more}}.Read("c", tool, strings.NewReader("{}"))
				if err == nil && !call.Help && !json.Valid(call.Arguments) {
					t.Errorf("%q %q make %q", arg, more, call.Arguments)
				}
			}
		}
	})
}
