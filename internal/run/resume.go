package run

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// What a resumed run does with a step.
const (
	Kept   = "kept"   // it is not run again
	Again  = "again"  // it had started, and runs from its beginning
	Starts = "starts" // it had not started
	Never  = "never"  // it doesn't run any more
)

// StepPlan says what a resumed run does with a step, and why.
type StepPlan struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Action string `json:"action"`
	Why    string `json:"why"`
}

// Prior is what an earlier owner of a run left, and what follows from it: Runner.Replan makes it, Request takes it.
type Prior struct {
	Steps []StepPlan

	started   bool // a RunStarted was recorded
	cancelled bool
	taken     bool // a person's hand was on a computer of it
	past      []past
	order     []int // kept steps in the order of their ends
	reset     []string
	boxes     []deploy.Known // that stand and stay
	levels    []string       // of their isolation
}

// past is what is recorded of one step.
type past struct {
	status   runlog.Status // of its last attempt; "" when it has to start (again)
	attempt  int
	retries  int
	goesBack bool // it failed, and the run was to go back because of it
	end      runlog.StepEnd
	ops      []step.Op
	seq      uint64 // of its end
	decided  []json.RawMessage
	cost     runlog.Cost

	again string // why it runs again
}

func (p *past) settled() bool {
	switch p.status {
	case runlog.Succeeded, runlog.Failed, runlog.InfraFailed, runlog.Skipped:
		return true
	default:
		return false
	}
}

// Replan reads what an earlier owner recorded of a run of t, and decides per step. alive are the ids of the sandboxes that stand and can be used;
// changed says of steps, by id, why their document is no longer what it was. It changes nothing.
//
// What has ended stays, unless a step that is still to run needs a sandbox that is gone: then the step that made the sandbox runs again, with
// everything that depends on it. After a fatal failure nothing is run again.
func (r *Runner) Replan(ctx context.Context, t *task.Task, events []runlog.Event, alive map[string]bool, changed map[string]string) (*Prior, error) {
	p := &Prior{past: make([]past, len(t.Steps))}
	boxes, err := p.read(ctx, t, events, r.Objects)
	if err != nil {
		return nil, err
	}
	fatal := false
	for i := range p.past {
		fatal = fatal || p.past[i].settled() && p.past[i].end.Fatal
	}
	d := decider{r: r, t: t, p: p, anc: t.Ancestors(), boxes: boxes, alive: alive, fatal: fatal}
	if !fatal && !p.cancelled {
		d.changed(changed)
		d.goBack()
		d.worlds()
	}
	d.sum()
	return p, nil
}

// read folds the events.
func (p *Prior) read(ctx context.Context, t *task.Task, events []runlog.Event, objects Objects) ([]runlog.Box, error) {
	index := make(map[string]int, len(t.Steps))
	for i := range t.Steps {
		index[t.Steps[i].ID] = i
	}
	var boxes []runlog.Box
	for _, e := range events {
		var s *past
		if i, ok := index[e.Step]; ok {
			s = &p.past[i]
		}
		var err error
		switch e.Kind {
		case runlog.RunStarted:
			p.started = true
		case runlog.Cancelling:
			p.cancelled = true
		case runlog.EnvTaken:
			p.taken = true
		case runlog.StepStarted:
			if s != nil {
				s.status, s.attempt, s.ops, s.goesBack = runlog.Running, e.Attempt, nil, false
			}
		case runlog.StepEnded:
			if s != nil {
				err = s.ended(ctx, e, objects)
			}
		case runlog.StepDecided:
			if s != nil {
				s.decided = append(s.decided, e.Data)
			}
		case runlog.StepCost:
			var c runlog.Cost
			if err = json.Unmarshal(e.Data, &c); s != nil {
				s.cost = s.cost.Plus(c)
			}
		case runlog.StepsReset:
			var d runlog.Reset
			err = json.Unmarshal(e.Data, &d)
			for _, id := range d.Steps {
				if i, ok := index[id]; ok {
					s := &p.past[i]
					s.status, s.ops, s.goesBack = "", nil, false
				}
			}
		case runlog.BoxCreated, runlog.BoxRemoved:
			var b runlog.Box
			err = json.Unmarshal(e.Data, &b)
			boxes = slices.DeleteFunc(boxes, func(o runlog.Box) bool { // an attempt's sandbox takes the place of the one before
				return o.ID == b.ID || e.Kind == runlog.BoxCreated && o.Step == b.Step && o.Name == b.Name
			})
			if e.Kind == runlog.BoxCreated || b.Error != "" {
				boxes = append(boxes, b)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("event %d of the run (%s) can't be read: %w", e.Seq, e.Kind, err)
		}
	}
	return boxes, nil
}

func (p *past) ended(ctx context.Context, e runlog.Event, objects Objects) error {
	p.end = runlog.StepEnd{}
	if err := json.Unmarshal(e.Data, &p.end); err != nil {
		return err
	}
	p.status, p.seq, p.goesBack, p.decided = p.end.Status, e.Seq, p.end.Again, nil
	if p.end.Again {
		p.retries++
	}
	var err error
	p.ops, err = loadOps(ctx, objects, p.end.Diff)
	p.end.Diff = nil
	return err
}

// decider works out which steps run again.
type decider struct {
	r     *Runner
	t     *task.Task
	p     *Prior
	anc   []task.Set
	boxes []runlog.Box
	alive map[string]bool
	fatal bool
}

// again makes a step run again, with everything that depends on it.
func (d *decider) again(i int, why, whyAfter string) {
	d.one(i, why)
	after := d.t.Dependents(i)
	for j := i + 1; j < len(d.t.Steps); j++ {
		if after.Has(j) {
			d.one(j, whyAfter)
		}
	}
}

func (d *decider) one(i int, why string) {
	if s := &d.p.past[i]; s.again == "" && s.status != "" && s.status != runlog.Skipped {
		s.again = why
	}
}

func (d *decider) changed(why map[string]string) {
	for i := range d.t.Steps {
		id := d.t.Steps[i].ID
		if w, ok := why[id]; ok && d.p.past[i].status != "" {
			d.again(i, w, fmt.Sprintf("it depends on step '%s', which runs again", id))
		}
	}
}

// goBack does what the owner before had begun: retries, and steps that it had stopped.
func (d *decider) goBack() {
	for i := range d.t.Steps {
		switch s := &d.p.past[i]; {
		case s.goesBack:
			from := i
			if rule := d.t.Steps[i].Retry; rule != nil {
				from = rule.From
			}
			why := fmt.Sprintf("step '%s' failed, and the run goes back to step '%s'", d.t.Steps[i].ID, d.t.Steps[from].ID)
			d.again(from, why, why)
		case s.status == runlog.Running:
			d.one(i, "it had not ended")
		case s.status == runlog.Cancelled:
			d.one(i, "it had been stopped")
		}
	}
}

// worlds makes steps run again whose sandboxes are gone and needed, until nothing more follows.
func (d *decider) worlds() {
	maker := map[string]int{}
	for i := range d.t.Steps {
		maker[d.t.Steps[i].ID] = i
	}
	for more := true; more; {
		more = false
		for i := range d.t.Steps {
			s := &d.p.past[i]
			if s.settled() && s.again == "" && s.status != runlog.Skipped {
				continue
			}
			names, all := d.r.uses(&d.t.Steps[i])
			if g := d.agent(i); g >= 0 {
				d.again(g, fmt.Sprintf("its agent went with the process before, and step '%s' needs it", d.t.Steps[i].ID),
					fmt.Sprintf("it depends on step '%s', whose agent is gone", d.t.Steps[g].ID))
				more = true
			}
			for _, b := range d.boxes {
				g, ok := maker[b.Step]
				if !ok || g == i || d.alive[b.ID] || d.p.past[g].again != "" || !d.p.past[g].settled() ||
					!(all && d.anc[i].Has(g) || slices.Contains(names, b.Name)) {
					continue
				}
				d.again(g, fmt.Sprintf("its sandbox '%s' is gone, and step '%s' needs it", b.Name, d.t.Steps[i].ID),
					fmt.Sprintf("it depends on step '%s', whose sandbox is gone", d.t.Steps[g].ID))
				more = true
			}
		}
	}
}

// agent is a step that has to deploy again the agent that step i needs, since agents go with the process that deployed them; -1 for none.
func (d *decider) agent(i int) int {
	name := d.t.Steps[i].Doc.Get("agent_name").Text()
	if name == "" && d.t.Steps[i].Type == "prompt_agent" {
		name = step.DefaultAgent
	}
	if name == "" {
		return -1
	}
	for g := range d.t.Steps {
		st, s := &d.t.Steps[g], &d.p.past[g]
		switch st.Type {
		case "deploy_agent", "install_agent", "deploy_human_agent":
		default:
			continue
		}
		own := st.Doc.Get("agent_name").Text()
		if own == "" {
			own = step.DefaultAgent
			if st.Type == "deploy_human_agent" {
				own = "human_agent"
			}
		}
		if g != i && own == name && d.anc[i].Has(g) && s.settled() && s.again == "" && s.status == runlog.Succeeded {
			return g
		}
	}
	return -1
}

// uses are the sandboxes that a step names; all is true of one that may use any that its ancestors made.
func (r *Runner) uses(st *task.Step) (names []string, all bool) {
	if e, ok := r.Executors.Get(st.Type); st.Kind == nil || ok && e.Origin.Kind != catalog.Builtin {
		return nil, true
	}
	switch {
	case st.Type == "deploy_sandbox", st.Type == "teardown_sandboxes": // one makes its own; what is gone need not be removed
		return nil, false
	case st.Type == "rubrics_verifier" && st.Doc.Get("agent_name").IsNull(): // a model judges what is on record
		return nil, false
	}
	for _, n := range sandboxNames(st.Doc) {
		names = append(names, n.Text())
	}
	if len(names) > 0 {
		return names, false
	}
	return nil, slices.ContainsFunc(st.Kind.Fields.Fields, func(f doc.Field) bool {
		switch f.Name {
		case "sandbox_name", "sandbox_names", "agent_name", "agent_names", "env_id", "env_ids", "container_name":
			return true
		default:
			return false
		}
	})
}

// sum says what becomes of each step, and which sandboxes stay.
func (d *decider) sum() {
	p := d.p
	for i := range d.t.Steps {
		s, st := &p.past[i], &d.t.Steps[i]
		plan := StepPlan{ID: st.ID, Type: st.Type}
		switch {
		case s.again != "":
			plan.Action, plan.Why = Again, s.again
		case s.settled() && s.status != runlog.Skipped:
			plan.Action, plan.Why = Kept, d.why(i)
		case p.cancelled:
			plan.Action, plan.Why = Never, "the run had been cancelled"
		case d.fatal && !st.Always:
			plan.Action, plan.Why = Never, "a step before it failed"
		case s.status == "" || s.status == runlog.Skipped:
			plan.Action, plan.Why = Starts, "it had not started"
			s.status = ""
		default:
			plan.Action, plan.Why = Again, "it had not ended"
		}
		if plan.Action == Again {
			p.reset = append(p.reset, st.ID)
			s.status, s.ops = "", nil
		}
		p.Steps = append(p.Steps, plan)
		if s.settled() {
			p.order = append(p.order, i)
		} else {
			s.status = ""
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { return int(int64(p.past[a].seq) - int64(p.past[b].seq)) })
	stays := map[string]bool{}
	for _, i := range p.order {
		stays[d.t.Steps[i].ID] = true
	}
	for _, b := range d.boxes {
		if d.alive[b.ID] && stays[b.Step] {
			p.boxes = append(p.boxes, deploy.Known{Provider: b.Provider, ID: b.ID, Name: b.Name, Step: b.Step})
			var isolation struct{ Level string }
			if json.Unmarshal(b.Isolation, &isolation) == nil {
				p.levels = append(p.levels, isolation.Level)
			}
		}
	}
}

// why says why a step that has ended stays as it is.
func (d *decider) why(i int) string {
	how := "finished"
	if d.p.past[i].status != runlog.Succeeded {
		how = "failed, which the task tolerates"
		if d.p.past[i].end.Fatal {
			how = "failed, which ends the task"
		}
	}
	made, up := false, true
	for _, b := range d.boxes {
		if b.Step == d.t.Steps[i].ID {
			made, up = true, up && d.alive[b.ID]
		}
	}
	names, all := d.r.uses(&d.t.Steps[i])
	switch {
	case made && up:
		return how + ", its sandbox is up"
	case made:
		return how + ", nothing that is left to run needs its sandbox"
	case len(names) > 0 || all:
		return how
	default:
		return how + ", needs no world"
	}
}

// restore puts the scheduler where the run was.
func (s *sched) restore(p *Prior) {
	for i := range s.nodes {
		s.nodes[i].attempt, s.nodes[i].retries = p.past[i].attempt, p.past[i].retries
	}
	for _, i := range p.order {
		n, old, st := &s.nodes[i], &p.past[i], s.step(i)
		switch old.status {
		case runlog.Succeeded:
			n.state = succeeded
			s.hist.Commit(i, old.ops)
		case runlog.Skipped:
			n.state = skipped
		default:
			n.state = failed
			s.hist.Commit(i, old.ops) // of a failure that keeps what the step left
			n.failure = &Failure{
				Step: st.ID, Type: st.Type, ErrorType: old.end.ErrorType, Error: old.end.Error, Fatal: old.end.Fatal, Infra: old.status == runlog.InfraFailed,
			}
			s.failures = append(s.failures, n.failure)
			s.fatal = s.fatal || old.end.Fatal
		}
	}
	for _, i := range p.order {
		for _, j := range s.nodes[i].next {
			s.nodes[j].waits--
		}
	}
	s.ready = s.ready[:0]
	for i := range s.nodes {
		if s.nodes[i].state == waiting && s.nodes[i].waits == 0 {
			s.ready = append(s.ready, i)
		}
	}
	s.stopped, s.cut = p.cancelled, p.cancelled
}

// resumed takes over from an earlier owner. The record says so before anything of that owner's world is touched, so that an owner who lost the run
// touches nothing.
func (s *sched) resumed(p *Prior) {
	s.restore(p)
	for i := range p.past {
		for _, data := range p.past[i].decided {
			if d, ok := s.rec.decision(s.step(i).ID, data); ok {
				s.rec.deliver(s.step(i).ID, d)
			}
		}
		s.rec.cost = s.rec.cost.Plus(p.past[i].cost)
	}
	s.rec.taken = p.taken
	s.rec.levels = append(s.rec.levels, p.levels...)
	if len(p.reset) > 0 {
		s.rec.hold(event(runlog.StepsReset, "", 0, runlog.Reset{Steps: p.reset, Reason: runlog.ResetResume}))
	}
	if s.rec.commit() != nil {
		return // the run's context is cancelled by now
	}
	if err := s.r.World.Reopen(s.ctx, s.q.Run, p.boxes); err != nil {
		s.rec.log(slog.LevelWarn, "removing what an earlier owner of the run had standing: "+err.Error())
	}
}
