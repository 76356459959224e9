package task

import (
	"fmt"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`[` + box + `]`, diamond, `[]`, `{}`, `[1]`, `[{"id":"a"}]`, "[\n{\"id\":\"a\",\"type\":\"review\",\"depends_on\":\"x\"}]",
		`[{"id":"a","type":"load_artifact","artifacts":[{"id":1}],"urls":["%zz",{}]},{"id":"a","type":"verify_sandbox","criteria":[{"type":"probe_file_contains","paths":[],"expected":"("}]}]`,
		`[{"id":"a","type":"register_agent_triggers","triggers":[{"when":{"type":"any","of":[{"type":"env_trigger","env_id":"e"}]}}]}]`,
		`[{"id":"a","type":"review","retry_config":{"retry_from_step_id":"b","max_retries":99999999999999999999,"backoff_seconds":1e300},"timeout_seconds":1e300}]`,
		`[{"id":"a","type":"build_mcp_cli","env_id":"x/y"},{"id":"b","type":"prompt_agent","parts":[{"file":{}}],"model_params":{"user":1}}]`,
	} {
		f.Add([]byte(s))
	}
	kinds := step.Kinds()
	f.Fuzz(func(t *testing.T, src []byte) {
		tree, l := doc.ParseJSON("t.json", src)
		if l.HasErrors() {
			return
		}
		got, l := Decode("@local/t", tree.Root(), kinds, Options{})
		lines := strings.Count(string(src), "\n") + 1
		for _, p := range l {
			if p.Pos.File != "t.json" || p.Pos.Line < 1 || p.Pos.Line > lines || !p.Prefixed || p.Code == "" || p.Summary == "" {
				t.Errorf("%+v in %d lines", p, lines)
			}
			if s := p.String(); diag.Clean(s) != s {
				t.Errorf("not one clean line: %q", s)
			}
		}
		if got == nil {
			if !l.HasErrors() {
				t.Error("no task and no problem")
			}
			return
		}
		ancestors := got.Ancestors()
		for i := range got.Steps {
			for _, d := range got.Steps[i].Deps {
				if d >= i || !ancestors[i].Has(d) {
					t.Errorf("step %d waits for %d", i, d)
				}
			}
			if r := got.Steps[i].Retry; r != nil && r.From != i && !ancestors[i].Has(r.From) {
				t.Errorf("step %d goes back to %d", i, r.From)
			}
			if k := got.Steps[i].Kind; k != nil {
				k.Fill(got.Steps[i].Doc)
			}
		}
		same := got.Rewrite(func(_ int, r FoundRef) string { return r.Name })
		if len(same.Steps) != len(got.Steps) {
			t.Error("steps were lost")
		}
		_, _, _ = DecodeEval("@local/e", tree.Root())
	})
}

// longTask is a chain of n steps as an author writes one.
func longTask(n int) []byte {
	var b strings.Builder
	b.WriteString(`[{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"}`)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, `,
  {"id": "check-%d", "type": "verify_sandbox", "sandbox_name": "box", "verifier_id": "check-%d", "criteria": [
    {"type": "probe_file_contains", "criterion": "greets", "paths": ["hello.txt"], "expected": "^hello"},
    {"type": "bash_cmd_succeeds", "criterion": "check passes", "bash_cmd": "true"}]}`, i, i)
	}
	b.WriteString("]")
	return []byte(b.String())
}

func TestTooManySteps(t *testing.T) {
	src := "[" + strings.Repeat("{},", MaxSteps) + "{}]"
	if _, l := decode(t, src, Options{}); len(l) != 1 || !strings.Contains(l[0].String(), "has 10001 steps; 10000 is the most") {
		t.Errorf("%v", l[0])
	}
	got, l := decode(t, string(longTask(MaxSteps)), Options{})
	if len(l) > 0 || got.Ancestors()[MaxSteps-1].Len() != MaxSteps-1 {
		t.Errorf("%v", l)
	}
}

// BenchmarkDecode reads a task of 500 steps from its bytes.
func BenchmarkDecode(b *testing.B) {
	src := longTask(500)
	kinds := step.Kinds()
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		tree, l := doc.ParseJSON("t.json", src)
		if l.HasErrors() {
			b.Fatal(l.Err())
		}
		if _, l := Decode("@local/t", tree.Root(), kinds, Options{}); len(l) > 0 {
			b.Fatal(l.Err())
		}
	}
}

// BenchmarkKinds is what every start pays before its first task.
func BenchmarkKinds(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		step.Kinds()
	}
}

// TestManyWrongNames bounds what a hopeless document costs.
func TestManyWrongNames(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, `,{"id":"s%d","type":"revieww","depends_on":["t%d"]}`, i, i)
	}
	_, l := decode(t, "["+b.String()[1:]+"]", Options{})
	if got := len(l.Of(diag.Error)); got != 8000 {
		t.Errorf("%d problems", got)
	}
}
