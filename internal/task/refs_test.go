package task

import (
	"fmt"
	"testing"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
)

func TestRefsIn(t *testing.T) {
	tests := []struct {
		src  string
		want []string // field kind type name pin
	}{
		{`{"type":"deploy_env","env_id":"mail","env_version":2,"artifact_id":"u"}`, []string{"env_id env  mail 2", "artifact_id artifact  u "}},
		{`{"type":"load_artifact","env_id":null,"sandbox_name":"b","artifacts":[{"id":"f"},{"id":"g","version":3}]}`, []string{"artifacts[0].id artifact  f ", "artifacts[1].id artifact  g 3"}},
		{`{"type":"deploy_agent","env_ids":["a","b"],"a2a_agent_id":"bot"}`, []string{"env_ids[0] env  a ", "env_ids[1] env  b ", "a2a_agent_id agent  bot "}},
		{`{"type":"add_skills","skills":[{"body":"x"},{"skill_artifact_id":"s","skill_artifact_version":1}],"cli_artifact_ids":["c"],"env_id":"pc"}`, []string{
			"skills[1].skill_artifact_id artifact skill s 1", "cli_artifact_ids[0] artifact cli c ", "env_id env  pc ",
		}},
		{`{"type":"prompt_agent","prompt":"x","snapshot_config":{"env_id":"mail"}}`, []string{"snapshot_config.env_id env  mail "}},
		{`{"type":"register_agent_triggers","agent_name":"a","triggers":[
			{"when":{"type":"env_trigger","env_id":"e1","trigger_id":"t"}},
			{"when":{"type":"all","of":[{"type":"step"},{"type":"any","of":[{"type":"env_trigger","env_id":"e2","trigger_id":"t"}]},{"type":"env_trigger","env_id":"e3","trigger_id":"t"}]}}]}`, []string{
			"triggers[0].when.env_id env  e1 ", "triggers[1].when.of[1].of[0].env_id env  e2 ", "triggers[1].when.of[2].env_id env  e3 ",
		}},
		{`{"type":"snapshot_env","env_id":"e","snapshot_id":"snap"}`, []string{"env_id env  e ", "snapshot_id artifact environment_universe snap  out"}},
		{`{"type":"snapshot_env","env_id":"e"}`, []string{"env_id env  e "}},
		{`{"type":"build_mcp_cli","env_id":"@local/~/b/mail","command_name":"m"}`, []string{"env_id env  @local/~/b/mail ", "cli_artifact_id artifact cli mail__cli  out made"}},
		{`{"type":"build_mcp_cli","env_id":"mail","command_name":"m","cli_artifact_id":"own"}`, []string{"env_id env  mail ", "cli_artifact_id artifact cli own  out"}},
		{`{"type":"build_mcp_cli","command_name":"m"}`, nil},
		{`{"type":"verify_a2a_role","a2a_agent_id":"bot","a2a_agent_version":4}`, []string{"a2a_agent_id agent  bot 4"}},
		{`{"type":"prompt_agent","model":"scripted:talk"}`, []string{"model artifact file talk "}},
		{`{"type":"prompt_agent","model":"gpt-5","user_model":"scripted:"}`, nil},
		{`{"type":"review"}`, nil},
		{`{"type":"load_artifact","env_id":7,"artifacts":"x"}`, nil},
		{`{"type":"no_such_type","env_id":"x"}`, nil},
	}
	for _, tt := range tests {
		got, _ := decode(t, "["+tt.src+"]", Options{})
		var have []string
		for _, r := range RefsIn(&got.Steps[0]) {
			line := fmt.Sprintf("%s %s %s %s %s", r.Field, r.Kind, r.Type, r.Name, r.Version.Text())
			if r.Out {
				line += " out"
			}
			if !r.Node.Exists() {
				line += " made"
			}
			have = append(have, line)
		}
		if fmt.Sprint(have) != fmt.Sprint(tt.want) {
			t.Errorf("%s\n got %q\nwant %q", tt.src, have, tt.want)
		}
	}
}

// TestRefsOfEveryKind puts a string at the end of every reference's path and finds it there.
func TestRefsOfEveryKind(t *testing.T) {
	kinds := step.Kinds()
	for _, name := range kinds.Names() {
		e, _ := kinds.Get(name)
		for _, r := range e.Value.Refs {
			s := Step{Kind: e.Value, Doc: doc.Build(put(r.Path, r.Prefix+"it"))}
			found := false
			for _, f := range RefsIn(&s) {
				found = found || f.Name == "it" && f.Path == r.Path && f.Kind == r.Kind && f.Node.Exists()
			}
			if !found {
				t.Errorf("%s: %s finds nothing", name, r.Path)
			}
			if e.Value.Schema().Open {
				continue
			}
			// The path must lead through the kind's own fields.
			for _, p := range checked(e.Value, s.Doc) {
				t.Errorf("%s: %s: %s", name, r.Path, p)
			}
		}
	}
}

func TestRewrite(t *testing.T) {
	got, l := decode(t, `[
  {"id":"g","type":"deploy_env","env_id":"g"},
  {"id":"c","type":"build_mcp_cli","env_id":"g","command_name":"g"},
  {"id":"l","type":"load_artifact","agent_name":"g","env_id":"g","artifacts":[{"id":"g"}]},
  {"id":"r","type":"review","label":"g"}
]`, Options{})
	if len(l) > 0 {
		t.Fatal(l.Err())
	}
	before := string(doc.JSON(got.Config))
	out := got.Rewrite(func(i int, r FoundRef) string { return fmt.Sprintf("@%d/%s/%s", i, r.Kind, r.Name) })
	const want = `[{"id":"g","type":"deploy_env","env_id":"@0/env/g"},` +
		`{"id":"c","type":"build_mcp_cli","env_id":"@1/env/g","command_name":"g","cli_artifact_id":"@1/artifact/g__cli"},` +
		`{"id":"l","type":"load_artifact","agent_name":"g","env_id":"@2/env/g","artifacts":[{"id":"@2/artifact/g"}]},` +
		`{"id":"r","type":"review","label":"g"}]`
	if have := string(doc.Canonical(out.Config)); have != string(doc.Canonical(parse(t, want))) {
		t.Errorf("got %s", have)
	}
	scripted, _ := decode(t, `[{"id":"p","type":"prompt_agent","prompt":"x","model":"scripted:talk"}]`, Options{})
	out2 := scripted.Rewrite(func(int, FoundRef) string { return "@local/b/talk" })
	if m := out2.Steps[0].Doc.Get("model").Text(); m != "scripted:@local/b/talk" {
		t.Errorf("a scripted model became %q", m)
	}
	if string(doc.JSON(got.Config)) != before {
		t.Error("the task itself was changed")
	}
	if s := out.Steps[2].Doc.Get("env_id"); s.Text() != "@2/env/g" || s.Pos().Line != 4 {
		t.Errorf("%s at %v", s.Text(), s.Pos())
	}
}

func TestDecodeEval(t *testing.T) {
	tests := []struct {
		src  string
		want string
		refs string
	}{
		{`{"tasks":["a","@local/x/b",{"task":"@local/y/c","version":2}]}`, "[]", "[tasks[0] a  tasks[1] @local/x/b  tasks[2].task @local/y/c 2]"},
		{`{"type":"eval","id":"@local/e","tasks":["a"]}`, "[]", "[tasks[0] a ]"},
		{`{}`, "[tasks is missing; write it: a list]", "[]"},
		{`{"tasks":[]}`, "[tasks: must not be empty]", "[]"},
		{`{"tasks":"a"}`, `[tasks: must be a list, not "a"]`, "[]"},
		{`{"tasks":["a"],"b":1,"a":2}`, "[unknown key 'a'; known here: id, tasks, type unknown key 'b'; known here: id, tasks, type]", "[tasks[0] a ]"},
		{`{"type":"task","tasks":["a"]}`, `[type: must be one of eval, not "task"]`, "[tasks[0] a ]"},
		{
			`{"tasks":[1,"",{"task":"a","x":1},{"task":"b","version":0},{"version":1}]}`,
			"[tasks[0]: expected an id or a table of task and optional version, not 1 " +
				`tasks[1]: expected an id or a table of task and optional version, not "" ` +
				`tasks[2]: expected an id or a table of task and optional version, not {"task":"a","x":1} ` +
				`tasks[3]: expected an id or a table of task and optional version, not {"task":"b","version":0} ` +
				`tasks[4]: expected an id or a table of task and optional version, not {"version":1}]`, "[tasks[2].task a  tasks[3].task b 0]",
		},
		{`{"tasks":["a",{"task":"a"}]}`, "[tasks[1].task: 'a' is listed twice, first at tasks[0]; remove one]", "[tasks[0] a ]"},
	}
	for _, tt := range tests {
		e, refs, l := DecodeEval("@local/e", parse(t, tt.src))
		var problems, found []string
		for _, p := range l.Of(0) {
			problems = append(problems, trimPlace(p.String()))
		}
		for i, r := range refs {
			if e.Tasks[i] != r.Name || r.Kind != ref.Task {
				t.Errorf("%s: %+v", tt.src, r)
			}
			found = append(found, fmt.Sprintf("%s %s %s", r.Field, r.Name, r.Version.Text()))
		}
		if fmt.Sprint(problems) != tt.want || fmt.Sprint(found) != tt.refs {
			t.Errorf("%s\n got %v\n     %v", tt.src, problems, found)
		}
	}
	if e, _, l := DecodeEval("x", parse(t, `[]`)); e != nil || !l.HasErrors() {
		t.Error("a list is no eval")
	}
}
