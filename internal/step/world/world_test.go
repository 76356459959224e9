package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const box = `{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"}`

func TestDeploySandbox(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	r.Must(NewDeploySandbox(r.Deploy), `{"id": "box", "type": "deploy_sandbox", "sandbox_name": "my box", "sandbox_mode": "vm", "sandbox_type": "nowhere, local",
		"ttl_seconds": 60, "cpu": 0.5, "disk_size_gb": 1.5, "env_vars": {"A": "1", "B": "x=y"}, "metadata": {"attribution": {"team": "red"}}}`)
	ms := r.Fake.Machines()
	if len(ms) != 1 {
		t.Fatalf("%d sandboxes", len(ms))
	}
	s := ms[0].Spec()
	got := fmt.Sprintf("%s %s tied=%t %s cpu=%g mem=%d disk=%d %q %v net=%q", s.Run, s.Name, s.Tied, s.Lease, s.CPU, s.MemoryMB, s.DiskMB, s.Env, s.Labels, s.Network)
	if want := steptest.Run + ` my box tied=true 1m0s cpu=0.5 mem=0 disk=1536 ["A=1" "B=x=y"] map[team:red] net=""`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if info, err := ms[0].Files.Stat("/app"); err != nil || !info.IsDir() {
		t.Errorf("no /app: %v", err)
	}
	var rec step.Sandbox
	if err := json.Unmarshal(r.View().List(step.SandboxesPath)[0], &rec); err != nil {
		t.Fatal(err)
	}
	if rec.Name != "my box" || rec.ID != ms[0].ID() || rec.Mode != "vm" || rec.Type != "fake" || rec.Instance != steptest.Run || !strings.HasSuffix(rec.Created, "+00:00") {
		t.Errorf("%+v", rec)
	}
}

func TestDeploySandboxFailures(t *testing.T) {
	broken := errors.New("no disk")
	r := steptest.New(t, fake.Options{OnCreate: func(s sandbox.Spec) error {
		if s.Name == "broken" {
			return broken
		}
		return nil
	}})
	e := NewDeploySandbox(r.Deploy)
	r.Must(e, box)
	for text, want := range map[string]string{
		`"sandbox_name": "box"`:                                                  "NameError",
		`"sandbox_name": "broken"`:                                               "infra: SandboxError",
		`"sandbox_name": "b", "sandbox_type": "modal"`:                           "infra: SandboxError",
		`"sandbox_name": "b", "image": "debian:12"`:                              "infra: SandboxError",
		`"sandbox_name": "b", "network_policy": {"mode": "allow_all"}`:           "infra: SandboxError",
		`"sandbox_name": "ok", "network_policy": {"mode": "none"}, "cpu": null`:  "none",
		`"sandbox_name": "ok2", "sandbox_type": "modal,local", "env_vars": null`: "none",
	} {
		err := r.Do(e, `{"id": "b2", "type": "deploy_sandbox", "sandbox_mode": "vm", `+text+`}`)
		if got := steptest.ErrorType(err); got != want {
			t.Errorf("%s: %s (%v), want %s", text, got, err, want)
		}
	}
}

func TestDeploySandboxPreflight(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	e := NewDeploySandbox(r.Deploy)
	for _, c := range []struct{ text, want string }{
		{`"sandbox_mode": "vm"`, ""},
		{`"sandbox_mode": "vm", "image": null, "sandbox_type": null, "network_policy": null, "exposed_ports": null`, ""},
		{`"sandbox_mode": "container", "image": "a", "port": 80`, "sandbox_mode: container sandboxes can't be made by this version of agent-env; use sandbox_mode vm"},
		{`"sandbox_mode": "vm", "sandbox_type": "modal"`, "sandbox_type: 'modal': no such sandbox type here (known: local); agent-env doctor shows what works on this machine"},
		{`"sandbox_mode": "vm", "image": "debian:12"`, "image: local: image debian:12: not supported by this sandbox provider; leave image out: the sandbox's root is then a private view of this machine"},
		{`"sandbox_mode": "vm", "network_policy": {}`, "network_policy: local: network allow_all: not supported by this sandbox provider; " +
			"agent-env doctor shows whether sandboxes can have a network here; with network_policy left out one has its own loopback alone"},
	} {
		d := r.Doc(`{"id": "b", "type": "deploy_sandbox", "sandbox_name": "b", ` + c.text + `}`)
		if got := steptest.Texts(e.Preflight(t.Context(), d, step.Plan{})); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
	l := e.Preflight(t.Context(), r.Doc(box), step.Plan{Sandbox: []string{"e2b"}, Isolation: "container"})
	if got := steptest.Texts(l); got != "sandbox_type: 'e2b': no such sandbox type here (known: local); agent-env doctor shows what works on this machine" {
		t.Error(got)
	}
	l = e.Preflight(t.Context(), r.Doc(box), step.Plan{Isolation: "container"})
	if got := steptest.Texts(l); !strings.Contains(got, "isolation container") {
		t.Error(got)
	}
}

func TestTeardownSandboxes(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	d, e := NewDeploySandbox(r.Deploy), NewTeardownSandboxes(r.Deploy, r.Envs, r.Agents)
	r.Must(d, box)
	r.Must(d, `{"id": "b2", "type": "deploy_sandbox", "sandbox_name": "other", "sandbox_mode": "vm"}`)
	id := r.Fake.Machines()[0].ID()
	r.Must(e, `{"id": "t", "type": "teardown_sandboxes", "sandbox_names": ["box", "nosuch", "box"], "fail_task_on_error": false}`)
	r.Equal("removed", r.View().List(TornDownPath), []string{id})
	if ms := r.Fake.Machines(); len(ms) != 1 || ms[0].Spec().Name != "other" {
		t.Errorf("%d left", len(ms))
	}
	if !strings.Contains(r.Log(), `level=WARN msg="not deployed in this run" sandbox=nosuch`) {
		t.Error(r.Log())
	}
	r.Must(d, box) // the name is free again
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.DoCtx(ctx, e, `{"id": "t", "type": "teardown_sandboxes", "sandbox_names": ["box"]}`); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.Must(e, `{"id": "t", "type": "teardown_sandboxes", "agent_names": ["a"], "env_ids": ["e"]}`)
	if !strings.Contains(r.Log(), `msg="not deployed in this run" agent=a`) {
		t.Error(r.Log())
	}
}
