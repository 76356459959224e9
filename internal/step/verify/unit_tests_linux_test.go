package verify

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

func TestUnitTestsRunInAFork(t *testing.T) {
	r := realBoxes(t)
	r.Box()
	r.Must(leaves(func(c *step.Call) error {
		return c.Out.Append(step.ContainersPath, step.Container{Name: "task-container", Sandbox: "vm", Box: "box", Workdir: "/work"})
	}), `{"id": "start", "type": "review"}`)
	box, err := r.Deploy.Box(t.Context(), steptest.Run, "box")
	if err != nil {
		t.Fatal(err)
	}
	// An agent's leftover would spoil the tests and forge their reward if it could reach them.
	if _, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{
		"bash", "-c",
		`mkdir -p /work && echo agent > /work/answer && echo 1 > /work/reward && (while sleep 0.02; do echo 1 > /work/reward; echo x > /work/tampered; done >/dev/null 2>&1 &)`,
	}},
		guest.Limits{Stdout: 100, Stderr: 100}); err != nil {
		t.Fatal(err)
	}
	e := NewUnitTestsVerifier(r.Deploy)
	do := func(id, more string) error {
		return r.Do(e, fmt.Sprintf(`{"id": %q, "type": "run_container_unit_tests_verifier", "sandbox_name": "vm", "container_name": "task-container", %s}`, id, more))
	}
	if err := do("ok", `"command": "rm -f tampered; sleep 0.3; test ! -e tampered && grep -q agent answer && echo '{\"n\": 3}' > out.json && echo plain > out.txt && echo $WHO",
		"setup_commands": ["echo set > made"], "env_vars": {"WHO": "me"}, "result_paths": ["out.json", "/work/out.txt", "none"]`); err != nil {
		t.Fatal(err)
	}
	var v tested
	if _, err := r.View().Get(step.Child(step.VerificationsPath, "ok"), &v); err != nil {
		t.Fatal(err)
	}
	if v.Score != 1 || !v.Forked || string(v.Files["out.json"]) != `{"n": 3}`+"\n" && string(v.Files["out.json"]) != `{"n":3}` || string(v.Files["/work/out.txt"]) != `"plain\n"` || fmt.Sprint(v.Missing) != "[none]" || v.Stdout != "me\n" {
		t.Errorf("%+v", v)
	}
	if _, err := box.Stat(t.Context(), "/work/made"); err == nil {
		t.Error("the tests' setup reached the agent's container")
	}
	if err := do("reward", `"command": "echo 0.25 > reward; exit 3", "reward_path": "reward"`); err != nil {
		t.Fatal(err)
	}
	if v := r.Verification("reward"); v.Score != 0.25 {
		t.Errorf("%+v", v)
	}
	if err := do("bad", `"command": "echo no >&2; exit 1"`); err != nil {
		t.Fatal(err)
	}
	if v := r.Verification("bad"); v.Score != 0 || v.Unscored != "" || v.Results[0]["result"] != false {
		t.Errorf("%+v", v)
	}
	for id, more := range map[string]string{
		"none":    `"command": "true", "reward_path": "reward"`,
		"killed":  `"command": "kill -9 $$", "reward_path": "reward"`,
		"words":   `"command": "echo good > reward", "reward_path": "reward"`,
		"nan":     `"command": "echo nan > reward", "reward_path": "reward"`,
		"absent":  `"command": "nosuchcommand"`,
		"shot":    `"command": "kill -9 $$"`,
		"halfway": `"command": "printf 0. > reward; kill -9 $$; echo 5 >> reward", "reward_path": "no/such/reward"`,
	} {
		if err := do(id, more); err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if v := r.Verification(id); v.Unscored == "" {
			t.Errorf("%s is a score: %+v", id, v)
		}
	}
	for id, c := range map[string]struct{ more, typ, want string }{
		"slow":  {`"command": "sleep 60", "timeout_sec": 0.2`, "TimeoutError", "more than 0.2s"},
		"setup": {`"command": "true", "setup_commands": ["echo why >&2; exit 2"]`, "VerifierError", "setup_commands[0] ended with exit 2: why"},
		"user":  {`"command": "true", "user": "nobodyhere"`, "VerifierError", "nobodyhere"},
	} {
		if err := do(id, c.more); steptest.ErrorType(err) != c.typ || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s %v", id, steptest.ErrorType(err), err)
		}
	}
	if n := len(r.Deploy.Live(steptest.Run)); n != 1 {
		t.Errorf("%d sandboxes stand, and only the container should", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.DoCtx(ctx, e, `{"id": "cut", "type": "run_container_unit_tests_verifier", "sandbox_name": "vm", "container_name": "task-container", "command": "sleep 60"}`); err == nil {
		t.Error("a cancelled step succeeds")
	}
}

func TestUnitTestsNeedTheirContainer(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	e := NewUnitTestsVerifier(r.Deploy)
	const base = `{"id": "v", "type": "run_container_unit_tests_verifier", "sandbox_name": "vm", "container_name": "app", "command": "true"}`
	if err := r.Do(e, base); steptest.ErrorType(err) != "NotFoundError" || !strings.Contains(err.Error(), "'app'") {
		t.Error(err)
	}
	r.Must(leaves(func(c *step.Call) error {
		return c.Out.Append(step.ContainersPath, step.Container{Name: "other", Sandbox: "vm", Box: "box"})
	}), `{"id": "start", "type": "review"}`)
	if err := r.Do(e, base); steptest.ErrorType(err) != "NotFoundError" || !strings.Contains(err.Error(), "other") {
		t.Error(err)
	}
	r.Must(leaves(func(c *step.Call) error {
		return c.Out.Append(step.ContainersPath, step.Container{Name: "app", Sandbox: "vm", Box: "gone"})
	}), `{"id": "again", "type": "review"}`)
	if err := r.Do(e, base); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
}
