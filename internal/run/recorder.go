package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
)

const (
	// logDelay is how long log lines may wait to be written together.
	logDelay = 50 * time.Millisecond
	// maxPending is how many bytes of log lines may wait; a step that logs more than that writes them itself.
	maxPending = 256 << 10
	// maxMessage is how much of one log line is kept.
	maxMessage = 64 << 10
)

// recorder writes a run's events in one order: those that wait, then those of the commit. It also tells the time of the lease.
type recorder struct {
	ctx     context.Context //nolint:containedctx // the run's without its cancellation: events come from loggers, and a cancelled run's end is written too
	run     string
	owner   runlog.Owner
	slog    *slog.Logger
	redact  *redact.Redactor
	objects Objects                 // may be nil
	stop    context.CancelCauseFunc // ends the run

	order sync.Mutex // held from taking what waits until it is appended

	mu      sync.Mutex
	waiting []runlog.Event
	size    int
	err     error // of the first append that failed; nothing is written after it
	levels  []string
	wake    chan struct{}

	decisions map[string]chan step.Decision // by step
	cost      runlog.Cost
	taken     bool // a person's hand was in it
}

func newRecorder(ctx context.Context, q Request, run *Runner, stop context.CancelCauseFunc) *recorder {
	return &recorder{
		ctx: context.WithoutCancel(ctx), run: q.Run, owner: q.Owner, slog: run.Log.With("run", q.Run), stop: stop,
		redact: run.Redact, objects: run.Objects, wake: make(chan struct{}, 1),
		decisions: map[string]chan step.Decision{},
	}
}

// start renews the ownership, serves requests and writes what waits, until the function that it answers is called.
func (r *recorder) start() (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.renew(ctx) })
	wg.Go(func() { r.pump(ctx) })
	return func() { cancel(); wg.Wait() }
}

func (r *recorder) renew(ctx context.Context) {
	t := time.NewTicker(runlog.OwnerTTL / 3)
	defer t.Stop()
	requests := r.owner.Requests()
	for {
		select {
		case <-ctx.Done():
			return
		case q, ok := <-requests:
			if !ok {
				requests = nil
				break
			}
			switch q.Kind {
			case runlog.AskCancel:
				r.stop(errAsked)
			case runlog.AskDecide:
				r.decided(q.Step, q.Data)
			}
		case <-t.C:
			err := r.owner.Renew(ctx)
			switch {
			case errors.Is(err, runlog.ErrFenced):
				_ = r.fail(err) // the run's end answers it
			case err != nil && ctx.Err() == nil:
				// The next renewal or append decides: while nobody else claims the run, it goes on.
				r.slog.Warn("renew the run's ownership", "error", err)
			}
		}
	}
}

func (r *recorder) pump(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(logDelay):
			_ = r.commit() // a failure ends the run by itself
		}
	}
}

// spend records a cost before anything is done with what it bought: a run that is killed has spent it too. Costs that come at once are written together.
func (r *recorder) spend(stepID string, attempt int, c runlog.Cost) {
	r.mu.Lock()
	r.cost = r.cost.Plus(c)
	r.mu.Unlock()
	r.hold(event(runlog.StepCost, stepID, attempt, c))
	_ = r.commit() // a failure ends the run by itself
}

func (r *recorder) spent() runlog.Cost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cost
}

// maxDecisions is how many decisions of one step may wait to be read.
const maxDecisions = 16

// inbox is where decisions about a step go.
func (r *recorder) inbox(stepID string) chan step.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.decisions[stepID]
	if c == nil {
		c = make(chan step.Decision, maxDecisions)
		r.decisions[stepID] = c
	}
	return c
}

// decided records a decision, then hands it to its step. A request is handed out once, so the record is what a resumed run has of it.
func (r *recorder) decided(stepID string, data json.RawMessage) {
	if d, ok := r.decision(stepID, data); ok && r.commit(runlog.Event{At: now(), Kind: runlog.StepDecided, Step: stepID, Data: data}) == nil {
		r.deliver(stepID, d)
	}
}

func (r *recorder) decision(stepID string, data json.RawMessage) (d step.Decision, ok bool) {
	if err := json.Unmarshal(data, &d); err != nil {
		r.slog.Warn("a decision that can't be read", "step", stepID, "error", err)
		return d, false
	}
	return d, true
}

func (r *recorder) deliver(stepID string, d step.Decision) {
	select {
	case r.inbox(stepID) <- d:
	default:
		r.slog.Warn("too many decisions wait for the step", "step", stepID)
	}
}

// hold keeps an event for the next commit.
func (r *recorder) hold(e runlog.Event) (full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.At.IsZero() {
		e.At = now()
	}
	r.waiting = append(r.waiting, e)
	r.size += len(e.Data)
	return r.size > maxPending
}

// later keeps an event that is written soon by itself.
func (r *recorder) later(e runlog.Event) {
	if r.hold(e) {
		_ = r.commit() // a failure ends the run by itself
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// commit appends what waits and es, in this order. After a first failure it does nothing and answers that failure.
func (r *recorder) commit(es ...runlog.Event) error {
	r.order.Lock()
	defer r.order.Unlock()
	r.mu.Lock()
	all := append(r.waiting, es...)
	r.waiting, r.size = nil, 0
	err := r.err
	r.mu.Unlock()
	if err != nil || len(all) == 0 {
		return err
	}
	if err := r.owner.Append(r.ctx, all...); err != nil { // the store bounds how long it waits for other writers
		return r.fail(fmt.Errorf("record the run: %w", err))
	}
	return nil
}

// fail ends the run because it can't be recorded.
func (r *recorder) fail(err error) error {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	err = r.err
	r.mu.Unlock()
	r.stop(err)
	return err
}

// failed is why the run can't be recorded, or nil.
func (r *recorder) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) fenced() bool { return errors.Is(r.failed(), runlog.ErrFenced) }

// log notes something about the run as a whole.
func (r *recorder) log(level slog.Level, message string, attrs ...any) {
	message = r.redact.String(message)
	line := runlog.LogLine{Level: levelName(level), Message: clip(message)}
	for i := 0; i+1 < len(attrs); i += 2 {
		if line.Attrs == nil {
			line.Attrs = map[string]any{}
		}
		if text, ok := attrs[i+1].(string); ok {
			attrs[i+1] = r.redact.String(text)
		}
		line.Attrs[fmt.Sprint(attrs[i])] = attrs[i+1]
	}
	r.later(event(runlog.Note, "", 0, line))
	r.slog.Log(r.ctx, level, message, attrs...)
}

// BoxCreated records a sandbox with the isolation that was found in force.
func (r *recorder) BoxCreated(step, name string, b sandbox.Info) {
	r.mu.Lock()
	r.levels = append(r.levels, b.Isolation.Level)
	r.mu.Unlock()
	isolation, _ := json.Marshal(b.Isolation) // of strings and bools: it can't fail
	r.later(event(runlog.BoxCreated, step, 0, runlog.Box{ID: b.ID, Name: name, Provider: b.Provider, Step: step, Tied: b.Tied, Isolation: isolation}))
}

// maxBlocked is how many blocked destinations of a sandbox a run's record holds.
const maxBlocked = 100

// BoxRemoved records that a sandbox is gone, or why it isn't.
func (r *recorder) BoxRemoved(step, name string, b sandbox.Info, err error) {
	box := runlog.Box{ID: b.ID, Name: name, Provider: b.Provider, Step: step}
	if err != nil {
		box.Error = r.redact.String(err.Error())
	}
	for _, entry := range b.Blocked[:min(len(b.Blocked), maxBlocked)] {
		entry.Host = r.redact.String(entry.Host) // a name may be asked for that carries a secret out
		box.Blocked = append(box.Blocked, entry)
	}
	r.later(event(runlog.BoxRemoved, step, 0, box))
}

// EnvKept records where a piece of an environment's work is kept.
func (r *recorder) EnvKept(step string, p deploy.Piece) {
	r.later(event(runlog.EnvKept, step, 0, runlog.Kept{What: p.What, Env: p.Env, Instance: p.Instance, Object: runlog.Object{Digest: string(p.Digest), Size: p.Size}}))
}

// telling records that work begins and how it ends, as lines of its step's log, and tells a watcher all of it.
func (r *recorder) telling(watch Watcher) func(deploy.Work) {
	to, _ := watch.(Worker)
	return func(w deploy.Work) {
		text := ""
		switch w.State {
		case deploy.WorkBegun:
			text = w.String() + ": begins"
		case deploy.WorkDone:
			text = fmt.Sprintf("%s: done in %.1fs", w.String(), w.Seconds)
		case deploy.WorkFailed:
			text = fmt.Sprintf("%s: stopped after %.1fs", w.String(), w.Seconds)
		}
		if text != "" && w.Step != "" {
			r.later(event(runlog.StepLog, w.Step, w.Attempt, runlog.LogLine{Level: "info", Message: r.redact.String(text)}))
		}
		if to != nil {
			to.Working(w)
		}
	}
}

// EnvTaken records that a person takes over a computer, before they do anything there, or has given it back.
func (r *recorder) EnvTaken(step string, t deploy.TakeOver) error {
	r.mu.Lock()
	r.taken = true
	r.mu.Unlock()
	return r.commit(event(runlog.EnvTaken, step, 0, runlog.Taken{ID: t.ID, Env: t.Env, Instance: t.Instance, Name: t.Name, By: t.By, Ended: t.Ended, Inputs: t.Inputs}))
}

func (r *recorder) takenOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// weakest is the weakest isolation level among the sandboxes seen.
func (r *recorder) weakest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	rank := func(l string) int {
		switch l {
		case sandbox.LevelContainer:
			return 2
		case sandbox.LevelNamespaces:
			return 1
		default:
			return 0
		}
	}
	if len(r.levels) == 0 {
		return ""
	}
	weakest := r.levels[0]
	for _, l := range r.levels[1:] {
		if rank(l) < rank(weakest) {
			weakest = l
		}
	}
	return weakest
}

// event makes an event. data is one of runlog's own types, which marshal.
func event(kind, stepID string, attempt int, data any) runlog.Event {
	b, err := json.Marshal(data)
	if err != nil {
		b, _ = json.Marshal(runlog.LogLine{Level: "warn", Message: "an event could not be written as JSON: " + err.Error()})
		kind = runlog.Note
	}
	return runlog.Event{At: now(), Kind: kind, Step: stepID, Attempt: attempt, Data: b}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// clip keeps the beginning of a long message and says how much is missing.
func clip(s string) string { return cut(s, maxMessage) }

// cut keeps the first n bytes of s, less what would break a character, and says how much is missing.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for most := n; n > most-utf8.UTFMax && !utf8.RuneStart(s[n]); n-- {
	}
	return fmt.Sprintf("%s… (%d bytes more)", s[:n], len(s)-n)
}
