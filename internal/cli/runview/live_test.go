package runview

import (
	"testing"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/term"
)

// TestLiveCounts: a step that runs again counts once, whatever the order of what is told, and a run that nobody announced shows nothing.
func TestLiveCounts(t *testing.T) {
	s, _, _ := term.Buffers("")
	s.Quiet = true
	l := &live{progress: s.NewProgress(t.Context()), runs: map[string]*liveRun{}, standing: func() int { return 0 }}
	defer l.progress.Close()
	ref := bundlerun.RunRef{ID: "r", Of: 1}
	begin := func(id string, attempt int) { l.step(ref, run.StepStarted{ID: id, Type: "x", Of: 3, Attempt: attempt}) }
	end := func(id string, again bool) {
		l.stepEnded(ref, run.StepEnded{StepStarted: run.StepStarted{ID: id, Type: "x"}, Status: runlog.Succeeded, Again: again})
	}
	begin("early", 1)
	end("early", false)
	l.start(ref, "[r]")
	r := l.runs["r"]
	begin("a", 1)
	end("a", false)
	begin("ab", 1)
	begin("b", 1)
	end("b", true) // the run goes back to a
	begin("a", 2)
	end("a", false)
	begin("b", 2)
	end("b", false)
	if len(r.ended) != 2 || !r.ended["a"] || !r.ended["b"] {
		t.Errorf("ended: %v", r.ended)
	}
	if len(r.running) != 1 || r.running[0] != "ab (x)" {
		t.Errorf("running: %q", r.running)
	}
	l.end(ref)
	l.end(ref)
	if len(l.runs) != 0 {
		t.Error("the run stays")
	}
}
