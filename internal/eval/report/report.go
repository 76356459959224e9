// Package report is what an eval run says, and how it is written down: CSV, JUnit, and one HTML page that needs nothing beside it. It is pure.
//
// Words: a trial is one run of a task; a row is a task with the figures of its trials.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/eval"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/runlog"
)

// Trial is one run, or one that there should be and is not: its Run is "" then, and it counts as cancelled.
type Trial struct {
	Task    string             `json:"task_id"`
	Number  int                `json:"trial"` // 1..k
	Run     string             `json:"run_id,omitempty"`
	Version int                `json:"task_version,omitempty"`
	Inputs  string             `json:"inputs,omitempty"` // digest of what could change its result
	Status  runlog.Status      `json:"status"`
	Score   *float64           `json:"score,omitempty"` // the mean of its verifiers' scores
	Scores  map[string]float64 `json:"scores,omitempty"`
	Cost    runlog.Cost        `json:"cost,omitzero"`
	Seconds float64            `json:"seconds"`
	Error   string             `json:"error,omitempty"`
	// Models are those that its steps used, by role.
	Models map[string][]string `json:"models,omitempty"`
	// TakenOver tells that a person's hand was on a computer of it: its scores aren't the agent's alone.
	TakenOver bool      `json:"taken_over,omitempty"`
	Start     time.Time `json:"started,omitzero"`
	End       time.Time `json:"ended,omitzero"`
}

// Task is one row.
type Task struct {
	ID       string   `json:"task_id"`
	Versions []int    `json:"task_versions,omitempty"` // of its trials
	Inputs   []string `json:"inputs,omitempty"`        // digests: several when something changed between its trials
	eval.Stats
	MeanSeconds float64 `json:"mean_seconds,omitempty"` // of the trials that ran
}

// Report is all of it. N is the number of trials asked for, whatever became of them.
type Report struct {
	ID      string    `json:"eval_run_id"`
	Eval    string    `json:"eval_id,omitempty"`
	Version int       `json:"eval_version,omitempty"`
	K       int       `json:"k"`
	Created time.Time `json:"created"`
	Program string    `json:"agent_env_version,omitempty"`
	// Models are those that were used, by role. Scripted tells that one of them plays a written dialogue: its figures say nothing of a model.
	Models    map[string][]string `json:"models,omitempty"`
	Scripted  bool                `json:"scripted"`
	Isolation string              `json:"isolation,omitempty"`
	Sandbox   string              `json:"sandbox,omitempty"`
	eval.Stats
	// Missing is how many trials never ran or have no end on record; they are among the cancelled and the infra_failed.
	Missing int `json:"missing,omitempty"`
	// Stored: eval run --resume can go on with what is missing. Of runs that another command made only single ones can be gone on with.
	Stored bool `json:"-"`
	// TakenOver is how many trials had a person's hand in them. They count as the others do.
	TakenOver int     `json:"taken_over,omitempty"`
	Wall      float64 `json:"wall_seconds,omitempty"` // from the first start to the last end
	Tasks     []Task  `json:"tasks"`
	Trials    []Trial `json:"trials"` // by task and number
}

// trial is t as statistics see it.
func (t *Trial) trial() eval.Trial {
	return eval.Trial{Task: t.Task, Status: t.Status, Scores: t.Scores, Cost: t.Cost, Took: time.Duration(t.Seconds * float64(time.Second))}
}

// Evals are the trials as statistics see them.
func (r *Report) Evals() []eval.Trial {
	out := make([]eval.Trial, 0, len(r.Trials))
	for i := range r.Trials {
		out = append(out, r.Trials[i].trial())
	}
	return out
}

// Sum fills in the figures from r.Trials, which it sorts.
func (r *Report) Sum() {
	slices.SortStableFunc(r.Trials, func(a, b Trial) int { return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Number, b.Number)) })
	r.Tasks, r.Missing, r.TakenOver, r.Models, r.Scripted = []Task{}, 0, 0, nil, false
	var first, last time.Time
	models := map[string]map[string]bool{}
	for i := 0; i < len(r.Trials); {
		task := Task{ID: r.Trials[i].Task}
		var own []eval.Trial
		ran, seconds := 0, 0.0
		for ; i < len(r.Trials) && r.Trials[i].Task == task.ID; i++ {
			t := &r.Trials[i]
			e := t.trial()
			own = append(own, e)
			t.Score = nil
			if v, ok := e.Score(); ok {
				t.Score = &v
			}
			if !t.Status.Ended() || t.Run == "" {
				r.Missing++
			}
			if t.TakenOver {
				r.TakenOver++
			}
			if t.Run != "" {
				ran++
				seconds += t.Seconds
				task.Versions, task.Inputs = add(task.Versions, t.Version), add(task.Inputs, t.Inputs)
			}
			if !t.Start.IsZero() && (first.IsZero() || t.Start.Before(first)) {
				first = t.Start
			}
			if t.End.After(last) {
				last = t.End
			}
			for role, names := range t.Models {
				if models[role] == nil {
					models[role] = map[string]bool{}
				}
				for _, n := range names {
					models[role][n] = true
					r.Scripted = r.Scripted || scripted(n)
				}
			}
		}
		task.Stats = eval.Summarize(own)
		if ran > 0 {
			task.MeanSeconds = seconds / float64(ran)
		}
		r.Tasks = append(r.Tasks, task)
	}
	for role, names := range models {
		if r.Models == nil {
			r.Models = map[string][]string{}
		}
		r.Models[role] = slices.Sorted(maps.Keys(names))
	}
	r.Stats = eval.Summarize(r.Evals())
	if !first.IsZero() && last.After(first) {
		r.Wall = last.Sub(first).Seconds()
	}
}

// scripted tells whether a model's name, or an agent's with its model, is of a written dialogue.
func scripted(n string) bool {
	return n == model.ScriptedName || strings.HasPrefix(n, model.ScriptedPrefix) || strings.Contains(n, " "+model.ScriptedPrefix)
}

func add[T comparable](list []T, v T) []T {
	var none T
	if v == none || slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

// Gate is what a bound says of a mean.
type Gate struct {
	Under float64 `json:"fail_under"`
	Below bool    `json:"below"` // the mean is below it
	// Unsure tells that the mean's interval holds the bound, or that there is none: more repeats could turn the verdict.
	Unsure bool `json:"not_enough_repeats"`
}

// Judge holds figures against a bound. Without a mean nothing is said but that it is missing.
func Judge(s *eval.Stats, under float64) Gate {
	g := Gate{Under: under, Below: s.Mean == nil || *s.Mean < under, Unsure: s.Interval == nil}
	if in := s.Interval; in != nil {
		g.Unsure = in.Low < under && under < in.High
	}
	return g
}

// Text is the gate in words; "" when it is passed and sure.
func (g Gate) Text(s *eval.Stats) string {
	var parts []string
	switch {
	case s.Mean == nil:
		parts = append(parts, "nothing has a score")
	case g.Below:
		parts = append(parts, fmt.Sprintf("the mean score %.4g is below %.4g", *s.Mean, g.Under))
	}
	switch {
	case !g.Unsure || s.Mean == nil:
	case s.Interval == nil:
		parts = append(parts, "not enough repeats: one value has no interval; raise --k")
	default:
		parts = append(parts, fmt.Sprintf("not enough repeats: the 95 %% interval of the mean, %.3g to %.3g, holds %.4g; raise --k", s.Interval.Low, s.Interval.High, g.Under))
	}
	return strings.Join(parts, "; ")
}
