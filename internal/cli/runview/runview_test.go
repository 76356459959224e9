package runview

import (
	"bytes"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/term"
)

func TestCancellingTellsOfSandboxesThatThereAre(t *testing.T) {
	for n, want := range map[int]string{
		0: "Cancelling (Ctrl-C again to stop now)",
		1: "Cancelling: taking down 1 sandbox (Ctrl-C again to stop now)",
		2: "Cancelling: taking down 2 sandboxes (Ctrl-C again to stop now)",
	} {
		if got := cancelling(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestResultWithoutAnInstance(t *testing.T) {
	r := &textReporter{s: &term.Streams{Out: &bytes.Buffer{}}}
	res := bundlerun.RunResult{Status: runlog.InfraFailed}
	res.Label, res.Version = "tasks/a.json", 1
	res.Failures = []run.Failure{{ErrorType: "ResourceError", Error: "no room", Fatal: true, Infra: true}}
	if got := r.result(res); !strings.HasSuffix(got, "ResourceError: no room, 0.0s") {
		t.Errorf("%q", got)
	}
}

// A run that waits for room says so to everybody: nothing else tells it from one that hangs.
func TestQuietHidesNoWait(t *testing.T) {
	var said bytes.Buffer
	r := &textReporter{s: &term.Streams{Out: &bytes.Buffer{}, Err: &said, Quiet: true}}
	r.Holding("100 MB of disk are free, and 512 MB have to stay free")
	if want := "waiting for room on this machine: 100 MB of disk are free, and 512 MB have to stay free\n"; said.String() != want {
		t.Errorf("%q", said.String())
	}
}
