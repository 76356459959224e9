package console_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

const plainHTTP = "[git_plugins.sources]\nplain_http = true\n"

// board is a plugin with something of everything that consent covers.
func board(t *testing.T) *gittest.Repo {
	t.Helper()
	r := gittest.New(t, "board")
	r.Commit("agentenv.plugin.yaml", `id: board
name: Board
version: 1.0.0
command: [bin/board, --serve]
requires_pip: [aiohttp==3]
config: {columns: 3}
secrets: [token]
mcp:
  - {template: {name: board, transport: stdio, command: ./bin/board}}
`, "bin/board", "#!/bin/sh\nexit 0\n")
	return r
}

// TestConsent is row 103: an unknown source is not asked anything before consent; consent to a plan is to that plan, survives a restart, and what has
// changed since is asked about again.
func TestConsent(t *testing.T) {
	t.Parallel()
	d := newDesk(t, plainHTTP)
	repo := board(t)
	s := gittest.Serve(t, repo)
	url := s.Of(repo)
	r := d.post("/api/plugins/install", map[string]any{"url": url + "/"}).is(200)
	if r.at("needs_ack") != true || r.at("source") != url || r.at("plan") != nil || r.at("plan_digest") != nil {
		t.Errorf("needs_ack: %s", r.text)
	}
	if n := s.Requests.Load(); n != 0 {
		t.Fatalf("the source was asked %d times before anybody consented", n)
	}
	seen := d.post("/api/plugins/peek", map[string]any{"url": url}).is(200)
	asked := s.Requests.Load()
	r = d.post("/api/plugins/install", map[string]any{"url": url}).is(200)
	if s.Requests.Load() != asked || r.at("plan_digest") != seen.at("plan_digest") || r.at("plan_digest") == nil {
		t.Errorf("what was looked at is not what consent is asked for: %s\n%s", r.text, seen.text)
	}
	r.says(`"command":["bin/board","--serve"]`, `"packages":["aiohttp==3"]`, `"config":["board.columns"]`, `"secrets":["token"]`, "./bin/board", repo.InWork("rev-parse", "HEAD"))
	if lock := d.file("plugins.lock"); lock != "" {
		t.Fatalf("something was installed: %s", lock)
	}
	d.consent(r)
	if c := d.file("config.toml"); !strings.Contains(c, r.at("plan_digest").(string)+" "+url) || !strings.HasPrefix(c, plainHTTP) {
		t.Errorf("the consent is not in the configuration, or took something else's place:\n%s", c)
	}

	// It moved since: it is asked about again, with the new plan.
	repo.Commit("agentenv.plugin.yaml", "id: board\nname: Board\nversion: 1.1.0\ncommand: [bin/board, --evil]\n")
	again := d.post("/api/plugins/install", map[string]any{"url": url}).is(200)
	if again.at("needs_ack") != true || again.at("plan_digest") == r.at("plan_digest") {
		t.Fatalf("another plan passed: %s", again.text)
	}
	again.says("--evil")
	d.consent(again)
	d.serve() // another process
	done := d.post("/api/plugins/install", map[string]any{"url": url}).is(200)
	if done.texts("enabled") != "board" || done.at("enable_error") != nil || done.at("reloaded") != true || done.at("installed", "plugins", 0, "version") != "1.1.0" {
		t.Errorf("install: %s", done.text)
	}
	if d.post("/api/plugins/install", map[string]any{"url": url}).is(200).at("installed", "plugins", 0, "up_to_date") != true {
		t.Error("the same again is not up to date")
	}
	if r := d.ask("GET", "/api/plugins/installed", "").is(200); r.at("plugins", 0, "enabled") != true || r.at("plugins", 0, "manifest", "version") != "1.1.0" || r.at("plugins", 0, "by") != "console" {
		t.Errorf("installed: %s", r.text)
	}

	// Turned off and on again needs none; an update of what nobody vouches for does.
	if r := d.post("/api/plugins/board/enabled", map[string]any{"enabled": false}).is(200); r.at("changed") != true || r.at("needs_ack") != nil {
		t.Errorf("off: %s", r.text)
	}
	if r := d.post("/api/plugins/board/enabled", map[string]any{"enabled": true}).is(200); r.at("ok") != true {
		t.Errorf("on: %s", r.text)
	}
	repo.Commit("more", "x")
	moved := d.ask("POST", "/api/plugins/board/update", "").is(200)
	if moved.at("needs_ack") != true || !strings.Contains(d.file("plugins.lock"), again.at("plan", "plugins", 0, "commit").(string)) {
		t.Errorf("an update without consent: %s", moved.text)
	}
	d.consent(moved)
	if r := d.ask("POST", "/api/plugins/board/update", "").is(200); r.at("ok") != true || r.at("outcome") != "updated" || r.at("restart_recommended") != true {
		t.Errorf("update: %s", r.text)
	}
}

// TestVouched: who vouches for a source, as the peer's shape of the body does, is not asked about plans of it; two at once are both stored (row 103).
func TestVouched(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "# mine\n"+plainHTTP)
	repos := []*gittest.Repo{gittest.Plugin(t, "one"), gittest.Plugin(t, "two"), gittest.Plugin(t, "three")}
	s := gittest.Serve(t, repos...)
	var all sync.WaitGroup
	for i, r := range repos {
		all.Go(func() {
			key := []string{"url", "source", "url"}[i]
			d.post("/api/plugins/ack", map[string]any{key: s.Of(r)}).is(200)
		})
	}
	all.Wait()
	for _, r := range repos {
		if !strings.Contains(d.file("config.toml"), `"`+s.Of(r)+`"`) {
			t.Errorf("%s is not stored:\n%s", s.Of(r), d.file("config.toml"))
		}
		if done := d.post("/api/plugins/install", map[string]any{"url": s.Of(r)}).is(200); done.at("needs_ack") != nil {
			t.Errorf("it was vouched for: %s", done.text)
		}
	}
	repos[0].Commit("more", "x")
	if r := d.ask("POST", "/api/plugins/one/update", "{}").is(200); r.at("outcome") != "updated" {
		t.Errorf("update: %s", r.text)
	}
	if !strings.Contains(d.file("config.toml"), "# mine\n") {
		t.Errorf("a comment is gone:\n%s", d.file("config.toml"))
	}
	for _, bad := range []string{`{}`, `{"trust_all": true}`, `{"url": ""}`, `{"url": 5}`, `{"url": "ext::sh -c id"}`, `{"url": "https://u:p@h.example/r"}`, `{"url": "https://h.example/r", "plan_digest": "short"}`} {
		r := d.ask("POST", "/api/plugins/ack", bad).is(400)
		if strings.Contains(r.text, "u:p") {
			t.Errorf("a password is repeated: %s", r.text)
		}
	}
}

// TestTrustAll is row 104: only what is clearly true trusts everything, in the body and in the configuration.
func TestTrustAll(t *testing.T) {
	t.Parallel()
	repo := gittest.Plugin(t, "one")
	for _, v := range []any{"false", "no", 0, false, nil, "", "maybe", 2, []any{true}} {
		d := newDesk(t, "")
		r := d.post("/api/plugins/ack", map[string]any{"url": "https://other.example/r", "trust_all": v}).is(200)
		if r.at("trust_all") != false || strings.Contains(d.file("config.toml"), "trust_unverified") {
			t.Errorf("trust_all %v: %s", v, r.text)
		}
		if r := d.post("/api/plugins/install", map[string]any{"url": repo.URL()}).is(200); r.at("needs_ack") != true {
			t.Errorf("trust_all %v: %s", v, r.text)
		}
	}
	for _, v := range []any{true, "true", "1", 1, "YES", "on"} {
		d := newDesk(t, "")
		if r := d.post("/api/plugins/ack", map[string]any{"url": "https://other.example/r", "trust_all": v}).is(200); r.at("trust_all") != true {
			t.Errorf("trust_all %v: %s", v, r.text)
		}
	}
	d := newDesk(t, "[git_plugins]\ntrust_unverified = true\n")
	if r := d.post("/api/plugins/install", map[string]any{"url": repo.URL()}).is(200); r.at("needs_ack") != nil || r.texts("enabled") != "one" {
		t.Errorf("everything is trusted: %s", r.text)
	}
	// A word in the configuration is a fault of it, and trusts nothing.
	d = newDesk(t, "[git_plugins]\ntrust_unverified = \"false\"\n")
	d.post("/api/plugins/install", map[string]any{"url": repo.URL()}).is(500).says("trust_unverified")
}

// TestFetchOnly is row 93: nothing is asked, turned on or written, by either name of the variable; turning on asks then.
func TestFetchOnly(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]string{"AGENT_ENV_PLUGIN_INSTALL_NO_ENABLE": "1", "PROTOAGENT_PLUGIN_INSTALL_NO_ENABLE": "Yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, "# mine\n", name, v)
			repo := board(t)
			set := bundle(t, "set", "enabled: [board]\nconfig: {board: {columns: 9}}\nsecrets: [{key: k, label: K}]\nmcp: [{template: {name: m, transport: http, url: 'https://m.example/mcp'}}]\n", repo)
			r := d.post("/api/plugins/install", map[string]any{"url": set.URL(), "secrets": []any{map[string]any{"key": "k", "value": "v"}}}).is(200)
			if r.at("needs_ack") != nil || r.texts("enabled") != "" || r.texts("mcp_seeded") != "" || r.texts("config_written") != "" || r.at("reloaded") != false {
				t.Errorf("%s=%s: %s", name, v, r.text)
			}
			if d.file("config.toml") != "# mine\n" || d.file("secrets.toml") != "" || !strings.Contains(d.file("plugins.lock"), `"by": "bundle:set"`) {
				t.Errorf("%s=%s: more than files were installed:\n%s", name, v, d.file("config.toml"))
			}
			repo.Commit("more", "x")
			if r := d.ask("POST", "/api/plugins/bundles/set/update", "").is(200); r.at("needs_ack") != nil || d.file("config.toml") != "# mine\n" {
				t.Errorf("an update: %s", r.text)
			}
			on := d.post("/api/plugins/board/enabled", map[string]any{"enabled": true}).is(200)
			d.consent(on)
			if r := d.post("/api/plugins/board/enabled", map[string]any{"enabled": true}).is(200); r.at("enabled") != true {
				t.Errorf("on: %s", r.text)
			}
		})
	}
	d := newDesk(t, "[git_plugins]\ntrust_unverified = true\n", "AGENT_ENV_PLUGIN_INSTALL_NO_ENABLE", "0")
	if r := d.post("/api/plugins/install", map[string]any{"url": board(t).URL()}).is(200); r.texts("enabled") != "board" {
		t.Errorf("0 is not fetch-only: %s", r.text)
	}
}

// bundle is a plugin bundle of these members, with more lines.
func bundle(t *testing.T, id, more string, members ...*gittest.Repo) *gittest.Repo {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s\nname: Set %s\n%splugins:\n", id, id, more)
	for _, m := range members {
		fmt.Fprintf(&b, "  - {id: %s, url: '%s'}\n", strings.TrimSuffix(filepath.Base(m.Bare), ".git"), m.URL())
	}
	r := gittest.New(t, id)
	r.Commit("agentenv.bundle.yaml", b.String())
	return r
}

// TestActivate is row 94: an install turns on and seeds, and a member that can't be used is told while the others are on.
func TestActivate(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "# mine\n[git_plugins]\ntrust_unverified = true\n[git_plugins.config.board]\ncolumns = 7 # as I like it\n")
	needy := gittest.New(t, "needy")
	needy.Commit("agentenv.plugin.yaml", "id: needy\nname: Needy\nrequires_env: [NOBODY_SETS_THIS]\n")
	set := bundle(t, "set", `config: {board: {columns: 9, colour: blue}}
secrets: [{key: k, label: K}]
mcp: [{template: {name: m, transport: http, url: 'https://m.example/${where}'}, inputs: [{key: where, label: Where}]}]
config_inputs: [{key: board.owner, label: Who owns it, required: true}]
`, board(t), needy, gittest.Plugin(t, "plain"))

	// What is required is told first, and nothing is changed.
	before := d.file("config.toml")
	r := d.post("/api/plugins/install", map[string]any{"url": set.URL(), "config_inputs": map[string]any{"board.owner": nil, "nonsense": "x"}}).is(400)
	r.says("Who owns it", "nonsense")
	if r.at("code") != "answers" || r.at("questions", 0, "key") != "board.owner" || d.file("config.toml") != before || d.file("plugins.lock") != "" {
		t.Errorf("a bundle that was not answered: %s", r.text)
	}

	r = d.post("/api/plugins/install", map[string]any{
		"url": set.URL(), "config_inputs": map[string]any{"board.owner": "ann"}, "inputs": map[string]any{"where": "here"}, "secrets": []any{map[string]any{"key": "k", "value": "hidden-value"}},
	}).is(200)
	if r.texts("enabled") != "board needy plain" || r.at("enable_error") != nil || r.texts("mcp_seeded") != "m" {
		t.Errorf("install: %s", r.text)
	}
	loads, _ := r.at("load_errors").(map[string]any)
	if len(loads) != 1 || !strings.Contains(fmt.Sprint(loads["needy"]), "NOBODY_SETS_THIS") {
		t.Errorf("load_errors: %v", loads)
	}
	c := d.file("config.toml")
	for _, want := range []string{"# mine", "columns = 7 # as I like it", `"blue"`, `"ann"`, "https://m.example/here"} {
		if !strings.Contains(c, want) {
			t.Errorf("the configuration lacks %s:\n%s", want, c)
		}
	}
	if strings.Contains(c+d.file("plugins.lock")+r.text, "hidden-value") || !strings.Contains(d.file("secrets.toml"), "hidden-value") {
		t.Error("a secret is where it should not be, or not where it should be")
	}
	list := d.ask("GET", "/api/plugins/installed", "").is(200)
	if list.at("plugins", 0, "bundle", "id") != "set" || list.at("bundles", 0, "id") != "set" || list.at("plugins", 1, "error") == nil {
		t.Errorf("installed: %s", list.text)
	}

	// An update brings what is new, and neither asks again nor turns on what was turned off.
	d.post("/api/plugins/plain/enabled", map[string]any{"enabled": false}).is(200)
	set.Commit("agentenv.bundle.yaml", strings.Replace(readFile(t, set.Path("agentenv.bundle.yaml")), "colour: blue", "colour: blue, size: big", 1))
	up := d.ask("POST", "/api/plugins/bundles/set/update", "").is(200)
	if up.texts("enabled") != "" || up.texts("config_written") != "config.board.size" && up.texts("config_written") != "board.size" {
		t.Errorf("update: %s", up.text)
	}
	if c := d.file("config.toml"); !strings.Contains(c, `"big"`) || !strings.Contains(c, "disabled") {
		t.Errorf("after the update:\n%s", c)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestActivationFails is row 95: what was fetched stays, settings and secrets are what they were, byte for byte, and the answer says why.
func TestActivationFails(t *testing.T) {
	t.Parallel()
	const config, secrets = "# mine\n[git_plugins]\ntrust_unverified = true\n", "not = toml = at all\n"
	d := newDesk(t, config)
	d.write("secrets.toml", secrets)
	set := bundle(t, "set", "config: {board: {columns: 9}}\nsecrets: [{key: k, label: K}]\n", board(t))
	r := d.post("/api/plugins/install", map[string]any{"url": set.URL(), "secrets": []any{map[string]any{"key": "k", "value": "v"}}}).is(200)
	if why, _ := r.at("enable_error").(string); !strings.Contains(why, "secrets.toml") || r.texts("enabled") != "" || r.texts("config_written") != "" {
		t.Errorf("install: %s", r.text)
	}
	if d.file("config.toml") != config || d.file("secrets.toml") != secrets || !strings.Contains(d.file("plugins.lock"), `"board"`) {
		t.Errorf("settings:\n%s\nlock:\n%s", d.file("config.toml"), d.file("plugins.lock"))
	}
	// Once that is mended, the same again turns it on.
	d.write("secrets.toml", "")
	if r := d.post("/api/plugins/install", map[string]any{"url": set.URL()}).is(200); r.texts("enabled") != "board" {
		t.Errorf("again: %s", r.text)
	}

	// A plugin that needs a newer program is installed and stays off.
	d = newDesk(t, config)
	newer := gittest.New(t, "newer")
	newer.Commit("agentenv.plugin.yaml", "id: newer\nname: Newer\nmin_agentenv_version: 999.0.0\n")
	if r := d.post("/api/plugins/install", map[string]any{"url": newer.URL()}).is(200); r.at("enable_error") == nil || d.file("config.toml") != config {
		t.Errorf("newer: %s", r.text)
	}
}

// TestBodies is row 102: what can't be meant is 400 with a reason, and nothing happens.
func TestBodies(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "[git_plugins]\ntrust_unverified = true\n")
	repo := gittest.Plugin(t, "one")
	u, _ := json.Marshal(repo.URL())
	for _, b := range []string{
		`[]`, `"x"`, `5`, `null`, `{`, `{"url": 1, "url": 2}`, "{\"url\": \"\xff\"}", `{}`, `{"url": 5}`, `{"url": null}`, `{"url": ["x"]}`, `{"url": ""}`,
		`{"url": ` + string(u) + `, "force": "false"}`, `{"url": ` + string(u) + `, "force": 1}`, `{"url": ` + string(u) + `, "ref": 7}`, `{"url": ` + string(u) + `, "ref": "--upload-pack=x"}`,
		`{"url": ` + string(u) + `, "forse": true}`, `{"url": ` + string(u) + `, "inputs": []}`, `{"url": ` + string(u) + `, "inputs": {"a": {}}}`, `{"url": ` + string(u) + `, "secrets": {}}`,
		`{"url": ` + string(u) + `, "secrets": [5]}`, `{"url": ` + string(u) + `, "secrets": [{"key": "k", "value": 5}]}`, `{"url": ` + string(u) + `, "config_inputs": "x"}`,
		`{"url": "--upload-pack=x"}`, `{"url": "ftp://x"}`, `{"url": "owner/repo"}`, `{"url": "https://user:secret@host.example/x"}`, `{"url": "https://host.example/../x"}`,
	} {
		if r := d.ask("POST", "/api/plugins/install", b).is(400); strings.Contains(r.text, "secret@") {
			t.Errorf("a password is repeated: %s", r.text)
		}
	}
	d.ask("POST", "/api/plugins/install", `{"url":"x"}`, "Content-Type", "text/plain").is(415)
	d.ask("POST", "/api/plugins/install", `{"url":"`+strings.Repeat("x", 2<<20)+`"}`).is(413)
	d.ask("POST", "/api/plugins/install", `{"forse":1,"url":"https://h.example/x"}`).is(400).says("did you mean force")
	for _, b := range []string{``, `{}`, `{"enabled": null}`, `{"enabled": "false"}`, `{"enabled": 0}`} {
		d.ask("POST", "/api/plugins/one/enabled", b).is(400)
	}
	for _, b := range []string{``, `{"url": 5}`, `{"url": "x", "again": "yes"}`} {
		d.ask("POST", "/api/plugins/peek", b).is(400)
	}
	d.ask("POST", "/api/plugins/sync", `{"x": 1}`).is(400)
	d.ask("DELETE", "/api/plugins/one?purge=maybe", "").is(400)
	if d.file("plugins.lock") != "" {
		t.Error("something was installed")
	}
	if r := d.post("/api/plugins/install", map[string]any{"url": repo.URL(), "force": false, "ref": nil, "inputs": nil, "secrets": nil}).is(200); r.texts("enabled") != "one" {
		t.Errorf("nulls are nothing said: %s", r.text)
	}
}
