package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// envRig is a bench with an environment of one server, mail, and the server's program.
func envRig(t *testing.T, s *steptest.EnvServer) (*steptest.Rig, *DeployEnv) {
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"server": s.Program()}})
	r.PutEnv("@local/mail", "mail", `command = ["server", "--quiet"]
[env]
COLOUR = "blue"
`, steptest.File{Path: "server.py", Text: "print()"})
	return r, NewDeployEnv(r.Store, r.Envs)
}

const deployMail = `{"id": "up", "type": "deploy_env", "env_id": "@local/mail", "metadata": {"note": "x"}}`

func TestDeployEnv(t *testing.T) {
	s := &steptest.EnvServer{}
	r, e := envRig(t, s)
	r.Must(e, deployMail)
	m := r.Fake.Machines()[0]
	c := m.Commands()[0]
	if got := strings.Join(c.Argv, " "); got != "server --quiet" || c.Dir != "/app" || !c.KillTree {
		t.Errorf("%+v", c)
	}
	want := "COLOUR=blue MCP_HOST=127.0.0.1 MCP_PORT=18765 ENVIRONMENT_NAME=mail SERVICE_NAME=mail DATABASE_URL=sqlite:////tmp/mail.sqlite"
	if got := strings.Join(c.Env, " "); got != want {
		t.Error(got)
	}
	if b, err := m.Files.ReadFile("/app/server.py"); err != nil || string(b) != "print()" {
		t.Errorf("%q %v", b, err)
	}
	var recs []step.Env
	if _, err := r.View().Get(step.EnvsPath, &recs); err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	rec := recs[0]
	if rec.ID != "@local/mail" || rec.Version != 1 || rec.SandboxIDs["mail"] != m.ID() || rec.Step != "up" || string(rec.Metadata) != `{"note":"x"}` || !strings.HasPrefix(rec.Instance, "@local/mail-") {
		t.Errorf("%+v", rec)
	}
	if err := r.Do(e, `{"id": "again", "type": "deploy_env", "env_id": "@local/mail"}`); err != nil {
		t.Errorf("a second deployment: %v", err)
	}
	if _, err := r.Envs.Env(steptest.Run, "@local/mail", ""); !errors.Is(err, deploy.ErrManyEnvs) || !strings.Contains(err.Error(), "'up', 'again'") {
		t.Error(err)
	}
	if v, err := r.Envs.Env(steptest.Run, "@local/mail", "again"); err != nil || v.Step != "again" {
		t.Error(v, err)
	}
	down := NewTeardownSandboxes(r.Deploy, r.Envs, r.Agents)
	r.Must(NewResetEnv(r.Envs), `{"id": "r", "type": "reset_env", "env_id": "@local/nosuch"}`)
	if err := r.Deploy.Undo(t.Context(), steptest.Run, "again"); err != nil || len(r.Fake.Machines()) != 1 {
		t.Errorf("%d left, %v", len(r.Fake.Machines()), err)
	}
	r.Must(down, `{"id": "d", "type": "teardown_sandboxes", "env_ids": ["@local/mail", "@local/nosuch"], "fail_task_on_error": false}`)
	if len(r.Fake.Machines()) != 0 || !strings.Contains(r.Log(), `msg="not deployed in this run" env=@local/nosuch`) {
		t.Errorf("%d left\n%s", len(r.Fake.Machines()), r.Log())
	}
	r.Equal("torn down", r.View().List(TornDownPath), []string{m.ID()})
}

// A server that never answers or dies gives its last output in the error, and nothing is left.
func TestDeployEnvThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		server *steptest.EnvServer
		want   string
	}{
		"dies":  {&steptest.EnvServer{Exit: 3, Words: "Traceback\nno such table\n"}, "server 'mail': it ended with exit code 3; the last that it wrote:\nTraceback\nno such table"},
		"quiet": {&steptest.EnvServer{Exit: 1}, "server 'mail': it ended with exit code 1; it wrote nothing"},
		// What can never be a card isn't waited for.
		"page":     {&steptest.EnvServer{Card: "<html>", Words: "up"}, "server 'mail': its card is invalid, and waiting won't make it valid: not valid JSON; the last that it wrote:\nup"},
		"nameless": {&steptest.EnvServer{Card: `{"name":"","protocolVersion":"1.0","url":"/agentenv"}`}, "server 'mail': its card is invalid, and waiting won't make it valid: it has no name; it wrote nothing"},
	} {
		r, e := envRig(t, c.server)
		err := r.Do(e, deployMail)
		if err == nil || err.Error() != c.want || steptest.ErrorType(err) != "DeploymentError" {
			t.Errorf("%s: %s %v", name, steptest.ErrorType(err), err)
		}
		if len(r.Fake.Machines()) != 0 || len(r.Envs.Live(steptest.Run)) != 0 {
			t.Errorf("%s: something is left", name)
		}
	}
}

func TestDeployEnvThatHangs(t *testing.T) {
	r, _ := envRig(t, &steptest.EnvServer{Hang: true, Words: "waiting for the database\n"})
	d := r.Doc(deployMail)
	stored := readStored(t, r)
	req := envRequest(d, stored)
	req.Run, req.Step, req.Wait = steptest.Run, "up", 50*time.Millisecond
	_, err := r.Envs.Deploy(t.Context(), req)
	if err == nil || !strings.HasPrefix(err.Error(), "server 'mail': it did not answer its card within 50ms") || !strings.HasSuffix(err.Error(), "the last that it wrote:\nwaiting for the database") {
		t.Error(err)
	}
	if len(r.Fake.Machines()) != 0 {
		t.Error("something is left")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := r.DoCtx(ctx, NewDeployEnv(r.Store, r.Envs), deployMail); !errors.Is(err, context.Canceled) || len(r.Fake.Machines()) != 0 {
		t.Errorf("%v, %d left", err, len(r.Fake.Machines()))
	} else if halted, ok := errors.AsType[*step.Halted](err); !ok || !strings.HasPrefix(halted.State, "server 'mail': ") {
		t.Errorf("what the server said last is lost: %v", err)
	}
}

func TestDeployEnvPreflight(t *testing.T) {
	r, e := envRig(t, &steptest.EnvServer{})
	r.PutEnv("@local/image", "image", "")
	r.PutEnv("@local/bad", "bad", "command = 3\nprot = 1")
	for text, want := range map[string]string{
		`"env_id": "@local/mail"`:   "",
		`"env_id": "@local/nosuch"`: "", // the run may write it
		`"env_id": "@local/image"`: "env_id: local: server 'image' has only a Dockerfile: put a process.toml beside it that says how it runs without an image, " +
			"or let a container engine build it: not supported by this sandbox provider; agent-env doctor shows what works on this machine",
		`"env_id": "@local/mail", "sandbox_type": "moon"`: "env_id: 'moon': no such sandbox type here (known: local); agent-env doctor shows what works on this machine",
		`"env_id": "@local/mail", "env_state_type": "pg"`: "env_state_type: states that outlive a deployment can't be attached by this version of agent-env; leave it out: each deployment has a state of its own",
	} {
		d := r.Doc(`{"id": "u", "type": "deploy_env", ` + text + `}`)
		if got := steptest.Texts(e.Preflight(t.Context(), d, step.Plan{})); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
	got := steptest.Texts(e.Preflight(t.Context(), r.Doc(`{"id": "u", "type": "deploy_env", "env_id": "@local/bad"}`), step.Plan{}))
	if !strings.Contains(got, "process.toml:1") || !strings.Contains(got, "process.toml:2") || !strings.Contains(got, "did you mean 'port'?") {
		t.Error(got)
	}
}

// What the run is about to write is looked at as if it were stored.
func TestDeployEnvPreflightOfPlanned(t *testing.T) {
	r, e := envRig(t, &steptest.EnvServer{})
	plan := step.Plan{Written: func(k ref.Kind, id string) (step.Written, bool) {
		name, found := strings.CutPrefix(id, "@local/b/")
		name = strings.TrimSuffix(name, "__env_image")
		process := map[string]string{"fit": `command = ["server"]`, "broken": "comand = 3", "unfit": ""}[name]
		image := step.Written{Type: "docker_image", Body: []byte(`{"dockerfile":"Dockerfile"}`), Paths: []string{"Dockerfile"}}
		if process != "" {
			image.Paths = append(image.Paths, "process.toml")
			image.Open = func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(process)), nil }
		}
		switch {
		case !found:
			return step.Written{}, false
		case k == ref.Artifact:
			return image, true
		case name == "all":
			return step.Written{Type: "multi", Body: []byte(`{"mcp_server_envs":[{"id":"@local/b/fit","version":0},{"id":"@local/mail","version":1},{"id":"@local/b/unfit","version":0}]}`)}, true
		default:
			return step.Written{Type: "mcp_server", Body: fmt.Appendf(nil, `{"environment_name":%q,"docker_image_artifact":{"id":"@local/b/%s__env_image","version":0}}`, name, name)}, true
		}
	}}
	for id, want := range map[string]string{
		"@local/b/fit":    "",
		"@local/mail":     "",
		"@local/b/unfit":  "env_id: local: server 'unfit' has only a Dockerfile",
		"@local/b/all":    "env_id: local: server 'unfit' has only a Dockerfile",
		"@local/b/broken": "process.toml:1: unknown key 'comand'",
	} {
		got := steptest.Texts(e.Preflight(t.Context(), r.Doc(`{"id": "u", "type": "deploy_env", "env_id": "`+id+`"}`), plan))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %s", id, got)
		}
	}
}

// A box that can't be made is the machinery's fault, and never a score.
func TestDeployEnvWithoutBoxes(t *testing.T) {
	s := &steptest.EnvServer{}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"server": s.Program()}, OnCreate: func(sandbox.Spec) error { return errors.New("no room") }})
	r.PutEnv("@local/mail", "mail", `command = ["server"]`)
	if err := r.Do(NewDeployEnv(r.Store, r.Envs), deployMail); steptest.ErrorType(err) != "infra: SandboxError" || !strings.Contains(err.Error(), "no room") {
		t.Error(steptest.ErrorType(err), err)
	}
}

func TestDeployEnvWithData(t *testing.T) {
	s := &steptest.EnvServer{}
	r, e := envRig(t, s)
	r.PutEnvironment("@local/seed", "mail", `{"inbox":[1]}`)
	r.PutEnvironment("@local/other", "calendar", `{}`)
	r.Must(e, `{"id": "up", "type": "deploy_env", "env_id": "@local/mail", "artifact_id": "@local/seed"}`)
	if got := s.Held("mail"); got != `{"inbox":[1]}` {
		t.Error(got)
	}
	if got := strings.Join(s.Calls(), ", "); got != "mail data/reset, mail data/add" {
		t.Error(got)
	}
	r.Equal("loaded", r.View().List(step.LoadedEnvironmentsPath), []step.LoadedEnvironment{{
		ID: "@local/seed", Version: 1, Type: "environment", Env: "@local/mail", EnvStep: "up", Environments: []string{"mail"},
	}})
	r.Must(NewResetEnv(r.Envs), `{"id": "r", "type": "reset_env", "env_id": "@local/mail"}`)
	if got := s.Held("mail"); got != "" {
		t.Error(got)
	}
	err := r.Do(e, `{"id": "up2", "type": "deploy_env", "env_id": "@local/mail", "artifact_id": "@local/other"}`)
	if want := "artifact '@local/other' holds data for 'calendar', and the environment has no server of that name; it has 'mail'"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if _, ok := errors.AsType[*deploy.NoServerError](err); !ok {
		t.Error("not a NoServerError")
	}
	if err := r.Do(e, `{"id": "up3", "type": "deploy_env", "env_id": "@local/mail", "artifact_id": "@local/nosuch"}`); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
}

func TestRestart(t *testing.T) {
	s := &steptest.EnvServer{}
	r, e := envRig(t, s)
	r.Must(e, deployMail)
	v, err := r.Envs.Env(steptest.Run, "@local/mail", "up")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.Die("mail")
		deadline := time.Now().Add(5 * time.Second)
		for err = errors.New("never tried"); err != nil && time.Now().Before(deadline); {
			err = v.Reset(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.Fake.Machines()[0].Commands()); n != 3 {
		t.Errorf("started %d times", n)
	}
	r.Fake.Machines()[0].Kill()
	if err := v.Reset(t.Context()); err == nil {
		t.Error("a dead box answers")
	}
}

func readStored(t *testing.T, r *steptest.Rig) envstore.Env {
	t.Helper()
	stored, err := envstore.Read(t.Context(), r.Store, "@local/mail", 0)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}
