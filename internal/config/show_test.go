package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":                           "plain text",
		"postgres://u:pw@h:5/db":               "postgres://***@h:5/db",
		"postgres://u:p@ss/w@h/db":             "postgres://***@h/db",
		"postgres://u:p/w@h/db":                "postgres://***@h/db",
		"postgres://u:p#w?x@h/db":              "postgres://***@h/db",
		"https://token@github.com/a":           "https://***@github.com/a",
		"git+https://github.com/a/b@v1":        "git+https://github.com/a/b@v1",
		"http://localhost:8080/a":              "http://localhost:8080/a",
		"a http://x:y@h b http://z@h":          "a http://***@h b http://***@h",
		"https://h/p?api_key=k&x=1&my-token=t": "https://h/p?api_key=***&x=1&my-token=***",
		"host=h password='a b' user=u":         "host=h password=*** user=u",
		"Authorization: Bearer abc.def":        "Authorization: Bearer ***",
		"line\nbreak\x1b[2K":                   `line\nbreak\x1b[2K`,
	} {
		if got := maskText(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"env:K": "env:K", "env:K?v": "env:K?***", "secret:a": "secret:a", "v": "***", "env:a b": "***",
	} {
		if got := maskString(in, true); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := maskString("env:H?http://u:p@h", false); got != "env:H?http://***@h" {
		t.Error(got)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestShow(t *testing.T) {
	w := newWorld(t)
	w.env["LITELLM_API_KEY"] = "canary"
	w.env["AGENT_ENV_IMAGE_STORE"] = "local"
	c := w.good(`
[stores]
document = { impl = "pg:Store", config = { uri = "postgres://u:pw@h/d", pool = 3 } }
[stores.image]
config = { registry_host = "r" }
[stores.secret.config]
values = { K = "canary" }
file_path = "/f"
[model]
api_key = "env:MY_KEY?canary"
default = "m"
[plugins.acme]
api_key = "canary"
auth = { user = "u", list = [1, true] }
url = "https://h/?token=canary"
args = ["--token", "canary", "--verbose", "x"]
`)
	r, err := c.Show()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var order []string
	for _, s := range r.Sections {
		got[s.Name] = asJSON(t, s)
		order = append(order, s.Name)
	}
	path := c.Path()
	for name, want := range map[string]string{
		"document": `{"name":"document","winner":{"kind":"file","where":"` + path + `:3","value":{"config":{"pool":3,"uri":"postgres://***@h/d"},"impl":"pg:Store"}},` +
			`"shadowed":[{"kind":"default","value":"local"}],"impl":"pg:Store","config":{"pool":3,"uri":"postgres://***@h/d"}}`,
		"image": `{"name":"image","winner":{"kind":"env","where":"AGENT_ENV_IMAGE_STORE","value":"local"},` +
			`"shadowed":[{"kind":"file","where":"` + path + `:4","value":{"config":{"registry_host":"r"}}},{"kind":"default","value":"local"}],` +
			`"impl":"local","config":{"registry_host":"localhost:5000","repository_prefix":""}}`,
		"secret": `{"name":"secret","winner":{"kind":"file","where":"` + path + `:6","value":{"config":{"file_path":"/f","values":{"K":"***"}}}},` +
			`"shadowed":[{"kind":"default","value":"local"}],"impl":"local","config":{"file_path":"/f","use_env":true,"values":{"K":"***"}}}`,
		"model": `{"name":"model","winner":{"kind":"env","where":"LITELLM_API_KEY","value":"***"},` +
			`"shadowed":[{"kind":"file","where":"` + path + `:9","value":{"api_key":"env:MY_KEY?***","default":"m"}}],"value":{"api_key":"***","default":"m"}}`,
		"agents": `{"name":"agents","winner":{"kind":"default","value":{"default_a2a_agent_id":"@local/agentenv-framework/agents/loop"}},"shadowed":[],` +
			`"value":{"default_a2a_agent_id":"@local/agentenv-framework/agents/loop"}}`,
		"allow_unknown_fields": `{"name":"allow_unknown_fields","winner":{"kind":"default","value":false},"shadowed":[],"value":false}`,
		"delegates":            `{"name":"delegates","winner":null,"shadowed":[]}`,
	} {
		if got[name] != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got[name], want)
		}
	}
	wantOrder := []string{
		"document", "object", "image", "secret", "runner", "model", "conversations", "agents", "sandbox", "state", "envs", "artifacts", "task_steps", "explorer",
		"git_plugins", "mcp", "delegates", "projects", "allow_unknown_fields",
	}
	if !slices.Equal(order, wantOrder) {
		t.Error(order)
	}
	want := `[{"name":"acme","winner":{"kind":"file","where":"` + path + `:12","value":` +
		`{"api_key":"***","args":["--token","***","--verbose","x"],"auth":{"list":["***","***"],"user":"***"},"url":"https://h/?token=***"}},"shadowed":[],` +
		`"value":{"api_key":"***","args":["--token","***","--verbose","x"],"auth":{"list":["***","***"],"user":"***"},"url":"https://h/?token=***"}}]`
	if p := asJSON(t, r.Plugins); p != want {
		t.Errorf("plugins:\ngot  %s\nwant %s", p, want)
	}
	if one, err := c.Show("model"); err != nil || len(one.Sections) != 1 || len(one.Plugins) != 0 {
		t.Errorf("%+v %v", one, err)
	}
	if _, err := c.Show("modle"); err == nil || !strings.HasPrefix(err.Error(), "no section is called 'modle'; did you mean model?; there are agents, ") {
		t.Error(err)
	}
}

func TestShowOfABrokenFile(t *testing.T) {
	w := newWorld(t)
	path := w.write(Name, "modl = 1\n[explorer]\nport = 'x'\n[sandbox.local]\nisolation = 3\n")
	c, _ := w.load("")
	r, err := c.Show()
	if err != nil || r.ConfigSource != "walk-up" || strings.Count(r.Error, "\n") != 1 || len(r.Warnings) != 1 {
		t.Errorf("%+v %v", r, err)
	}
	for _, s := range r.Sections {
		switch s.Name {
		case "explorer":
			if s.Error != path+":3: explorer.port: must be an integer, not a string" {
				t.Error(s.Error)
			}
		case "sandbox":
			if !strings.HasPrefix(s.Error, path+":5: sandbox.local.isolation: must be a string") {
				t.Error(s.Error)
			}
		default:
			if s.Error != "" {
				t.Errorf("%s: %s", s.Name, s.Error)
			}
		}
	}
	w.write(Name, "[model\n")
	c, l := w.load("")
	if r, err := c.Show(); err != nil || !l.HasErrors() || r.Error == "" || len(r.Sections) != 19 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t)
	w.env["LITELLM_BASE_URL"] = "http://u:pw@env"
	c := w.good("[model]\nbase_url = 'http://file'\n[stores.object]\nconfig = { root = '/o' }\n[plugins.A_b]\nx = 1\n")
	path := c.Path()
	for in, want := range map[string]string{
		"model.base_url": `{"format_version":1,"path":"model.base_url","about":"its address","value":"http://***@env","layers":[` +
			`{"kind":"env","where":"LITELLM_BASE_URL","value":"http://***@env"},{"kind":"file","where":"` + path + `:2","value":"http://file"}]}`,
		"object.config.root": `{"format_version":1,"path":"stores.object.config.root","value":"/o","layers":[` +
			`{"kind":"file","where":"` + path + `:4","value":"/o"},{"kind":"default","value":"` + c.StateRoot() + `/store"}]}`,
		"stores.object.config.grants": `{"format_version":1,"path":"stores.object.config.grants","value":"auto","layers":[{"kind":"default","value":"auto"}]}`,
		"explorer.port":               `{"format_version":1,"path":"explorer.port","about":"the port on 127.0.0.1","value":8234,"layers":[{"kind":"default","value":8234}]}`,
		"model.api_key":               `{"format_version":1,"path":"model.api_key","about":"its key","value":null,"layers":[]}`,
		"plugins.a-b": `{"format_version":1,"path":"plugins.A_b","value":{"x":1},"layers":[{"kind":"file","where":"` + path + `:5","value":{"x":1}}],` +
			`"inside":[{"path":"plugins.A_b.x","value":1,"layers":[{"kind":"file","where":"` + path + `:6","value":1}]}]}`,
		"agents": `{"format_version":1,"path":"agents","about":"agents","value":{"default_a2a_agent_id":"@local/agentenv-framework/agents/loop"},` +
			`"layers":[{"kind":"default","value":{"default_a2a_agent_id":"@local/agentenv-framework/agents/loop"}}],"inside":[{"path":"agents.default_a2a_agent_id",` +
			`"about":"the agent of a deploy step that names none","value":"@local/agentenv-framework/agents/loop","layers":[{"kind":"default","value":"@local/agentenv-framework/agents/loop"}]}]}`,
	} {
		e, err := c.Explain(in)
		if got := asJSON(t, e); err != nil || got != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", in, err, got, want)
		}
	}
	e, err := c.Explain("stores")
	var inside []string
	for _, i := range e.Inside {
		inside = append(inside, i.Path)
	}
	if err != nil || !slices.Equal(inside, []string{"stores.document", "stores.object", "stores.image", "stores.secret"}) {
		t.Errorf("%v %v", inside, err)
	}
	for in, want := range map[string]string{
		"modle":           "no section is called 'modle'; did you mean model?; there are ",
		"model.base_ur":   "nothing is called 'base_ur' in model; did you mean base_url?",
		"model.zzzzzzzzz": "nothing is called 'zzzzzzzzz' in model; there are api_key, base_url, default, headers, params, patience_seconds, roles",
		"a..b":            "an empty name in 'a..b'",
		"explorer.port.x": "nothing is called 'x' in explorer.port",
	} {
		if _, err := c.Explain(in); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestExplainSaysWhatIsIgnored(t *testing.T) {
	w := newWorld(t)
	w.write("tasks/t", "")
	w.write(Name, "[model]\nbase_url = 'http://evil'\n")
	c, _ := w.load("")
	e, err := c.Explain("model.base_url")
	if err != nil || len(e.Layers) > 0 || e.Value != nil || !slices.Equal(e.Ignored, []string{"model.base_url (line 2): the file lies in the bundle " + w.project}) {
		t.Errorf("%+v %v", e, err)
	}
	r, err := c.Show("model")
	if err != nil || r.Trusted || !slices.Equal(r.Sections[0].Ignored, []string{"model.base_url"}) || r.Sections[0].Winner != nil {
		t.Errorf("%+v %v", r, err)
	}
}

func TestSources(t *testing.T) {
	w := newWorld(t)
	w.env["LITELLM_API_KEY"], w.env["USED"] = "canary", "canary"
	c := w.good("[model]\nbase_url = 'env:USED?canary'\n[plugins.x]\na = ['env:USED', 'secret:s']\nb = 'env:OTHER'\n")
	got := c.Sources()
	var names []string
	for _, s := range got {
		names = append(names, fmt.Sprintf("%s %s %v %s", s.Kind, s.Name, s.Set, strings.Join(s.Keys, ",")))
	}
	want := []string{
		"default  true ", "file " + c.Path() + " true model,plugins", "env AGENT_ENV_CONFIG false ", "env HOME true ", "env XDG_STATE_HOME false ",
		"env AGENT_ENV_DOCUMENT_STORE false stores.document", "env AGENT_ENV_OBJECT_STORE false stores.object", "env AGENT_ENV_IMAGE_STORE false stores.image",
		"env AGENT_ENV_SECRET_STORE false stores.secret", "env AGENT_ENV_RUNNER false runner", "env AGENT_ENV_HUMAN_A2A_URL false conversations.default_human_a2a_url",
		"env LITELLM_API_KEY true model.api_key", "env LITELLM_BASE_URL false model.base_url", "env OTHER false plugins.x.b", "env USED true model.base_url,plugins.x.a",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
	}
	if s := asJSON(t, got); strings.Contains(s, "canary") || !strings.Contains(s, `"value":"`+w.home+`"`) {
		t.Error(s)
	}
}

// everything is all that the package says about a configuration: problems, reports, explanations of every key, errors of every accessor.
func everything(t *testing.T, c *Config, l diag.List) string {
	t.Helper()
	var b strings.Builder
	add := func(v any, err error) {
		fmt.Fprintln(&b, asJSON(t, v), err)
	}
	for _, p := range l {
		fmt.Fprintln(&b, p)
	}
	add(c.Show())
	add(c.Sources(), nil)
	var explain func(path []string)
	explain = func(path []string) {
		e, err := c.Explain(key(path))
		add(e, err)
		for name := range at(c.tree, path...).Members() {
			explain(append(slices.Clip(path), name))
		}
	}
	for name := range c.tree.Members() {
		explain([]string{name})
	}
	ctx := t.Context()
	_, err := c.Model(ctx, nil)
	fmt.Fprintln(&b, err)
	for _, f := range []func() (Class, error){
		func() (Class, error) { return c.SecretStore(ctx) },
		func() (Class, error) { return c.DocumentStore(ctx, nil) },
		func() (Class, error) { return c.ObjectStore(ctx, nil) },
		func() (Class, error) { return c.ImageStore(ctx, nil) },
		func() (Class, error) { return c.Runner(ctx, nil) },
	} {
		_, err := f()
		fmt.Fprintln(&b, err)
	}
	_, err = c.Sandbox(ctx, nil)
	fmt.Fprintln(&b, err)
	_, err = c.Explorer(ctx, nil)
	fmt.Fprintln(&b, err)
	for name := range c.value("plugins").Members() {
		_, err = c.Plugin(ctx, name, nil)
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

// Wherever a secret stands, by right or by mistake, no problem and no report shows it.
func TestCanary(t *testing.T) {
	const canary = "sk-CANARY-4242"
	files := []string{
		"[model]\napi_key = 'X'\n", "[model]\napi_key = ['X']\n", "[model]\napi_key = { a = 'X' }\n", "[model]\napi_key = 'env:GONE?X'\n",
		"[model]\nbase_url = 'https://X@h/'\n", "[model]\nbase_url = 'https://u:X@h/'\n", "[model]\nbase_url = ['https://u:X@h/']\n", "[model]\nbase_url = 'https://h/?api_key=X'\n",
		"[model]\nheaders = { Authorization = 'Bearer X' }\n", "[model]\nheaders = 'Bearer X'\n", "[model]\nheaders = { A = \"X\\u00fc\" }\n", "[model]\nparams = { extra_headers = { k = 'X' } }\n",
		"[model]\nparams = { api_key = 'X' }\n", "[model]\napi_kee = { token = 'X' }\n",
		"[stores.secret]\nconfig = { values = { k = 'X' } }\n", "[stores.secret]\nvalues = { k = 'X' }\n", "[stores.secret]\nconfig = { values = 'X' }\n", "[stores.secret]\nconfig = { vals = { k = 'X' } }\n",
		"[stores]\nsecret = 'X'\n", "[stores.secret]\nimpl = 'a:B'\nconfig = { k = 'X' }\n", "[stores.secret.config.values]\nk = ['X']\n", "stores.secret.config.values = { k = 'secret:a?X' }\n",
		"[stores.image.config]\ncredentials = { impl = 'i', access = 'X' }\n", "[stores.document]\nimpl = 'p:Q'\nconfig = { uri = 'postgres://u:X@h/d' }\n",
		"[stores.document]\nconfig = { uri = 'postgres://u:X@h/d' }\n",
		"[plugins.a]\nmy_token = 'X'\n", "[plugins.a]\nx = { password = ['X'] }\n", "[plugins.a]\nargs = ['--api-key', 'X']\n", "[plugins.a]\nargs = ['--api-key=X']\n",
		"[delegates.d]\nauth = { scheme = 'X' }\n", "[git_plugins.config.b]\nbot_token = 'X'\n",
		"[sandbox]\ndefault = 'local,local'\nattribution = { token = 'X' }\n", "[sandbox.providers.e]\nconfig = { api_key = 'X' }\n", "[sandbox.providers]\ne = 7\n",
		"api_key = 'X\n", "api_key = 'X'\napi_key = 'X'\n", "api_key = X\n", "[model]\napi_key = 424242424242424242424242\n", "[model]\napi_key = 4242-42-42\n",
		"[explorer]\ncors_origins = ['https://u:X@*']\n",
	}
	for _, bundle := range []bool{false, true} {
		w := newWorld(t)
		if bundle {
			w.write("tasks/t", "")
		}
		w.env["LITELLM_API_KEY"], w.env["LITELLM_BASE_URL"] = canary, "https://u:"+canary+"@h"
		w.env["AGENT_ENV_HUMAN_A2A_URL"] = "http://h?token=" + canary
		for _, f := range files {
			w.write(Name, strings.ReplaceAll(f, "X", canary))
			c, l := w.load("")
			got := everything(t, c, l)
			if tr, err := c.Trust(t.Context(), w.project); true {
				got += asJSON(t, tr) + fmt.Sprint(err)
				os.Remove(filepath.Join(c.StateRoot(), trustFile))
			}
			if i := strings.Index(got, "CANARY"); i >= 0 || strings.Contains(got, "4242") {
				t.Errorf("%q (bundle %v) leaks:\n%s", f, bundle, got[max(0, i-200):min(len(got), max(0, i)+80)])
			}
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{hostile, "[model]\nbase_url='env:A?b'\n", "a.b.c=1", "\ufeff[stores]\ndocument={impl='x',config={}}", "[[projects]]\nname='p'\n", "plugins.\"a.b\"={x=[{y='secret:k'}]}"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	base := f.TempDir()
	dir := filepath.Join(base, "p")
	for _, d := range []string{filepath.Join(dir, ".agentenv"), filepath.Join(base, "b", ".agentenv"), filepath.Join(base, "b", "tasks")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, bundle bool) {
		d := dir
		if bundle {
			d = filepath.Join(base, "b")
		}
		if err := os.WriteFile(filepath.Join(d, Name), src, 0o600); err != nil {
			t.Fatal(err)
		}
		c, l := Load(Options{Dir: d, Env: func(string) (string, bool) { return "", false }, Passwd: func() string { return base }})
		everything(t, c, l)
		if bundle && (c.AllowUnknownFields() || c.value("model", "base_url").Kind() == doc.String) {
			t.Errorf("%q: a stranger's setting counts", src)
		}
	})
}
