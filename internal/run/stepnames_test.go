package run

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

func TestPreflightOfStepNames(t *testing.T) {
	kinds := step.Kinds()
	set := catalog.New[step.Executor]("executor")
	for _, typ := range kinds.Names() {
		set.Add(typ, catalog.Origin{Kind: catalog.Builtin}, executor(func(context.Context, *step.Call) error { return nil }))
	}
	tree, l := doc.ParseJSON("tasks/t.json", []byte(`[
		{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
		{"id": "get", "type": "collect_artifacts", "sandbox_name": "box", "manifest_step_id": null},
		{"id": "fine", "type": "load_artifact", "sandbox_name": "box", "collected_artifacts_step_id": "get"},
		{"id": "any", "type": "load_artifact", "sandbox_name": "box", "artifact_from_step_id": "box"},
		{"id": "typo", "type": "load_artifact", "sandbox_name": "box", "artifact_from_step_id": "gett"},
		{"id": "type", "type": "load_artifact", "sandbox_name": "box", "collected_artifacts_step_id": "box"},
		{"id": "early", "type": "load_artifact", "sandbox_name": "box", "collected_artifacts_step_id": "get", "depends_on": ["box"]},
		{"id": "self", "type": "collect_artifacts", "sandbox_name": "box", "manifest_step_id": "self"}]`))
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	tk, l := task.Decode("@local/b/t", tree.Root(), kinds, task.Options{})
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	runner := &Runner{Executors: set, World: &world{}, Log: slog.New(slog.DiscardHandler)}
	var got []string
	for _, p := range runner.Preflight(t.Context(), tk, "tasks/t.json", step.Plan{}) {
		got = append(got, fmt.Sprint(p))
	}
	want(t, "problems", strings.Join(got, "\n"), `tasks/t.json: step 'typo': artifact_from_step_id: the task has no step 'gett'; did you mean 'get'? (line 6)
tasks/t.json: step 'type': collected_artifacts_step_id: step 'box' is of type deploy_sandbox, and this field takes a collect_artifacts step; name another (line 7)
tasks/t.json: step 'early': collected_artifacts_step_id: doesn't wait for step 'get', so it can't use what that step leaves; name that step in depends_on (line 8)
tasks/t.json: step 'self': manifest_step_id: doesn't wait for step 'self', so it can't use what that step leaves; name that step in depends_on (line 9)`)
}
