package runs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store/mem"
	"agentenv.internal/agentenv/internal/term"
)

const (
	ended = "run.ended"
	gone  = "nobody drives it"
)

// pictures are the state diagrams of docs/runs.md, each as a set of lines "from --> to: why".
func pictures(t *testing.T) []map[string]bool {
	t.Helper()
	src, err := os.ReadFile("../../../docs/runs.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]bool
	for _, m := range regexp.MustCompile("(?s)```mermaid\nstateDiagram-v2\n(.*?)```").FindAllStringSubmatch(string(src), -1) {
		lines := map[string]bool{}
		for line := range strings.Lines(m[1]) {
			lines[strings.TrimSpace(line)] = true
		}
		out = append(out, lines)
	}
	return out
}

func compare(t *testing.T, what string, drawn, real map[string]bool) {
	t.Helper()
	for _, l := range slices.Sorted(maps.Keys(real)) {
		if !drawn[l] {
			t.Errorf("docs/runs.md doesn't draw of a %s: %s", what, l)
		}
	}
	for _, l := range slices.Sorted(maps.Keys(drawn)) {
		if !real[l] {
			t.Errorf("docs/runs.md draws of a %s what never happens: %s", what, l)
		}
	}
}

// world is a log with one run whose owner can be lost.
type world struct {
	t   *testing.T
	log runlog.Log
	now time.Time
	own runlog.Owner
}

const id = "t-1"

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	w.log = mem.New(mem.Options{Now: func() time.Time { return w.now }}).Runs()
	if err := w.log.Create(t.Context(), runlog.Meta{ID: id, Task: "t"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) status() runlog.Status {
	w.t.Helper()
	s, err := w.log.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Status
}

// do makes one thing happen to the run, and answers false where the log refuses it.
func (w *world) do(what string, outcome runlog.Status) bool {
	w.t.Helper()
	if w.own == nil && what != gone {
		o, err := w.log.Claim(w.t.Context(), id)
		if err != nil {
			return false
		}
		w.own = o
	}
	switch what {
	case gone:
		if w.own == nil {
			return w.do(runlog.Note, "") && w.do(gone, "") // nobody can lose what nobody has claimed
		}
		w.now = w.now.Add(2 * runlog.OwnerTTL)
		w.own = nil
		return true
	case ended:
		return w.own.Append(w.t.Context(), runlog.Event{Kind: runlog.RunEnded, Data: json.RawMessage(fmt.Sprintf(`{"status":%q}`, outcome))}) == nil
	case runlog.RunStarted:
		return w.own.Append(w.t.Context(), runlog.Event{Kind: runlog.RunStarted, Data: json.RawMessage(`{"steps":[]}`)}) == nil
	default:
		return w.own.Append(w.t.Context(), runlog.Event{Kind: what}) == nil
	}
}

// TestRunStates: the picture of a run's life is what the log makes of everything that can happen to one. A run starts before it ends, and nothing
// happens to one that has ended: that is how runs are driven.
func TestRunStates(t *testing.T) {
	paths := map[runlog.Status][]string{runlog.Queued: {}}
	real := map[string]bool{"[*] --> queued": true}
	for todo := []runlog.Status{runlog.Queued}; len(todo) > 0; todo = todo[1:] {
		from := todo[0]
		if from.Ended() {
			real[fmt.Sprintf("%s --> [*]", from)] = true
			continue
		}
		happens := []string{gone}
		if from == runlog.Running {
			for _, s := range statuses {
				happens = append(happens, ended+" "+string(s))
			}
		} else {
			happens = append(happens, runlog.RunStarted)
		}
		for _, what := range happens {
			w := newWorld(t)
			ok := true
			for _, h := range append(slices.Clone(paths[from]), what) {
				kind, outcome, _ := strings.Cut(h, " ")
				if h == gone {
					kind = gone
				}
				ok = ok && w.do(kind, runlog.Status(outcome))
			}
			to := w.status()
			if !ok || to == from {
				continue
			}
			why := what
			if strings.HasPrefix(what, ended) {
				why = ended
			}
			real[fmt.Sprintf("%s --> %s: %s", from, to, why)] = true
			if _, seen := paths[to]; !seen {
				paths[to] = append(slices.Clone(paths[from]), what)
				todo = append(todo, to)
			}
		}
	}
	for _, s := range statuses {
		if _, reached := paths[s]; !reached {
			t.Errorf("no run ever is %s", s)
		}
	}
	compare(t, "run", pictures(t)[0], real)
}

// TestStepStates: the same of a step, as the fold of a run's events shows it.
func TestStepStates(t *testing.T) {
	start := runlog.Event{Kind: runlog.RunStarted, Data: json.RawMessage(`{"steps":[{"id":"s","type":"review"}]}`)}
	see := func(events []runlog.Event, lost bool) runlog.Status {
		sum := runlog.Summary{Status: runlog.Running}
		if lost {
			sum.Status = runlog.Interrupted
		}
		return runlog.Fold(sum, events).Steps[0].Status
	}
	end := func(s runlog.Status) runlog.Event {
		return runlog.Event{Kind: runlog.StepEnded, Step: "s", Data: json.RawMessage(fmt.Sprintf(`{"status":%q}`, s))}
	}
	begun := runlog.Event{Kind: runlog.StepStarted, Step: "s", Attempt: 1}
	reset := runlog.Event{Kind: runlog.StepsReset, Data: json.RawMessage(`{"steps":["s"]}`)}
	real := map[string]bool{"[*] --> queued": true}
	add := func(from, to runlog.Status, why string) {
		if from != to {
			real[fmt.Sprintf("%s --> %s: %s", from, to, why)] = true
		}
	}
	queued := []runlog.Event{start}
	running := []runlog.Event{start, begun}
	add(see(queued, false), see(append(queued, begun), false), runlog.StepStarted)
	add(see(queued, false), see(append(queued, end(runlog.Skipped)), false), runlog.StepEnded)
	add(see(running, false), see(running, true), gone)
	add(see(running, true), see(append(running, start, reset), false), runlog.StepsReset)
	add(see(running, false), see(append(running, reset), false), runlog.StepsReset)
	skipped := append(slices.Clone(queued), end(runlog.Skipped))
	add(see(skipped, false), see(append(skipped, reset), false), runlog.StepsReset)
	for _, s := range []runlog.Status{runlog.Succeeded, runlog.Failed, runlog.InfraFailed, runlog.Cancelled} {
		over := append(slices.Clone(running), end(s))
		add(see(running, false), see(over, false), runlog.StepEnded)
		add(see(over, false), see(append(over, reset), false), runlog.StepsReset)
	}
	compare(t, "step", pictures(t)[1], real)
}

// TestRunsAreDocumented: docs/runs.md shows every verb about runs, none that isn't there, and says what every status is.
func TestRunsAreDocumented(t *testing.T) {
	src, err := os.ReadFile("../../../docs/runs.md")
	if err != nil {
		t.Fatal(err)
	}
	s, _, _ := term.Buffers("")
	var have []string
	for _, c := range New(verb.NewProgram(s, func(string) (string, bool) { return "", false })).Commands() {
		have = append(have, c.Name())
	}
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile(`agent-env runs ([a-z]+)`).FindAllStringSubmatch(string(src), -1) {
		shown[m[1]] = true
		if !slices.Contains(have, m[1]) {
			t.Errorf("there is no agent-env runs %s", m[1])
		}
	}
	for _, name := range have {
		if !shown[name] {
			t.Errorf("docs/runs.md doesn't show agent-env runs %s", name)
		}
	}
	for _, st := range statuses {
		if !strings.Contains(string(src), fmt.Sprintf("| `%s` |", st)) {
			t.Errorf("docs/runs.md doesn't say what %s is", st)
		}
	}
}
