// Package run executes one task as one run: it starts every step whose dependencies have ended, in parallel, keeps the steps' diffs of the
// context document, retries, cancels, and records everything that happens as events of the run log.
//
// Words: a step settles when it has ended or will never start; a fatal failure is one that the task doesn't tolerate; the world is
// what the run has standing in sandboxes (internal/deploy). It knows no step type: executors do the work. Which tasks to run, how many
// at once, and what to print is bundlerun's and cli's.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// World is what the run needs of internal/deploy.
type World interface {
	Open(run string, p deploy.Policy)
	Reopen(ctx context.Context, run string, keep []deploy.Known) error
	Undo(ctx context.Context, run string, steps ...string) error
	Down(ctx context.Context, run string) (deploy.Gone, error)
}

// Watcher is told of steps as they happen, in the order of their events, from one goroutine per run. It must not block for long.
type Watcher interface {
	StepStarted(StepStarted)
	StepEnded(StepEnded)
}

// Worker is a Watcher that is told of work that a step waits for and that can take long. The calls come from the goroutines that do it.
type Worker interface {
	Working(deploy.Work)
}

// StepStarted tells that a step begins. Number counts from 1 in the task's order.
type StepStarted struct {
	Number, Of int
	ID, Type   string
	Attempt    int
}

// StepEnded tells how a step ended. Failure is nil when it succeeded.
type StepEnded struct {
	StepStarted
	Status  runlog.Status
	Seconds float64
	Failure *Failure
	Again   bool // the run goes back and runs it again
}

// Failure is why a step failed.
type Failure struct {
	Step      string `json:"step_id"`
	Type      string `json:"step_type"`
	ErrorType string `json:"error_type"`
	Error     string `json:"error"`
	Fatal     bool   `json:"is_fatal"`
	Infra     bool   `json:"infra,omitempty"`
	// Lasting tells that every later run will meet it too, until a person does something: see step.Lasts.
	Lasting bool `json:"lasting,omitempty"`
}

// String is the failure in words: "step 'box': SandboxError: no such image".
func (f Failure) String() string {
	return fmt.Sprintf("step '%s': %s: %s", f.Step, f.ErrorType, f.Error)
}

// Runner executes tasks. One Runner serves many runs at once.
type Runner struct {
	Executors *catalog.Set[step.Executor]
	World     World
	Log       *slog.Logger
	// Objects keeps what is too long for an event; nil keeps everything in events.
	Objects Objects
	// Room says whether the machine takes another step; nil always does.
	Room Room
	// Secrets resolves references to secrets in steps; nil knows none.
	Secrets Secrets
	// Redact takes the values of secrets out of everything that is recorded or said; nil knows none.
	Redact *redact.Redactor
}

// Request is one run of a task that its caller owns.
type Request struct {
	Run    string
	Task   *task.Task
	Owner  runlog.Owner
	Policy deploy.Policy // its Observer and Tell are the run's own
	Watch  Watcher       // may be nil
	// Prior is what an earlier owner left; nil for a run that nobody started.
	Prior *Prior
	// Version is the task's version where it is not the one that the run was made with.
	Version int
	// Parallel is how many steps of the run may be under way at once; 0 is no limit.
	Parallel int
	// Trial is which of the task's repeated runs this is; 0 is the first.
	Trial int
	// Seed and Models are handed to executors.
	Seed, Models map[string]string
	Agent        string
	// Fixed are the models by role that people chose for single steps, by step: they win over Models.
	Fixed map[string]map[string]string
}

// Result is how a run ended.
type Result struct {
	Status   runlog.Status
	Scores   map[string]float64 // by verifier; none for an infra_failed or cancelled run
	Failures []Failure          // those that were not made good by a retry, the one that decides first
	Seconds  float64            // from the first step's start to the last one's end
	Removed  int                // sandboxes taken down
	Left     []string           // ids of sandboxes that could not be removed
	// Isolation is the weakest level in force among the run's sandboxes; "" when it had none.
	Isolation string
	Cost      runlog.Cost // of all attempts of all steps, an earlier owner's too
	TakenOver bool        // a person's hand was on a computer of it, an earlier owner's time included
}

// Reasons for which a run's context is cancelled.
var (
	errAsked = errors.New("the run was asked to stop")
	errRedo  = errors.New("a step that this one depends on runs again")
)

// graceDown is how long steps that were told to stop may take before their sandboxes are taken from under them.
const graceDown = 10 * time.Second

// Run executes the task and answers how it ended. The task's own failure is no error: an error means that the run could not be recorded to its
// end (ErrFenced, a store that fails), and the Result says what is known. Run waits for every goroutine that it started, takes the
// run's world down unless the policy keeps it, and leaves the Owner to its caller.
func (r *Runner) Run(ctx context.Context, q Request) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rec := newRecorder(ctx, q, r, cancel)
	stop := rec.start()
	defer stop()

	policy := q.Policy
	policy.Observer, policy.Tell = rec, rec.telling(q.Watch)
	r.World.Open(q.Run, policy)

	start := runlog.RunStart{Isolation: policy.Isolation, Version: q.Version}
	for i := range q.Task.Steps {
		start.Steps = append(start.Steps, runlog.StepInfo{ID: q.Task.Steps[i].ID, Type: q.Task.Steps[i].Type})
	}
	began := time.Now()
	if q.Prior != nil {
		start.Resumed = q.Prior.started
	}
	rec.hold(event(runlog.RunStarted, "", 0, start))
	s := newSched(ctx, r, q, rec)
	if q.Prior != nil {
		s.resumed(q.Prior)
	}
	s.loop()

	res := s.result()
	res.Seconds = seconds(time.Since(began))
	res.Isolation = rec.weakest()
	res.Cost = rec.spent()
	end := runlog.RunEnd{Status: res.Status, Scores: res.Scores, Cost: res.Cost}
	if len(res.Failures) > 0 {
		f := res.Failures[0]
		end.Error, end.ErrorType, end.Step = f.Error, f.ErrorType, f.Step
	}
	kept := policy.Keep && (res.Status != runlog.Cancelled || rec.fenced())
	if !kept {
		s.down()
		res.Removed, res.Left = s.gone.Removed, s.gone.Left
		end.Left = s.gone.Left
	}
	res.TakenOver = rec.takenOver() // nobody takes over what is down
	before := rec.failed()
	err := rec.commit(event(runlog.RunEnded, "", 0, end))
	if err != nil && before == nil { // the result doesn't say it yet
		res.unrecorded(err)
	}
	return res, err
}

func seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

// models are those of one step, by role.
func (q *Request) models(id string) map[string]string { return over(q.Models, q.Fixed[id]) }

// over is base with what fixed says in its place.
func over(base, fixed map[string]string) map[string]string {
	if len(fixed) == 0 {
		return base
	}
	out := maps.Clone(fixed)
	for role, name := range base {
		if _, has := out[role]; !has {
			out[role] = name
		}
	}
	return out
}
