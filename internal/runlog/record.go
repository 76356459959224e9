package runlog

import (
	"encoding/json"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// RunStart is the data of RunStarted.
type RunStart struct {
	Steps     []StepInfo `json:"steps"`
	Isolation string     `json:"isolation,omitempty"` // level asked
	Resumed   bool       `json:"resumed,omitempty"`   // an owner before this one had started it
	// Version is the task's version that runs from here on, where it is not the one of Meta.
	Version int `json:"task_version,omitempty"`
}

// StepInfo is one step as the run plans it.
type StepInfo struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// RunEnd is the data of RunEnded.
type RunEnd struct {
	Status    Status             `json:"status"`
	Scores    map[string]float64 `json:"scores,omitempty"`
	Error     string             `json:"error,omitempty"`
	ErrorType string             `json:"error_type,omitempty"`
	Step      string             `json:"step,omitempty"` // where it failed
	Left      []string           `json:"left,omitempty"` // sandboxes that could not be removed
	Cost      Cost               `json:"cost,omitzero"`  // of all attempts of all steps
}

// Regrade is the data of RunRegraded: verifiers ran again on what the run had left. The steps' new ends stand before it.
type Regrade struct {
	Status Status             `json:"status"`
	Scores map[string]float64 `json:"scores,omitempty"`
	Error  string             `json:"error,omitempty"`
	Steps  []string           `json:"steps"`
	// What stood before.
	OldStatus Status             `json:"old_status"`
	OldScores map[string]float64 `json:"old_scores,omitempty"`
	// OldVerified are the verifications that were replaced, as they stood.
	OldVerified map[string]json.RawMessage `json:"old_verifications,omitempty"`
	// Version is the task's, where it is not the one that the run had.
	Version int       `json:"task_version,omitempty"`
	At      time.Time `json:"at,omitzero"` // of a Record: when
}

// Cost is what was spent on models.
type Cost struct {
	USD          float64 `json:"usd"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
}

// Plus is the sum of two costs.
func (c Cost) Plus(d Cost) Cost {
	return Cost{c.USD + d.USD, c.InputTokens + d.InputTokens, c.OutputTokens + d.OutputTokens}
}

// Reset is the data of StepsReset: these steps count as never started, and their diffs are dropped.
type Reset struct {
	Steps  []string `json:"steps"`  // those that had started
	Reason string   `json:"reason"` // ResetRetry, ResetResume
	// Of a retry: the step that failed, and the one that it goes back to.
	Step string `json:"step,omitempty"`
	From string `json:"from,omitempty"`
}

// Reasons of a Reset.
const (
	ResetRetry  = "retry"
	ResetResume = "resume"
)

// Object is a piece of a record that is kept as an object of the store.
type Object struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// StepStart is the data of StepStarted.
type StepStart struct {
	Type string `json:"type"`
}

// StepEnd is the data of StepEnded.
type StepEnd struct {
	Status    Status          `json:"status"` // Succeeded, Failed, InfraFailed, Cancelled, Skipped
	Error     string          `json:"error,omitempty"`
	ErrorType string          `json:"error_type,omitempty"`
	Fatal     bool            `json:"fatal,omitempty"`
	Again     bool            `json:"again,omitempty"` // the run goes back because of it, at the cost of one of the step's retries
	Infra     bool            `json:"infra,omitempty"` // a fault of the machinery
	Seconds   float64         `json:"seconds"`
	Diff      json.RawMessage `json:"diff,omitempty"` // the ops of a step.Diff, committed with the end; long values are objects
}

// LogLine is the data of StepLog and Note.
type LogLine struct {
	Level   string         `json:"level"`
	Message string         `json:"message"`
	Attrs   map[string]any `json:"attrs,omitempty"`
	Object  *Object        `json:"object,omitempty"` // the whole message, of which Message is the beginning
}

// Box is the data of BoxCreated and BoxRemoved.
type Box struct {
	ID        string          `json:"id"`
	Name      string          `json:"name,omitempty"`
	Provider  string          `json:"provider"`
	Step      string          `json:"step,omitempty"`      // that made it
	Tied      bool            `json:"tied,omitempty"`      // it dies with its owner's process
	Isolation json.RawMessage `json:"isolation,omitempty"` // sandbox.Isolation, as probed
	Error     string          `json:"error,omitempty"`
	Blocked   []guest.Blocked `json:"blocked,omitempty"` // of one that is removed: what its network policy kept it from, the first hundred
}

// Kept is the data of EnvKept: a piece of an environment's work that lies in the store, as the log of its calls does.
type Kept struct {
	What     string `json:"what"` // "calls": a JSON object a line; "result": of one call; "errand": a trajectory of what an agent did for a trigger; "screen": what a computer showed, as an animated PNG
	Env      string `json:"env_id"`
	Instance string `json:"instance_id"`
	Object
}

// Taken is the data of EnvTaken: a person takes over a computer, or, with the same ID, has given it back.
type Taken struct {
	ID       string `json:"id"`
	Env      string `json:"env_id"`
	Instance string `json:"instance_id"`
	Name     string `json:"environment_name"`
	By       string `json:"by"` // "console": on a page of agent-env up
	Ended    bool   `json:"ended,omitempty"`
	Inputs   int64  `json:"inputs,omitempty"` // of mouse and keyboard that were done; of one that has ended
}

// Record is what a run's events fold to.
type Record struct {
	Summary
	Steps     []StepRecord               `json:"steps"`
	Boxes     []Box                      `json:"sandboxes,omitempty"`
	Isolation string                     `json:"isolation,omitempty"` // weakest level in force among the boxes
	Verified  map[string]json.RawMessage `json:"verifications,omitempty"`
	Models    map[string][]string        `json:"models,omitempty"` // that its steps used, by role, sorted
	FailedAt  string                     `json:"failed_at,omitempty"`
	Left      []string                   `json:"left,omitempty"`
	Cost      Cost                       `json:"cost"`
	Films     []Film                     `json:"screens,omitempty"`  // of its computers, in the order they ended
	Hands     []Hand                     `json:"hands,omitempty"`    // of people who took over a computer, in the order they did
	Regrades  []Regrade                  `json:"regrades,omitempty"` // oldest first
	Epochs    int                        `json:"epochs,omitempty"`   // how often an owner started it: 2 for a run that was resumed once
}

// Film is what a computer of a run showed: an animated PNG.
type Film struct {
	Step     string `json:"step,omitempty"` // that deployed it
	Env      string `json:"env_id"`
	Instance string `json:"instance_id"`
	Object
}

// Hand is a person at a computer of a run.
type Hand struct {
	Step string `json:"step,omitempty"` // that deployed the computer
	Taken
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"` // zero: its end was never told, as when the run was killed
}

// keptScreen is what Kept.What says of a Film.
const keptScreen = "screen"

// StepRecord is one step of a Record; of several attempts, the last.
type StepRecord struct {
	StepInfo
	Status    Status    `json:"status"`
	Attempt   int       `json:"attempt,omitempty"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Seconds   float64   `json:"seconds,omitempty"`
	Error     string    `json:"error,omitempty"`
	ErrorType string    `json:"error_type,omitempty"`
	Retries   int       `json:"retries,omitempty"` // how often it sent the run back
	Cost      Cost      `json:"cost,omitzero"`     // of all attempts
}
