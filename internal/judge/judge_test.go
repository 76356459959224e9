package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/model"
)

// said answers requests with texts, in order; the last one for ever.
type said struct {
	mu    sync.Mutex
	texts []string
	asked []model.Request
	stop  string
	err   error
}

func (s *said) Generate(_ context.Context, r *model.Request) (*model.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	text := s.texts[min(len(s.asked), len(s.texts)-1)]
	s.asked = append(s.asked, *r)
	stop := s.stop
	if stop == "" {
		stop = model.StopEnd
	}
	return &model.Response{Stop: stop, Message: model.Text(model.Assistant, text), Usage: model.Usage{Input: 10, Output: 1}}, nil
}

func two() Case {
	return Case{Format: Binary, Task: "T", Reply: "R", Criteria: []Criterion{{ID: "polite", Text: "is polite to the customer"}, {ID: "rude", Text: "curses", Weight: -1}}}
}

const good = `{"results":[{"id":"c2","score":1,"justification":"no curse"},{"id":"c1","score":0,"justification":"curt"}]}`

func TestBinary(t *testing.T) {
	m := &said{texts: []string{good}}
	v, err := Ask(t.Context(), m, model.Request{Model: "j"}, two())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(v.Rows) != `[{polite 0 0 false curt  } {rude 1 1 true no curse  }]` || v.Retries != 0 || v.Raw != good {
		t.Errorf("%+v", v)
	}
	text := m.asked[0].Messages[0].Text()
	for _, want := range []string{"## What the agent was asked\nT", `"must_not_be": true`, `"id": "c1"`, "absent"} {
		if !strings.Contains(text, want) {
			t.Errorf("the judge doesn't read %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, `"polite"`) || !json.Valid(m.asked[0].Schema) {
		t.Error("authors' ids reach the judge, or the schema is none")
	}
}

// malformed are answers that must never be a score: each is asked for again, and then is none.
var malformed = []string{
	``, ` `, `null`, `0.5`, `"yes"`, `[]`, `{}`, `{"results":null}`, `{"results":[]}`, `PASS`,
	`The score is 1 for both.`,
	`I think: {"results":[{"id":"c1","score":1,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":1,"justification":"j"},{"id":"c1","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":1,"justification":"j"},{"id":"c3","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c01","score":1,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"polite","score":1,"justification":"j"},{"id":"rude","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":0.5,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":"1","justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":true,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":null,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":NaN,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":2,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":1},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":1,"justification":" "},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":1,"score":0,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","Score":0,"score":1,"justification":"j"},{"id":"c2","score":1,"justification":"j"}]}`,
	`{"results":[{"id":"c1","score":1,"justification":"j","sure":false},{"id":"c2","score":1,"justification":"j"}]}`,
	good + good,
	good + ` or maybe not`,
	"```json\n" + good,
	"```json\n" + good + "\n```\nand\n```json\n" + good + "\n```",
	good[:40],
}

func TestMalformedVerdicts(t *testing.T) {
	for _, raw := range malformed {
		m := &said{texts: []string{raw}}
		v, err := Ask(t.Context(), m, model.Request{}, two())
		var u *UnscoredError
		if !errors.As(err, &u) || u.Raw != raw || len(m.asked) != tries || len(v.Rows) != 0 || u.Usage.Input != 10*tries {
			t.Errorf("%s\ngave %+v, %v", raw, v, err)
		}
		m = &said{texts: []string{raw, "```json\n" + good + "\n```"}}
		v, err = Ask(t.Context(), m, model.Request{}, two())
		if err != nil || v.Retries != 1 || len(v.Rows) != 2 {
			t.Errorf("%s\nwas not asked for again: %+v, %v", raw, v, err)
		}
		if again := m.asked[1].Messages; len(again) != 3 || !strings.Contains(again[2].Text(), "can't be used") {
			t.Errorf("asked again with %v", again)
		}
	}
	for _, stop := range []string{model.StopRefusal, model.StopLength} {
		if _, err := Ask(t.Context(), &said{texts: []string{good}, stop: stop}, model.Request{}, two()); err == nil {
			t.Errorf("%s gave a score", stop)
		}
	}
	down := &model.Error{Kind: model.Overloaded}
	if _, err := Ask(t.Context(), &said{err: down}, model.Request{}, two()); !model.Infra(err) {
		t.Errorf("got %v", err)
	}
}

func TestPartial(t *testing.T) {
	c := Case{Format: Partial, Criteria: []Criterion{
		{ID: "a", Text: "x", Outcomes: []Outcome{{"none", 0}, {"some", 0.25}, {"all", 1}}},
		{ID: "b", Text: "y", Range: &[2]float64{1, 5}, PassAt: 0.75},
		{ID: "c", Text: "z"},
	}}
	answer := func(a, b, z string) string {
		return fmt.Sprintf(`{"results":[{"id":"c1","score":%s,"justification":"j"},{"id":"c2","score":%s,"justification":"j"},{"id":"c3","score":%s,"justification":"j"}]}`, a, b, z)
	}
	v, err := Ask(t.Context(), &said{texts: []string{answer("0.25", "4", "0.5")}}, model.Request{}, c)
	if err != nil || fmt.Sprint(v.Rows) != `[{a 0.25 0.25 false j  } {b 0.75 4 true j  } {c 0.5 0.5 true j  }]` {
		t.Errorf("%v %v", v.Rows, err)
	}
	for _, bad := range []string{answer("0.3", "4", "1"), answer("1", "0", "1"), answer("1", "6", "1"), answer("1", "4", "1.01"), answer("1", "4", "-0.1")} {
		if _, err := Ask(t.Context(), &said{texts: []string{bad}}, model.Request{}, c); err == nil {
			t.Errorf("%s gave a score", bad)
		}
	}
}

func TestEvidence(t *testing.T) {
	c := Case{Format: Evidence, Criteria: []Criterion{{ID: "a", Text: "x"}}, Frames: []Frame{{"f1", "image/png", []byte("x")}}}
	for _, k := range []struct {
		frame, status string
		score         float64
		ok            bool
	}{
		{"f1", "visible", 1, true},
		{"", "not_applicable", 1, true},
		{"", "blocked", 0, true},
		{"f1", "ambiguous", 0, true},
		{"f2", "visible", 0, false},
		{"f1", "maybe", 0, false},
	} {
		raw := fmt.Sprintf(`{"results":[{"id":"c1","score":1,"justification":"j","frame":%q,"evidence_status":%q}]}`, k.frame, k.status)
		v, err := Ask(t.Context(), &said{texts: []string{raw}}, model.Request{}, c)
		if (err == nil) != k.ok || err == nil && v.Rows[0].Score != k.score {
			t.Errorf("%+v: %+v %v", k, v.Rows, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	c := Case{Format: Mistakes}
	for _, k := range []struct {
		raw   string
		score float64
		ok    bool
	}{
		{`{"findings":[],"coverage":1,"botched":false,"summary":"s"}`, 1, true},
		{`{"findings":[{"severity":"low","step":1,"should":"s","description":"d"},{"severity":"high","step":2,"should":"s","description":"d"}],"coverage":1,"botched":false,"summary":"s"}`, 0.73, true},
		{`{"findings":[{"severity":"critical","step":1,"should":"s","description":"d"}],"coverage":0.5,"botched":false,"summary":"s"}`, 0, true},
		{`{"findings":[],"coverage":1,"botched":true,"summary":"s"}`, 0, true},
		{`{"findings":[],"coverage":1.5,"botched":false,"summary":"s"}`, 0, false},
		{`{"findings":[{"severity":"odd","step":1,"should":"s","description":"d"}],"coverage":1,"botched":false,"summary":"s"}`, 0, false},
		{`{"coverage":1,"botched":false,"summary":"s"}`, 0, false},
	} {
		v, err := Ask(t.Context(), &said{texts: []string{k.raw}}, model.Request{}, c)
		if (err == nil) != k.ok || err == nil && !near(*v.Score, k.score) {
			t.Errorf("%s: %v %v", k.raw, v.Score, err)
		}
	}
}

func TestPanel(t *testing.T) {
	answer := func(a, b int) string {
		return fmt.Sprintf(`{"results":[{"id":"c1","score":%d,"justification":"j%d"},{"id":"c2","score":%d,"justification":"j"}]}`, a, a, b)
	}
	judges := []Judge{{Name: "x", Model: &said{texts: []string{answer(1, 1)}}}, {Name: "y", Model: &said{texts: []string{answer(1, 1)}}}, {Name: "z", Model: &said{texts: []string{answer(0, 1)}}}, {Name: "w", Model: &said{texts: []string{"?"}}}}
	p, err := Sit(t.Context(), judges, 1, two())
	if err != nil {
		t.Fatal(err)
	}
	if !near(p.Rows[0].Score, 2.0/3) || !p.Rows[0].Pass || p.Rows[0].Justification != "j1" || p.Rows[1].Score != 1 {
		t.Errorf("%+v", p.Rows)
	}
	if !near(p.Agreement, (1.0+3)/6) || p.Opinions[3].Err == nil || p.Usage.Input != 60 {
		t.Errorf("agreement %v, %+v", p.Agreement, p.Usage)
	}
	if _, err := Sit(t.Context(), judges[3:], 2, two()); err == nil {
		t.Error("no verdict gave a score")
	}
	if p, err := Sit(t.Context(), judges[:1], 3, two()); err != nil || p.Agreement != 1 || len(p.Opinions) != 3 {
		t.Errorf("%+v %v", p, err)
	}
}

func FuzzVerdict(f *testing.F) {
	for _, m := range malformed {
		f.Add(m)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, raw string) {
		c := two()
		for _, format := range []string{Binary, Partial, Evidence, Mistakes} {
			c.Format = format
			fm, err := formOf(c)
			if err != nil {
				t.Fatal(err)
			}
			v, err := fm.read(raw)
			if err != nil || format == Mistakes {
				continue
			}
			if len(v.Rows) != 2 {
				t.Errorf("%s: %+v", raw, v)
			}
			for _, r := range v.Rows {
				if r.Score < 0 || r.Score > 1 {
					t.Errorf("%s: %+v", raw, r)
				}
			}
		}
	})
}
