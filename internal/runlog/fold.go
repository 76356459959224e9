package runlog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// outcomes are the statuses of an ended run.
var outcomes = [...]Status{Passed, Scored, Unscored, Failed, InfraFailed, Cancelled}

// Apply folds one event into the summary and tells whether it changed. Only the kinds RunStarted, RunEnded, RunRegraded and EnvTaken do.
// It fails on data that is not what the kind says.
func (s *Summary) Apply(e Event) (bool, error) {
	switch e.Kind {
	case RunStarted:
		var d RunStart
		if err := decode(e, &d); err != nil {
			return false, err
		}
		s.Status, s.Ended, s.Error, s.Scores = Running, time.Time{}, "", nil
		if s.Started.IsZero() { // a resumed run started when it first did
			s.Started = e.At
		}
		return true, nil
	case RunEnded:
		var d RunEnd
		if err := decode(e, &d); err != nil {
			return false, err
		}
		if !slices.Contains(outcomes[:], d.Status) {
			return false, fmt.Errorf("%s: %q is no status of an ended run", e.Kind, d.Status)
		}
		s.Status, s.Ended, s.Error, s.Scores = d.Status, e.At, d.Error, d.Scores
		return true, nil
	case RunRegraded:
		var d Regrade
		if err := decode(e, &d); err != nil {
			return false, err
		}
		if !s.Status.Ended() || !slices.Contains(outcomes[:], d.Status) {
			return false, fmt.Errorf("%s: %q can't take the place of %q", e.Kind, d.Status, s.Status)
		}
		s.Status, s.Error, s.Scores = d.Status, d.Error, d.Scores
		return true, nil
	case EnvTaken:
		was := s.TakenOver
		s.TakenOver = true // whatever comes after, a run that starts again included
		return !was, nil
	}
	return false, nil
}

func decode(e Event, v any) error {
	if len(e.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(e.Data, v); err != nil {
		return fmt.Errorf("%s: its data can't be read: %w", e.Kind, err)
	}
	return nil
}

// Fold is what a run's events, in order, amount to. s says what the events don't: the run's Meta, its owner, and whether the log
// holds it for interrupted. An event whose data can't be read counts for what its own fields say.
func Fold(s Summary, events []Event) Record {
	f := folder{r: Record{Summary: s}, steps: map[string]int{}, diffs: map[string]json.RawMessage{}}
	f.r.Status, f.r.Started, f.r.Ended, f.r.Error, f.r.Scores = Queued, time.Time{}, time.Time{}, "", nil
	f.r.TakenOver = false
	for _, e := range events {
		f.add(e)
	}
	return f.end(s.Status == Interrupted)
}

// Load reads a run and folds its events.
func Load(ctx context.Context, l Log, run string) (Record, error) {
	s, err := l.Get(ctx, run)
	if err != nil {
		return Record{}, err
	}
	var events []Event
	for e, err := range l.Events(ctx, run, 0) {
		if err != nil {
			return Record{}, err
		}
		events = append(events, e)
	}
	return Fold(s, events), nil
}

type folder struct {
	r     Record
	steps map[string]int             // id -> index in r.Steps
	diffs map[string]json.RawMessage // of the last attempt of each step
	ended []string                   // steps in the order of their last ends
}

func (f *folder) add(e Event) {
	_, _ = f.r.Apply(e)
	switch e.Kind {
	case RunStarted:
		var d RunStart
		if decode(e, &d) == nil {
			f.start(d)
		}
	case RunEnded:
		var d RunEnd
		if decode(e, &d) == nil {
			f.r.FailedAt, f.r.Left = d.Step, d.Left
		}
	case RunRegraded:
		var d Regrade
		if decode(e, &d) == nil {
			d.At = e.At
			f.r.Regrades = append(f.r.Regrades, d)
			if f.r.FailedAt != "" && d.Error == "" {
				f.r.FailedAt = ""
			}
		}
	case StepStarted:
		var d StepStart
		_ = decode(e, &d)
		st := f.step(e.Step)
		if d.Type != "" {
			st.Type = d.Type
		}
		*st = StepRecord{StepInfo: st.StepInfo, Status: Running, Attempt: e.Attempt, Started: e.At, Retries: st.Retries, Cost: st.Cost}
		delete(f.diffs, e.Step)
	case StepEnded:
		f.stepEnded(e)
	case StepsReset:
		var d Reset
		if decode(e, &d) == nil {
			f.reset(d)
		}
	case StepCost:
		var d Cost
		if decode(e, &d) == nil {
			st := f.step(e.Step)
			st.Cost = st.Cost.Plus(d)
			f.r.Cost = f.r.Cost.Plus(d)
		}
	case EnvKept:
		var d Kept
		if decode(e, &d) == nil && d.What == keptScreen {
			f.r.Films = append(f.r.Films, Film{e.Step, d.Env, d.Instance, d.Object})
		}
	case EnvTaken:
		var d Taken
		_ = decode(e, &d) // also one that can't be read was a hand
		f.taken(e, d)
	case BoxCreated, BoxRemoved:
		var d Box
		if decode(e, &d) == nil {
			f.box(e.Kind, d)
		}
	}
}

// start takes the steps as planned, in their order, and keeps what an earlier start of the run has recorded of them.
func (f *folder) start(d RunStart) {
	old, at := f.r.Steps, f.steps
	f.r.Steps, f.steps = make([]StepRecord, 0, len(d.Steps)), make(map[string]int, len(d.Steps))
	f.r.FailedAt, f.r.Left = "", nil
	f.r.Epochs++
	if d.Version > 0 {
		f.r.TaskVersion = d.Version
	}
	for _, info := range d.Steps {
		st := StepRecord{StepInfo: info, Status: Queued}
		if i, ok := at[info.ID]; ok {
			st = old[i]
			st.StepInfo = info
		}
		f.steps[info.ID] = len(f.r.Steps)
		f.r.Steps = append(f.r.Steps, st)
	}
}

// step is the record of a step; one that no RunStarted planned is added at the end.
func (f *folder) step(id string) *StepRecord {
	i, ok := f.steps[id]
	if !ok {
		i = len(f.r.Steps)
		f.steps[id] = i
		f.r.Steps = append(f.r.Steps, StepRecord{StepInfo: StepInfo{ID: id}, Status: Queued})
	}
	return &f.r.Steps[i]
}

func (f *folder) stepEnded(e Event) {
	var d StepEnd
	if err := decode(e, &d); err != nil || d.Status == "" {
		d = StepEnd{Status: Failed, Error: "how it ended can't be read"}
	}
	st := f.step(e.Step)
	if st.Status != Running { // it never started: skipped, or ended by the scheduler
		*st = StepRecord{StepInfo: st.StepInfo, Retries: st.Retries, Cost: st.Cost}
	}
	if d.Again {
		st.Retries++
	}
	st.Status, st.Ended, st.Seconds, st.Error, st.ErrorType = d.Status, e.At, d.Seconds, d.Error, d.ErrorType
	if e.Attempt != 0 {
		st.Attempt = e.Attempt
	}
	f.diffs[e.Step] = d.Diff
	f.ended = append(slices.DeleteFunc(f.ended, func(id string) bool { return id == e.Step }), e.Step)
}

// reset forgets what steps did, but not how often they tried and what they cost.
func (f *folder) reset(d Reset) {
	gone := make(map[string]bool, len(d.Steps))
	for _, id := range d.Steps {
		gone[id] = true
		st := f.step(id)
		*st = StepRecord{StepInfo: st.StepInfo, Status: Queued, Attempt: st.Attempt, Retries: st.Retries, Cost: st.Cost}
		delete(f.diffs, id)
	}
	f.ended = slices.DeleteFunc(f.ended, func(id string) bool { return gone[id] })
}

func (f *folder) taken(e Event, d Taken) {
	i := slices.IndexFunc(f.r.Hands, func(h Hand) bool { return h.ID == d.ID && h.To.IsZero() })
	if i < 0 {
		f.r.Hands = append(f.r.Hands, Hand{Step: e.Step, Taken: d, From: e.At})
		i = len(f.r.Hands) - 1
	}
	if h := &f.r.Hands[i]; d.Ended {
		h.Ended, h.Inputs, h.To = true, d.Inputs, e.At
	}
}

func (f *folder) box(kind string, d Box) {
	i := slices.IndexFunc(f.r.Boxes, func(b Box) bool { return b.ID == d.ID })
	switch {
	case kind == BoxCreated && i < 0:
		f.r.Boxes = append(f.r.Boxes, d)
	case kind == BoxCreated:
		f.r.Boxes[i] = d
	case i >= 0:
		if d.Error != "" {
			f.r.Boxes[i].Error = d.Error
		}
		if d.Blocked != nil {
			f.r.Boxes[i].Blocked = d.Blocked
		}
	}
}

// end says what became of steps that nothing more was heard of, and sums up boxes and verifications.
func (f *folder) end(interrupted bool) Record {
	if interrupted && !f.r.Status.Ended() {
		f.r.Status = Interrupted
	}
	for i := range f.r.Steps {
		st := &f.r.Steps[i]
		switch {
		case st.Status == Queued && f.r.Status.Ended():
			st.Status = Skipped
		case st.Status == Running && f.r.Status != Running:
			st.Status = Interrupted
		}
	}
	f.r.Isolation = weakest(f.r.Boxes)
	for _, id := range f.ended {
		f.verify(f.diffs[id])
	}
	return f.r
}

// verified is where verifiers leave their results in the context document; a name's "/" and "%" are escaped there.
const verified = "metadata/verifications/"

func (f *folder) verify(diff json.RawMessage) {
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
		Object   json.RawMessage
	}
	if len(diff) == 0 || json.Unmarshal(diff, &ops) != nil {
		return
	}
	for _, op := range ops {
		f.model(op.Op, op.Path, op.Value)
		name, ok := strings.CutPrefix(op.Path, verified)
		name = strings.NewReplacer("%2F", "/", "%25", "%").Replace(name)
		switch {
		case !ok:
		case op.Op == "set":
			if f.r.Verified == nil {
				f.r.Verified = map[string]json.RawMessage{}
			}
			if f.r.Verified[name] = op.Value; len(op.Object) > 0 {
				f.r.Verified[name] = json.RawMessage(`{"object":` + string(op.Object) + `}`)
			}
		case op.Op == "unset":
			delete(f.r.Verified, name)
		}
	}
}

// models is where steps leave the names of the models that they used: a role and the step below it.
const models = "metadata/models/"

func (f *folder) model(op, path string, value json.RawMessage) {
	at, ok := strings.CutPrefix(path, models)
	role, _, inRole := strings.Cut(at, "/")
	var name string
	if !ok || !inRole || op != "set" || json.Unmarshal(value, &name) != nil || name == "" || slices.Contains(f.r.Models[role], name) {
		return
	}
	if f.r.Models == nil {
		f.r.Models = map[string][]string{}
	}
	f.r.Models[role] = append(f.r.Models[role], name)
	slices.Sort(f.r.Models[role])
}

// levels are the isolation levels of package sandbox, weakest first.
var levels = [...]string{"none", "namespaces", "container"}

// weakest is the weakest level in force among boxes; an unknown one counts as the weakest of all.
func weakest(boxes []Box) string {
	out, rank := "", len(levels)
	for _, b := range boxes {
		var d struct{ Level string }
		if len(b.Isolation) == 0 || json.Unmarshal(b.Isolation, &d) != nil || d.Level == "" {
			continue
		}
		if i := slices.Index(levels[:], d.Level); i < rank {
			out, rank = d.Level, i
		}
	}
	return out
}
