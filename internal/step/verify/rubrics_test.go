package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/trajectory"
)

// judges answers for models by name.
type judges struct {
	mu    sync.Mutex
	say   func(name string, r *model.Request) (string, error)
	asked []model.Request
}

func (j *judges) Name(_ context.Context, role string, chosen map[string]string, own string) (string, error) {
	if n := chosen[role]; n != "" {
		return n, nil
	}
	return own, nil
}
func (j *judges) Check(context.Context, string, string) error { return nil }
func (j *judges) Model(_ context.Context, name, _ string) (model.Model, error) {
	return one{j, name}, nil
}

type one struct {
	j    *judges
	name string
}

func (o one) Generate(ctx context.Context, r *model.Request) (*model.Response, error) {
	o.j.mu.Lock()
	o.j.asked = append(o.j.asked, *r)
	o.j.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	text, err := o.j.say(o.name, r)
	if err != nil {
		return nil, err
	}
	return &model.Response{Stop: model.StopEnd, Message: model.Text(model.Assistant, text), Usage: model.Usage{Input: 100, Output: 10, USD: 0.01, Priced: true}}, nil
}

// bench is a rig in which an agent has answered a prompt, with a trajectory of two turns and three screenshots.
type bench struct {
	*steptest.Rig
	judges *judges
	panel  Panel
	exec   *RubricsVerifier
}

func newBench(t *testing.T, say func(string, *model.Request) (string, error)) *bench {
	b := &bench{Rig: steptest.New(t, fake.Options{}), judges: &judges{say: say}}
	b.exec = NewRubricsVerifier(RubricsOptions{Store: b.Store, Models: b.judges, Panel: func(context.Context) (Panel, error) { return b.panel, nil }})
	b.Must(leaves(func(c *step.Call) error {
		return errors.Join(
			c.Out.Append(promptsPath, map[string]any{
				"prompt_id": "p", "prompt_text": "Archive the mail.", "response": "Done, both turns.", "agent_name": "a",
				"agent_trajectory_object_url": b.trajectory(),
			}),
			c.Out.Append(promptsPath, map[string]any{"prompt_id": "broken", "response": "x", "error_type": "agent_error", "error_message": "gave up"}),
			c.Out.Append("metadata/agent_trigger_firings", map[string]any{"trigger": "mail-came"}),
			c.Out.Set(step.Child(step.VerificationsPath, "cart"), map[string]any{"score": 0.25, "results": []any{map[string]any{"id": "x"}}}),
		)
	}), `{"id": "ask", "type": "review"}`)
	return b
}

// leaves is an executor of a test's own.
type leaves func(*step.Call) error

func (f leaves) Run(_ context.Context, c *step.Call) error { return f(c) }

func (b *bench) object(text string) string {
	b.T.Helper()
	s, err := b.Store.Begin(b.T.Context())
	if err != nil {
		b.T.Fatal(err)
	}
	d, _, err := s.Put(strings.NewReader(text))
	if err == nil {
		err = s.Commit(b.T.Context())
	}
	if err != nil {
		b.T.Fatal(err)
	}
	return string(d)
}

func (b *bench) trajectory() string {
	var events []trajectory.Event
	for turn := 1; turn <= 2; turn++ {
		events = append(events, trajectory.Event{Kind: trajectory.Said, Source: trajectory.User, Text: fmt.Sprintf("please %d", turn)})
		for i := 1; i <= 2; i++ {
			id := fmt.Sprintf("c%d%d", turn, i)
			events = append(events,
				trajectory.Event{
					Kind: trajectory.Answered, Reasoning: "secret thought", Usage: &trajectory.Usage{Input: 1, Output: 1},
					Calls: []trajectory.Call{{ID: id, Name: []string{"", "click", "scroll"}[i], Arguments: json.RawMessage(`{"x": 1}`)}},
				},
				trajectory.Event{
					Kind: trajectory.Returned, Call: id, Text: "result of " + id,
					Images: []trajectory.Image{{Media: "image/png", Path: b.object("picture " + id)}},
				})
		}
		events = append(events, trajectory.Event{Kind: trajectory.Answered, Text: fmt.Sprintf("answer %d", turn), Usage: &trajectory.Usage{Input: 1, Output: 1}})
	}
	t := trajectory.Fold(trajectory.AgentInfo{Name: "loop", Version: "1"}, "s", events)
	if err := t.Check(); err != nil {
		b.T.Fatal(err)
	}
	doc, err := json.Marshal(t)
	if err != nil {
		b.T.Fatal(err)
	}
	return b.object(string(doc))
}

func (b *bench) verify(id, more string) error {
	b.T.Helper()
	return b.Do(b.exec, fmt.Sprintf(`{"id": %q, "type": "rubrics_verifier", "prompt_id": "p", "use_agent_judge": false, "default_model": "m", %s}`, id, more))
}

// entry is what the verifier left, whole.
func (b *bench) entry(id string) map[string]any {
	b.T.Helper()
	var v map[string]any
	if ok, err := b.View().Get(step.Child(step.VerificationsPath, id), &v); !ok || err != nil {
		b.T.Fatalf("no verification %s: %v", id, err)
	}
	return v
}

const twoCriteria = `"criteria": [{"id": "polite", "criterion": "is polite"}, {"id": "rude", "criterion": "curses", "weight": -1}]`

func verdict(scores ...float64) string {
	var out []string
	for i, s := range scores {
		out = append(out, fmt.Sprintf(`{"id":"c%d","score":%g,"justification":"because of what step %d shows there"}`, i+1, s, i+1))
	}
	return `{"results":[` + strings.Join(out, ",") + `]}`
}

func TestRubricBinary(t *testing.T) {
	b := newBench(t, func(string, *model.Request) (string, error) { return verdict(1, 0), nil })
	if err := b.verify("v", twoCriteria+`, "score_aggregator": "weighted_average", "grade_up_to_turn": 1, "grading_policy_prompt": "Be fair.",
		"run_context_for_judge": ["conversation", "trigger_log"], "context_facts_for_judge": {"cart": "verifications.cart.score", "first": "verifications.cart.results.0.id"}`); err != nil {
		t.Fatal(err)
	}
	v := b.entry("v")
	if v["score"] != 0.0 || v["format"] != "rubric_binary" || v["graded_up_to_turn"] != 1.0 || v["judge_cost"].(map[string]any)["input_tokens"] != 100.0 {
		t.Errorf("%v", v)
	}
	var judge string
	if ok, _ := b.View().Get("metadata/models/judge/v", &judge); !ok || judge != "m" {
		t.Errorf("the model on record is %q", judge)
	}
	text := b.judges.asked[0].Messages[0].Text()
	for _, want := range []string{"Archive the mail.", "answer 1", "call c11: click", "result of c11", "user: please 1", "mail-came", "cart: 0.25", "first: x", "Be fair."} {
		if !strings.Contains(text, want) {
			t.Errorf("the judge doesn't read %q in\n%s", want, text)
		}
	}
	for _, not := range []string{"answer 2", "please 2", "Done, both turns.", "secret thought"} {
		if strings.Contains(text, not) {
			t.Errorf("the judge reads %q, which is beyond the turn or filtered", not)
		}
	}
	if err := b.verify("w", twoCriteria+`, "context_facts_for_judge": {"x": "verifications.none.score"}`); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
}

// malformedAnswers must never become a score.
var malformedAnswers = []string{
	``, `PASS`, `0.5`, `1`, `[]`, `{}`, `null`, `{"results":[]}`, `Score: 1/1. {"results":`, `{"results":[{"id":"c1","score":0.5,"justification":"j"}]}`,
	verdict(1), verdict(1, 2), verdict(1, 0.5), verdict(1, 1) + verdict(0, 0), "I think " + verdict(1, 1), strings.Replace(verdict(1, 1), `"score":1`, `"score":"1"`, 1),
	strings.Replace(verdict(1, 1), `"score":1`, `"score":true`, 1), strings.Replace(verdict(1, 1), `"score":1`, `"score":1,"score":0`, 1),
	strings.Replace(verdict(1, 1), "c2", "rude", 1), verdict(1, 1)[:30], strings.Replace(verdict(1, 1), `{"results"`, `{"confidence":0.9,"results"`, 1),
}

func TestMalformedVerdictsAreNoScore(t *testing.T) {
	for i, raw := range malformedAnswers {
		b := newBench(t, func(string, *model.Request) (string, error) { return raw, nil })
		if err := b.verify("v", twoCriteria); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		v := b.entry("v")
		if _, scored := v["score"]; scored || v["unscored"] == "" || fmt.Sprint(v["raw"]) != raw && !(raw == "" && v["raw"] == nil) {
			t.Errorf("%d: %s\nleft %v", i, raw, v)
		}
		if len(b.judges.asked) != 3 {
			t.Errorf("asked %d times", len(b.judges.asked))
		}
		if err := b.Do(NewAggregateVerifiers(), `{"id": "all", "type": "aggregate_verifiers", "verifier_ids": ["cart", "v"]}`); err != nil {
			t.Fatal(err)
		}
		if v := b.entry("all"); v["score"] != nil || !strings.Contains(fmt.Sprint(v["unscored"]), "no score of v") {
			t.Errorf("an aggregate of what has no score is %v", v)
		}
	}
}

func TestJudgesFaultsAreTheMachinerys(t *testing.T) {
	for _, kind := range []string{model.RateLimited, model.Overloaded, model.Unreachable, model.Denied, model.TooLong, model.Invalid} {
		b := newBench(t, func(string, *model.Request) (string, error) { return "", &model.Error{Kind: kind} })
		if err := b.verify("v", twoCriteria); steptest.ErrorType(err) != "infra: JudgeError" {
			t.Errorf("%s: %s %v", kind, steptest.ErrorType(err), err)
		}
	}
	b := newBench(t, func(string, *model.Request) (string, error) { return "", context.DeadlineExceeded })
	if err := b.verify("v", twoCriteria+`, "judge_timeout_seconds": 0.001`); !step.IsInfra(err) && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestPanelAndRepeats(t *testing.T) {
	b := newBench(t, func(name string, r *model.Request) (string, error) {
		if name == "strict" {
			return verdict(0, 1), nil
		}
		if r.Variant == 2 {
			return "no idea", nil
		}
		return verdict(1, 1), nil
	})
	b.panel = Panel{Models: []string{"kind", "strict"}, Repeats: 3}
	if err := b.verify("v", twoCriteria+`, "score_aggregator": "weighted_average"`); err != nil {
		t.Fatal(err)
	}
	v := b.entry("v")
	// Five verdicts: two say 1 of polite, three 0; one opinion is none.
	if v["judge_agreement"] != 0.7 || v["judge_opinions_without_verdict"] != 1.0 || v["judge_repeats"] != 3.0 {
		t.Errorf("%v", v)
	}
	r := v["results"].([]any)[0].(map[string]any)
	if r["score"] != 0.4 || r["result"] != false {
		t.Errorf("%v", r)
	}
}

func TestBatches(t *testing.T) {
	var criteria []string
	for i := range 7 {
		criteria = append(criteria, fmt.Sprintf(`{"id": "k%d", "criterion": "criterion %d holds"}`, i, i))
	}
	all := `"criteria": [` + strings.Join(criteria, ",") + `], "judge_batch_size": 3, "score_aggregator": "weighted_average"`
	b := newBench(t, func(_ string, r *model.Request) (string, error) {
		n := strings.Count(r.Messages[0].Text(), `"criterion":`)
		s := make([]float64, n)
		s[0] = 1
		return verdict(s...), nil
	})
	if err := b.verify("v", all); err != nil {
		t.Fatal(err)
	}
	if v := b.entry("v"); v["judge_batches"] != 3.0 || v["score"] != 3.0/7 || len(v["results"].([]any)) != 7 {
		t.Errorf("%v", v)
	}
	lazy := newBench(t, func(_ string, r *model.Request) (string, error) {
		return strings.ReplaceAll(verdict(1, 1, 1), "because of what step", "as is seen in step"), nil
	})
	if err := lazy.verify("v", `"criteria": [`+strings.Join(criteria[:3], ",")+`], "judge_batch_size": 3`); err != nil || lazy.entry("v")["unscored"] != nil {
		t.Error("three long enough justifications are a verdict", err)
	}
	short := newBench(t, func(string, *model.Request) (string, error) {
		return `{"results":[{"id":"c1","score":1,"justification":"ok"},{"id":"c2","score":1,"justification":"ok"},{"id":"c3","score":1,"justification":"ok"}]}`, nil
	})
	if err := short.verify("v", `"criteria": [`+strings.Join(criteria[:3], ",")+`], "judge_batch_size": 3`); err != nil || short.entry("v")["unscored"] == nil {
		t.Error("what says hardly anything is a verdict", err)
	}
}

func TestPartialAndMistakes(t *testing.T) {
	b := newBench(t, func(_ string, r *model.Request) (string, error) {
		if strings.Contains(string(r.Schema), "findings") {
			return `{"findings":[{"severity":"medium","step":2,"should":"wait","description":"hasty"}],"coverage":0.9,"botched":false,"summary":"fine"}`, nil
		}
		return verdict(4, 0.5), nil
	})
	if err := b.verify("v", `"criteria": [{"id": "a", "criterion": "x", "outcomes": {"min": 0, "max": 5}, "pass_threshold": 0.9}, {"id": "b", "criterion": "y",
		"outcomes": [{"label": "none", "score": 0}, {"label": "half", "score": 0.5}, {"label": "all", "score": 1}]}], "output_format": "rubric_partial", "score_aggregator": "weighted_average"`); err != nil {
		t.Fatal(err)
	}
	v := b.entry("v")
	r := v["results"].([]any)[0].(map[string]any)
	if v["score"] != 0.65 || r["raw_score"] != 4.0 || r["score"] != 0.8 || r["result"] != false {
		t.Errorf("%v", v)
	}
	if err := b.verify("m", twoCriteria+`, "output_format": "trajectory_mistakes"`); err != nil {
		t.Fatal(err)
	}
	if v := b.entry("m"); v["score"].(float64) < 0.8199 || v["score"].(float64) > 0.8201 || v["coverage"] != 0.9 {
		t.Errorf("%v", v)
	}
}

func TestEvidenceFrames(t *testing.T) {
	b := newBench(t, func(_ string, r *model.Request) (string, error) {
		if strings.Contains(string(r.Schema), "findings") {
			return `{"findings":[],"coverage":1,"botched":false,"summary":"fine"}`, nil
		}
		frame := ""
		for _, p := range r.Messages[0].Parts {
			if name, ok := strings.CutPrefix(p.Text, "Frame "); ok {
				frame = strings.TrimSuffix(name, ":")
			}
		}
		return fmt.Sprintf(`{"results":[{"id":"c1","score":1,"justification":"seen","frame":%q,"evidence_status":"visible"}]}`, frame), nil
	})
	filter := `"trajectory_filter": {"compaction_type": "screenshot", "frame_strategy": "per_criterion", "screenshot_last_n": 1, "evidence_exclude_pattern": "^SCROLL", "trajectory_text": "action_log"}`
	if err := b.verify("v", `"criteria": [{"id": "end", "criterion": "x", "backend": "final_state"}, {"id": "way", "criterion": "y", "backend": "intermediate"}],
		"output_format": "rubric_evidence_with_mistakes", `+filter); err != nil {
		t.Fatal(err)
	}
	frames := func(r model.Request) (n int) {
		for _, p := range r.Messages[0].Parts {
			if p.Media != "" {
				n++
			}
		}
		return n
	}
	if len(b.judges.asked) != 3 {
		t.Fatalf("asked %d times", len(b.judges.asked))
	}
	seen := map[int]int{}
	for _, r := range b.judges.asked[:2] {
		seen[frames(r)]++
		if text := r.Messages[0].Text(); !strings.Contains(text, "click {") || strings.Contains(text, "result of") {
			t.Errorf("no action log:\n%s", text)
		}
	}
	if seen[1] != 1 || seen[2] != 1 { // the last click, and both clicks: scrolls are no evidence
		t.Errorf("frames by criterion: %v", seen)
	}
	if v := b.entry("v"); v["score"] != 1.0 || v["results"].([]any)[0].(map[string]any)["evidence_status"] != "visible" {
		t.Errorf("%v", v)
	}
	if v := b.entry("v-trajectory-mistakes"); v["score"] != 1.0 {
		t.Errorf("%v", v)
	}
}

func TestSpreadKeepsToTheBudget(t *testing.T) {
	var all []shot
	for i := range 100 {
		all = append(all, shot{name: fmt.Sprint(i), always: i == 50})
	}
	for _, budget := range []int{6, 7, 50, 95} {
		f := filter{budget: budget, lastN: 3}
		got := f.spread(all)
		has := map[string]bool{}
		for _, s := range got {
			has[s.name] = true
		}
		if len(got) != budget || !has["99"] || !has["97"] || !has["50"] || !has["0"] {
			t.Errorf("budget %d: %d frames", budget, len(got))
		}
	}
}

func TestResponseVerifier(t *testing.T) {
	b := newBench(t, nil)
	e := NewResponseVerifier()
	b.Must(e, `{"id": "v", "type": "agent_prompt_response_verifier", "prompt_id": "p", "score_aggregator": "weighted_average", "criteria": [
		{"type": "response_contains", "needles": ["Done", "both"]}, {"type": "response_contains", "needles": ["Done", "neither"]},
		{"type": "response_regex_present", "pattern": "done.*turns", "flags": ["IGNORECASE"]}, {"type": "response_regex_present", "pattern": "^turns"}]}`)
	if v := b.Verification("v"); v.Score != 0.5 || len(v.Results) != 4 || v.Results[1]["result"] != false || !strings.Contains(fmt.Sprint(v.Results[1]["justification"]), "neither") {
		t.Errorf("%+v", v)
	}
	b.Must(e, `{"id": "w", "type": "agent_prompt_response_verifier", "prompt_id": "broken", "criteria": [{"type": "response_contains", "needles": ["x"]}]}`)
	if v := b.Verification("w"); v.Score != 0 || !strings.Contains(fmt.Sprint(v.Results[0]["justification"]), "agent_error") {
		t.Errorf("%+v", v)
	}
	if err := b.Do(e, `{"id": "x", "type": "agent_prompt_response_verifier", "prompt_id": "never"}`); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
}

func TestAgentJudgesAreRefusedByName(t *testing.T) {
	b := newBench(t, nil)
	d := b.Doc(`{"id": "v", "type": "rubrics_verifier", "prompt_id": "p", ` + twoCriteria + `}`)
	if got := steptest.Texts(b.exec.Preflight(t.Context(), d, step.Plan{})); !strings.Contains(got, "use_agent_judge") {
		t.Error(got)
	}
	d = b.Doc(`{"id": "v", "type": "rubrics_verifier", "prompt_id": "p", "use_agent_judge": false, "default_model": "scripted:@local/none", ` + twoCriteria + `}`)
	if got := steptest.Texts(b.exec.Preflight(t.Context(), d, step.Plan{Type: b.Types})); !strings.Contains(got, "'@local/none'") {
		t.Error(got)
	}
}

func FuzzFacts(f *testing.F) {
	f.Add(`{"a":[1,{"b":2}]}`, "a.1.b")
	f.Fuzz(func(t *testing.T, text, path string) {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		if got, ok := inside(v, strings.Split(path, ".")); ok {
			if _, err := json.Marshal(got); err != nil {
				t.Error(err)
			}
		}
	})
}
