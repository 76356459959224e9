package bundlerun

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store/sqlite"
	"agentenv.internal/agentenv/internal/task"
	"agentenv.internal/agentenv/internal/taskstore"
)

const ownedTask = "@local/owned"

// owned takes about a second, and its parts check each other's marks.
const owned = `[
	{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
	{"id": "one", "type": "verify_sandbox", "sandbox_name": "box", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "sleep 0.2; echo one >> marks"}]},
	{"id": "two", "type": "verify_sandbox", "sandbox_name": "box", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "sleep 0.2; echo two >> marks"}]},
	{"id": "slow", "type": "verify_sandbox", "sandbox_name": "box", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "sleep 0.4; test \"$(cat marks | tr '\\n' ' ')\" = 'one two '"}]},
	{"id": "all", "type": "aggregate_verifiers", "verifier_ids": ["one", "two", "slow"], "score_aggregator": "all_pass"}
]`

// keepEnv makes the other process's sandboxes leased ones.
const keepEnv = "AGENTENV_TEST_KEEP"

// ownRuns is what the other process does.
func ownRuns(dir string) int {
	r, st, err := openReal(dir, sqlite.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer st.Close()
	defer r.box.Close()
	o := runlog.Options{Keep: os.Getenv(keepEnv) != ""}
	s, err := r.RunStored(context.Background(), StoredRequest{Tasks: []taskstore.TaskRef{{ID: ownedTask}}, Options: o}, r.rep)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(s.Runs[0].Status, s.Runs[0].Fenced)
	return 0
}

// ownerProcess starts the other process and waits until it has recorded an event of this kind and step.
func ownerProcess(t *testing.T, r *real, dir, kind, stepID string) (*exec.Cmd, *strings.Builder, string) {
	t.Helper()
	before, err := r.Runs.List(t.Context(), runlog.Query{})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), ownerEnv+"="+dir)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		page, err := r.Runs.List(ctx, runlog.Query{})
		if err != nil {
			t.Fatal(err, out.String())
		}
		if len(page.Runs) == len(before.Runs) {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		id := page.Runs[0].ID
		for e, err := range r.Runs.Follow(ctx, id, 0) {
			if err != nil {
				t.Fatal(err, out.String())
			}
			if e.Kind == kind && e.Step == stepID || e.Kind == runlog.RunEnded {
				return cmd, &out, id
			}
		}
	}
}

func putOwned(t *testing.T, r *real) {
	t.Helper()
	tree, l := doc.ParseJSON("task", []byte(owned))
	if l.HasErrors() {
		t.Fatal(l)
	}
	if _, l, err := taskstore.New(r.Store, step.Kinds()).CreateTask(t.Context(), ownedTask, tree.Root(), task.Options{}); err != nil || l.HasErrors() {
		t.Fatal(err, l)
	}
}

// TestStoppedOwnerIsFenced stops the process that drives a run, goes on with the run here, and lets that process continue: it must end by itself and
// change nothing.
func TestStoppedOwnerIsFenced(t *testing.T) {
	dir := stateFolder(t)
	later := func() time.Time { return time.Now().Add(time.Hour) } // the claim of the other process has lapsed
	r := realIn(t, dir, sqlite.Options{Now: later})
	putOwned(t, r)
	cmd, out, id := ownerProcess(t, r, dir, runlog.StepStarted, "slow")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	res, err := r.Resume(t.Context(), id, ResumeOptions{}, r.rep)
	if err != nil || res.Summary.Runs[0].Status != runlog.Passed {
		t.Fatalf("%+v %v", res, err)
	}
	want := runlog.Event{}
	for e := range r.Runs.Events(t.Context(), id, 0) {
		want = e
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil || strings.TrimSpace(out.String()) != "infra_failed true" {
			t.Errorf("%v: %s", err, out)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the process goes on with a run that is no longer its own")
	}
	last := runlog.Event{}
	for e := range r.Runs.Events(t.Context(), id, 0) {
		last = e
	}
	if last.Seq != want.Seq || last.Kind != runlog.RunEnded || last.Epoch != 2 {
		t.Errorf("the last event is %+v, and was %+v", last, want)
	}
}

// TestKilledOwnerLeavesItsLease kills the owner of a run whose sandbox outlives it: the resumed run goes on in it.
func TestKilledOwnerLeavesItsLease(t *testing.T) {
	t.Setenv(keepEnv, "1")
	dir := stateFolder(t)
	r := realIn(t, dir, sqlite.Options{})
	putOwned(t, r)
	cmd, _, id := ownerProcess(t, r, dir, runlog.StepStarted, "slow")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	res, err := r.Resume(t.Context(), id, ResumeOptions{}, r.rep)
	if err != nil || res.Summary.Runs[0].Status != runlog.Passed || res.Summary.TornDown != 0 || len(res.Summary.Kept) != 1 {
		t.Fatalf("%+v %v", res, err)
	}
	want := "box kept: finished, its sandbox is up\none kept: finished\ntwo kept: finished\nslow again: it had not ended\nall starts: it had not started"
	if got := actions(res.Steps); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := r.Down(t.Context(), res.Summary); err != nil || res.Summary.TornDown != 1 {
		t.Errorf("%+v %v", res.Summary, err)
	}
}

// TestKilledOwner kills the process that drives a run at moments all over its length, and resumes the run.
func TestKilledOwner(t *testing.T) {
	dir := stateFolder(t)
	r := realIn(t, dir, sqlite.Options{})
	putOwned(t, r)
	at := [][2]string{{runlog.RunStarted, ""}, {runlog.StepEnded, "box"}, {runlog.StepStarted, "two"}, {runlog.StepEnded, "slow"}}
	if os.Getenv("AGENTENV_SOAK") != "" {
		at = slices.Repeat(at, 25)
	}
	for _, moment := range at {
		cmd, _, id := ownerProcess(t, r, dir, moment[0], moment[1])
		time.Sleep(rand.N(30 * time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		sum, err := r.Runs.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if !sum.Status.Ended() {
			if sum.Status != runlog.Interrupted {
				t.Errorf("killed after %v it is %s", moment, sum.Status)
			}
			if _, err := r.Resume(t.Context(), id, ResumeOptions{}, r.rep); err != nil {
				t.Fatal(err)
			}
		}
		rec, err := runlog.Load(t.Context(), r.Runs, id)
		if err != nil || rec.Status != runlog.Passed || len(rec.Scores) != 4 {
			t.Errorf("killed after %v: %+v %v", moment, rec.Summary, err)
		}
		if _, err := r.Deploy.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
