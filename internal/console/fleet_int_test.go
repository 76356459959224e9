//go:build integration

package console_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// TestWorkspaceInChromium makes workspaces as a person does: an empty one, whose agent is stopped, can't be started, is started and removed, and one from a bundle, with its required answer and a secret that is never shown.
func TestWorkspaceInChromium(t *testing.T) {
	d := newDesk(t, plainHTTP)
	one := gittest.New(t, "one")
	one.Commit("agentenv.plugin.yaml", "id: one\nname: One\nversion: 1.0.0\nconfig: {owner: nobody}\n")
	set := bundle(t, "set", "config_inputs: [{key: one.owner, label: Who owns it, required: true}]\nsecrets: [{key: api_key, label: Key of the service}]\n", one)
	x := newTab(t)
	x.do(chromedp.Navigate(d.URL + "/#token=" + token))
	x.reads("#workspaces", "No workspace was created yet")
	x.calm()
	x.do(chromedp.SetValue(chromedp.CSS("#name"), "plain"), chromedp.Click(chromedp.CSS("#workspace-form button")))
	x.reads(`[data-workspace="plain"]`, "running")
	x.reads(`[data-workspace="plain"]`, "http://127.0.0.1:")
	x.reads("#done", "its agent runs")
	agent := d.ask("GET", "/api/fleet", "").is(200).at("agents", 0, "a2a_url").(string)
	if card(t, agent) != 200 {
		t.Error("its agent doesn't answer")
	}
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-workspace="plain"] [data-act="stop"]`)))
	x.reads(`[data-workspace="plain"]`, "stopped")
	if card(t, agent) != 0 {
		t.Error("its agent answers after it was stopped")
	}
	// What can't be started says why, and one that can does after it.
	config := filepath.Join(d.made("plain"), ".agentenv", "config.toml")
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("[broken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-workspace="plain"] [data-act="start"]`)))
	x.reads("#error", "config.toml")
	x.reads(`[data-workspace="plain"]`, "config.toml")
	// One whose server hangs is cancelled: the page says what that left.
	if err := os.WriteFile(config, []byte("[[mcp.servers]]\nname = 'hangs'\ncommand = 'sleep'\nargs = ['100']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-workspace="plain"] [data-act="start"]`)))
	x.reads("#status-text", "Starting plain")
	x.do(chromedp.Click(chromedp.CSS("#cancel")))
	x.reads("#error", "The list of workspaces shows what was done until then")
	x.reads(`[data-workspace="plain"]`, "stopped")
	if err := os.WriteFile(config, good, 0o600); err != nil {
		t.Fatal(err)
	}
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-workspace="plain"] [data-act="start"]`)))
	x.reads(`[data-workspace="plain"]`, "running")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-workspace="plain"] [data-act="remove"]`)), chromedp.Click(chromedp.CSS(`[data-workspace="plain"] [data-act="remove-really"]`)))
	x.reads("#workspaces", "No workspace was created yet")
	d.nothing("plain")

	x.calm()
	x.do(chromedp.SetValue(chromedp.CSS("#name"), "second"), chromedp.SetValue(chromedp.CSS("#bundle"), set.URL()), chromedp.Click(chromedp.CSS("#workspace-form button")))
	x.reads("#plan", "Who owns it (required)")
	x.reads("#plan", "Nobody vouches for")
	x.calm()
	d.nothing("second")
	if kind := x.value(`[...document.querySelectorAll("#plan input")].map(i => i.type).join(" ")`); kind != "text password checkbox" {
		t.Errorf("fields: %v", kind)
	}
	// The required answer is missing: it is told, nothing is made, and what was typed stays.
	x.do(chromedp.SetValue(chromedp.CSS("#answer-1"), "hush-hush"), chromedp.Click(chromedp.CSS("#consent")), chromedp.Click(chromedp.CSS("#go")))
	x.reads("#error", "Who owns it")
	d.nothing("second")
	x.calm()
	x.do(chromedp.SetValue(chromedp.CSS("#answer-0"), "me"), chromedp.Click(chromedp.CSS("#go")))
	x.reads(`[data-workspace="second"]`, "agent-env workspace run second")
	x.reads(`[data-workspace="second"]`, "running")
	x.reads("#done", "one.owner")
	if shown := x.value(`document.documentElement.outerHTML + [...document.querySelectorAll("input")].map(i => i.value).join(" ")`); strings.Contains(shown.(string), "hush") {
		t.Error("the page shows a secret")
	}
	b, err := os.ReadFile(filepath.Join(d.made("second"), ".agentenv", "secrets.toml"))
	if err != nil || !strings.Contains(string(b), "hush-hush") {
		t.Errorf("its secrets: %v", err)
	}
	x.narrow()
	x.clean(d.URL)
}

// TestConflictInChromium: what has the id of something else is installed in its place where a person says so; the packages of a plugin are shown before
// they are installed.
func TestConflictInChromium(t *testing.T) {
	d := newDesk(t, "[git_plugins]\ntrust_unverified = true\n")
	mine := gittest.New(t, "board")
	mine.Commit("agentenv.plugin.yaml", "id: board\nname: Mine\nversion: 1.0.0\nrequires_pip: [agentenv-framework, {pkg: later, optional: true}]\n")
	other := gittest.New(t, "fork")
	other.Commit("agentenv.plugin.yaml", "id: board\nname: Fork\nversion: 2.0.0\n")
	d.post("/api/plugins/install", map[string]any{"url": mine.URL()}).is(200)
	x := newTab(t)
	x.do(chromedp.Navigate(d.URL + "/#token=" + token))
	x.reads(`[data-plugin="board"]`, "Mine")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS(`[data-plugin="board"] [data-act="deps"]`))) // what it needs comes with every environment
	x.reads("#plan", "Packages for board")
	x.reads("#plan", "change nothing")
	x.reads("#plan", "later")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS("#go")))
	x.reads("#done", "The packages of board are installed.")
	x.calm()
	x.do(chromedp.SetValue(chromedp.CSS("#url"), other.URL()), chromedp.Click(chromedp.CSS("#install-form button")))
	x.reads("#plan", "Fork brings")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS("#go")))
	x.reads("#error", "is installed already")
	x.reads("#error", "force takes its place")
	x.calm()
	x.do(chromedp.Click(chromedp.CSS("#replace")))
	x.reads(`[data-plugin="board"]`, "2.0.0")
	x.reads("#done", "board is installed.")
	x.clean(d.URL)
}
