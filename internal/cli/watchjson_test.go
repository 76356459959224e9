package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestWatchTellsTheSame: what runs watch prints of a run afterwards, from its record, is what the process that drove it printed meanwhile.
func TestWatchTellsTheSame(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	lines := func(args ...string) (out []map[string]any, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "agent-env", args...)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
		text, err := cmd.Output()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			out = append(out, m)
		}
		return out, code
	}
	tasks := map[string]string{
		"scored": `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
  {"id": "no", "type": "verify_sandbox", "sandbox_name": "box", "verifier_id": "no", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "false"}]}]`,
		"retried": `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
  {"id": "bad", "type": "load_artifact", "sandbox_name": "box", "artifact_from_step_id": "box", "retry_config": {"retry_from_step_id": "box", "max_retries": 1}},
  {"id": "never", "type": "verify_sandbox", "sandbox_name": "box", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true"}]}]`,
		"tolerated": `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
  {"id": "bad", "type": "load_artifact", "sandbox_name": "box", "artifact_from_step_id": "box", "fail_task_on_error": false},
  {"id": "yes", "type": "verify_sandbox", "sandbox_name": "box", "verifier_id": "yes", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true"}]}]`,
	}
	for name, text := range tasks {
		if err := os.WriteFile(filepath.Join(home, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lines("task", "create", name+".json", "--id", name, "--json")
		ran, code := lines("task", "run", name, "--json")
		var id string
		for _, l := range ran {
			if l["type"] == "run_started" {
				id, _ = l["run_id"].(string)
			}
		}
		seen, watchCode := lines("runs", "watch", id, "--json")
		if code != watchCode {
			t.Errorf("%s: watch ends with %d, the run with %d", name, watchCode, code)
		}
		if a, b := told(ran), told(seen); !reflect.DeepEqual(a, b) {
			x, _ := json.MarshalIndent(a, "", " ")
			y, _ := json.MarshalIndent(b, "", " ")
			t.Errorf("%s: the run told\n%s\nwatch tells\n%s", name, x, y)
		}
	}
}

// told are the lines about runs and steps, without durations: those of a record and of a clock differ by a hair.
func told(lines []map[string]any) (out []map[string]any) {
	for _, l := range lines {
		switch l["type"] {
		case "run_started", "step_started", "step_ended", "run_ended":
			delete(l, "seconds")
			out = append(out, l)
		}
	}
	return out
}
