//go:build integration

package peer_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBoxedAgent: an agent on the peer's SDK runs as a process in a sandbox, reaches its environment by the door there, and our validators find nothing
// wrong with it; one that dies has failed.
func TestBoxedAgent(t *testing.T) {
	ours := builtBinary(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(cache, "agentenv-test", "made")
	home := t.TempDir()
	source, err := os.ReadFile(filepath.Join("testdata", "boxed.py"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"envs/echo/Dockerfile":          "FROM scratch\n",
		"envs/echo/env.toml":            "environment_name = \"echo\"\n",
		"envs/echo/process.toml":        "command = [\"agent-env\", \"serve\", \"echo-mcp\"]\n",
		"agents/boxed/Dockerfile":       "FROM docker.io/library/python:3.11-slim\n",
		"agents/boxed/process.toml":     "command = [\"python3\", \"agent.py\"]\npython = \"requirements.txt\"\n",
		"agents/boxed/requirements.txt": "agentenv-framework-protocol[agent]==0.1.379\n",
		"agents/boxed/agent.py":         string(source),
		"tasks/dies.json":               `[{"id": "agent", "type": "deploy_agent", "a2a_agent_id": "boxed"}, {"id": "ask", "type": "prompt_agent", "prompt": "die"}]`,
		"tasks/valid.json": `[
  {"id": "up", "type": "deploy_env", "env_id": "echo"},
  {"id": "agent", "type": "deploy_agent", "a2a_agent_id": "boxed", "env_ids": ["echo"]},
  {"id": "ask", "type": "prompt_agent", "prompt": "Hello", "prompt_id": "hello"},
  {"id": "card", "type": "verify_a2a_agent_card", "a2a_agent_id": "boxed"},
  {"id": "identity", "type": "verify_a2a_agent_config_identity", "a2a_agent_id": "boxed"},
  {"id": "role", "type": "verify_a2a_role", "a2a_agent_id": "boxed"},
  {"id": "core", "type": "verify_a2a_core_protocol", "a2a_agent_id": "boxed", "prompt_id": "hello"},
  {"id": "sp", "type": "verify_a2a_system_prompt", "a2a_agent_id": "boxed", "poll_interval_seconds": 1},
  {"id": "mcp", "type": "verify_a2a_agent_mcp", "a2a_agent_id": "boxed", "poll_interval_seconds": 1},
  {"id": "trajectory", "type": "verify_a2a_trajectory", "a2a_agent_id": "boxed"},
  {"id": "peers", "type": "verify_a2a_peer_agents", "a2a_agent_id": "boxed", "peer_prompt_id": "hello", "expected_token": "Hello"},
  {"id": "modes", "type": "verify_a2a_modalities", "a2a_agent_id": "boxed", "probes": [{"modality": "text", "prompt_id": "hello", "expected": "you said hello"}]}
]`,
	} {
		at := filepath.Join(home, "desk", name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{made, filepath.Join(home, "state", "agentenv")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(made, filepath.Join(home, "state", "agentenv", "made")); err != nil {
		t.Fatal(err)
	}
	out := run(t, home, ours, "run", "./desk", "--task", "valid", "--sandbox", "local")
	if _, scores, passed := strings.Cut(out, ": passed ("); !passed || strings.Count(scores, "a2a_") != 9 {
		var list struct {
			Runs []struct {
				ID string `json:"run_id"`
			}
		}
		if err := json.Unmarshal([]byte(run(t, home, ours, "runs", "list", "--json")), &list); err == nil && len(list.Runs) > 0 {
			out += run(t, home, ours, "runs", "show", list.Runs[0].ID)
		}
		t.Error(out)
	}
	out = runAny(t, home, ours, "run", "./desk", "--task", "dies", "--sandbox", "local")
	if !strings.Contains(out, "agent_error: the agent 'default-agent' failed: died: ") {
		t.Error(out)
	}
	if left := run(t, home, ours, "sandbox", "list", "--json"); strings.Contains(left, `"id"`) {
		t.Errorf("left: %s", left)
	}
}

// runAny is run for a command that may refuse or fail.
func runAny(t *testing.T, home, bin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return string(out)
}
