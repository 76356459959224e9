package plugin_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/plugintest"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func acme() *plugin.Plugin {
	return &plugin.Plugin{
		Name: "acme", Version: "1",
		Steps: []plugin.Step{
			{Name: "count", Schema: json.RawMessage(`{"type":"object","properties":{"by":{"type":"integer"}}}`), Run: func(_ context.Context, c *plugin.Call) error {
				var n int
				if _, err := c.Context("metadata/count", &n); err != nil {
					return err
				}
				c.Log.With("a", 1).WithGroup("g").Warn("counting", "n", n)
				c.Host.Spend(1, 2, 3)
				c.Unset("metadata/old")
				return errors.Join(c.Set("metadata/count", n+1), c.Append("deployed_agents", 1), c.Score(0.5, map[string]any{"n": n}))
			}},
			{Name: "ask", Run: func(ctx context.Context, c *plugin.Call) error {
				v, err := c.Host.Secret(ctx, "K")
				if err != nil {
					return plugin.Infra(err)
				}
				return c.Set(plugin.Path("metadata", "a/b%"), v)
			}},
			{
				Name: "fail", Run: func(_ context.Context, c *plugin.Call) error {
					_ = c.Set("metadata/x", 1)
					return plugin.Keep(plugin.Fail("Bad", "worse"))
				},
				Check: func(context.Context, plugin.Document) []plugin.Problem { return []plugin.Problem{{Summary: "always"}} },
			},
			{Name: "panic", Run: func(context.Context, *plugin.Call) error { panic("oh") }},
		},
		Envs: []plugin.Env{{
			Name: "acme_env", Deploy: func(_ context.Context, c *plugin.EnvCall) (plugin.Deployed, error) {
				return plugin.Deployed{Env: plugin.DeployedEnv{URL: "http://x/" + c.Run}, State: json.RawMessage(`{"pid":1}`)}, nil
			},
			Close: func(_ context.Context, c *plugin.EnvCall) error { return plugin.Fail("Gone", "%s", c.State) },
		}},
		Artifacts: []plugin.Artifact{{Name: "acme_data"}},
	}
}

func TestSteps(t *testing.T) {
	h := plugintest.New(t, acme())
	out := h.Run(t.Context(), map[string]any{"id": "s", "type": "count", "verifier_id": "v/1"}, map[string]any{"metadata": map[string]any{"count": 4, "old": 1}})
	want := map[string]any{
		"metadata":        map[string]any{"count": 5.0, "verifications": map[string]any{"v/1": map[string]any{"score": 0.5, "n": 4.0}}},
		"deployed_agents": []any{1.0},
	}
	if out.Err != nil || !reflect.DeepEqual(out.Context, want) {
		t.Errorf("%v %v", out.Err, out.Context)
	}
	if l := h.Logs(); len(l) != 1 || l[0].Level != "warning" || l[0].Message != "counting" || fmt.Sprint(l[0].Fields) != "map[a:1 g.n:4]" {
		t.Errorf("%+v", l)
	}
	if s := h.Spent(); len(s) != 1 || s[0].USD != 1 || s[0].OutputTokens != 3 {
		t.Errorf("%+v", s)
	}
	out = h.Run(t.Context(), map[string]any{"id": "s", "type": "ask"}, nil)
	if !out.Failure.Infra || rpc.CodeOf(out.Err) != plugin.CodeFailed || len(out.Diff) != 0 {
		t.Errorf("%+v", out)
	}
	h.Serve("host/secret.get", func(p json.RawMessage) (any, error) {
		if !strings.Contains(string(p), `"call":"test-`) {
			t.Error(string(p))
		}
		return map[string]string{"value": "v"}, nil
	})
	if out = h.Run(t.Context(), map[string]any{"id": "s", "type": "ask"}, nil); out.Err != nil || out.Context["metadata"].(map[string]any)["a/b%"] != "v" {
		t.Errorf("%+v", out)
	}
	if out = h.Run(t.Context(), map[string]any{"id": "s", "type": "fail"}, nil); out.Failure.Type != "Bad" || !out.Failure.Keep || len(out.Diff) != 1 || out.Err.Error() != "worse" {
		t.Errorf("%+v", out)
	}
	if out = h.Run(t.Context(), map[string]any{"id": "s", "type": "panic"}, nil); rpc.CodeOf(out.Err) != rpc.CodeInternal {
		t.Errorf("%+v", out)
	}
	if out = h.Run(t.Context(), map[string]any{"id": "s", "type": "nothing"}, nil); rpc.CodeOf(out.Err) != rpc.CodeParams {
		t.Errorf("%+v", out)
	}
	if p := h.Check(t.Context(), map[string]any{"id": "s", "type": "fail"}); len(p) != 1 || p[0].Summary != "always" {
		t.Error(p)
	}
}

func TestOtherTypes(t *testing.T) {
	h := plugintest.New(t, acme())
	var d plugin.Deployed
	e := plugin.Entry{Group: plugin.GroupEnvs, Name: "acme_env"}
	if err := h.Call(t.Context(), plugin.MethodEnvDeploy, plugin.EnvParams{Entry: e, Run: "r", Env: json.RawMessage(`{}`)}, &d); err != nil || d.Env.URL != "http://x/r" {
		t.Error(d, err)
	}
	if err := h.Call(t.Context(), plugin.MethodEnvClose, plugin.EnvParams{Entry: e, State: d.State}, nil); rpc.CodeOf(err) != plugin.CodeFailed || err.Error() != `{"pid":1}` {
		t.Error(err)
	}
	if err := h.Call(t.Context(), plugin.MethodEnvReset, plugin.EnvParams{Entry: e, State: d.State}, nil); rpc.CodeOf(err) != rpc.CodeNoMethod {
		t.Error(err)
	}
	var w plugin.Written
	a := plugin.ArtifactParams{Entry: plugin.Entry{Group: plugin.GroupArtifacts, Name: "acme_data"}, Config: json.RawMessage(`{"x":1}`), Files: []plugin.File{{Path: "a", File: "/tmp/a"}}}
	if err := h.Call(t.Context(), plugin.MethodArtifactWrite, a, &w); err != nil || string(w.Body) != `{"x":1}` || len(w.Files) != 1 {
		t.Error(w, err)
	}
	var types struct{ Types []plugin.Type }
	if err := h.Call(t.Context(), plugin.MethodTypes, nil, &types); err != nil || len(types.Types) != 6 {
		t.Error(types, err)
	}
}

func TestVersions(t *testing.T) {
	h := plugintest.New(t, acme())
	err := h.Call(t.Context(), plugin.MethodInitialize, plugin.Initialize{Versions: []int{7}}, nil)
	if rpc.CodeOf(err) != plugin.CodeVersion {
		t.Error(err)
	}
}

func TestManifests(t *testing.T) {
	b, err := acme().Manifest()
	if err != nil {
		t.Fatal(err)
	}
	m, err := plugin.ParseManifest(b)
	if err != nil || len(m.Types) != 6 || m.Types[0].Name != "count" {
		t.Errorf("%+v %v", m, err)
	}
	for in, want := range map[string]string{
		``:  "is not JSON",
		`1`: "is not JSON",
		`{"format_version":1,"protocol_version":1} {}`: "more than one",
		`{"format_version":2,"protocol_version":1}`:    "format_version 2",
		`{"format_version":1}`:                         "lacks protocol_version",
		`{"format_version":1,"protocol_version":1,"types":[{"group":"agent_env.task_steps","name":"Bad"}]}`:                               `"Bad" can't be`,
		`{"format_version":1,"protocol_version":1,"types":[{"group":"x","name":"a"}]}`:                                                    `no group "x"`,
		`{"format_version":1,"protocol_version":1,"types":[{"group":"agent_env.envs","name":"a"},{"group":"agent_env.envs","name":"a"}]}`: "listed twice",
		`{"format_version":1,"protocol_version":1,"types":[{"group":"agent_env.envs","name":"a","schema":[]}]}`:                           "schema must be an object",
		`{"format_version":1,"protocol_version":1,"types":[{"group":"agent_env.envs","name":"a","refs":[{"path":"x","kind":"y"}]}]}`:      `of kind "y"`,
		`{"format_version":1,"protocol_version":1,"types":[{"group":"agent_env.envs","name":"a","refs":[{"kind":"env"}]}]}`:               "lacks its path",
		`{"format_version":1,"protocol_version":1,"types":[{"group":"agent_env.cli_plugins","name":"-a"}]}`:                               `"-a" can't be`,
		strings.Repeat(" ", plugin.MaxManifest+1): "is larger",
	} {
		if _, err := plugin.ParseManifest([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v", in, err)
		}
	}
}

// FuzzManifest: what is accepted can be written and read again as it was.
func FuzzManifest(f *testing.F) {
	b, err := acme().Manifest()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format_version":1,"protocol_version":1,"types":[{"group":"agent_env.envs","name":"a","schema":null}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := plugin.ParseManifest(in)
		if err != nil {
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) > plugin.MaxManifest {
			return // escapes made it longer
		}
		if _, err := plugin.ParseManifest(out); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	})
}

func TestWheel(t *testing.T) {
	name, b, err := acme().Wheel("Agentenv.Acme", []byte("#!/bin/sh\n"), "linux", "arm64")
	if err != nil || name != "agentenv_acme-1-py3-none-linux_aarch64.whl" {
		t.Fatal(name, err)
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		got[f.Name] = string(text)
		if strings.Contains(f.Name, "/scripts/") && f.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %v", f.Name, f.Mode())
		}
	}
	const info = "agentenv_acme-1.dist-info/"
	for path, want := range map[string]string{
		"agentenv_acme-1.data/scripts/acme": "#!/bin/sh\n", info + "METADATA": "Metadata-Version: 2.1\nName: Agentenv.Acme\nVersion: 1\n",
		info + "entry_points.txt": "[agent_env.exec]\nacme = acme\n",
	} {
		if got[path] != want {
			t.Errorf("%s holds %q", path, got[path])
		}
	}
	if strings.Count(got[info+"RECORD"], "\n") != len(got) {
		t.Errorf("RECORD is\n%s", got[info+"RECORD"])
	}
	if _, again, err := acme().Wheel("Agentenv.Acme", []byte("#!/bin/sh\n"), "linux", "arm64"); err != nil || !bytes.Equal(again, b) {
		t.Error("another time it is another wheel")
	}
	for _, c := range [][3]string{{"-x", "linux", "amd64"}, {"a b", "linux", "amd64"}, {"x", "plan9", "amd64"}} {
		if _, _, err := acme().Wheel(c[0], nil, c[1], c[2]); err == nil {
			t.Errorf("%q makes a wheel", c)
		}
	}
}
