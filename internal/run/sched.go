package run

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// state is where a step is.
type state uint8

const (
	waiting   state = iota // for its dependencies, or held back for a retry
	running                // its executor works
	succeeded              //
	failed                 // tolerated or fatal
	skipped                // never starts
)

func (s state) settled() bool { return s >= succeeded }

// node is one step of the graph.
type node struct {
	state   state
	waits   int      // dependencies that have not settled
	next    []int    // steps that wait for this one
	anc     task.Set // steps that this one depends on, at any distance
	attempt int
	retries int
	began   time.Time
	cancel  context.CancelCauseFunc // of the attempt that runs
	redo    bool                    // what the attempt answers is dropped: the step runs again
	failure *Failure
}

// sched is the scheduler of one run. Everything but the executors runs in the goroutine of loop.
type sched struct {
	r    *Runner
	q    Request
	rec  *recorder
	hist step.History
	ctx  context.Context //nolint:containedctx // a sched is one call of Run

	nodes    []node
	last     []int // while linking: steps since the last one that waits for all before it, that one included
	ready    []int // steps whose dependencies had settled when they came here
	done     chan ended
	inFlight int
	fatal    bool // nothing new starts but what always runs
	stopped  bool // nothing new starts
	cut      bool // a step was stopped, or did not start, because the run was cancelled
	failures []*Failure
	retries  []*retry
	gone     deploy.Gone // taken down before the end
	starting int         // steps that dispatch is about to start
	noRoom   string      // why the last step that looked for room found none
	toldRoom string      // what the record says of that; "" once no step waits
	workers  workers     // run the executors
}

// ended is what an executor left.
type ended struct {
	i    int
	ops  []step.Op
	diff json.RawMessage // ops as the record has them
	err  error
}

func newSched(ctx context.Context, r *Runner, q Request, rec *recorder) *sched {
	n := len(q.Task.Steps)
	s := &sched{r: r, q: q, rec: rec, ctx: ctx, nodes: make([]node, n), done: make(chan ended, n), workers: newWorkers()}
	for i, anc := range q.Task.Ancestors() {
		s.nodes[i].anc = anc
		s.link(i)
		if s.nodes[i].waits == 0 {
			s.ready = append(s.ready, i)
		}
	}
	return s
}

// link connects a step with those it waits for. A dependency that another one implies is left out, so that a chain, where each step depends on
// all before it, has one edge per step.
func (s *sched) link(i int) {
	var direct []int
	deps := s.step(i).Deps
	if len(deps) == i { // all before it: those that nothing waits for imply the others
		for _, d := range s.last {
			if len(s.nodes[d].next) == 0 {
				s.nodes[d].next = append(s.nodes[d].next, i)
				s.nodes[i].waits++
			}
		}
		s.last = append(s.last[:0], i)
		return
	}
	s.last = append(s.last, i)
	if !slices.IsSorted(deps) {
		deps = slices.Sorted(slices.Values(deps))
	}
	for _, d := range slices.Backward(deps) {
		if slices.ContainsFunc(direct, func(e int) bool { return e == d || s.nodes[e].anc.Has(d) }) {
			continue
		}
		direct = append(direct, d)
		s.nodes[d].next = append(s.nodes[d].next, i)
		s.nodes[i].waits++
	}
}

func (s *sched) step(i int) *task.Step { return &s.q.Task.Steps[i] }

// loop runs until every step has settled.
func (s *sched) loop() {
	defer s.workers.end()
	cancelled := s.ctx.Done()
	var grace <-chan time.Time
	for {
		s.dispatch()
		if s.inFlight == 0 && len(s.retries) == 0 {
			return
		}
		select {
		case e := <-s.done:
			s.finish(e)
			for more := true; more; { // what has ended meanwhile shares the commit
				select {
				case e := <-s.done:
					s.finish(e)
				default:
					more = false
				}
			}
		case <-s.wake():
		case <-s.roomTimer():
		case <-cancelled:
			cancelled = nil
			s.cancelling()
			t := time.NewTimer(graceDown)
			defer t.Stop()
			grace = t.C
		case <-grace:
			// A step that doesn't end when told to: without its sandboxes it has nothing to wait for.
			s.down()
		}
	}
}

// cancelling lets nothing new start. It is on record before anything that follows from it, so that a resumed run stays cancelled.
func (s *sched) cancelling() {
	if !s.stopped {
		s.stopped = true
		s.rec.hold(event(runlog.Cancelling, "", 0, struct{}{}))
	}
}

// down takes the run's world down; what a first call could not remove, a second one tries again.
func (s *sched) down() {
	gone, err := s.r.World.Down(s.ctx, s.q.Run)
	s.gone.Removed += gone.Removed
	s.gone.Left = gone.Left
	if err != nil {
		s.rec.log(slog.LevelWarn, "taking the run's sandboxes down: "+err.Error())
	}
}

// dispatch settles what can't start, starts what can, and commits the events of both together with those that wait.
func (s *sched) dispatch() {
	s.resume()
	var start []int
	full := 0 // steps in a row that found no room
	for len(s.ready) > 0 {
		i := s.ready[0]
		n := &s.nodes[i]
		due := n.state == waiting && n.waits == 0 && !s.held(i) // a retry may have come between
		starts := due && !s.stopped && (!s.fatal || s.step(i).Always)
		if starts && !s.enter() {
			if full++; !s.fatal || full >= len(s.ready) {
				break
			}
			s.ready = append(s.ready[1:], i) // those behind it that never start are settled now
			continue
		}
		s.ready = s.ready[1:]
		switch {
		case !due:
		case !starts:
			n.state = skipped
			s.cut = s.cut || s.stopped
			s.rec.hold(event(runlog.StepEnded, s.step(i).ID, 0, runlog.StepEnd{Status: runlog.Skipped}))
			s.settle(i)
		default:
			s.starting++
			full = 0
			n.state = running
			n.attempt++
			n.began = time.Now()
			start = append(start, i)
			s.rec.hold(event(runlog.StepStarted, s.step(i).ID, n.attempt, runlog.StepStart{Type: s.step(i).Type}))
		}
	}
	if len(s.ready) == 0 {
		s.toldRoom = ""
	}
	if s.rec.commit() != nil && !s.stopped { // the run's context is cancelled by now
		s.stopped = true
		for _, i := range start {
			s.nodes[i].state = waiting
			s.leave()
		}
		s.starting = 0
		s.ready = append(s.ready, start...)
		s.dispatch()
		return
	}
	s.starting = 0
	for _, i := range start {
		s.start(i)
	}
}

// settle tells the steps that wait for i.
func (s *sched) settle(i int) {
	for _, j := range s.nodes[i].next {
		if s.nodes[j].waits--; s.nodes[j].waits == 0 {
			s.ready = append(s.ready, j)
		}
	}
}

// start runs a step's executor in a worker, whose last word is a send to done.
func (s *sched) start(i int) {
	n := &s.nodes[i]
	ctx, cancel := context.WithCancelCause(s.ctx)
	n.cancel = cancel
	s.inFlight++
	if s.q.Watch != nil {
		s.q.Watch.StepStarted(s.started(i))
	}
	anc := n.anc
	call := &step.Call{
		Run: s.q.Run, Step: s.step(i).ID, Attempt: n.attempt, Trial: max(s.q.Trial, 1),
		State: s.hist.View(anc.Has),
		Out:   &step.Diff{},
		Seed:  s.q.Seed, Models: s.q.models(s.step(i).ID), Agent: s.q.Agent, Decisions: s.rec.inbox(s.step(i).ID),
		OnSpend: func(c step.Cost) { s.rec.spend(s.step(i).ID, n.attempt, runlog.Cost(c)) },
	}
	log := newStepLog(s, i)
	call.Log = slog.New(log)
	s.workers.run(func() {
		defer cancel(nil)
		e := ended{i: i, err: s.r.exec(ctx, s.step(i), call)}
		log.close()
		if e.err == nil || step.IsKept(e.err) {
			var err error
			e.ops, e.diff, err = s.output(context.WithoutCancel(ctx), call.Out) // what a cancelled step keeps is kept too
			e.err = cmp.Or(e.err, err)
		}
		s.done <- e
	})
}

// output is what a step leaves: for the steps after it, and for the record. No secret is in either.
func (s *sched) output(ctx context.Context, out *step.Diff) ([]step.Op, json.RawMessage, error) {
	ops := out.Ops()
	for i := range ops {
		ops[i].Path = s.r.Redact.String(ops[i].Path)
		ops[i].Value = s.r.Redact.JSON(ops[i].Value)
	}
	diff, err := saveOps(ctx, s.r.Objects, s.q.Run, ops)
	if err != nil {
		return nil, nil, step.Infra(err)
	}
	return ops, diff, nil
}

func (s *sched) started(i int) StepStarted {
	return StepStarted{Number: i + 1, Of: len(s.nodes), ID: s.step(i).ID, Type: s.step(i).Type, Attempt: s.nodes[i].attempt}
}

// finish takes what an executor left: its diff when it succeeded, its failure and what follows from it otherwise.
func (s *sched) finish(e ended) {
	s.inFlight--
	s.leave()
	n := &s.nodes[e.i]
	took := time.Since(n.began)
	end := runlog.StepEnd{Seconds: seconds(took)}
	again := false
	if e.err == nil && !n.redo {
		e.err = s.lost(e)
	}
	switch {
	case n.redo:
		n.redo, n.state = false, waiting
		end.Status, end.Error, again = runlog.Cancelled, errRedo.Error(), true
	case e.err == nil:
		n.state, n.failure = succeeded, nil
		end.Status = runlog.Succeeded
		end.Diff = e.diff
		s.hist.Commit(e.i, e.ops)
		s.settle(e.i)
	default:
		if again = s.fail(e.i, e.err, &end); !again && step.IsKept(e.err) {
			end.Diff = e.diff
			s.hist.Commit(e.i, e.ops)
		}
	}
	st := s.step(e.i)
	s.rec.hold(event(runlog.StepEnded, st.ID, n.attempt, end))
	if s.q.Watch != nil {
		s.q.Watch.StepEnded(StepEnded{StepStarted: s.started(e.i), Status: end.Status, Seconds: end.Seconds, Failure: n.failure, Again: again})
	}
}

// lost refuses a step's changes that would undo what steps that ran at the same time did to the same list.
func (s *sched) lost(e ended) error {
	n := &s.nodes[e.i]
	path, by := s.hist.Lost(e.ops, func(j int) bool { return j == e.i || n.anc.Has(j) })
	if path == "" {
		return nil
	}
	return step.Infra(step.Errorf("ContextConflict", "it changes %s, which step '%s' changed while it ran: let one of them depend on the other", path, s.step(by).ID))
}

// fail books a step's failure and tells whether the run goes back because of it.
func (s *sched) fail(i int, err error, end *runlog.StepEnd) (again bool) {
	n, st := &s.nodes[i], s.step(i)
	f := s.r.failure(st, err)
	n.failure = f
	end.Error, end.ErrorType = f.Error, f.ErrorType
	switch {
	case s.ctx.Err() != nil:
		f.ErrorType, f.Error = "Cancelled", "the run was cancelled"
		end.Status, end.Error, end.ErrorType = runlog.Cancelled, f.Error, f.ErrorType
		n.state = failed
		s.cancelling()
		s.cut = true
		s.settle(i)
		return false
	case f.Infra:
		end.Status = runlog.InfraFailed
	default:
		end.Status = runlog.Failed
	}
	if s.retry(i) {
		end.Again = true
		return true
	}
	n.state = failed
	f.Fatal = !st.Tolerated
	end.Fatal = f.Fatal
	s.fatal = s.fatal || f.Fatal
	s.failures = append(s.failures, f)
	s.settle(i)
	return false
}
