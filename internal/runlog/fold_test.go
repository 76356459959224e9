package runlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// script makes events, one second apart, of "kind step attempt data" values.
func script(es ...Event) []Event {
	for i := range es {
		es[i].Seq, es[i].At = uint64(i+1), t0.Add(time.Duration(i)*time.Second)
	}
	return es
}

func ev(kind, step string, data any) Event {
	e := Event{Kind: kind, Step: step}
	switch d := data.(type) {
	case nil:
	case string:
		e.Data = json.RawMessage(d)
	default:
		b, err := json.Marshal(d)
		if err != nil {
			panic(err)
		}
		e.Data = b
	}
	return e
}

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func steps(ids ...string) RunStart {
	var s RunStart
	for _, id := range ids {
		s.Steps = append(s.Steps, StepInfo{ID: id, Type: "run_code"})
	}
	return s
}

func attempt(e Event, n int) Event { e.Attempt = n; return e }

// show is a record in short: the run's status, then each step's status, attempt, start and end in seconds.
func show(r Record) string {
	second := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return fmt.Sprint(int(t.Sub(t0).Seconds()))
	}
	var out strings.Builder
	out.WriteString(string(r.Status))
	for _, s := range r.Steps {
		out.WriteString(fmt.Sprintf(" | %s %s %d %s..%s", s.ID, s.Status, s.Attempt, second(s.Started), second(s.Ended)))
	}
	return out.String()
}

func TestFoldSteps(t *testing.T) {
	for name, tt := range map[string]struct {
		seen   Status
		events []Event
		want   string
	}{
		"nothing yet":     {Queued, nil, "queued"},
		"never claimed":   {Interrupted, nil, "interrupted"},
		"only just begun": {Running, script(ev(RunStarted, "", steps("a", "b"))), "running | a queued 0 -..- | b queued 0 -..-"},
		"under way": {
			Running, script(ev(RunStarted, "", steps("a", "b", "c")), attempt(ev(StepStarted, "a", nil), 1), attempt(ev(StepEnded, "a", StepEnd{Status: Succeeded}), 1), attempt(ev(StepStarted, "b", nil), 1)),
			"running | a succeeded 1 1..2 | b running 1 3..- | c queued 0 -..-",
		},
		"interrupted": {
			Interrupted, script(ev(RunStarted, "", steps("a", "b")), attempt(ev(StepStarted, "a", nil), 1)),
			"interrupted | a interrupted 1 1..- | b queued 0 -..-",
		},
		"ended early": {
			Failed, script(ev(RunStarted, "", steps("a", "b", "c")), attempt(ev(StepStarted, "a", nil), 1), attempt(ev(StepEnded, "a", StepEnd{Status: Failed}), 1), ev(StepEnded, "b", StepEnd{Status: Skipped}), ev(RunEnded, "", RunEnd{Status: Failed})),
			"failed | a failed 1 1..2 | b skipped 0 -..3 | c skipped 0 -..-",
		},
		"killed in a step that the end doesn't speak of": {
			Cancelled, script(ev(RunStarted, "", steps("a")), attempt(ev(StepStarted, "a", nil), 1), ev(RunEnded, "", RunEnd{Status: Cancelled})),
			"cancelled | a interrupted 1 1..-",
		},
		"retried": {
			Running, script(ev(RunStarted, "", steps("a")), attempt(ev(StepStarted, "a", nil), 1), attempt(ev(StepEnded, "a", StepEnd{Status: Failed, Error: "x"}), 1), attempt(ev(StepStarted, "a", nil), 2)),
			"running | a running 2 3..-",
		},
		"resumed": {
			Running, script(ev(RunStarted, "", steps("a", "b")), attempt(ev(StepStarted, "a", nil), 1), attempt(ev(StepEnded, "a", StepEnd{Status: Succeeded}), 1), ev(RunEnded, "", RunEnd{Status: InfraFailed, Step: "b", Left: []string{"box"}}), ev(RunStarted, "", steps("a", "b")), attempt(ev(StepStarted, "b", nil), 1)),
			"running | a succeeded 1 1..2 | b running 1 5..-",
		},
		"a step that nobody planned": {
			Running, script(ev(StepStarted, "x", StepStart{Type: "t"}), ev(StepEnded, "y", StepEnd{Status: Succeeded})),
			"queued | x interrupted 0 0..- | y succeeded 0 -..1",
		},
		"data that can't be read": {
			Running, script(ev(RunStarted, "", `{"steps":1}`), ev(StepStarted, "a", `[]`), ev(StepEnded, "a", `"x"`), ev(BoxCreated, "", `7`), ev("unknown", "a", `{}`), ev(RunEnded, "", `{}`)),
			"queued | a failed 0 1..2",
		},
	} {
		r := Fold(Summary{Meta: Meta{ID: "r"}, Status: tt.seen}, tt.events)
		if got := show(r); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tt.want)
		}
		if r.ID != "r" {
			t.Errorf("%s: the id is %q", name, r.ID)
		}
	}
}

func TestFoldRecord(t *testing.T) {
	set := func(path, v string) string {
		return fmt.Sprintf(`{"status":"succeeded","seconds":1.5,"diff":[{"op":"set","path":%q,"value":%s},{"op":"append","path":"other","value":1}]}`, path, v)
	}
	events := script(
		ev(RunStarted, "", steps("a", "b", "c")),
		ev(BoxCreated, "a", Box{ID: "1", Name: "one", Provider: "local", Isolation: json.RawMessage(`{"level":"container","probes":[]}`)}),
		ev(BoxCreated, "a", Box{ID: "2", Provider: "local", Isolation: json.RawMessage(`{"level":"namespaces"}`)}),
		ev(BoxCreated, "a", Box{ID: "3", Provider: "fake"}),
		ev(StepStarted, "a", nil),
		ev(StepEnded, "a", set("metadata/verifications/old", `1`)),
		ev(StepStarted, "a", nil),
		ev(StepEnded, "a", set("metadata/verifications/x", `{"score": 0.5}`)),
		ev(StepEnded, "b", set("metadata/verifications/y", `2`)),
		ev(StepEnded, "c", `{"status":"succeeded","diff":[{"op":"unset","path":"metadata/verifications/y"},{"op":"set","path":"metadata/verifications/x/y","value":3}]}`),
		ev(BoxRemoved, "", Box{ID: "2", Error: "its folder is busy"}),
		ev(BoxRemoved, "", Box{ID: "1", Blocked: []guest.Blocked{{Proto: "tcp", Addr: "10.0.0.1", Count: 1}}}),
		ev(BoxRemoved, "", Box{ID: "gone", Error: "?"}),
		ev(RunEnded, "", RunEnd{Status: Scored, Scores: map[string]float64{"x": 0.5}, Error: "low", ErrorType: "T", Step: "b", Left: []string{"2"}}),
	)
	r := Fold(Summary{Meta: Meta{ID: "r"}, Status: Passed, Error: "of the log, which lags", Owner: &OwnerInfo{PID: 7}}, events)
	if r.Status != Scored || r.Error != "low" || !r.Started.Equal(t0) || !r.Ended.Equal(at(13)) || !reflect.DeepEqual(r.Scores, map[string]float64{"x": 0.5}) || r.Owner.PID != 7 {
		t.Errorf("summary %+v", r.Summary)
	}
	if r.FailedAt != "b" || !reflect.DeepEqual(r.Left, []string{"2"}) || r.Isolation != "namespaces" {
		t.Errorf("failed at %q, left %q, isolation %q", r.FailedAt, r.Left, r.Isolation)
	}
	if len(r.Boxes) != 3 || r.Boxes[0].Name != "one" || r.Boxes[0].Error != "" || r.Boxes[1].Error != "its folder is busy" || len(r.Boxes[0].Blocked) != 1 {
		t.Errorf("boxes %+v", r.Boxes)
	}
	got, err := json.Marshal(r.Verified)
	if err != nil || string(got) != `{"x":{"score":0.5},"x/y":3}` {
		t.Errorf("verified %s, %v", got, err)
	}
	if r.Steps[0].Seconds != 1.5 {
		t.Errorf("steps %+v", r.Steps)
	}
}

func TestWeakest(t *testing.T) {
	for levels, want := range map[string]string{
		"": "", "container": "container", "container namespaces": "namespaces", "namespaces none container": "none", "namespaces chroot none": "chroot",
	} {
		var boxes []Box
		for i := 0; i < len(levels); {
			var l string
			_, _ = fmt.Sscan(levels[i:], &l)
			i += len(l) + 1
			boxes = append(boxes, Box{Isolation: json.RawMessage(`{"level":"` + l + `"}`)})
		}
		boxes = append(boxes, Box{}, Box{Isolation: json.RawMessage(`{}`)})
		if got := weakest(boxes); got != want {
			t.Errorf("%q: %q, want %q", levels, got, want)
		}
	}
}

func TestCursor(t *testing.T) {
	for _, c := range []Cursor{{}, {1, 2}, {-62135596800000000, 1}, {1<<63 - 1, 1<<63 - 1}} {
		if got, err := ParseCursor(c.String()); err != nil || got != c {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
}

func TestPick(t *testing.T) {
	if _, err := Pick("a", nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if got, err := Pick("a", []string{"ab", "a"}); got != "a" || err != nil {
		t.Error(got, err)
	}
}

// What a fold makes of any events is one of the words that people know.
func FuzzFold(f *testing.F) {
	f.Add("run.started", "", []byte(`{"steps":[{"id":"a","type":"t"}]}`), "step.ended", "a", []byte(`{"status":"failed","diff":[{"op":"set","path":"metadata/verifications/a","value":1}]}`))
	f.Add("box.created", "a", []byte(`{"id":"x","isolation":{"level":"none"}}`), "run.ended", "", []byte(`{"status":"passed"}`))
	f.Fuzz(func(t *testing.T, k1, s1 string, d1 []byte, k2, s2 string, d2 []byte) {
		r := Fold(Summary{Status: Running}, script(Event{Kind: k1, Step: s1, Data: d1}, Event{Kind: k2, Step: s2, Data: d2}, Event{Kind: k1, Step: s2, Data: d2}))
		if !r.Status.Ended() && r.Status != Queued && r.Status != Running {
			t.Errorf("status %q", r.Status)
		}
		for _, s := range r.Steps {
			if s.Status == "" {
				t.Errorf("step %q has no status", s.ID)
			}
		}
	})
}

// TestFoldFilms: films of screens are told of, in the order they ended, and other pieces are not.
func TestFoldFilms(t *testing.T) {
	piece := func(what, digest string) Kept {
		return Kept{What: what, Env: "@local/pc", Instance: "@local/pc-1", Object: Object{Digest: digest, Size: 7}}
	}
	r := Fold(Summary{}, script(ev(RunStarted, "", RunStart{}), ev(EnvKept, "up", piece("screen", "a")), ev(EnvKept, "up", piece("calls", "b")), ev(EnvKept, "again", piece("screen", "c")), ev(EnvKept, "x", "{")))
	want := []Film{{"up", "@local/pc", "@local/pc-1", Object{"a", 7}}, {"again", "@local/pc", "@local/pc-1", Object{"c", 7}}}
	if !reflect.DeepEqual(r.Films, want) {
		t.Errorf("%+v", r.Films)
	}
}

// TestFoldHands: a run tells for good that a person's hand was in it, also where the hand's end was never told, and where the run starts again.
func TestFoldHands(t *testing.T) {
	began := Taken{ID: "pc-1 event_3", Env: "@local/pc", Instance: "@local/pc-1", Name: "pc", By: "console"}
	ended, killed := began, began
	ended.Ended, ended.Inputs, killed.ID = true, 5, "pc-1 event_9"
	events := script(ev(RunStarted, "", RunStart{}), ev(EnvTaken, "up", began), ev(EnvTaken, "up", ended), ev(EnvTaken, "up", killed), ev(RunStarted, "", RunStart{Resumed: true}),
		ev(RunEnded, "", RunEnd{Status: Passed, Scores: map[string]float64{"v": 1}}))
	r := Fold(Summary{}, events)
	want := []Hand{{Step: "up", Taken: ended, From: events[1].At, To: events[2].At}, {Step: "up", Taken: killed, From: events[3].At}}
	if !r.TakenOver || !reflect.DeepEqual(r.Hands, want) {
		t.Errorf("%t %+v", r.TakenOver, r.Hands)
	}
	if r := Fold(Summary{TakenOver: true}, events[:1]); r.TakenOver || r.Hands != nil {
		t.Errorf("nobody took it over: %+v", r)
	}
	var s Summary
	for i, change := range []bool{true, true, false, false, true, true} {
		if got, err := s.Apply(events[i]); got != change || err != nil {
			t.Errorf("event %d changes the summary: %t %v", i, got, err)
		}
	}
	if !s.TakenOver || s.Status != Passed {
		t.Errorf("%+v", s)
	}
}
