package report

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/runlog"
)

// TestPageIsSafe: whatever tasks, errors and models are called, the page holds it as text.
func TestPageIsSafe(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	r := &Report{
		ID: "e" + evil, Eval: evil, K: 1, Program: evil, Isolation: evil, Sandbox: evil,
		Trials: []Trial{{Task: "a" + evil, Number: 1, Status: runlog.Passed, Scores: map[string]float64{"v": 1}, Run: evil, Error: evil}},
	}
	r.Sum()
	r.Models = map[string][]string{"solver": {evil}}
	var b strings.Builder
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if strings.Contains(page, "<script") || strings.Contains(page, `"">`) || strings.Contains(page, "%!") {
		t.Error(page)
	}
	for _, want := range []string{"&lt;script&gt;", "<svg", "1 passed", "mean score", "</html>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}
