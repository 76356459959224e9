package runview

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/term"
)

// live is what a terminal shows in place of the lines of steps: a bar for each run under way, with the steps that run, how many have ended and how long it
// has taken, and, where there are several runs, one for all of them with the sandboxes that are up.
type live struct {
	progress *term.Progress
	standing func() int // sandboxes that this process has up

	mu   sync.Mutex
	runs map[string]*liveRun
	all  *term.Bar // nil for a single run
}

type liveRun struct {
	bar     *term.Bar
	label   string
	running []string        // steps, in the order of their start
	ended   map[string]bool // steps that the bar counts
}

// start begins to show a run.
func (l *live) start(ref bundlerun.RunRef, label string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ref.Of > 1 && l.all == nil {
		l.all = l.progress.Bar("", int64(ref.Of), term.Count)
	}
	l.runs[ref.ID] = &liveRun{bar: l.progress.Bar(label, 0, term.Count), label: label, ended: map[string]bool{}}
	l.summed()
}

// step shows that a step begins: one that had ended and runs again counts no more.
func (l *live) step(ref bundlerun.RunRef, st run.StepStarted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runs[ref.ID]
	if r == nil {
		return
	}
	if r.ended[st.ID] {
		delete(r.ended, st.ID)
		r.bar.Add(-1)
	}
	name := fmt.Sprintf("%s (%s)", st.ID, st.Type)
	if st.Attempt > 1 {
		name += fmt.Sprintf(", attempt %d", st.Attempt)
	}
	r.running = append(slices.DeleteFunc(r.running, func(s string) bool { return names(s, st.ID) }), name)
	r.bar.SetTotal(int64(st.Of))
	l.relabel(r)
}

// stepEnded shows a step's end. One that runs again is not done.
func (l *live) stepEnded(ref bundlerun.RunRef, st run.StepEnded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runs[ref.ID]
	if r == nil {
		return
	}
	r.running = slices.DeleteFunc(r.running, func(s string) bool { return names(s, st.ID) })
	if !st.Again && !r.ended[st.ID] {
		r.ended[st.ID] = true
		r.bar.Add(1)
	}
	l.relabel(r)
}

// end takes a run's bar away.
func (l *live) end(ref bundlerun.RunRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runs[ref.ID]
	if r == nil {
		return
	}
	delete(l.runs, ref.ID)
	r.bar.Done()
	if l.all != nil {
		l.all.Add(1)
	}
	l.summed()
}

// names tells whether a shown step is the one of this id.
func names(shown, id string) bool { return strings.HasPrefix(shown, id+" (") }

// relabel says which steps of a run are under way. The lock is held.
func (l *live) relabel(r *liveRun) {
	text := r.label
	switch n := len(r.running); {
	case n > 1:
		text += fmt.Sprintf(" %s and %d more", r.running[n-1], n-1)
	case n == 1:
		text += " " + r.running[0]
	}
	if l.all == nil {
		if n := l.standing(); n > 0 {
			text += ", " + diag.Count(n, "sandbox")
		}
	}
	r.bar.SetLabel(text)
	l.summed()
}

// summed says what all runs together have. The lock is held.
func (l *live) summed() {
	if l.all == nil {
		return
	}
	text := diag.Count(len(l.runs), "run") + " under way"
	if n := l.standing(); n > 0 {
		text += ", " + diag.Count(n, "sandbox")
	}
	l.all.SetLabel(text)
}
