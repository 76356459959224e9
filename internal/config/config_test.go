package config

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// world is a home, a state folder and a project, on disk.
type world struct {
	t       *testing.T
	home    string
	project string
	env     map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, home: filepath.Join(base, "home"), project: filepath.Join(base, "home", "proj ü"), env: map[string]string{}}
	if err := os.MkdirAll(w.project, 0o755); err != nil {
		t.Fatal(err)
	}
	w.env["HOME"] = w.home
	return w
}

func (w *world) write(path, text string) string {
	w.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.project, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) load(dir string) (*Config, diag.List) {
	w.t.Helper()
	return Load(Options{
		Dir:    filepath.Join(w.project, dir),
		Env:    func(name string) (string, bool) { v, ok := w.env[name]; return v, ok },
		Passwd: func() string { return "" },
	})
}

// good loads a file that must be without fault.
func (w *world) good(text string) *Config {
	w.t.Helper()
	w.write(Name, text)
	c, l := w.load("")
	if len(l) > 0 {
		w.t.Fatalf("%v", l)
	}
	return c
}

func lines(l diag.List, s diag.Severity) []string {
	var out []string
	for _, p := range l.Of(s) {
		out = append(out, p.String())
	}
	return out
}

func TestFindsTheNearestFile(t *testing.T) {
	w := newWorld(t)
	outer := w.write(Name, "explorer.port = 1\n")
	if err := os.MkdirAll(filepath.Join(w.project, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, l := w.load("a/b")
	if len(l) > 0 || c.Path() != outer || c.Root() != w.project {
		t.Errorf("%v %s %s", l, c.Path(), c.Root())
	}
	inner := w.write("a/"+Name, "explorer.port = 2\n")
	if c, _ := w.load("a/b"); c.Path() != inner {
		t.Errorf("found %s", c.Path())
	}
	other := w.write("other.toml", "\ufeffexplorer.port = 3\n")
	w.env["AGENT_ENV_CONFIG"] = "../other.toml"
	c, l = w.load("a")
	if e, _ := c.Explorer(t.Context(), nil); len(l) > 0 || c.Path() != other || e.Port != 3 {
		t.Errorf("%v %s %d", l, c.Path(), e.Port)
	}
	w.env["AGENT_ENV_CONFIG"] = "gone.toml"
	c, l = w.load("a")
	want := filepath.Join(w.project, "a", "gone.toml") + ": can't read the configuration: no such file or directory; AGENT_ENV_CONFIG names it: correct or unset the variable"
	if got := lines(l, diag.Error); !slices.Equal(got, []string{want}) {
		t.Errorf("%q", got)
	}
	if r, err := c.Show(); err != nil || r.ConfigSource != "error" || r.Error != want || len(r.Sections) != len(sections()) {
		t.Errorf("a report of a broken file: %+v %v", r, err)
	}
	w.env["AGENT_ENV_CONFIG"] = "" // empty is not set
	if c, l := w.load("a"); len(l) > 0 || c.Path() != inner {
		t.Error(l, c.Path())
	}
}

func TestNoFileIsFine(t *testing.T) {
	w := newWorld(t)
	c, l := w.load("")
	if len(l) > 0 || c.Path() != "" {
		t.Fatal(l, c.Path())
	}
	d, err := c.DocumentStore(t.Context(), nil)
	if err != nil || d.Impl != Local || d.Config.Get("path").Text() != filepath.Join(w.home, ".local/state/agentenv/store") {
		t.Error(d, err)
	}
	s, err := c.Sandbox(t.Context(), nil)
	if err != nil || !slices.Equal(s.Default, []string{"local", "docker"}) || s.Isolation != "namespaces" || len(s.Tools) > 0 {
		t.Errorf("%+v %v", s, err)
	}
	if a, err := c.DefaultAgent(t.Context(), nil); a != "@local/agentenv-framework/agents/loop" || err != nil {
		t.Error(a, err)
	}
	r, err := c.Show()
	if err != nil || r.ConfigSource != "none" || r.Error != "" || r.SearchRoot != w.project {
		t.Errorf("%+v", r)
	}
}

func TestUnreadableFiles(t *testing.T) {
	w := newWorld(t)
	path := w.write(Name, "")
	for name, c := range map[string]struct {
		spoil func() error
		want  string
	}{
		"folder":   {func() error { os.Remove(path); return os.Mkdir(path, 0o755) }, "it is not a file"},
		"huge":     {func() error { os.Remove(path); return os.WriteFile(path, make([]byte, doc.MaxConfig+1), 0o644) }, "it is larger than 8 MiB"},
		"not text": {func() error { os.RemoveAll(path); return os.WriteFile(path, []byte("a = \"\xff\"\n"), 0o644) }, "not UTF-8"},
		"not TOML": {func() error { os.RemoveAll(path); return os.WriteFile(path, []byte("a = = 1\n"), 0o644) }, "not valid TOML"},
	} {
		os.RemoveAll(path)
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		_, l := w.load("")
		got := strings.Join(lines(l, diag.Error), "\n")
		if !strings.HasPrefix(got, path) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestHomeAndStateRoot(t *testing.T) {
	w := newWorld(t)
	file := w.write("f", "")
	for _, c := range []struct{ home, xdg, passwd, wantHome, wantState string }{
		{w.home, "", "", w.home, w.home + "/.local/state/agentenv"},
		{w.home + "/", "", "", w.home, w.home + "/.local/state/agentenv"},
		{"/", "", w.project, w.project, w.project + "/.local/state/agentenv"},
		{"relative", "", w.project, w.project, w.project + "/.local/state/agentenv"},
		{w.home + "/gone", "", w.project, w.project, w.project + "/.local/state/agentenv"},
		{file, "", w.project, w.project, w.project + "/.local/state/agentenv"},
		{"", "", "/nonexistent", "", ""},
		{"", "/s p/ü", "/", "", "/s p/ü/agentenv"},
		{w.home, "state", "", w.home, w.home + "/.local/state/agentenv"},
	} {
		w.env["HOME"], w.env["XDG_STATE_HOME"] = c.home, c.xdg
		got, l := Load(Options{Dir: w.project, Env: func(n string) (string, bool) { return w.env[n], true }, Passwd: func() string { return c.passwd }})
		if got.Home() != c.wantHome || got.StateRoot() != c.wantState {
			t.Errorf("%+v: home %q state %q", c, got.Home(), got.StateRoot())
		}
		if l.HasErrors() != (c.wantState == "") || (c.xdg == "state") != (len(l) == 1 && l[0].Severity == diag.Warning) {
			t.Errorf("%+v: %v", c, l)
		}
	}
}

func TestEnvironmentOverFileOverDefault(t *testing.T) {
	w := newWorld(t)
	c := w.good("[model]\nbase_url = 'http://file'\ndefault = 'm'\n[stores]\ndocument = { impl = 'pkg:Class', config = { uri = 'x' } }\n")
	m, err := c.Model(t.Context(), nil)
	if err != nil || m.BaseURL != "http://file" || m.Default != "m" || m.APIKey != "" {
		t.Errorf("%+v %v", m, err)
	}
	d, err := c.DocumentStore(t.Context(), nil)
	if err != nil || d.Impl != "pkg:Class" || d.Config.Get("uri").Text() != "x" || d.Pos.Line != 5 {
		t.Errorf("%+v %v", d, err)
	}
	w.env["LITELLM_BASE_URL"], w.env["LITELLM_API_KEY"], w.env["AGENT_ENV_DOCUMENT_STORE"] = "http://env", "k", "local"
	if m, err = c.Model(t.Context(), nil); err != nil || m.BaseURL != "http://env" || m.Default != "m" || m.APIKey != "k" {
		t.Errorf("%+v %v", m, err)
	}
	if d, err = c.DocumentStore(t.Context(), nil); err != nil || d.Impl != Local || d.Config.Get("path").Text() == "" {
		t.Errorf("%+v %v", d, err)
	}
	w.env["AGENT_ENV_DOCUMENT_STORE"] = "mongo"
	_, l := w.load("")
	want := `AGENT_ENV_DOCUMENT_STORE: its only value is "local"; unset it, or set up [stores.document] in .agentenv/config.toml`
	if got := lines(l, diag.Error); !slices.Equal(got, []string{want}) {
		t.Errorf("%q", got)
	}
}

func TestEverySetting(t *testing.T) {
	w := newWorld(t)
	c := w.good(`
allow_unknown_fields = true
[stores.object]
config = { root = "/o", grants = "off" }
[runner]
config.workers = 4
[model]
roles = { judge = "j" }
params = { temperature = 0.5 }
headers = { "X-Team" = "a b" }
[conversations]
default_human_a2a_url = "http://h"
[agents]
default_a2a_agent_id = "@local/x"
[sandbox]
default = "local, docker"
agent_default = "docker"
attribution = { team = "t" }
[sandbox.local]
tools = ["~/tools", "rel/t"]
expose = ["/data"]
isolation = "none"
[sandbox.providers.e2b]
config = { key = "env:E2B" }
[sandbox.providers]
mine = "m:Mine"
[envs]
impls = ["a:B"]
[artifacts]
impls = ["c:D"]
type_aliases = { old = "file" }
[task_steps]
impls = []
[explorer]
port = 99
cors_origins = ["https://a.example:1"]
allowed_hosts = ["h"]
static_dir = "ui"
plugins = { impls = ["r:R"] }
[git_plugins]
enabled = ["board"]
sources = { allow = [], require_signature = true }
update_policy.board = { track = "main", when = "idle" }
config.board = { url = "u" }
[delegates.helper]
url = "http://d"
[[projects]]
name = "p"
path = "code"
write = true
[plugins.Acme_Tools]
key = "v"
`)
	s, err := c.Sandbox(t.Context(), nil)
	if err != nil || !slices.Equal(s.Default, []string{"local", "docker"}) || !slices.Equal(s.Agent, []string{"docker"}) || s.Isolation != "none" ||
		!slices.Equal(s.Tools, []string{w.home + "/tools", w.project + "/rel/t"}) || !slices.Equal(s.Expose, []string{"/data"}) || s.Attribution["team"] != "t" {
		t.Errorf("%+v %v", s, err)
	}
	if got := c.Providers("sandbox"); !slices.Equal(got, []string{"e2b", "mine"}) {
		t.Error(got)
	}
	if p, err := c.Provider(t.Context(), "sandbox", "mine", nil); p.Impl != "m:Mine" || err != nil {
		t.Error(p, err)
	}
	if _, err := c.Provider(t.Context(), "sandbox", "e2b", nil); err == nil || !strings.Contains(err.Error(), "env:E2B: the variable is not set; set E2B, or write env:E2B?default") {
		t.Error(err)
	}
	o, err := c.ObjectStore(t.Context(), nil)
	if life, _ := o.Config.Get("grant_lifetime_seconds").Int(); err != nil || o.Config.Get("root").Text() != "/o" || life != 43200 {
		t.Error(o, err)
	}
	r, err := c.Runner(t.Context(), nil)
	if n, _ := r.Config.Get("workers").Int(); err != nil || n != 4 {
		t.Error(r, err)
	}
	m, err := c.Model(t.Context(), nil)
	if err != nil || m.Roles["judge"] != "j" || m.Headers["X-Team"] != "a b" || m.Params.Get("temperature").Text() != "0.5" {
		t.Errorf("%+v %v", m, err)
	}
	if u, err := c.HumanURL(t.Context(), nil); u != "http://h" || err != nil {
		t.Error(u, err)
	}
	if a, err := c.DefaultAgent(t.Context(), nil); a != "@local/x" || err != nil {
		t.Error(a, err)
	}
	e, err := c.Explorer(t.Context(), nil)
	if err != nil || e.Port != 99 || e.StaticDir != w.project+"/ui" || !slices.Equal(e.Plugins, []string{"r:R"}) || !slices.Equal(e.AllowedHosts, []string{"h"}) {
		t.Errorf("%+v %v", e, err)
	}
	g, err := c.GitPlugins(t.Context(), nil)
	if hours, _ := g.Get("autoupdate_interval_hours").Int(); err != nil || hours != 6 || g.Get("enabled").Len() != 1 || !g.Get("sources").Get("allow").Exists() || g.Get("config").Exists() {
		t.Error(g.Any(), err)
	}
	if p, err := c.GitPlugin(t.Context(), "config", "board", nil); p.Get("url").Text() != "u" || err != nil {
		t.Error(p.Any(), err)
	}
	if p, err := c.Plugin(t.Context(), "acme-tools", nil); p.Get("key").Text() != "v" || err != nil {
		t.Error(p.Any(), err)
	}
	if p, err := c.Plugin(t.Context(), "other", nil); p.Len() != 0 || err != nil {
		t.Error(p.Any(), err)
	}
	if p := c.Projects(); len(p) != 1 || p[0] != (Project{Name: "p", Path: w.project + "/code", Write: true}) {
		t.Errorf("%+v", p)
	}
	if !c.AllowUnknownFields() || c.Delegates().Get("helper").Get("url").Text() != "http://d" || c.TypeAliases()["old"] != "file" ||
		!slices.Equal(c.Impls("envs"), []string{"a:B"}) || len(c.Impls("task_steps")) > 0 || c.Abs("~") != w.home || c.Abs("/x/../y") != "/y" {
		t.Error("a setting got lost")
	}
}

func TestFaultsAreAllReported(t *testing.T) {
	w := newWorld(t)
	path := w.write(Name, `
modle = 1
[stores]
document = "mongo"
object = { path = "x", config = { path = "y", root = 1 } }
secret = { config = { file_path = "secret:X" } }
[stores.model]
default = "m"
[agents]
default_agent = "x"
[sandbox]
default = "local,,docker"
[sandbox.local]
isolatoin = "none"
isolation = "namespace"
[model]
params = { api_key = "x", model = "y" }
headers = { "a b" = "1", ok = "ü" }
base_url = ["x"]
[artifacts]
type_aliases = { a = "b", b = "c", d = "d" }
[explorer]
port = 0
cors_origins = ["*", "https://ok.example", "https://*.example"]
[plugin.x]
[plugins.A_b]
[plugins.a-b]
[[projects]]
nam = "x"
`)
	_, l := w.load("")
	wantErrors := []string{
		`:10: agents: unknown key 'default_agent'; known here: default_a2a_agent_id`,
		`:12: sandbox.default: an empty name in a list of sandbox providers; write it as "local" or "local,docker"`,
		`:14: sandbox.local: unknown key 'isolatoin'; did you mean 'isolation'? known here: expose, isolation, npm_registry, python_index, tools`,
		`:15: sandbox.local.isolation: must be one of namespaces, none, not "namespace"; did you mean 'namespaces'?`,
		`:17: model.params: api_key is set by the program; remove it`,
		`:17: model.params: model is set by the program; remove it`,
		`:18: model.headers: 'a b' is no name of an HTTP header; use letters, digits and hyphens`,
		`:18: model.headers: the value of 'ok' holds more than visible ASCII; remove the other characters`,
		`:19: model.base_url: must be a string, not a list`,
		`:21: artifacts.type_aliases: 'a' is an alias of 'b', which is an alias too; name the current type`,
		`:21: artifacts.type_aliases: 'd' is an alias of itself; remove it`,
		`:23: explorer.port: must be from 1 to 65535`,
		`:24: explorer.cors_origins: no origin of a web page; name each, as https://host:port; a star would let every page in`,
		`:27: plugins: 'A_b' and 'a-b' are one distribution; join the two tables`,
		`:28: projects[0]: name is missing; write it: a string`,
		`:28: projects[0]: path is missing; write it: a string`,
		`:29: projects[0]: unknown key 'nam'; did you mean 'name'? known here: github, name, path, write`,
		`:4: stores.document: the only name here is "local"; for another class write a table: { impl = "…", config = { … } }`,
		`:5: stores.object.config.root: must be a string, not an integer; put it between quotes`,
		`:5: stores.object.config: unknown key 'path'; known here: grant_advertise_host, grant_bind_host, grant_lifetime_seconds, grants, root`,
		`:6: stores.secret.config.file_path: the secret store can't be set up from its own secrets; use env:NAME here`,
	}
	wantWarnings := []string{
		`:25: unknown key 'plugin'; did you mean 'plugins'? known here: ` + strings.Join(topKeys(), ", "),
		`:2: unknown key 'modle'; did you mean 'model'? known here: ` + strings.Join(topKeys(), ", "),
		`:5: stores.object: path stands beside ` + "`config`" + ` and inside it; remove the one beside: only ` + "`config`" + ` is read`,
		`:7: stores: unknown key 'model'; 'model' is a table of its own: begin it with [model]`,
	}
	compare(t, "errors", path, lines(l, diag.Error), wantErrors)
	compare(t, "warnings", path, lines(l, diag.Warning), wantWarnings)
}

func topKeys() []string {
	return slices.Sorted(maps.Keys(map[string]bool{
		"agents": true, "allow_unknown_fields": true, "artifacts": true, "conversations": true, "delegates": true, "envs": true,
		"explorer": true, "git_plugins": true, "judge": true, "mcp": true, "model": true, "plugins": true, "projects": true, "runner": true, "sandbox": true, "state": true, "stores": true, "task_steps": true,
	}))
}

func compare(t *testing.T, what, path string, got, want []string) {
	t.Helper()
	for i := range want {
		want[i] = path + want[i]
	}
	slices.Sort(want)
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("%s: too much: %s", what, g)
		}
	}
	for _, v := range want {
		if !slices.Contains(got, v) {
			t.Errorf("%s: missing: %s", what, v)
		}
	}
}

func TestReferences(t *testing.T) {
	for s, want := range map[string]struct {
		r   reference
		ok  bool
		bad bool
	}{
		"env:NAME":     {reference{"env", "NAME", "", false}, true, false},
		"env:NAME?":    {reference{"env", "NAME", "", true}, true, false},
		"env:N?a?b":    {reference{"env", "N", "a?b", true}, true, false},
		"secret:a/b c": {reference{"secret", "a/b c", "", false}, true, false},
		"secret:k?d:e": {reference{"secret", "k", "d:e", true}, true, false},
		"env:":         {ok: true, bad: true},
		"env:A B":      {ok: true, bad: true},
		"secret:?x":    {ok: true, bad: true},
		"environment":  {},
		"Env:NAME":     {},
		"http://a":     {},
		" env:NAME":    {},
		"secret":       {},
	} {
		r, ok, err := parseReference(s)
		if ok != want.ok || (err != nil) != want.bad || !want.bad && r != want.r {
			t.Errorf("%q: %+v %v %v", s, r, ok, err)
		}
	}
}

func TestResolve(t *testing.T) {
	w := newWorld(t)
	w.env["SET"], w.env["EMPTY"] = "v", ""
	c := w.good(`
[plugins.a]
plain = "x"
set = "env:SET"
default = "env:EMPTY?d"
deep = { list = ["secret:k", "secret:gone?e", 3] }
[plugins.b]
one = "env:GONE"
two = ["secret:gone"]
three = "secret:broken?d"
`)
	asked := 0
	secrets := func(_ context.Context, k string) (string, bool, error) {
		asked++
		if k == "broken" {
			return "", false, errors.New("the secrets file can't be read")
		}
		return "s", k == "k", nil
	}
	n, err := c.Plugin(t.Context(), "a", secrets)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(n.Any())
	if string(got) != `{"deep":{"list":["s","e",3]},"default":"d","plain":"x","set":"v"}` || asked != 2 {
		t.Errorf("%s, asked %d times", got, asked)
	}
	_, err = c.Plugin(t.Context(), "b", secrets)
	l, ok := diag.From(err)
	if !ok {
		t.Fatal(err)
	}
	compare(t, "resolve", c.Path(), lines(l, diag.Error), []string{
		":8: plugins.b: env:GONE: the variable is not set; set GONE, or write env:GONE?default",
		":9: plugins.b: secret:gone: the secret store has no such key; put it into the secret store ([stores.secret])",
		":10: plugins.b: secret:broken: the secrets file can't be read; put it into the secret store ([stores.secret])",
	})
	if _, err := c.Plugin(t.Context(), "b", nil); err == nil || !strings.Contains(err.Error(), "secret:gone: no secret store is open here") {
		t.Error(err)
	}
}

func TestPathsOfKeys(t *testing.T) {
	for s, want := range map[string][]string{
		"a":               {"a"},
		"a.b-c.d_e":       {"a", "b-c", "d_e"},
		`plugins."x.y".k`: {"plugins", "x.y", "k"},
		`"é"`:             {"é"},
	} {
		got, err := split(s)
		if err != nil || !slices.Equal(got, want) || key(got) != s {
			t.Errorf("%q: %q %v, spelled %q", s, got, err, key(got))
		}
	}
	for _, s := range []string{"", ".", "a.", ".a", `"a`, `"a"b`, "a..b"} {
		if got, err := split(s); err == nil {
			t.Errorf("%q: %q", s, got)
		}
	}
}
