package data

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
)

// office is a bench with a deployed environment of two servers, mail and calendar.
func office(t *testing.T) (*steptest.Rig, *steptest.EnvServer) {
	s := &steptest.EnvServer{}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"server": s.Program()}})
	officeOf(r)
	return r, s
}

// officeOf deploys the office, whose servers are the program server.
func officeOf(r *steptest.Rig) {
	for _, name := range []string{"mail", "calendar"} {
		r.PutEnv("@local/"+name, name, `command = ["server"]`)
	}
	r.PutEnvDoc("@local/office", "multi", map[string]any{"mcp_server_envs": []any{
		map[string]any{"id": "@local/mail", "version": 1, "type": "mcp_server"}, map[string]any{"id": "@local/calendar", "version": 1, "type": "mcp_server"},
	}, "website_envs": []any{}})
	r.DeployEnv("@local/office", "up")
}

func loadEnv(more string) string {
	return `{"id": "l", "type": "load_artifact", "env_id": "@local/office", ` + more + `}`
}

func TestLoadArtifactIntoAnEnvironment(t *testing.T) {
	r, s := office(t)
	e := NewLoadArtifact(r.Store, r.Deploy, r.Envs, r.Agents, NewDownloads(false))
	r.PutEnvironments("@local/day", map[string]string{"mail": `{"m":1}`, "calendar": `{"c":1}`, "printer": `{}`})
	r.PutEnvironment("@local/more", "mail", `{"m":2}`)
	r.Must(e, loadEnv(`"artifact_id": "@local/day"`))
	if s.Held("mail") != `{"m":1}` || s.Held("calendar") != `{"c":1}` {
		t.Errorf("%q %q", s.Held("mail"), s.Held("calendar"))
	}
	r.Must(e, loadEnv(`"artifacts": [{"id": "@local/more", "version": 1}], "env_step_id": "up"`))
	if s.Held("mail") != `{"m":2}` || s.Held("calendar") != `{"c":1}` { // what was there is gone, and the others stay
		t.Errorf("%q %q", s.Held("mail"), s.Held("calendar"))
	}
	r.Equal("universes", r.View().List(step.LoadedUniversesPath), []step.LoadedEnvironment{{
		ID: "@local/day", Version: 1, Type: "environment_universe", Env: "@local/office", EnvStep: "up",
		Environments: []string{"calendar", "mail"}, Skipped: []string{"printer"},
	}})
	r.Equal("environments", r.View().List(step.LoadedEnvironmentsPath), []step.LoadedEnvironment{{
		ID: "@local/more", Version: 1, Type: "environment", Env: "@local/office", EnvStep: "up", Environments: []string{"mail"},
	}})
}

// A failed add leaves nothing of the data, says so, and spoils no other environment.
func TestLoadThatFails(t *testing.T) {
	r, s := office(t)
	e := NewLoadArtifact(r.Store, r.Deploy, r.Envs, r.Agents, NewDownloads(false))
	r.PutEnvironments("@local/day", map[string]string{"mail": `{"m":1}`, "calendar": `{"c": "poison"}`})
	r.PutEnvironments("@local/far", map[string]string{"printer": `{}`, "fax": `{}`})
	r.PutEnvironment("@local/one", "printer", `{}`)
	err := r.Do(e, loadEnv(`"artifact_id": "@local/day"`))
	if err == nil || err.Error() != "load 'calendar/data.json' into 'calendar': data/add failed: bad seed; it was reset, so it holds none of the data" &&
		!strings.HasPrefix(err.Error(), "load 'data.json' into 'calendar': data/add failed: bad seed") {
		t.Error(err)
	}
	if s.Held("calendar") != "" || s.Held("mail") != `{"m":1}` {
		t.Errorf("%q %q", s.Held("mail"), s.Held("calendar"))
	}
	if n := len(r.View().List(step.LoadedUniversesPath)); n != 0 {
		t.Error("recorded as loaded")
	}
	for text, want := range map[string]string{
		`"artifact_id": "@local/far"`:                             "LoadError",
		`"artifact_id": "@local/one"`:                             "LoadError",
		`"artifact_id": "@local/nosuch"`:                          "NotFoundError",
		`"artifact_id": "@local/day", "env_step_id": "other"`:     "NotFoundError",
		`"artifact_from_step_id": "other"`:                        "NotFoundError",
		`"artifacts": [{"id": "@local/day"}, {"id": "@local/f"}]`: "TypeError",
	} {
		r.PutOther("@local/f", "file")
		before := len(s.Calls())
		if err := r.Do(e, loadEnv(text)); steptest.ErrorType(err) != want || len(s.Calls()) != before {
			t.Errorf("%s: %s %v, %d calls", text, steptest.ErrorType(err), err, len(s.Calls())-before)
		}
		if err := r.Remove("@local/f"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSnapshotEnv(t *testing.T) {
	r, s := office(t)
	l, e := NewLoadArtifact(r.Store, r.Deploy, r.Envs, r.Agents, NewDownloads(false)), NewSnapshotEnv(r.Store, r.Envs)
	r.PutEnvironments("@local/day", map[string]string{"mail": `{"m":1}`, "calendar": `{"c":1}`})
	r.Must(l, loadEnv(`"artifact_id": "@local/day"`))
	for range 2 {
		r.Must(e, `{"id": "keep", "type": "snapshot_env", "env_id": "@local/office", "snapshot_id": "@local/kept", "original_universe_artifact_id": "@local/day"}`)
	}
	d, err := envstore.ReadData(t.Context(), r.Store, "@local/kept", 0)
	if err != nil || d.Artifact.Version != 2 || len(d.Payloads) != 2 || d.Payloads[0].Environment != "calendar" || d.Payloads[1].File.Path != "data.json" {
		t.Fatalf("%+v %v", d, err)
	}
	var rec json.RawMessage
	if _, err := r.View().Get(step.Child(SnapshotsPath, "keep"), &rec); err != nil {
		t.Fatal(err)
	}
	r.Equal("record", rec, json.RawMessage(`{"id":"@local/kept","version":2,"env_id":"@local/office","env_step_id":"up","environments":["mail","calendar"],"original_universe_artifact_id":"@local/day"}`))
	// What was kept comes back.
	r.PutEnvironments("@local/empty", map[string]string{"mail": `{}`, "calendar": `{}`})
	r.Must(l, loadEnv(`"artifact_id": "@local/empty"`))
	r.Must(l, loadEnv(`"artifact_from_step_id": "keep"`))
	if s.Held("mail") != `{"m":1}` || s.Held("calendar") != `{"c":1}` {
		t.Errorf("%q %q", s.Held("mail"), s.Held("calendar"))
	}
	r.Must(e, `{"id": "keep2", "type": "snapshot_env", "env_id": "@local/office"}`)
	if _, err := r.Store.Get(t.Context(), store.Artifact, steptest.Run+"-office", 1); err != nil {
		t.Error(err)
	}
}

func TestSnapshotEnvThatFails(t *testing.T) {
	r, s := office(t)
	e := NewSnapshotEnv(r.Store, r.Envs)
	r.PutFile("@local/taken", steptest.File{Path: "f"})
	before := artifacts(t, r)
	s.Die("mail")
	for text, want := range map[string]string{
		`"env_id": "@local/nosuch"`: "NotFoundError",
		`"env_id": "@local/office"`: "SnapshotError", // the servers hold nothing, which is no JSON
	} {
		if err := r.Do(e, `{"id": "k", "type": "snapshot_env", "export_timeout_seconds": 2, `+text+`}`); steptest.ErrorType(err) != want {
			t.Errorf("%s: %s %v", text, steptest.ErrorType(err), err)
		}
	}
	if after := artifacts(t, r); !slices.Equal(after, before) {
		t.Errorf("stored %v, before %v", after, before)
	}
	p := e.Preflight(t.Context(), r.Doc(`{"id": "k", "type": "snapshot_env", "gateway_url": "http://x"}`), step.Plan{})
	if got := steptest.Texts(p); got != "gateway_url: only environments that the task deploys itself can be kept; name the environment in env_id" {
		t.Error(got)
	}
}

func artifacts(t *testing.T, r *steptest.Rig) []string {
	t.Helper()
	page, err := r.Store.List(t.Context(), store.Query{Kind: store.Artifact, AllVersions: true})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range page.Docs {
		out = append(out, d.ID)
	}
	return out
}
