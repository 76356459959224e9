package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
)

// TestPruneRuns: what a run's record alone named goes with it, also when an earlier prune got no further than the record; what others name stays.
func TestPruneRuns(t *testing.T) {
	home := t.TempDir()
	a := New(Options{Dir: home, Env: func(name string) (string, bool) {
		v, ok := map[string]string{"HOME": home, "XDG_STATE_HOME": home + "/state"}[name]
		return v, ok
	}})
	t.Cleanup(func() {
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if got, err := a.PruneRuns(t.Context(), RunPrune{}); err != nil || len(got.Runs)+got.Kept != 0 {
		t.Fatalf("of nothing: %+v, %v", got, err)
	}
	s, err := a.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := s.Runs()
	output := func(run, text string) {
		t.Helper()
		stage, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d, n, err := stage.Put(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := json.Marshal(runlog.Object{Digest: string(d), Size: n})
		stage.Doc(store.Doc{
			Kind: store.Blob, ID: bundlerun.OutputPrefix(run) + d.Hex(), Version: 1, Type: bundlerun.OutputType, Owner: run, Body: body, Objects: []ref.Digest{d},
		}, store.Absent)
		if err := stage.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		id := fmt.Sprintf("t-%d", i)
		if err := log.Create(t.Context(), runlog.Meta{ID: id, Task: "t"}); err != nil {
			t.Fatal(err)
		}
		o, err := log.Claim(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		output(id, "own output of "+id)
		output(id, "shared")
		if i == 1 {
			defer func() { // somebody drives it
				if err := o.Append(t.Context(), runlog.Event{Kind: runlog.Note}); err != nil {
					t.Error(err)
				}
			}()
			continue
		}
		if err := o.Append(t.Context(), runlog.Event{Kind: runlog.RunEnded, Data: json.RawMessage(`{"status":"passed"}`)}); err != nil {
			t.Fatal(err)
		}
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	output("t-gone", "left by a prune that was killed")

	dry, err := a.PruneRuns(t.Context(), RunPrune{Dry: true})
	if err != nil || len(dry.Runs) != 2 || dry.Kept != 2 {
		t.Fatalf("dry: %+v, %v", dry, err)
	}
	got, err := a.PruneRuns(t.Context(), RunPrune{})
	if err != nil || len(got.Runs) != 2 || got.Runs[0].ID != "t-2" || got.Runs[1].ID != "t-0" || got.Kept != 2 || got.Objects != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for text, there := range map[string]bool{
		"own output of t-0": false, "own output of t-1": true, "own output of t-2": false, "own output of t-3": true, "shared": true, "left by a prune that was killed": false,
	} {
		if err := s.Verify(t.Context(), ref.DigestOf([]byte(text))); (err == nil) != there {
			t.Errorf("%q: %v", text, err)
		}
	}
	if again, err := a.PruneRuns(t.Context(), RunPrune{}); err != nil || len(again.Runs) != 0 || again.Kept != 2 || again.Objects != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}
