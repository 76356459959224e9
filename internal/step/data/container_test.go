package data

import (
	"context"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// leaves is an executor that leaves what f says.
type leaves func(c *step.Call) error

func (f leaves) Run(_ context.Context, c *step.Call) error { return f(c) }

// TestContainers: what a task has started is loaded into and collected from by its name.
func TestContainers(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	r.Box() // the container's box
	r.PutFile("@local/b/one", steptest.File{Path: "one", Text: "1"})
	l, g := NewLoadArtifact(r.Store, r.Deploy, nil, nil, NewDownloads(false)), NewCollectArtifacts(r.Store, r.Deploy)
	const into, from = `{"id": "l", "type": "load_artifact", "sandbox_name": "vm", "container_name": "task-container", "artifact_id": "@local/b/one", "destination_path": "/app/artifact"}`,
		`{"id": "g", "type": "collect_artifacts", "sandbox_name": "vm", "container_name": "task-container"}`
	for x, text := range map[step.Executor]string{l: into, g: from} {
		if err := r.Do(x, text); steptest.ErrorType(err) != "NotFoundError" || !strings.Contains(err.Error(), "no step before this one has started container 'task-container'") {
			t.Errorf("%s %v", steptest.ErrorType(err), err)
		}
	}
	r.Must(leaves(func(c *step.Call) error {
		return c.Out.Append(step.ContainersPath, step.Container{Name: "task-container", Sandbox: "vm", Box: "box"})
	}), `{"id": "start", "type": "review"}`)
	r.Must(l, into)
	r.Must(g, from)
	var rec collected
	if ok, err := r.View().Get(step.Child(CollectedPath, "g"), &rec); !ok || err != nil || rec.Artifacts["one"].Size != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
	err := r.Do(l, strings.Replace(into, "task-container", "other", 1))
	if steptest.ErrorType(err) != "NotFoundError" || !strings.Contains(err.Error(), "its containers are task-container") {
		t.Errorf("%s %v", steptest.ErrorType(err), err)
	}
}
