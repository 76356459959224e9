package host_test

import (
	"log/slog"
	"testing"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// TestListsOfParallelSteps: a plugin that hands a list back whole, as Python steps that change an element do, undoes nothing that others added meanwhile.
func TestListsOfParallelSteps(t *testing.T) {
	r := start(t, "", nil)
	var h step.History
	commit := func(i int, fill func(d *step.Diff) error) {
		var d step.Diff
		if err := fill(&d); err != nil {
			t.Fatal(err)
		}
		h.Commit(i, d.Ops())
	}
	env := func(id string) map[string]any { return map[string]any{"env_id": id} }
	commit(0, func(d *step.Diff) error { return d.Append("deployed_envs", env("a")) })
	commit(1, func(d *step.Diff) error { return d.Append("deployed_envs", env("b")) })
	ancestors := func(s int) bool { return s < 2 }
	out := &step.Diff{}
	err := r.step.Run(t.Context(), &step.Call{
		Run: "@local/b/t-1", Step: "s", Attempt: 1, Trial: 1, Doc: doc.Build(map[string]any{"id": "s", "type": "acme", "do": "mark"}),
		State: h.View(ancestors), Out: out, Log: slog.New(&lines{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	commit(2, func(d *step.Diff) error { return d.Append("deployed_envs", env("c")) })
	if path, _ := h.Lost(out.Ops(), ancestors); path != "" {
		t.Errorf("%s is lost", path)
	}
	h.Commit(3, out.Ops())
	all, err := h.View(func(int) bool { return true }).Document()
	if want := `{"deployed_envs":[{"env_id":"a"},{"env_id":"b","marked":true},{"env_id":"c"}]}`; err != nil || string(all) != want {
		t.Errorf("%s, %v; want %s", all, err, want)
	}
}
