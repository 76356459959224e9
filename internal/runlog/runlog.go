// Package runlog is the record of runs: events appended by one owner at a time, and what they fold to.
//
// A run's record is a fold over its events and nothing else. An owner holds an epoch; every append is conditional on it, so a
// process that was stopped and replaced can write nothing more. The suite of all implementations is runlogtest.
package runlog

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"
)

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("no such run")
	// ErrOwned: another owner renews the run.
	ErrOwned = errors.New("the run has an owner")
	// ErrFenced: a newer owner has the run; this one must stop.
	ErrFenced = errors.New("another owner has taken the run over")
	// ErrExists: a run of this id was created before.
	ErrExists = errors.New("the run exists already")
	// ErrEnded: the run is over, so nobody will act on a request.
	ErrEnded = errors.New("the run has ended")
)

// Status is one vocabulary for runs and steps, in records, lists and JSON.
type Status string

const (
	Queued      Status = "queued"
	Running     Status = "running"
	Passed      Status = "passed"       // scored, every score >= 1
	Scored      Status = "scored"       // scored below 1
	Unscored    Status = "unscored"     // ended well without a score
	Failed      Status = "failed"       // the task or the agent failed
	InfraFailed Status = "infra_failed" // sandbox, network or model endpoint; never a score
	Cancelled   Status = "cancelled"
	Interrupted Status = "interrupted" // no end was recorded and nobody owns it
	Skipped     Status = "skipped"     // a step that never started
	Succeeded   Status = "succeeded"   // a step that ended well
)

// Ended tells whether s is final.
func (s Status) Ended() bool { return s != Queued && s != Running && s != Interrupted }

// Kinds of Event.
const (
	RunStarted  = "run.started"  // RunStart
	RunEnded    = "run.ended"    // RunEnd
	RunRegraded = "run.regraded" // Regrade; of a run that has ended
	StepStarted = "step.started" // StepStart
	StepLog     = "step.log"     // LogLine
	StepEnded   = "step.ended"   // StepEnd
	BoxCreated  = "box.created"  // Box
	BoxRemoved  = "box.removed"  // Box
	EnvKept     = "env.kept"     // Kept
	EnvTaken    = "env.taken"    // Taken
	StepsReset  = "steps.reset"  // Reset
	StepCost    = "step.cost"    // Cost
	StepDecided = "step.decided" // what a person decided, as asked: Request.Data
	Cancelling  = "run.cancelling"
	Note        = "note" // LogLine
)

// Event is one thing that happened. Seq counts from 1 within the run, without gaps.
type Event struct {
	Seq     uint64          `json:"seq"`
	At      time.Time       `json:"at"` // UTC, microseconds
	Epoch   uint64          `json:"epoch"`
	Kind    string          `json:"kind"`
	Step    string          `json:"step,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Meta is what is known of a run before it starts. ID is `<task name>-<8 chars>` under the task's id root.
type Meta struct {
	ID          string            `json:"run_id"`
	Task        string            `json:"task_id"`
	TaskVersion int               `json:"task_version"`
	Label       string            `json:"label"` // "tasks/hello.json"
	Bundle      string            `json:"bundle,omitempty"`
	Group       string            `json:"group,omitempty"` // all runs of one command
	Eval        string            `json:"eval,omitempty"`
	Trial       int               `json:"trial,omitempty"` // 1..k
	Created     time.Time         `json:"created"`
	Labels      map[string]string `json:"labels,omitempty"`
	Options     Options           `json:"options,omitzero"`
}

// Options are what a run was asked to be like: what resuming it needs beside its task. No value of a secret is among them.
type Options struct {
	Sandbox   []string `json:"sandbox,omitempty"`   // providers to try in place of what steps name
	Isolation string   `json:"isolation,omitempty"` // the least level that must hold
	Keep      bool     `json:"keep,omitempty"`      // its sandboxes outlive it
	Parallel  int      `json:"parallel,omitempty"`  // steps at once; 0 is no limit
	// Models are what people chose, by role: "agent", "user", "judge".
	Models map[string]string `json:"models,omitempty"`
	// Agent takes the place of the agents that deploy steps name.
	Agent string `json:"agent,omitempty"`
	// Seed is what stands for <key> in the strings of the task's steps.
	Seed map[string]string `json:"seed,omitempty"`
	// Params are fields of steps in place of those in the task, by step and field.
	Params map[string]map[string]json.RawMessage `json:"step_params,omitempty"`
	// Inputs is the digest of what could change the run's result, where it is a trial of an eval run.
	Inputs string `json:"inputs,omitempty"`
	// Film records the screens of the computers that it deploys.
	Film bool `json:"record_screen,omitempty"`
	// AllowUnknownFields lets steps have fields that this version doesn't know.
	AllowUnknownFields bool `json:"allow_unknown_fields,omitempty"`
}

// IsZero tells whether nothing was asked.
func (o Options) IsZero() bool {
	return len(o.Sandbox) == 0 && o.Isolation == "" && !o.Keep && o.Parallel == 0 && len(o.Models) == 0 && o.Agent == "" && len(o.Seed) == 0 && len(o.Params) == 0 &&
		o.Inputs == "" && !o.Film && !o.AllowUnknownFields
}

// Query selects runs, newest first.
type Query struct {
	Task, Group, Eval string
	Status            []Status
	After             string // Page.Next
	Limit             int    // 0: 100
}

// Page is one page of summaries.
type Page struct {
	Runs []Summary
	Next string
}

// Summary is a run as lists show it; it is kept in columns beside the events.
type Summary struct {
	Meta
	Status  Status             `json:"status"`
	Started time.Time          `json:"started,omitzero"`
	Ended   time.Time          `json:"ended,omitzero"`
	Error   string             `json:"error,omitempty"`
	Scores  map[string]float64 `json:"scores,omitempty"`
	// TakenOver tells that a person's hand was on a computer of it: what came of it isn't the agent's alone.
	TakenOver bool       `json:"taken_over,omitempty"`
	Owner     *OwnerInfo `json:"owner,omitempty"` // nil when nobody renews
}

// OwnerInfo says who drives a run.
type OwnerInfo struct {
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Epoch uint64    `json:"epoch"`
	Until time.Time `json:"until"`
}

// Request is what any process may ask of a run's owner.
type Request struct {
	Seq  uint64          `json:"seq"`
	Kind string          `json:"kind"` // AskCancel, AskDecide
	Step string          `json:"step,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Kinds of Request.
const (
	AskCancel = "cancel"
	AskDecide = "decide"
)

// Log is all runs of one store.
type Log interface {
	// Create adds a run, queued; Created is filled in when zero. ErrExists.
	Create(ctx context.Context, m Meta) error
	// Claim makes the caller the owner with the next epoch; ErrOwned while another renews. The claim holds for OwnerTTL.
	Claim(ctx context.Context, run string) (Owner, error)
	// Follow yields events after seq, and waits for more until the run has ended or ctx is done, whose error comes last.
	// It goes on waiting for an interrupted run, which may be resumed.
	Follow(ctx context.Context, run string, after uint64) iter.Seq2[Event, error]
	// Events yields what is there now, without waiting.
	Events(ctx context.Context, run string, after uint64) iter.Seq2[Event, error]
	// Ask leaves a request for the owner, from any process; Seq is filled in. Requests that a run's end has made pointless are dropped. ErrEnded.
	Ask(ctx context.Context, run string, r Request) error
	Get(ctx context.Context, run string) (Summary, error)
	List(ctx context.Context, q Query) (Page, error)
	// Resolve completes a unique suffix or prefix of a run id, or a prefix of its last segment, as people type it.
	// ErrNotFound; an error naming the candidates when several match.
	Resolve(ctx context.Context, text string) (string, error)
}

// Owner drives one run.
type Owner interface {
	Epoch() uint64
	// Append adds events; Seq, Epoch and, where zero, At are filled in. It groups commits of concurrent callers. ErrFenced.
	// A RunEnded event is durable when Append returns; others may lose the last moments in a power cut, never in a kill.
	Append(ctx context.Context, es ...Event) error
	// Renew holds the claim for another OwnerTTL. It works after a lapse too, as long as nobody else has claimed the run. ErrFenced.
	Renew(ctx context.Context) error
	// Requests yields each request once, in order. Release closes it.
	Requests() <-chan Request
	// Release gives the run up; Append after it is ErrFenced.
	Release(ctx context.Context) error
}

// OwnerTTL is how long an owner counts as alive after its last renewal; owners renew at a third of it.
const OwnerTTL = 15 * time.Second
