package runview

import (
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/term"
)

// Lines of `run --json` and of what else runs tasks. docs/json.md tells what they are for.
type (
	lineHead struct {
		verb.Format
		Type string `json:"type"`
	}
	writeLine struct {
		lineHead
		ledger.Line
	}
	declaredLine struct {
		lineHead
		bundlerun.Declared
	}
	problemLine struct {
		lineHead
		verb.Problem
	}
	runLine struct {
		lineHead
		bundlerun.RunRef
	}
	stepLine struct {
		lineHead
		Run     string       `json:"run_id"`
		Step    string       `json:"step_id"`
		StepTyp string       `json:"step_type"`
		Number  int          `json:"number"`
		Of      int          `json:"of"`
		Attempt int          `json:"attempt"`
		Status  string       `json:"status,omitempty"`
		Seconds *float64     `json:"seconds,omitempty"`
		Failure *run.Failure `json:"failure,omitempty"`
		Again   bool         `json:"again,omitempty"`
	}
	holdLine struct {
		lineHead
		Why string `json:"why"`
	}
	resumeLine struct {
		lineHead
		Run   string         `json:"run_id"`
		Steps []run.StepPlan `json:"steps"`
	}
	workLine struct {
		lineHead
		Run string `json:"run_id"`
		deploy.Work
	}
	endLine struct {
		lineHead
		bundlerun.RunResult
	}
	summaryLine struct {
		lineHead
		Exit    int  `json:"exit_code"`
		Refused bool `json:"refused,omitempty"`
		*bundlerun.Summary
	}
)

func head(typ string) lineHead { return lineHead{verb.V1(), typ} }

// jsonReporter prints one object per line. The streams are safe for several goroutines; a lost output is told by Streams.Failed.
type jsonReporter struct {
	s  *term.Streams
	mu sync.Mutex

	working sync.Mutex
	said    map[int64]time.Time // when work that is under way was last told of
}

// workEvery is the time between two lines of one piece of work that is under way.
const workEvery = 5 * time.Second

// Working tells that work begins and ends, and meanwhile now and then how far it is.
func (r *jsonReporter) Working(ref bundlerun.RunRef, k deploy.Work) {
	r.working.Lock()
	defer r.working.Unlock()
	now := time.Now()
	switch {
	case k.Ended():
		delete(r.said, k.ID)
	case k.State == deploy.WorkUnderWay && now.Sub(r.said[k.ID]) < workEvery:
		return
	default:
		if r.said == nil {
			r.said = map[int64]time.Time{}
		}
		r.said[k.ID] = now
	}
	r.line(workLine{head("work"), ref.ID, k})
}

func (r *jsonReporter) line(v any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.s.JSON(v)
}

func (r *jsonReporter) Problems(l diag.List) {
	for _, p := range verb.Problems(l) {
		r.line(problemLine{head("problem"), p})
	}
}

func (r *jsonReporter) Wrote(l ledger.Line) { r.line(writeLine{head("write"), l}) }

func (r *jsonReporter) Declared(d bundlerun.Declared) {
	r.line(declaredLine{head("bundle_toml"), d})
}

func (r *jsonReporter) Waiting() { r.line(head("waiting")) }

func (r *jsonReporter) Holding(why string) { r.line(holdLine{head("holding"), why}) }

func (r *jsonReporter) Resuming(ref bundlerun.RunRef, steps []run.StepPlan) {
	r.line(resumeLine{head("resuming"), ref.ID, steps})
}

func (r *jsonReporter) RunStarted(ref bundlerun.RunRef) { r.line(runLine{head("run_started"), ref}) }

func (r *jsonReporter) StepStarted(ref bundlerun.RunRef, st run.StepStarted) {
	r.line(step(head("step_started"), ref, st))
}

func (r *jsonReporter) StepEnded(ref bundlerun.RunRef, st run.StepEnded) {
	l := step(head("step_ended"), ref, st.StepStarted)
	l.Status, l.Seconds, l.Failure, l.Again = string(st.Status), &st.Seconds, st.Failure, st.Again
	r.line(l)
}

func step(h lineHead, ref bundlerun.RunRef, st run.StepStarted) stepLine {
	return stepLine{lineHead: h, Run: ref.ID, Step: st.ID, StepTyp: st.Type, Number: st.Number, Of: st.Of, Attempt: st.Attempt}
}

func (r *jsonReporter) RunEnded(res bundlerun.RunResult) { r.line(endLine{head("run_ended"), res}) }

func (r *jsonReporter) Refused(err error) {
	r.Problems(problems(err))
	r.line(summaryLine{head("summary"), verb.Refused, true, nil})
}

func (r *jsonReporter) Summary(s *bundlerun.Summary, code int) {
	r.line(summaryLine{head("summary"), code, false, s})
}

func (r *jsonReporter) Close() {}
