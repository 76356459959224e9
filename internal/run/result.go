package run

import (
	"errors"
	"fmt"
	"slices"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// failure is an executor's error as records and people see it.
func (r *Runner) failure(st *task.Step, err error) *Failure {
	f := &Failure{Step: st.ID, Type: st.Type, Error: clip(r.Redact.String(err.Error())), Infra: step.IsInfra(err), Lasting: step.Lasts(err)}
	var typed *step.Error
	switch {
	case errors.As(err, &typed):
		f.ErrorType = typed.Type
	case errors.Is(err, guest.ErrGone):
		f.ErrorType = "SandboxGone"
	case f.Infra:
		f.ErrorType = "InfraError"
	default:
		f.ErrorType = "StepError"
	}
	return f
}

// unrecorded makes r that of a run whose record lacks its end: what nobody can look up again is no score.
func (r *Result) unrecorded(err error) {
	r.Status, r.Scores = runlog.InfraFailed, nil
	r.Failures = append([]Failure{{ErrorType: "RecordError", Error: err.Error(), Fatal: true, Infra: true}}, r.Failures...)
}

// result is how the run ended, now that every step has settled.
func (s *sched) result() Result {
	res := Result{}
	for _, f := range s.failures {
		res.Failures = append(res.Failures, *f)
	}
	// The one that decides stands first: a fault of the machinery, since what follows from it says nothing of the task; else the first fatal one.
	slices.SortStableFunc(res.Failures, func(a, b Failure) int { return weight(b) - weight(a) })
	recorded := s.rec.failed()
	switch {
	case recorded != nil:
		res.unrecorded(recorded)
	case s.cut:
		res.Status = runlog.Cancelled
	case len(res.Failures) > 0 && res.Failures[0].Infra:
		res.Status = runlog.InfraFailed
	case len(res.Failures) > 0:
		res.Status = runlog.Failed
		res.Scores, _, _ = s.scores()
	default:
		var err error
		var unscored bool
		if res.Scores, unscored, err = s.scores(); err != nil {
			res.Status = runlog.Failed
			res.Failures = []Failure{{ErrorType: "ScoreError", Error: err.Error(), Fatal: true}}
			break
		}
		res.Status = outcome(res.Scores, unscored)
	}
	return res
}

func weight(f Failure) int {
	switch {
	case f.Infra:
		return 2
	case f.Fatal:
		return 1
	default:
		return 0
	}
}

// scores are what the verifiers left; unscored tells whether one of them had nothing to say.
func (s *sched) scores() (out map[string]float64, unscored bool, err error) {
	return Scores(s.hist.View(func(int) bool { return true }))
}

// Scores are what verifiers left in a run's context; unscored tells whether one of them had nothing to say.
func Scores(all step.View) (out map[string]float64, unscored bool, err error) {
	for _, name := range all.Under(step.VerificationsPath) {
		id := step.Unchild(name)
		var v step.Verification
		if _, err := all.Get(step.Child(step.VerificationsPath, id), &v); err != nil {
			return nil, false, fmt.Errorf("the verification '%s' can't be read: %w", id, err)
		}
		if v.Unscored != "" {
			unscored = true
			continue
		}
		if out == nil {
			out = map[string]float64{}
		}
		out[id] = v.Score
	}
	return out, unscored, nil
}

// outcome is the status of a run without failures: passed when it has scores and every one is at least 1. What could not be judged leaves the whole run
// unscored: the scores that there are would be another measure than that of other runs.
func outcome(scores map[string]float64, unscored bool) runlog.Status {
	if len(scores) == 0 || unscored {
		return runlog.Unscored
	}
	for _, v := range scores {
		if v < 1 {
			return runlog.Scored
		}
	}
	return runlog.Passed
}
