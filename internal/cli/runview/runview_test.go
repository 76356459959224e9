package runview

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/deploy"
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

// Work that a run waits for is told when it begins and ends, and meanwhile at most every five seconds; in text a line when it begins, and none when quiet.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tell := func(r bundlerun.Worker) {
			ref := bundlerun.RunRef{ID: "r", Label: "tasks/t.json"}
			k := deploy.Work{ID: 7, Step: "up", What: "install r.txt", For: "mail", State: deploy.WorkBegun}
			r.Working(ref, k)
			for range 120 {
				time.Sleep(100 * time.Millisecond)
				k.State, k.Note, k.Seconds = deploy.WorkUnderWay, "a\x1bline", k.Seconds+0.1
				r.Working(ref, k)
			}
			k.State = deploy.WorkFailed
			r.Working(ref, k)
		}
		s, out, _ := term.Buffers("")
		tell(&jsonReporter{s: s})
		var states []string
		for line := range strings.Lines(out.String()) {
			var l struct {
				Type, State string
				Run         string `json:"run_id"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil || l.Type != "work" || l.Run != "r" {
				t.Errorf("%s: %v", line, err)
			}
			states = append(states, l.State)
		}
		if got := strings.Join(states, " "); got != "begun under_way under_way failed" {
			t.Error(got)
		}
		for _, quiet := range []bool{false, true} {
			s, out, errs := term.Buffers("")
			s.Quiet = quiet
			p := verb.NewProgram(s, func(string) (string, bool) { return "", false })
			r := newText(t.Context(), p, Options{})
			tell(r)
			r.Close()
			want := "[tasks/t.json] install r.txt for 'mail' …\n"
			if quiet {
				want = ""
			}
			if out.Len() > 0 || errs.String() != want {
				t.Errorf("quiet %t: %q, %q", quiet, out, errs)
			}
		}
	})
}
