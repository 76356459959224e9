package verify

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	goleak.VerifyTestMain(m)
}

// bash is a shell that knows a few command lines.
func bash(ctx context.Context, p *fake.Proc) guest.Exit {
	switch cmd := p.Argv[2]; {
	case cmd == "true":
		return fake.Code(0)
	case cmd == "pwd-is-base":
		return fake.Code(map[bool]int{true: 0, false: 9}[p.Dir == "/app/greeting"])
	case cmd == "loud":
		_, _ = io.WriteString(p.Stdout, strings.Repeat("out\n", 100000))
		_, _ = io.WriteString(p.Stderr, strings.Repeat("x", 5000)+" the end")
		return fake.Code(3)
	case cmd == "hang":
		<-ctx.Done()
		return guest.Exit{}
	case cmd == "signal":
		return guest.Exit{Signal: 9, OOM: true}
	default:
		_, _ = io.WriteString(p.Stderr, "no such file\n")
		return fake.Code(1)
	}
}

func rig(t *testing.T) *steptest.Rig {
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"bash": bash}, Files: map[string]string{
		"/app/greeting/hello.txt": "hello\n", "/etc/x": "abc", "/app/greeting/big": strings.Repeat("y", 1000),
	}})
	r.Box()
	return r
}

// rows are a verification's results in short: "1 ok: why", "0 no: why", "skipped: why".
func rows(v step.Verification) []string {
	var out []string
	for _, row := range v.Results {
		why, _ := row["justification"].(string)
		switch {
		case row["skipped"] == true:
			out = append(out, "skipped: "+why)
		case row["result"] == true && row["score"] == 1.0:
			out = append(out, "ok: "+why)
		case row["result"] == false && row["score"] == 0.0:
			out = append(out, "no: "+why)
		default:
			out = append(out, "odd row")
		}
	}
	return out
}

func TestVerifySandbox(t *testing.T) {
	r := rig(t)
	r.Must(NewVerifySandbox(r.Deploy), `{"id": "v", "type": "verify_sandbox", "sandbox_name": " box ", "base_dir": "/app/greeting", "verifier_id": "a/b", "criteria": [
		{"type": "probe_file_exists", "criterion": "there", "paths": ["hello.txt", "/etc/x", "../greeting"], "weight": 2, "own": {"k": [1]}},
		{"type": "probe_file_exists", "paths": ["hello.txt", "gone", "hello.txt/below"]},
		{"type": "probe_dir_exists", "paths": ["."]},
		{"type": "probe_dir_exists", "paths": ["hello.txt"]},
		{"type": "probe_file_contains", "paths": ["hello.txt", "ignored"], "expected": "^hel+o$"},
		{"type": "probe_file_contains", "paths": ["hello.txt"], "value": "bye"},
		{"type": "probe_file_contains", "paths": ["gone"], "expected": "x"},
		{"type": "bash_cmd_succeeds", "bash_cmd": "pwd-is-base"},
		{"type": "bash_cmd_succeeds", "bash_cmd": "nope"},
		{"type": "bash_cmd_succeeds", "bash_cmd": "signal"},
		{"type": "response_contains", "needles": ["x"]}]}`)
	v := r.Verification("a/b")
	r.Equal("rows", rows(v), []string{
		"ok: all there",
		"no: 'gone': does not exist; 'hello.txt/below': not a directory",
		"ok: all there",
		"no: 'hello.txt': not a folder",
		"ok: contains '^hel+o$'",
		"no: does not contain 'bye'",
		"no: 'gone': does not exist",
		"ok: exit 0",
		"no: exit 1: no such file",
		"no: exit 137, a process was killed for memory",
		"skipped: criteria of type 'response_contains' are not for verify_sandbox",
	})
	r.Equal("score, step", []any{v.Score, v.Step}, []any{0, "v"})
	r.Equal("a row carries its criterion", v.Results[0], json.RawMessage(`{"criterion":"there","criterion_index":0,"justification":"all there",`+
		`"own":{"k":[1]},"paths":["hello.txt","/etc/x","../greeting"],"result":true,"score":1,"skipped":false,"type":"probe_file_exists","weight":2}`))
	if n := len(r.Fake.Machines()[0].Commands()); n != 3 {
		t.Errorf("%d commands ran for 3 bash criteria", n)
	}
}

func TestScoreOfAll(t *testing.T) {
	r := rig(t)
	e := NewVerifySandbox(r.Deploy)
	for text, want := range map[string]float64{
		`"criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true"}, {"type": "probe_file_exists", "paths": ["/etc/x"]}]`: 1,
		`"criteria": []`:                  0,
		`"criteria": [{"type": "other"}]`: 0,
		`"score_aggregator": "any_pass", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true"}, {"type": "bash_cmd_succeeds", "bash_cmd": "no"}]`:                      1,
		`"score_aggregator": "weighted_average", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true", "weight": 3}, {"type": "bash_cmd_succeeds", "bash_cmd": "no"}]`: 0.75,
	} {
		r.Must(e, `{"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/", `+text+`}`)
		if v := r.Verification("v"); v.Score != want { // no verifier_id: the step's id
			t.Errorf("%s: %v, want %v", text, v.Score, want)
		}
	}
}

func TestCommandOutputIsBounded(t *testing.T) {
	r := rig(t)
	r.Must(NewVerifySandbox(r.Deploy), `{"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "loud"}]}`)
	got := rows(r.Verification("v"))[0]
	if !strings.HasPrefix(got, "no: exit 3: …xx") || !strings.HasSuffix(got, "x the end") || len(got) > 450 {
		t.Error(got)
	}
	// The whole is one entry, which the record of a run keeps as an object.
	if log := r.Log(); !strings.Contains(log, "[400000 bytes in all] out") || strings.Count(log, " bytes=400000") != 1 || strings.Count(log, "the end") > 4 {
		t.Errorf("%d bytes of log", len(log))
	}
}

func TestTimeoutIsARow(t *testing.T) {
	r := rig(t)
	r.Must(NewVerifySandbox(r.Deploy), `{"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/", "shell_timeout_seconds": 0.05,
		"criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "hang"}]}`)
	r.Equal("rows", rows(r.Verification("v")), []string{"no: timed out after 0.05s"})
}

func TestWhatCannotBeTriedNeverScores(t *testing.T) {
	const hang = `{"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "hang"}]}`
	const probe = `{"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/", "criteria": [{"type": "probe_file_exists", "paths": ["x"]}]}`
	t.Run("box dies during a command", func(t *testing.T) {
		r := rig(t)
		time.AfterFunc(20*time.Millisecond, r.Fake.Machines()[0].Kill)
		if err := r.Do(NewVerifySandbox(r.Deploy), hang); !step.IsInfra(err) || !errors.Is(err, guest.ErrGone) {
			t.Error(err)
		}
	})
	t.Run("box dies before a probe", func(t *testing.T) {
		r := rig(t)
		r.Fake.Machines()[0].Kill()
		for _, typ := range []string{probe, strings.Replace(probe, "probe_file_exists", "probe_file_contains", 1)} {
			if err := r.Do(NewVerifySandbox(r.Deploy), strings.Replace(typ, `["x"]`, `["x"], "expected": "x"`, 1)); !step.IsInfra(err) {
				t.Error(err)
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		r := rig(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := r.DoCtx(ctx, NewVerifySandbox(r.Deploy), hang); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if r.View().Under(step.VerificationsPath) != nil {
			t.Error("a cancelled verifier left a score")
		}
	})
	t.Run("no such sandbox", func(t *testing.T) {
		r := rig(t)
		err := r.Do(NewVerifySandbox(r.Deploy), strings.Replace(probe, `"box"`, `"nosuch"`, 1))
		if steptest.ErrorType(err) != "SandboxError" || err.Error() != "sandbox 'nosuch' is not deployed in this run" {
			t.Error(err)
		}
	})
}

func TestMissingFolderIsARow(t *testing.T) {
	r := rig(t)
	r.Must(NewVerifySandbox(r.Deploy), `{"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/nowhere", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true"}]}`)
	r.Equal("rows", rows(r.Verification("v")), []string{"no: the command can't be started: does not exist"})
}

func TestAggregateVerifiers(t *testing.T) {
	r := rig(t)
	e := NewVerifySandbox(r.Deploy)
	r.Must(e, `{"id": "a", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true", "weight": 3}, {"type": "x"}]}`)
	r.Must(e, `{"id": "b", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "no"}]}`)
	agg := NewAggregateVerifiers()
	r.Must(agg, `{"id": "both", "type": "aggregate_verifiers", "verifier_ids": ["a", "b"]}`)
	r.Must(agg, `{"id": "all", "type": "aggregate_verifiers", "verifier_ids": ["both"], "score_aggregator": "all_pass", "verifier_id": "named"}`)
	r.Must(agg, `{"id": "none", "type": "aggregate_verifiers"}`)
	r.Equal("scores", []any{r.Verification("both").Score, r.Verification("named").Score, r.Verification("none").Score}, []any{0.75, 0, 0})
	r.Equal("a row says where it is from", r.Verification("named").Results[2]["source_verifier_id"], "b")
	err := r.Do(agg, `{"id": "x", "type": "aggregate_verifiers", "verifier_ids": ["a", "p", "q"]}`)
	if steptest.ErrorType(err) != "NotFoundError" || !strings.Contains(err.Error(), "named p, q; there are a, b, both, named, none") {
		t.Error(err)
	}
}

func TestAggregate(t *testing.T) {
	row := func(result bool, kv ...any) step.Row {
		r := step.Row{"result": result, "score": map[bool]float64{true: 1, false: 0}[result]}
		for i := 0; i < len(kv); i += 2 {
			r[kv[i].(string)] = kv[i+1]
		}
		return r
	}
	for _, c := range []struct {
		rows               []step.Row
		all, any, weighted float64
	}{
		{nil, 0, 0, 0},
		{[]step.Row{{"skipped": true}}, 0, 0, 0},
		{[]step.Row{row(true), row(true)}, 1, 1, 1},
		{[]step.Row{row(true), row(false)}, 0, 1, 0.5},
		{[]step.Row{row(true, "weight", int64(3)), row(false)}, 0, 1, 0.75},
		{[]step.Row{row(true, "weight", 4.0), row(false, "weight", -1.0)}, 0, 1, 0.75},  // the bad thing is there: (4 - 1) / 4
		{[]step.Row{row(true, "weight", 4.0), row(true, "weight", -1.0)}, 1, 1, 1},      // it is not: no penalty
		{[]step.Row{row(true, "weight", 1.0), row(false, "weight", -5.0)}, 0, 1, 0},     // never below 0
		{[]step.Row{row(true, "weight", -1.0)}, 1, 1, 0},                                // no positive weight
		{[]step.Row{row(true, "weight", 0.0)}, 1, 1, 0},                                 //
		{[]step.Row{{"score": 0.5, "result": false}, {"score": 0.25}}, 0, 0, 0.375},     // partial scores
		{[]step.Row{{"result": true}, {"result": false}, {"skipped": true}}, 0, 1, 0.5}, // no score: the result
		{[]step.Row{row(true, "weight", nil)}, 1, 1, 1},
		{[]step.Row{{"score": 1.0, "result": "yes"}}, 0, 0, 1}, // only true passes
	} {
		got := []float64{Aggregate(c.rows, step.AllPass), Aggregate(c.rows, step.AnyPass), Aggregate(c.rows, step.WeightedAverage)}
		if got[0] != c.all || got[1] != c.any || got[2] != c.weighted {
			t.Errorf("%v: %v, want %v %v %v", c.rows, got, c.all, c.any, c.weighted)
		}
	}
}
