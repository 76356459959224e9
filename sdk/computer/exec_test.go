package computer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/computer"
)

type ran struct {
	ExitCode       *int `json:"exit_code"`
	Stdout, Stderr string
	Truncated      bool
	TimedOut       bool `json:"timed_out"`
	status         int
	body           string
}

func (r *rig) run(script, more string) ran {
	r.t.Helper()
	b, err := json.Marshal(script)
	if err != nil {
		r.t.Fatal(err)
	}
	var out ran
	out.status, out.body = r.ext("/agentenv/ext/computer-exec/run", fmt.Sprintf(`{"argv":["sh","-c",%s]%s}`, b, more))
	if err := json.Unmarshal([]byte(out.body), &out); err != nil {
		r.t.Error(err)
	}
	return out
}

// TestExec: a command's place, environment, output and end.
func TestExec(t *testing.T) {
	r := serve(t, newDesk(), settings(func(s *computer.Settings) { s.ExecOutput = 10 }))
	if err := os.Mkdir(filepath.Join(r.home, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := r.run(`echo out; echo err >&2; exit 3`, `,"request_id":"1"`); *got.ExitCode != 3 || got.Stdout != "out\n" || got.Stderr != "err\n" || got.Truncated || got.TimedOut {
		t.Errorf("%+v", got)
	}
	if got := r.run(`basename $PWD; cat; echo $X`, `,"request_id":"2","cwd":"sub","env":{"X":"y"}`); got.Stdout != "sub\ny\n" {
		t.Errorf("%+v", got)
	}
	if got := r.run(`kill -9 $$`, `,"request_id":"3"`); *got.ExitCode != -9 {
		t.Errorf("%+v", got)
	}
	if got := r.run(`printf 0123456789x; printf '\377' >&2`, `,"request_id":"4"`); got.Stdout != "0123456789" || !got.Truncated || got.Stderr != "\uFFFD" {
		t.Errorf("%+v", got)
	}
	if got := r.run(`sleep 60 & echo $!; sleep 61`, `,"request_id":"5","timeout_s":0.2`); got.ExitCode != nil || !got.TimedOut {
		t.Errorf("%+v", got)
	} else if pid := strings.TrimSpace(got.Stdout); !ends(pid) {
		t.Errorf("a child of a command that was stopped lives: %s", pid)
	}
	for _, body := range []string{
		`"argv":[],"request_id":"a"`, `"argv":["true"],"request_id":""`, `"argv":["no-such-program"],"request_id":"a"`, `"argv":["true"],"request_id":"a","cwd":"missing"`,
		`"argv":["true"],"request_id":"a","timeout_s":0`, `"argv":["true"],"request_id":"a","timeout_s":3601`,
	} {
		if status, got := r.ext("/agentenv/ext/computer-exec/run", "{"+body+"}"); status != 400 || !strings.Contains(got, `"invalid_argument"`) {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	for _, body := range []string{`"argv":["true"]`, `"argv":["true"],"request_id":"a","shell":true`, `"argv":["true"],"request_id":"a","env":{"A":1}`} {
		if status, got := r.ext("/agentenv/ext/computer-exec/run", "{"+body+"}"); status != 400 || !strings.Contains(got, `"invalid_`) {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	if got := r.run(`echo a`, `,"request_id":"a"`); got.Stdout != "a\n" { // what was refused isn't remembered
		t.Errorf("%+v", got)
	}
}

// running tells whether a process lives; one that ended and nobody asked about doesn't.
// ends waits for a process that was sent SIGKILL, which takes its time on a busy machine.
func ends(pid string) bool {
	for range 200 {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// TestExecOnce: a request id names one execution, running or not.
func TestExecOnce(t *testing.T) {
	r := serve(t, newDesk(), nil)
	both := make(chan ran, 2)
	for range 2 {
		go func() {
			both <- r.run(`echo x >>ran; until [ -e go ]; do sleep 0.01; done; wc -l <ran`, `,"request_id":"same"`)
		}()
	}
	eventually(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(r.home, "ran")); return err == nil })
	if err := os.WriteFile(filepath.Join(r.home, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	a, b, c := <-both, <-both, r.run(`echo another`, `,"request_id":"same"`)
	if strings.TrimSpace(a.Stdout) != "1" || a.body != b.body || a.body != c.body {
		t.Errorf("%s\n%s\n%s", a.body, b.body, c.body)
	}
}

// TestExecBackground: what a command leaves running keeps its output, and nobody waits for it.
func TestExecBackground(t *testing.T) {
	r := serve(t, newDesk(), nil)
	began := time.Now()
	got := r.run(`(until [ -e go ]; do sleep 0.01; done; echo late; echo late >wrote) & echo early`, `,"request_id":"1"`)
	if took := time.Since(began); got.Stdout != "early\n" || took > 10*time.Second {
		t.Errorf("%+v after %s", got, took)
	}
	if err := os.WriteFile(filepath.Join(r.home, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child wrote", func() bool { _, err := os.Stat(filepath.Join(r.home, "wrote")); return err == nil })
}
