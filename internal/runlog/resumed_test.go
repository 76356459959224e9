package runlog

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestFoldOfARetryAndAResume is a run that goes back once, is killed, and is resumed.
func TestFoldOfARetryAndAResume(t *testing.T) {
	diff := func(name string) json.RawMessage {
		return json.RawMessage(`[{"op":"set","path":"metadata/verifications/` + name + `","value":{"score":1}}]`)
	}
	es := script(
		ev(RunStarted, "", steps("a", "b", "c")),
		attempt(ev(StepStarted, "a", StepStart{Type: "run_code"}), 1),
		attempt(ev(StepCost, "a", Cost{USD: 1, InputTokens: 2}), 1),
		attempt(ev(StepEnded, "a", StepEnd{Status: Succeeded, Diff: diff("a")}), 1),
		attempt(ev(StepStarted, "b", StepStart{Type: "run_code"}), 1),
		attempt(ev(StepEnded, "b", StepEnd{Status: Failed, Again: true}), 1),
		ev(StepsReset, "b", Reset{Steps: []string{"a", "b"}, Reason: ResetRetry, Step: "b", From: "a"}),
	)
	r := Fold(Summary{}, es)
	if got, want := show(r), "running | a queued 1 -..- | b queued 1 -..- | c queued 0 -..-"; got != want || len(r.Verified) != 0 {
		t.Errorf("after the retry: %s %v\nwant %s", got, r.Verified, want)
	}
	if r.Steps[1].Retries != 1 || r.Cost.USD != 1 || r.Steps[0].Cost.InputTokens != 2 {
		t.Errorf("%+v", r)
	}
	es = script(append(es,
		attempt(ev(StepStarted, "a", StepStart{Type: "run_code"}), 2),
		attempt(ev(StepCost, "a", Cost{USD: 0.5}), 2),
		attempt(ev(StepEnded, "a", StepEnd{Status: Succeeded, Diff: diff("a2")}), 2),
		attempt(ev(StepStarted, "b", StepStart{Type: "run_code"}), 2),
		ev(RunStarted, "", RunStart{Steps: steps("a", "b", "c").Steps, Resumed: true, Version: 4}),
		ev(StepsReset, "", Reset{Steps: []string{"b"}, Reason: ResetResume}),
		attempt(ev(StepStarted, "b", StepStart{Type: "run_code"}), 3),
		attempt(ev(StepEnded, "b", StepEnd{Status: Succeeded}), 3),
		ev(RunEnded, "", RunEnd{Status: Passed, Cost: Cost{USD: 1.5, InputTokens: 2}}),
	)...)
	r = Fold(Summary{}, es)
	if got, want := show(r), "passed | a succeeded 2 7..9 | b succeeded 3 13..14 | c skipped 0 -..-"; got != want {
		t.Errorf("in the end: %s\nwant %s", got, want)
	}
	if r.Epochs != 2 || r.TaskVersion != 4 || r.Cost.USD != 1.5 || r.Steps[0].Cost.USD != 1.5 || len(r.Verified) != 1 || r.Verified["a2"] == nil {
		t.Errorf("%+v", r)
	}
}

func TestPackOfOptions(t *testing.T) {
	want := Summary{Meta: Meta{ID: "a", Options: Options{
		Sandbox: []string{"local"}, Isolation: "namespaces", Keep: true, Parallel: 3, Models: map[string]string{"agent": "m"},
		Seed: map[string]string{"k": "v"}, Params: map[string]map[string]json.RawMessage{"s": {"f": json.RawMessage(`{"a":[1.50,"x"]}`)}}, AllowUnknownFields: true,
	}}}
	got, err := Unpack(PackMeta(want.Meta), PackState(want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	bad := append(PackMeta(Meta{ID: "a"}), 1, '{')
	if _, err := Unpack(bad, PackState(want)); err == nil {
		t.Error("damaged options were read")
	}
}
