package bundlerun

import (
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/eval"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
)

// Exit codes of a command that runs tasks.
const (
	ExitOK     = 0
	ExitFailed = 1 // a run failed or was cancelled, or nothing was scored where a score is asked for
	ExitBelow  = 3 // the mean score is below the one asked for
)

// Summary is what a Run did. Counts.N is the number of runs asked for, also of those that never started.
type Summary struct {
	Bundle  string `json:"bundle"` // as shown to people
	IDRoot  string `json:"id_root"`
	Group   string `json:"group,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Stopped bool   `json:"stopped,omitempty"` // cancelled before its end
	// Held is how many runs were not started since they would have met what Halted tells of, such as a key that is spent.
	Held   int    `json:"held_back,omitempty"`
	Halted string `json:"halted,omitempty"`
	// Declared is the bundle.toml that was written, or in a dry run would be; nil where none is.
	Declared *Declared     `json:"bundle_toml,omitempty"`
	Writes   []ledger.Line `json:"writes"`
	// Refs are what unpinned references to the store stand for; only a dry run lists them.
	Refs     []StoreRef   `json:"store_refs,omitempty"`
	WouldRun []RunRef     `json:"would_run,omitempty"` // a dry run's tasks
	Runs     []RunResult  `json:"runs"`
	Evals    []EvalResult `json:"evals,omitempty"`
	LeftOut  []string     `json:"left_out,omitempty"` // tasks that no eval names, which all evals together leave out
	eval.Stats
	TornDown int           `json:"torn_down"` // sandboxes
	StillUp  []StillUp     `json:"still_up,omitempty"`
	Kept     []deploy.Live `json:"kept,omitempty"`
}

// StoreRef is a reference to a stored entity that names no version, with the version that it stands for now.
type StoreRef struct {
	Ref     string `json:"ref"` // "artifact @local/x"
	Version int    `json:"version"`
}

// RunResult is one run's end.
type RunResult struct {
	RunRef
	Started   bool               `json:"started"` // false: cancelled before it did
	Status    runlog.Status      `json:"status"`
	Scores    map[string]float64 `json:"scores,omitempty"`
	Seconds   float64            `json:"seconds"`
	Isolation string             `json:"isolation,omitempty"` // the weakest level in force among its sandboxes
	// TakenOver tells that a person's hand was on a computer of it: its scores aren't the agent's alone.
	TakenOver bool `json:"taken_over,omitempty"`
	// Failures are why it failed, the one that decides first.
	Failures []run.Failure `json:"failures,omitempty"`
	Cost     runlog.Cost   `json:"cost"`
	// Fenced says that another owner took the run over: how it ends is in the record that this one writes.
	Fenced bool `json:"fenced,omitempty"`

	kept    bool // its sandboxes outlive it
	removed int
	left    []string
}

// EvalResult is an eval's end.
type EvalResult struct {
	ID      string   `json:"eval_id"`
	Label   string   `json:"label"`
	Version int      `json:"version"`
	Tasks   []string `json:"tasks"` // labels
	eval.Stats
}

// StillUp is a sandbox that could not be removed.
type StillUp struct {
	Run string `json:"run_id"`
	ID  string `json:"sandbox_id"`
}

// Exit is the command's exit code. failUnder is the mean score that is asked for; nil asks for none.
func (s *Summary) Exit(failUnder *float64) int {
	switch {
	case s.DryRun:
		return ExitOK
	case s.Failed > 0 || s.InfraFailed > 0 || s.Cancelled > 0:
		return ExitFailed
	case failUnder == nil:
		return ExitOK
	case s.Mean == nil:
		return ExitFailed
	case *s.Mean < *failUnder:
		return ExitBelow
	default:
		return ExitOK
	}
}

// sum books the runs: for the whole, and for each eval.
func (s *Summary) sum() {
	trials := make([]eval.Trial, 0, len(s.Runs))
	for i := range s.Runs {
		trials = append(trials, s.Runs[i].trial())
	}
	s.Stats = eval.Summarize(trials)
	for i := range s.Evals {
		e := &s.Evals[i]
		var own []eval.Trial
		for _, label := range e.Tasks {
			for j := range s.Runs {
				if s.Runs[j].Label == label {
					own = append(own, s.Runs[j].trial())
				}
			}
		}
		e.Stats = eval.Summarize(own)
	}
}

func (r *RunResult) trial() eval.Trial {
	return eval.Trial{
		Task: r.Task, Status: r.Status, Scores: r.Scores, Cost: r.Cost, Took: time.Duration(r.Seconds * float64(time.Second)),
	}
}
