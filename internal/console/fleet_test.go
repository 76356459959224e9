package console_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// made is the folder of a workspace that the console made, or would have.
func (d *desk) made(name string) string { return filepath.Join(filepath.Dir(d.root), name) }

// nothing wants that no workspace of a name is there, nor a part of one.
func (d *desk) nothing(name string) {
	d.t.Helper()
	es, err := os.ReadDir(filepath.Dir(d.root))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range es {
		if strings.Contains(e.Name(), name) {
			d.t.Errorf("left: %s", e.Name())
		}
	}
	if r := d.ask("GET", "/api/fleet", "").is(200); strings.Contains(r.text, `"`+name+`"`) {
		d.t.Errorf("listed: %s", r.text)
	}
}

// TestCreateWorkspace is rows 96, 98 and 100 over HTTP: consent to exactly what the bundle brings, the required answer, then a whole workspace; before that
// nothing of it, and its name is free.
func TestCreateWorkspace(t *testing.T) {
	t.Parallel()
	d := newDesk(t, plainHTTP)
	one := gittest.New(t, "one")
	one.Commit("agentenv.plugin.yaml", "id: one\nname: One\nversion: 1.0.0\nconfig: {owner: nobody}\nsecrets: [token]\n")
	set, far := gittest.New(t, "set"), gittest.Serve(t, one)
	set.Commit("agentenv.bundle.yaml", "id: set\nname: Set\nplugins:\n  - {id: one, url: '"+far.Of(one)+"'}\n"+
		"config_inputs: [{key: one.owner, label: Who owns it, required: true}]\nsecrets: [{key: api_key, label: Key}]\n"+
		"mcp: [{template: {name: web, transport: http, url: 'http://127.0.0.1/x', headers: {X: '${key}'}}, inputs: [{key: key, label: Web key, secret: true}]}]\n"+
		"archetype: {label: Desk, soul: You mind a desk., requires_tools: [look]}\n")
	home := gittest.Serve(t, set)
	order := map[string]any{"name": "second", "start": false, "bundle": home.Of(set), "requires_tools": []string{"look", "type"}}

	r := d.post("/api/fleet", order).is(200)
	if r.at("needs_ack") != true || r.at("plan") != nil || home.Requests.Load()+far.Requests.Load() != 0 {
		t.Fatalf("asked the source before consent: %s", r.text)
	}
	d.nothing("second")
	seen := d.post("/api/plugins/peek", map[string]any{"url": home.Of(set)}).is(200)
	r = d.post("/api/fleet", order).is(200)
	if r.at("plan_digest") != seen.at("plan_digest") || r.at("plan_digest") == nil {
		t.Fatalf("another plan than what was looked at: %s", r.text)
	}
	d.consent(r)
	r = d.post("/api/fleet", order).is(400).says("Who owns it")
	if r.at("code") != "answers" || r.at("questions", 0, "key") != "one.owner" {
		t.Errorf("a required answer: %s", r.text)
	}
	d.nothing("second")
	order["config_inputs"], order["inputs"] = map[string]any{"one.owner": "me"}, map[string]any{"web:key": "server-hush"}
	order["secrets"] = []any{map[string]any{"key": "api_key", "value": "hush-hush"}}
	r = d.post("/api/fleet", order).is(200)
	if r.at("ok") != true || r.at("agent", "root") != d.made("second") || r.texts("agent", "requires_tools") != "look type" || r.texts("enabled") != "one" || r.at("installed", "bundle") != "set" {
		t.Errorf("create: %s", r.text)
	}
	in := func(name string) string {
		b, err := os.ReadFile(filepath.Join(d.made("second"), ".agentenv", name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if c := in("config.toml"); !strings.Contains(c, `enabled = ["one"]`) || !strings.Contains(c, `owner = "me"`) {
		t.Errorf("its configuration:\n%s", c)
	}
	if in("SOUL.md") != "You mind a desk." || !strings.Contains(in("plugins.lock"), `"one"`) || !strings.Contains(in("secrets.toml"), "hush-hush") {
		t.Errorf("its files:\n%s\n%s", in("SOUL.md"), in("plugins.lock"))
	}
	if fi, err := os.Stat(filepath.Join(d.made("second"), ".agentenv", "secrets.toml")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("its secrets: %v, %v", fi, err)
	}
	list := d.ask("GET", "/api/fleet", "").is(200).says(`"second"`)
	for _, text := range []string{r.text, list.text, in("config.toml"), in("plugins.lock"), d.file("config.toml"), d.file("plugins.lock")} {
		if strings.Contains(text, "hush") {
			t.Errorf("a secret is shown: %s", text)
		}
	}
	d.post("/api/fleet", order).is(400).says("there is a workspace second already")
	// A moved member asks again, and makes nothing.
	one.Commit("more", "x")
	order["name"] = "third"
	if r := d.post("/api/fleet", order).is(200); r.at("needs_ack") != true {
		t.Errorf("another plan passed: %s", r.text)
	}
	d.nothing("third")
	if d.file("plugins.lock") != "" {
		t.Error("the console's own workspace was changed")
	}
	for _, text := range []string{r.text, list.text} {
		if strings.Contains(text, "hush") {
			t.Errorf("a secret is repeated: %s", text)
		}
	}
}

// TestCreateRefused is rows 97, 98 and 102 for workspaces: what is no address is none, the list of allowed sources counts, and bodies are read strictly.
func TestCreateRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t, plainHTTP+"allow = ['127.0.0.1:*']\n[git_plugins]\ntrust_unverified = true\n")
	for _, body := range []string{
		`{"name": "x1", "bundle": "--help"}`, `{"name": "x1", "bundle": "-h"}`, `{"name": "x1", "bundle": "--force"}`, `{"name": "x1", "bundle": "ext::sh -c id"}`,
		`{"name": "x1", "bundle": "https://elsewhere.example/o/r"}`, `{"name": "x1", "bundle": "http://127.0.0.1:1/r", "ref": "--upload-pack=id"}`, `{"name": "x1", "bundle": "http://127.0.0.1:1/r"}`,
		`{}`, `{"name": ""}`, `{"name": ".."}`, `{"name": "a/b"}`, `{"name": "-x1"}`, `{"name": 5}`, `{"name": "x1", "dir": "x1"}`, `{"name": "x1", "start": "yes"}`, `{"name": "x1", "port": 70000}`, `{"name": "x1", "port": "80"}`, `{"name": "x1", "start": false, "port": 7000}`,
		`{"name": "x1", "ref": "main"}`, `{"name": "x1", "inputs": {"a": "b"}}`, `{"name": "x1", "requires_tools": "look"}`, `{"name": "x1", "bundel": "x"}`,
	} {
		d.ask("POST", "/api/fleet", body).is(400)
	}
	d.nothing("x1")
	if r := d.ask("POST", "/api/fleet", `{"name": "x1", "bundle": "https://elsewhere.example/o/r"}`).is(400); r.at("code") != "refused" {
		t.Errorf("a source off the list: %s", r.text)
	}
	if r := d.ask("POST", "/api/fleet", `{"name": "x1", "start": false, "soul": "Be kind."}`).is(200); r.at("installed") != nil || r.at("agent", "name") != "x1" {
		t.Errorf("without a bundle: %s", r.text)
	}
	if b, err := os.ReadFile(filepath.Join(d.made("x1"), ".agentenv", "SOUL.md")); string(b) != "Be kind." {
		t.Errorf("its soul: %q, %v", b, err)
	}
	d.ask("POST", "/api/fleet", `{"name": "x2"}`, "Authorization", "").is(http.StatusUnauthorized)
	d.ask("POST", "/api/fleet", `{"name": "x2"}`, "Origin", "https://evil.example").is(http.StatusForbidden)
	d.nothing("x2")
	// What is taken over is the configuration and what is installed.
	if r := d.ask("POST", "/api/fleet", `{"name": "x2", "start": false, "inherit_config": true, "dir": "`+d.made("elsewhere")+`"}`).is(200); r.at("agent", "root") != d.made("elsewhere") {
		t.Errorf("elsewhere: %s", r.text)
	}
	if b, err := os.ReadFile(filepath.Join(d.made("elsewhere"), ".agentenv", "config.toml")); !strings.Contains(string(b), "trust_unverified = true") {
		t.Errorf("its configuration: %q, %v", b, err)
	}
}

// TestConflict: what has the id of something else is told by a code, and force takes its place; what an installer would do is told before it is done.
func TestConflict(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "[git_plugins]\ntrust_unverified = true\n")
	mine, fork := gittest.New(t, "board"), gittest.New(t, "fork")
	mine.Commit("agentenv.plugin.yaml", "id: board\nname: Mine\nversion: 1.0.0\nrequires_pip: [agentenv-framework, {pkg: later, optional: true}, {pkg: theirs, scope: host}]\n")
	fork.Commit("agentenv.plugin.yaml", "id: board\nname: Fork\nversion: 2.0.0\n")
	d.post("/api/plugins/install", map[string]any{"url": mine.URL()}).is(200)
	r := d.post("/api/plugins/install-deps", map[string]any{"id": "board", "dry_run": true}).is(200)
	if r.at("dry_run") != true || r.texts("installed") != "" || r.texts("not_installed") != "later theirs" {
		t.Errorf("packages: %s", r.text)
	}
	r = d.post("/api/plugins/install", map[string]any{"url": fork.URL()}).is(400).says("is installed already", "force takes its place")
	if r.at("code") != "conflict" || strings.Contains(r.text, "--force") {
		t.Errorf("a conflict: %s", r.text)
	}
	if r := d.post("/api/plugins/install", map[string]any{"url": fork.URL(), "force": true}).is(200); r.at("installed", "plugins", 0, "version") != "2.0.0" {
		t.Errorf("forced: %s", r.text)
	}
}
