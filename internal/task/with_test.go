package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

const templated = `[
	{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "env_vars": {"WHO": "<who>"}},
	{"id": "check", "type": "verify_sandbox", "sandbox_name": "box", "shell_timeout_seconds": 5,
	 "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "test <n> -gt 1 && cat <<EOF\n<b>bold</b> <who><n>\nEOF"}]}
]`

func parsed(t *testing.T, src string) *Task {
	t.Helper()
	tree, l := doc.ParseJSON("t.json", []byte(src))
	if l.HasErrors() {
		t.Fatal(l)
	}
	task, l := Decode("@local/b/t", tree.Root(), step.Kinds(), Options{})
	if l.HasErrors() {
		t.Fatal(l)
	}
	task.Version = 3
	return task
}

func TestWithSeedAndParams(t *testing.T) {
	base := parsed(t, templated)
	got, l := base.With(Given{
		Seed: map[string]string{"who": "<n>", "n": "7"},
		Params: map[string]map[string]json.RawMessage{
			"check": {"shell_timeout_seconds": json.RawMessage("30"), "timeout_seconds": json.RawMessage("1.5")},
			"box":   {"env_vars": json.RawMessage(`{"WHO": "x<who>"}`)},
		},
	}, step.Kinds(), Options{})
	if len(l) > 0 {
		t.Fatal(l)
	}
	cmd := got.Steps[1].Doc.Get("criteria").At(0).Get("bash_cmd").Text()
	if cmd != "test 7 -gt 1 && cat <<EOF\n<b>bold</b> <n>7\nEOF" {
		t.Errorf("what a seed puts in was looked at again, or something else: %q", cmd)
	}
	if got.Steps[0].Doc.Get("env_vars").Get("WHO").Text() != "x<n>" || got.Steps[1].Doc.Get("shell_timeout_seconds").Text() != "30" ||
		got.Steps[1].Timeout.Seconds() != 1.5 || got.Version != 3 || len(got.Steps[1].Deps) != 1 {
		t.Errorf("%+v", got)
	}
	if base.Steps[0].Doc.Get("env_vars").Get("WHO").Text() != "<who>" {
		t.Error("the task itself changed")
	}
	if same, _ := base.With(Given{}, step.Kinds(), Options{}); same != base {
		t.Error("nothing given makes another task")
	}
}

func TestWithRefuses(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for want, g := range map[string]Given{
		"the placeholder <who> is left: no seed is called 'who'; add it to the seeds":  {Seed: map[string]string{"n": "1"}},
		"the placeholder <n> is left: no seed is called 'n'":                           {Seed: map[string]string{}},
		"'chek' names no step of @local/b/t; did you mean 'check'?":                    {Params: map[string]map[string]json.RawMessage{"chek": {"x": raw("1")}}},
		"step_params: step 'box': depends_on: can't be set for a run":                  {Params: map[string]map[string]json.RawMessage{"box": {"depends_on": raw("[]")}}},
		"step_params: step 'box': sandbox_name: is no JSON":                            {Params: map[string]map[string]json.RawMessage{"box": {"sandbox_name": raw("x")}}},
		"did you mean 'shell_timeout_seconds'?":                                        {Params: map[string]map[string]json.RawMessage{"check": {"shell_timeout_second": raw("1")}}},
		"sandbox_mode":                                                                 {Params: map[string]map[string]json.RawMessage{"box": {"sandbox_mode": raw(`"x"`)}}},
		"the seed 'more' is used by no step; write <more> where it belongs":            {Seed: map[string]string{"who": "a", "n": "1", "more": "2"}},
		"the placeholder <who> is left: no seed is called 'who'; did you mean <whom>?": {Seed: map[string]string{"whom": "a", "n": "1"}},
	} {
		got, l := parsed(t, templated).With(g, step.Kinds(), Options{})
		if !strings.Contains(fmt.Sprint(l), want) {
			t.Errorf("want %q in\n%s", want, l)
		}
		if (got == nil) != l.HasErrors() {
			t.Errorf("%s: task %v", want, got)
		}
	}
	if _, l := parsed(t, templated).With(Given{Seed: map[string]string{}, AllowPlaceholders: true}, step.Kinds(), Options{}); l.HasErrors() {
		t.Error(l)
	}
}

func FuzzSeed(f *testing.F) {
	f.Add("a <k> <<k>> </k> <k", "v<k>")
	f.Fuzz(func(t *testing.T, text, value string) {
		n := doc.Build(text)
		want := strings.ReplaceAll(text, "<k>", value)
		s := seeder{given: Given{Seed: map[string]string{"k": value}}, used: map[string]bool{}, told: map[string]bool{}}
		got, changed := s.fill(n)
		if plain, _ := n.Str(); changed != strings.Contains(plain, "<k>") || changed && plain == text && got != want {
			t.Errorf("%q with %q: %q, want %q", text, value, got, want)
		}
		for name := range maps.Keys(s.told) {
			if !placeholder().MatchString(name) {
				t.Errorf("told of %s", diag.Repr(name))
			}
		}
	})
}
