package bundlerun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

func TestRunStoredWithSeedsAndParams(t *testing.T) {
	p := newPlace(t)
	var mu sync.Mutex
	var seen []string
	p.execs["agent_prompt_response_verifier"] = executorFunc(func(_ context.Context, c *step.Call) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s %s %v", c.Doc.Get("prompt_id").Text(), c.Doc.Get("verifier_id").Text(), c.Seed["who"], c.Models["agent"]))
		return nil
	})
	ref := p.put(t, "@local/t", `[{"id": "v", "type": "agent_prompt_response_verifier", "prompt_id": "ask <who>", "verifier_id": "x",
		"criteria": [{"type": "response_contains", "needles": ["<what>"]}]}]`)
	req := StoredRequest{
		Tasks: []taskstore.TaskRef{ref}, K: 2, Concurrency: 1,
		Seeds: []Seed{{Name: "first", Values: map[string]string{"who": "ann", "what": "1"}}, {Name: "second", Values: map[string]string{"who": "bob", "what": "2"}}},
		Options: runlog.Options{
			Models: map[string]string{"agent": "m1"}, Params: map[string]map[string]json.RawMessage{"v": {"verifier_id": json.RawMessage(`"y <who>"`)}},
		},
	}
	s, err := p.process(-1).RunStored(t.Context(), req, &reporter{})
	if err != nil || len(s.Runs) != 4 || s.Unscored != 4 {
		t.Fatalf("%+v %v", s, err)
	}
	want := "ask ann y ann ann m1|ask bob y bob bob m1|ask ann y ann ann m1|ask bob y bob bob m1"
	if got := strings.Join(seen, "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	sum, err := p.store.Runs().Get(t.Context(), s.Runs[1].ID)
	if err != nil || sum.Labels["seed"] != "second" || sum.Labels["model.agent"] != "m1" || sum.Options.Seed["who"] != "bob" || s.Runs[1].Row != "second" {
		t.Errorf("%+v %v", sum, err)
	}

	req.Seeds = append(req.Seeds, Seed{Name: "third", Values: map[string]string{"who": "eve"}})
	req.Options.Params = map[string]map[string]json.RawMessage{"v": {"criteria": json.RawMessage(`[]`)}}
	req.Seeds = append(req.Seeds, Seed{Name: "fourth", Values: map[string]string{}})
	_, err = p.process(-1).RunStored(t.Context(), req, &reporter{})
	if _, refused := errors.AsType[*diag.Refusal](err); !refused || !strings.Contains(err.Error(), "seed 'fourth': the placeholder <who> is left") {
		t.Errorf("%v", err)
	}
	if len(seen) != 4 {
		t.Error("something ran")
	}
}

// TestColumnsAreJudgedOnce: rows share their columns, so what is wrong with those is told of the first row alone, and the column that names rows
// need not be asked for.
func TestColumnsAreJudgedOnce(t *testing.T) {
	p := newPlace(t)
	ref := p.put(t, "@local/t", `[{"id": "<who>", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"}]`)
	rows := func(columns ...string) (out []Seed) {
		for _, name := range []string{"first", "second", "third"} {
			row := Seed{Name: name, Key: "id", Values: map[string]string{"id": name}}
			for _, c := range columns {
				row.Values[c] = "1"
			}
			out = append(out, row)
		}
		return out
	}
	rep := &reporter{}
	_, err := p.process(-1).RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}, Seeds: rows("who", "more"), DryRun: true}, rep)
	if text := strings.Join(rep.lines, "\n"); err != nil || strings.Count(text, "used by no step") != 1 || !strings.Contains(text, "seed 'first': the seed 'more' is used by no step") {
		t.Errorf("%v %v", text, err)
	}
	_, err = p.process(-1).RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}, Seeds: rows(), DryRun: true}, rep)
	if err == nil || strings.Count(err.Error(), "the placeholder <who> is left") != 1 {
		t.Errorf("%v", err)
	}
}

// looker is a slog.Handler that keeps everything.
type looker struct {
	mu sync.Mutex
	b  bytes.Buffer
	slog.Handler
}

func newLooker() *looker {
	l := &looker{}
	l.Handler = slog.NewJSONHandler(lockedWriter{l}, &slog.HandlerOptions{Level: slog.LevelDebug})
	return l
}

type lockedWriter struct{ l *looker }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.b.Write(b)
}

// keys is a run.Secrets.
type keys map[string]string

func (k keys) Resolve(_ context.Context, reference string) (string, error) {
	if v, ok := k[reference]; ok {
		return v, nil
	}
	return "", errors.New("there is no " + reference)
}

// TestCanaries hands secrets to a step that puts them everywhere it can, and looks for them in every place that a run leaves traces in.
func TestCanaries(t *testing.T) {
	canaries := keys{"secret:KEY": "canary-\"one\"\\x", "env:NAME": "canary-two\ncanary-three", "secret:NUMBER": "7351946028"}
	for _, fail := range []bool{false, true} {
		p := newPlace(t)
		p.execs["run_container_unit_tests_verifier"] = executorFunc(func(_ context.Context, c *step.Call) error {
			var all []string
			for _, v := range c.Doc.Get("env_vars").Members() {
				all = append(all, v.Text())
			}
			text := strings.Join(all, " and ")
			if !strings.Contains(text, canaries["secret:KEY"]) || !strings.Contains(text, canaries["env:NAME"]) {
				return errors.New("the step doesn't get its secrets")
			}
			c.Log.Info("in a message: "+text, "attr", text, text, 1, "list", []string{text}, slog.Group("g", "in", text), "number", 7351946028)
			c.Log.With("with", text).Debug("quietly " + text)
			c.Log.Warn(strings.Repeat("long ", 20_000) + text)
			for i := range len(text) { // cut at every place
				c.Log.Info(text[:i], "stream", "stdout")
				c.Log.Info(text[i:]+".", "stream", "stdout")
			}
			_ = c.Out.Set("metadata/"+canaries["secret:NUMBER"], map[string]any{"a": text, text: 7351946028, "big": strings.Repeat("x", 100_000) + text})
			if fail {
				return step.Errorf("TestError", "it says %q", text)
			}
			return nil
		})
		ref := p.put(t, "@local/t", `[{"id": "box", "type": "deploy_sandbox", "sandbox_name": "b", "sandbox_mode": "vm"},
			{"id": "leak", "type": "run_container_unit_tests_verifier", "sandbox_name": "b", "container_name": "c", "command": "x",
			"env_vars": {"A": "secret:KEY", "B": "env:NAME", "C": "secret:NUMBER", "D": "plain"}}]`)
		e := p.process(-1)
		look, rep := newLooker(), &reporter{}
		e.Log, e.Secrets, e.Redact = slog.New(look), canaries, &redact.Redactor{}
		s, err := e.RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}}, rep)
		if err != nil {
			t.Fatal(err)
		}
		wantStatus := runlog.Unscored
		if fail {
			wantStatus = runlog.Failed
		}
		if s.Runs[0].Status != wantStatus || fail && !strings.Contains(s.Runs[0].Failures[0].Error, redact.Mask) {
			t.Errorf("%+v", s.Runs[0])
		}
		sinks := map[string]string{"the program's log": look.b.String(), "the reporter": strings.Join(rep.lines, "\n")}
		summary, _ := json.Marshal(s)
		sinks["the summary"] = string(summary)
		rec, _ := runlog.Load(t.Context(), p.store.Runs(), s.Runs[0].ID)
		record, _ := json.Marshal(rec)
		sinks["the record"] = string(record)
		n := 0
		for ev := range p.store.Runs().Events(t.Context(), s.Runs[0].ID, 0) {
			sinks[fmt.Sprintf("event %d %s", ev.Seq, ev.Kind)] = string(ev.Data)
			n++
		}
		docs, err := p.store.List(t.Context(), store.Query{Kind: store.Blob, Prefix: OutputPrefix(s.Runs[0].ID)})
		if err != nil || len(docs.Docs) == 0 {
			t.Errorf("no objects: %v", err)
		}
		for _, d := range docs.Docs {
			var o runlog.Object
			_ = json.Unmarshal(d.Body, &o)
			b, err := objects{p.store}.Read(t.Context(), o)
			if err != nil || int64(len(b)) != o.Size {
				t.Error(err)
			}
			sinks["object "+o.Digest] = string(b)
		}
		for where, text := range sinks {
			for _, c := range []string{"canary", "anary-tw", "-three", "7351946028", "one\\\"\\"} {
				if i := strings.Index(text, c); i >= 0 {
					t.Errorf("%s holds %q: …%s…", where, c, text[max(0, i-60):min(len(text), i+60)])
				}
			}
		}
		if n < 100 {
			t.Errorf("only %d events", n)
		}
	}
}

func TestUnknownSecretIsRefusedBeforehand(t *testing.T) {
	p := newPlace(t)
	ref := p.put(t, "@local/t", `[{"id": "box", "type": "deploy_sandbox", "sandbox_name": "b", "sandbox_mode": "vm", "env_vars": {"A": "secret:NONE", "B": "secret: no reference"}}]`)
	e := p.process(-1)
	e.Secrets, e.Redact = keys{}, &redact.Redactor{}
	_, err := e.RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}}, &reporter{})
	if err == nil || !strings.Contains(err.Error(), "step 'box': env_vars.A: there is no secret:NONE") || strings.Contains(err.Error(), "env_vars.B") {
		t.Error(err)
	}
}

// TestLongOutputs resumes a run whose steps left more than events hold.
func TestLongOutputs(t *testing.T) {
	p := newPlace(t)
	long := strings.Repeat("0123456789", 20_000)
	p.execs["review"] = executorFunc(func(_ context.Context, c *step.Call) error {
		c.Log.Info(long)
		return errors.Join(c.Out.Set("metadata/long", long), c.Out.Set("metadata/short", "s"))
	})
	p.execs["agent_prompt_response_verifier"] = executorFunc(func(_ context.Context, c *step.Call) error {
		var got, short string
		if _, err := c.State.Get("metadata/long", &got); err != nil || got != long {
			return fmt.Errorf("%d bytes, %w", len(got), err)
		}
		_, err := c.State.Get("metadata/short", &short)
		return errors.Join(err, c.Out.Set(step.Child(step.VerificationsPath, short), step.Verification{Score: 1, Results: []step.Row{{"justification": long}}}))
	})
	id := p.until(t, p.put(t, "@local/t", `[{"id": "a", "type": "review"},
		{"id": "b", "type": "agent_prompt_response_verifier", "prompt_id": "x", "criteria": [{"type": "response_contains", "needles": ["x"]}]}]`), runlog.Options{}, "a")
	for e := range p.store.Runs().Events(t.Context(), id, 0) {
		if len(e.Data) > maxEvent {
			t.Errorf("event %d (%s) has %d bytes", e.Seq, e.Kind, len(e.Data))
		}
		var line runlog.LogLine
		if e.Kind == runlog.StepLog && (json.Unmarshal(e.Data, &line) != nil || line.Object == nil || line.Object.Size != int64(len(long))) {
			t.Errorf("%.200s", e.Data)
		}
	}
	r, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{}, &reporter{})
	if err != nil || r.Summary.Runs[0].Status != runlog.Passed || r.Steps[0].Action != run.Kept {
		t.Errorf("%+v %v", r, err)
	}
	rec, err := p.process(-1).Record(t.Context(), id)
	var v step.Verification
	if err != nil || json.Unmarshal(rec.Verified["s"], &v) != nil || len(v.Results) != 1 || v.Results[0]["justification"] != long {
		t.Errorf("%v %.200s", err, rec.Verified["s"])
	}
}

const maxEvent = 66 << 10

// TestMachineHoldsRunsBack has room for one run until that one has ended.
func TestMachineHoldsRunsBack(t *testing.T) {
	p := newPlace(t)
	var looks, under, most atomic.Int32
	var ended atomic.Bool
	p.execs["review"] = executorFunc(func(context.Context, *step.Call) error {
		most.Store(max(most.Load(), under.Add(1)))
		time.Sleep(300 * time.Millisecond)
		under.Add(-1)
		ended.Store(true)
		return nil
	})
	e := p.process(-1)
	e.Machine = &Machine{Floors: DefaultFloors(), Free: func() Free {
		if looks.Add(1) == 1 || ended.Load() {
			return Free{Memory: 1 << 40, Disk: 1 << 40, Pids: 1000}
		}
		return Free{Memory: 1 << 20, Disk: 1 << 40, Pids: 1000}
	}}
	rep := &holding{}
	ref := p.put(t, "@local/t", `[{"id": "b", "type": "review"}]`)
	s, err := e.RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}, K: 2, Concurrency: 2}, rep)
	if err != nil || s.Unscored != 2 || most.Load() != 1 {
		t.Fatalf("%d at once, %+v %v", most.Load(), s, err)
	}
	if fmt.Sprint(rep.why) != "[0.0 GB of memory are free, and 0.3 GB have to stay free]" {
		t.Error(rep.why)
	}
}

// holding is a Reporter that is told why runs wait.
type holding struct {
	reporter
	why []string
}

func (h *holding) Holding(why string) { h.why = append(h.why, why) }

func TestMachineAdmits(t *testing.T) {
	free := Free{Memory: 1 << 40, Disk: 100 << 20, Pids: -1}
	m := &Machine{Floors: DefaultFloors(), Steps: 2, Free: func() Free { return free }}
	rep := &holding{}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := m.admit(ctx, rep); !errors.Is(err, context.DeadlineExceeded) || len(rep.why) != 1 || rep.why[0] != "0.1 GB of disk are free, and 0.5 GB have to stay free" {
		t.Error(err, rep.why)
	}
	for want, f := range map[string]Free{
		"0.0 GB of memory are free": {Memory: 1, Disk: -1, Pids: -1}, "7 more processes can be made": {Memory: -1, Disk: -1, Pids: 7}, "": {Memory: -1, Disk: -1, Pids: -1},
	} {
		m := &Machine{Floors: DefaultFloors(), Free: func() Free { return f }}
		if why := m.Enter(false); !strings.HasPrefix(why, want) || (why == "") != (want == "") {
			t.Errorf("%q, want %q", why, want)
		}
		if why := m.Enter(true); why != "" {
			t.Errorf("a run with nothing under way waits: %s", why)
		}
	}
	free.Disk, m.seen = 1<<40, time.Time{}
	if a, b, c := m.Enter(false), m.Enter(false), m.Enter(false); a != "" || b != "" || c != "2 steps are under way, the most at once" {
		t.Error(a, b, c)
	}
	m.Leave()
	if why := m.Enter(false); why != "" {
		t.Error(why)
	}
}

func TestLook(t *testing.T) {
	f := Look(t.TempDir() + "/not/there/yet")
	if f.Disk <= 0 || f.Memory <= 0 || f.Pids <= 0 {
		t.Errorf("%+v", f)
	}
}
