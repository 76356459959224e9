package task

import (
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

func decode(t *testing.T, src string, o Options) (*Task, diag.List) {
	t.Helper()
	tree, l := doc.ParseJSON("tasks/t.json", []byte(src))
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	return Decode("@local/b/t", tree.Root(), step.Kinds(), o)
}

// lines are the problems of a severity as a person reads them.
func lines(l diag.List, s diag.Severity) []string {
	var out []string
	for _, p := range l.Of(s) {
		out = append(out, p.String())
	}
	return out
}

const box = `{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"}`

func TestDecodeHello(t *testing.T) {
	got, l := decode(t, `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "sandbox_type": "local"},
  {"id": "load", "type": "load_artifact", "sandbox_name": "box", "artifact_id": "greeting",
   "destination_path": "/app/greeting"},
  {"id": "hello", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/app/greeting", "timeout_seconds": 1.5,
   "verifier_id": "hello", "criteria": [
     {"type": "probe_file_contains", "criterion": "greets", "paths": ["hello.txt"], "expected": "hello"},
     {"type": "bash_cmd_succeeds", "criterion": "check passes", "bash_cmd": "bash check.sh"}
   ]}
]`, Options{})
	if len(l) > 0 {
		t.Fatal(l.Err())
	}
	if got.ID != "@local/b/t" || len(got.Steps) != 3 {
		t.Fatalf("%+v", got)
	}
	s := got.Steps[2]
	if s.ID != "hello" || s.Type != "verify_sandbox" || s.Kind.Name != s.Type || s.Timeout != 1500*time.Millisecond || s.Tolerated || s.Always {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(s.Deps, []int{0, 1}) {
		t.Errorf("deps %v", s.Deps)
	}
	refs := RefsIn(&got.Steps[1])
	if len(refs) != 1 || refs[0].Name != "greeting" || refs[0].Field != "artifact_id" || refs[0].Version.Exists() {
		t.Errorf("%+v", refs)
	}
}

func TestDecodeRefusals(t *testing.T) {
	tests := []struct {
		name, src string
		want      []string // each line holds its text; as many lines as texts
	}{
		{"a table", `{}`, []string{"tasks/t.json: must be a list of steps, not a table; a task is a list of steps, each a table with id and type (line 1)"}},
		{"no steps", "\n[]", []string{"tasks/t.json: has no steps; add a step, or remove the task (line 2)"}},
		{"a number", `[1]`, []string{"tasks/t.json: Step at position 0 must be a table, not 1"}},
		{"null", `null`, []string{"must be a list of steps, not null"}},
		{"no id, no type", `[{}]`, []string{"step at position 0: id is missing", "step at position 0: type is missing"}},
		{"unknown type", "[\n" + `{"id": "a", "type": "run_cod"}]`, []string{"tasks/t.json: step 'a': type: 'run_cod' is not a known step type; did you mean 'run_code'? (line 2)"}},
		{"unknown field", `[{"id":"a","type":"run_code","script_artifact_id":"s","sandbox_nam":"b"}]`, []string{"step 'a': unknown key 'sandbox_nam'; did you mean 'sandbox_name'?"}},
		{"missing field", `[{"id":"a","type":"run_code"}]`, []string{"step 'a': script_artifact_id is missing"}},
		{"reference as a table", `[{"id":"a","type":"run_code","script_artifact_id":{"id":"s"}}]`, []string{"step 'a': script_artifact_id: must be a string"}},
		{"empty reference", `[{"id":"a","type":"run_code","script_artifact_id":""}]`, []string{"step 'a': script_artifact_id: must not be empty"}},
		{"artifacts of strings", `[{"id":"a","type":"load_artifact","sandbox_name":"b","artifacts":["g"]}]`, []string{"step 'a': artifacts[0]: must be a table"}},
		{
			"artifacts and artifact_id", `[{"id":"a","type":"load_artifact","sandbox_name":"b","artifacts":[{"id":"g"}],"artifact_id":"h"}]`,
			[]string{"step 'a': artifact_id: artifacts and artifact_id are several sources; keep one"},
		},
		{"nothing to load", `[{"id":"a","type":"load_artifact","sandbox_name":"b"}]`, []string{"step 'a': names nothing to load;"}},
		{
			"duplicate id", "[" + box + ",\n" + box + "]",
			[]string{"tasks/t.json: Duplicate step id 'box' at position 1; the step at position 0 has it already; give each step an id of its own (line 2)"},
		},
		{"depends_on a string", `[` + box + `,{"id":"a","type":"review","depends_on":"box"}]`, []string{`step 'a': depends_on: must be a list or null, not "box"`}},
		{
			"depends_on unknown", `[` + box + `,{"id":"a","type":"review","depends_on":["bux"]}]`,
			[]string{"tasks/t.json: Step 'a' at position 1 depends on 'bux', which names no step of this task; did you mean 'box'? (line 1)"},
		},
		{"depends_on forward", `[{"id":"a","type":"review","depends_on":["box"]},` + box + `]`, []string{"Step 'a' at position 0 depends on 'box', which doesn't come before it"}},
		{
			"a circle", `[{"id":"a","type":"review","depends_on":["b"]},{"id":"b","type":"review","depends_on":[{"task_step_id":"a"}]}]`,
			[]string{"Step 'a' at position 0 depends on 'b', which doesn't come before it"},
		},
		{"itself", `[{"id":"a","type":"review","depends_on":["a"]}]`, []string{"Step 'a' at position 0 depends on itself; remove it"}},
		{"depends_on shapes", `[` + box + `,{"id":"a","type":"review","depends_on":[1,"",{"id":"box"}]}]`, []string{
			"depends_on[0]: must be a string or a table", "depends_on[1]: must not be empty", "depends_on[2]: task_step_id is missing", "depends_on[2]: unknown key 'id'",
		}},
		{
			"retry elsewhere", `[` + box + `,{"id":"a","type":"review","depends_on":[],"retry_config":{"retry_from_step_id":"box"}}]`,
			[]string{"Step 'a' at position 1 goes back to 'box', which it doesn't depend on; name the step itself, or one that it depends on"},
		},
		{"retry forward", `[{"id":"a","type":"review","retry_config":{"go_to_step_id":"box"}},` + box + `]`, []string{"goes back to 'box', which it doesn't depend on"}},
		{"retry unknown", `[` + box + `,{"id":"a","type":"review","retry_config":{"retry_from_step_id":"bx"}}]`, []string{"goes back to 'bx', which names no step of this task; did you mean 'box'?"}},
		{"retry without a step", `[{"id":"a","type":"review","retry_config":{"max_retries":2}}]`, []string{"step 'a': retry_config: needs retry_from_step_id"}},
		{"retry budget", `[{"id":"a","type":"review","retry_config":{"retry_from_step_id":"a","max_retries":true}}]`, []string{"step 'a': retry_config.max_retries: must be an integer or null, not true"}},
		{"a line break in an id", `[{"id":"a\nb","type":"review"}]`, []string{`step 'a\nb': id: 'a\nb' holds a character that can't be printed`}},
		{
			"several at once", "[\n" + `{"id":"a","type":"nope","depends_on":["z"]},` + "\n" + `{"id":"a","type":"teardown_sandboxes","fail_task_on_error":true,"x":1}]`,
			[]string{
				"Duplicate step id 'a' at position 1", "Step 'a' at position 0 depends on 'z'", "step 'a': fail_task_on_error: must be false",
				"step 'a': names nothing to end", "step 'a': type: 'nope' is not a known step type", "step 'a': unknown key 'x'",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, l := decode(t, tt.src, Options{})
			got := lines(l, diag.Error)
			if len(got) != len(tt.want) {
				t.Fatalf("%d problems, not %d:\n%s", len(got), len(tt.want), strings.Join(got, "\n"))
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) || !strings.HasPrefix(got[i], "tasks/t.json: ") {
					t.Errorf("problem %d:\n got %s\nwant %s", i, got[i], want)
				}
			}
		})
	}
}

func TestAllowUnknownFields(t *testing.T) {
	got, l := decode(t, `[{"id":"a","type":"review","labell":"x","retry_config":{"retry_from_step_id":"a","jitter":1}}]`, Options{AllowUnknownFields: true})
	if l.HasErrors() || len(l.Of(diag.Warning)) != 2 {
		t.Fatalf("%v", lines(l, diag.Warning))
	}
	if got.Steps[0].Retry == nil || got.Steps[0].Retry.Max != 1 {
		t.Errorf("%+v", got.Steps[0].Retry)
	}
	_, l = decode(t, `[{"id":"a","type":"reviu","labell":"x"}]`, Options{AllowUnknownFields: true})
	if got := lines(l, diag.Error); len(got) != 1 || !strings.Contains(got[0], "did you mean 'review'?") {
		t.Errorf("%v", got)
	}
}

func TestBaseFields(t *testing.T) {
	got, l := decode(t, `[
  {"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm","version":3,"depends_on":null,"fail_task_on_error":false,"timeout_seconds":90},
  {"id":"b","type":"review","timeout_seconds":5,"always":true,"depends_on":[{"task_step_id":"a"},"a"],
   "retry_config":{"go_to_step_id":"a","max_retries":3,"backoff_seconds":0.5}},
  {"id":"c","type":"reset_env","env_id":"e"},
  {"id":"d","type":"reset_env","env_id":"e","fail_task_on_error":true,"depends_on":[]},
  {"id":"e","type":"teardown_sandboxes","sandbox_names":["b"]}
]`, Options{})
	if len(l) > 0 {
		t.Fatal(lines(l, diag.Error))
	}
	a, b := got.Steps[0], got.Steps[1]
	if !a.Tolerated || a.Timeout != 90*time.Second || len(a.Deps) != 0 {
		t.Errorf("a: %+v", a)
	}
	if b.Timeout != 0 || !b.Always || !slices.Equal(b.Deps, []int{0}) {
		t.Errorf("b: %+v", b)
	}
	if r := b.Retry; r == nil || r.From != 0 || r.Max != 3 || r.Backoff != 500*time.Millisecond {
		t.Errorf("b: %+v", r)
	}
	if !got.Steps[2].Tolerated || got.Steps[3].Tolerated || !got.Steps[4].Tolerated {
		t.Error("fail_task_on_error of reset_env and teardown_sandboxes")
	}
	if len(got.Steps[3].Deps) != 0 || !slices.Equal(got.Steps[4].Deps, []int{0, 1, 2, 3}) {
		t.Errorf("deps: %v, %v", got.Steps[3].Deps, got.Steps[4].Deps)
	}
}
