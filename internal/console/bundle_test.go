package console_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// TestBundleConsent is row 80: a bundle that somebody vouches for, with a member that nobody does, lists every such source before any of them is asked.
func TestBundleConsent(t *testing.T) {
	t.Parallel()
	member, set := gittest.Plugin(t, "stranger"), gittest.New(t, "set")
	far := gittest.Serve(t, member, set)
	known := bundle(t, "ours", "")
	d := newDesk(t, plainHTTP+"acked = ['"+known.URL()+"', '"+far.Of(set)+"']\n")
	set.Commit("agentenv.bundle.yaml", "id: set\nname: Set\nplugins:\n  - {id: stranger, url: '"+far.Of(member)+"'}\n")
	var touched []string
	var mu sync.Mutex
	far.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		touched = append(touched, r.URL.Path)
		return false
	}
	r := d.post("/api/plugins/install", map[string]any{"url": far.Of(set)}).is(200)
	if r.at("needs_ack") != true || r.texts("sources") != far.Of(member) || r.at("plan") != nil {
		t.Errorf("needs_ack: %s", r.text)
	}
	mu.Lock()
	for _, p := range touched {
		if strings.HasPrefix(p, "/stranger") {
			t.Errorf("the member's source was asked: %s", p)
		}
	}
	mu.Unlock()
	seen := d.post("/api/plugins/peek", map[string]any{"url": far.Of(set)}).is(200)
	if seen.at("plan", "sources", 0, "known") != true || seen.at("plan", "sources", 1, "known") != false || seen.at("needs_ack") != true {
		t.Errorf("peek: %s", seen.text)
	}
	d.consent(seen)
	if r := d.post("/api/plugins/install", map[string]any{"url": far.Of(set)}).is(200); r.texts("enabled") != "stranger" {
		t.Errorf("install: %s", r.text)
	}
}

// TestUnknown is row 105: what isn't installed is 404, also where somebody else removed it a moment ago; ids that lead elsewhere are refused (row 64).
func TestUnknown(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "[git_plugins]\ntrust_unverified = true\n")
	for _, route := range []string{
		"POST /api/plugins/bundles/none/update", "DELETE /api/plugins/bundles/none", "POST /api/plugins/none/update", "DELETE /api/plugins/none", "GET /api/archetypes/none/preview",
	} {
		method, path, _ := strings.Cut(route, " ")
		d.ask(method, path, "").is(404)
	}
	d.post("/api/plugins/none/enabled", map[string]any{"enabled": true}).is(404)
	d.post("/api/plugins/install-deps", map[string]any{"id": "none"}).is(404)
	for _, id := range []string{"..", "%2e%2e", ".", "a%2f..%2fb", "a%2fb", "-x", "%00", "a%20b", "install", strings.Repeat("x", 300)} {
		for _, route := range []string{"DELETE /api/plugins/" + id, "DELETE /api/plugins/bundles/" + id, "POST /api/plugins/" + id + "/update", "POST /api/plugins/bundles/" + id + "/update"} {
			method, path, _ := strings.Cut(route, " ")
			if r := d.ask(method, path, ""); r.status < 400 || r.status >= 500 {
				t.Errorf("%s: %d %s", route, r.status, r.text)
			}
		}
	}
	d.ask("DELETE", "/api/plugins/delegates", "").is(400).says("comes with agent-env")
	d.post("/api/plugins/delegates/enabled", map[string]any{"enabled": false}).is(400).says("can't be turned off")

	set := bundle(t, "set", "", gittest.Plugin(t, "one"))
	d.post("/api/plugins/install", map[string]any{"url": set.URL()}).is(200)
	d.post("/api/plugins/set/enabled", map[string]any{"enabled": true}).is(404)
	var all sync.WaitGroup
	status := make([]int, 4)
	for i := range status {
		all.Go(func() { status[i] = d.ask("DELETE", "/api/plugins/bundles/set?purge=true", "").status })
	}
	all.Wait()
	won := 0
	for _, s := range status {
		switch s {
		case 200:
			won++
		case 404:
		default:
			t.Errorf("a racing delete: %d", s)
		}
	}
	if won != 1 || strings.Contains(d.file("plugins.lock"), `"one"`) || strings.Contains(d.file("config.toml"), `"one"`) {
		t.Errorf("%d of them removed it; the lock is\n%s", won, d.file("plugins.lock"))
	}
}

// TestFailures is row 105's other half: a source that doesn't answer and one that is refused are 400 with a reason; what takes too long is 504 (see TestLate).
func TestFailures(t *testing.T) {
	t.Parallel()
	d := newDesk(t, plainHTTP+"allow = ['127.0.0.1:*']\n[git_plugins]\ntrust_unverified = true\n")
	d.post("/api/plugins/install", map[string]any{"url": "http://127.0.0.1:1/r"}).is(400).says("nothing answers")
	if r := d.post("/api/plugins/install", map[string]any{"url": "https://elsewhere.example/r"}).is(400); r.at("code") != "refused" {
		t.Errorf("a source off the list: %s", r.text)
	}
	d.post("/api/plugins/peek", map[string]any{"url": "https://elsewhere.example/r"}).is(400).says("allow")
	d.post("/api/plugins/ack", map[string]any{"url": "https://elsewhere.example/r"}).is(400)
	// A lock that can't be used stops everything and stays as it is.
	d.write("plugins.lock", "{broken")
	for _, route := range []string{"GET /api/plugins/installed", "GET /api/plugins/updates", "POST /api/plugins/sync", "DELETE /api/plugins/one"} {
		method, path, _ := strings.Cut(route, " ")
		d.ask(method, path, "").is(400).says("plugins.lock")
	}
	if d.file("plugins.lock") != "{broken" {
		t.Error("the lock was written")
	}
	// A configuration that can't be read is told, and nothing acts on it.
	d.write("config.toml", "broken = = 1\n")
	d.ask("GET", "/api/plugins/installed", "").is(500).says("config.toml")
}

// TestPeek is row 106: looking changes nothing of the workspace; a member that can't be meant or reached is told, and the others are shown; a look is kept.
func TestPeek(t *testing.T) {
	t.Parallel()
	one := gittest.Plugin(t, "one")
	set := gittest.New(t, "set")
	far := gittest.Serve(t, set, one)
	set.Commit("agentenv.bundle.yaml", "id: set\nname: Set\nplugins:\n  - {id: one, url: '"+far.Of(one)+"'}\n  - {id: gone, url: 'http://127.0.0.1:1/r'}\n  - {id: delegates, builtin: true}\n")
	d := newDesk(t, "# mine\n"+plainHTTP)
	r := d.post("/api/plugins/peek", map[string]any{"url": far.Of(set)}).is(200)
	if r.at("kind") != "bundle" || r.at("members", 0, "plugin", "version") != "1.0.0" || !strings.Contains(r.at("members", 1, "error").(string), "nothing answers") || r.at("members", 2, "error") != nil {
		t.Errorf("peek: %s", r.text)
	}
	if r.at("plan") != nil || r.at("plan_digest") != nil {
		t.Error("there is a plan of what can't be installed")
	}
	asked := far.Requests.Load()
	d.post("/api/plugins/peek", map[string]any{"url": far.Of(set)}).is(200)
	if far.Requests.Load() != asked {
		t.Error("the same look asked again")
	}
	d.post("/api/plugins/peek", map[string]any{"url": far.Of(set), "ref": "main"}).is(200)
	if far.Requests.Load() == asked {
		t.Error("another ref is another look")
	}
	set.Commit("agentenv.bundle.yaml", "id: set\nname: Set\nplugins:\n  - {id: one, url: '"+far.Of(one)+"'}\n  - {id: x/../../d, url: '"+far.Of(one)+"'}\n")
	d.post("/api/plugins/peek", map[string]any{"url": far.Of(set), "again": true}).is(200).says("x/../../d")
	if d.file("config.toml") != "# mine\n"+plainHTTP || d.file("plugins.lock") != "" || d.file("secrets.toml") != "" {
		t.Error("looking changed the workspace")
	}
	es, err := os.ReadDir(filepath.Join(d.root, ".agentenv"))
	if err != nil || len(es) != 1 {
		t.Errorf("looking left files: %v, %v", es, err)
	}
}

// TestLists: what is installed, what is newer, what is missing and brought back, what is removed.
func TestLists(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "[git_plugins]\ntrust_unverified = true\n")
	one := gittest.Plugin(t, "one")
	one.InWork("tag", "v1.0.0")
	one.Publish()
	set := bundle(t, "set", "archetype: {label: Desk, blurb: For desks, tier: advanced}\n", gittest.Plugin(t, "two"))
	d.write("plugin-catalog.json", `{"plugins": [{"id": "one", "name": "One", "repo": "`+one.URL()+`"}, {"id": "../x", "repo": "y"}, {"id": "z", "bundled": true, "repo": "https://h.example/r"}],
		"archetypes": [{"id": "writer", "label": "Writer", "repo": "https://h.example/writer"}]}`)
	r := d.ask("GET", "/api/plugins/catalog", "").is(200)
	if r.at("plugins", 0, "installed") != false || r.at("plugins", 1, "id") != "delegates" || r.at("plugins", 1, "installed") != true || !strings.Contains(r.texts("warnings"), "plugins[2]") {
		t.Errorf("catalog: %s", r.text)
	}
	d.post("/api/plugins/install", map[string]any{"url": one.URL(), "ref": "v1.0.0"}).is(200)
	d.post("/api/plugins/install", map[string]any{"url": set.URL()}).is(200)
	if r := d.ask("GET", "/api/plugins/catalog", "").is(200); r.at("plugins", 0, "installed") != true || r.at("plugins", 0, "enabled") != true {
		t.Errorf("catalog: %s", r.text)
	}
	if r := d.ask("GET", "/api/plugins/bundles", "").is(200); r.at("bundles", 0, "id") != "set" || r.texts("bundles", 0, "plugins") != "two" {
		t.Errorf("bundles: %s", r.text)
	}
	r = d.ask("GET", "/api/archetypes", "").is(200)
	if r.at("archetypes", 0, "id") != "writer" || r.at("archetypes", 1, "label") != "Desk" || r.at("archetypes", 1, "tier") != "advanced" || r.at("archetypes", 2, "id") != "custom" {
		t.Errorf("archetypes: %s", r.text)
	}
	if r := d.ask("GET", "/api/archetypes/set/preview", "").is(200); r.at("bundle", "id") != "set" {
		t.Errorf("preview: %s", r.text)
	}
	if r := d.ask("GET", "/api/archetypes/custom/preview", "").is(200); r.at("bundle") != nil {
		t.Errorf("preview: %s", r.text)
	}
	d.write("plugin-catalog.json", `{"archetypes": [{"id": "writer", "label": "Writer", "repo": "/nowhere/at/all"}]}`)
	d.ask("GET", "/api/archetypes/writer/preview", "").is(502)

	one.Commit("more", "x")
	one.InWork("tag", "v1.1.0")
	one.Publish()
	r = d.ask("GET", "/api/plugins/updates", "").is(200)
	if r.at("plugins", 0, "latest_ref") != "v1.1.0" || r.at("plugins", 0, "behind") != true || r.at("bundles", 0, "behind") != false {
		t.Errorf("updates: %s", r.text)
	}
	if r := d.ask("POST", "/api/plugins/one/update", "").is(200); r.at("outcome") != "updated" || !strings.Contains(d.file("plugins.lock"), `"requested_ref": "v1.1.0"`) {
		t.Errorf("update: %s", r.text)
	}

	// Files that somebody else removed are brought back.
	if r := d.ask("POST", "/api/plugins/sync", "").is(200); r.at("plugins", 0, "status") != "present" || r.at("reloaded") != false {
		t.Errorf("sync: %s", r.text)
	}
	trees := filepath.Join(d.env["XDG_STATE_HOME"], "agentenv", "git_plugins")
	if err := chmodAll(trees); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(trees); err != nil {
		t.Fatal(err)
	}
	if r := d.ask("GET", "/api/plugins/installed", "").is(200); r.at("plugins", 0, "present") != false || r.at("plugins", 0, "error") == nil {
		t.Errorf("installed: %s", r.text)
	}
	if r := d.ask("POST", "/api/plugins/sync", "").is(200); r.at("plugins", 0, "status") != "installed" || r.at("reloaded") != true {
		t.Errorf("sync: %s", r.text)
	}
	if r := d.ask("DELETE", "/api/plugins/one?purge=true", "").is(200); r.at("ok") != true || !strings.Contains(r.texts("removed"), "lock") || r.at("restart_recommended") != true {
		t.Errorf("remove: %s", r.text)
	}
	if r := d.ask("DELETE", "/api/plugins/bundles/set", "").is(200); r.texts("removed_members") != "two" || strings.Contains(d.file("plugins.lock"), `"two"`) {
		t.Errorf("remove: %s", r.text)
	}
}

func chmodAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
}
