package console_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// clock is a plugin with pages.
func clock(t *testing.T) *gittest.Repo {
	t.Helper()
	r := gittest.New(t, "clock")
	r.Commit("agentenv.plugin.yaml", `id: clock
name: Clock
version: 1.0.0
views:
  - { id: face, label: Face, path: "/plugins/clock/ui/index.html?zone=utc#now" }
  - { id: folder, path: /plugins/clock/ui/ }
  - { id: served, path: /plugins/clock/board }
  - { id: far, path: "https://evil.example/ui/index.html" }
  - { id: other, path: /plugins/board/ui/index.html }
  - { id: out, path: /plugins/clock/../../etc/passwd }
`, "ui/index.html", "<!doctype html><title>Clock</title>", "ui/app.js", "1", "ui/style.css", "b {}", "ui/data.json", "{}", "ui/pic.svg", "<svg/>", "ui/odd.xyz", "x", "ui/NO.HTML", "<b>",
		"ui/.secret", "x", "ui/.d/x.html", "x", "secret.txt", "x", "uix/a.html", "x")
	return r
}

// withClock is a desk on which the clock is on, with more files.
func withClock(t *testing.T, more ...string) (*desk, *gittest.Repo) {
	t.Helper()
	d := newDesk(t, "")
	r := clock(t)
	if len(more) > 0 {
		r.Commit(more...)
	}
	ask := map[string]any{"url": r.URL()}
	d.consent(d.post("/api/plugins/peek", ask).is(200))
	d.post("/api/plugins/install", ask).is(200)
	return d, r
}

// views are the addresses of the views of the plugin that is listed first.
func (d *desk) views() (all []string) {
	d.t.Helper()
	list, _ := d.ask("GET", "/api/plugins/installed", "").is(200).at("plugins", 0, "views").([]any)
	for _, v := range list {
		u, _ := v.(map[string]any)["url"].(string)
		all = append(all, u)
	}
	return all
}

// see asks for a file of a view as a frame does, without the token.
func (d *desk) see(path string, headers ...string) reply {
	d.t.Helper()
	return d.ask("GET", path, "", append([]string{"Authorization", ""}, headers...)...)
}

// TestViews: the API hands out paths of pages that there are; what lies below them is served as what it is, in a sandbox.
func TestViews(t *testing.T) {
	t.Parallel()
	d, _ := withClock(t)
	r := d.ask("GET", "/api/plugins/installed", "").is(200)
	all := d.views()
	base, ok := strings.CutSuffix(all[0], "ui/index.html?zone=utc#now")
	if len(all) != 6 || !ok || len(base) != len("/views/")+26+1 || all[1] != base+"ui/index.html" || all[2]+all[3]+all[4]+all[5] != "" {
		t.Fatalf("the views are %q", all)
	}
	if r.at("plugins", 0, "views", 0, "title") != "Face" || r.at("plugins", 0, "views", 1, "title") != "folder" || r.at("plugins", 0, "views", 0, "error") != nil || r.at("plugins", 0, "views", 2, "error") == nil {
		t.Errorf("listed as %s", r.text)
	}
	if again := d.views(); again[0] != all[0] {
		t.Errorf("a path was handed out anew: %s, %s", all[0], again[0])
	}
	for name, kind := range map[string]string{
		"ui/index.html": "text/html; charset=utf-8", "ui/": "text/html; charset=utf-8", "ui/app.js": "text/javascript; charset=utf-8", "ui/style.css": "text/css; charset=utf-8",
		"ui/data.json": "application/json; charset=utf-8", "ui/pic.svg": "image/svg+xml", "ui/odd.xyz": "application/octet-stream", "ui/NO.HTML": "text/html; charset=utf-8",
	} {
		r := d.see(base + name)
		h := r.head
		if r.status != 200 || h.Get("Content-Type") != kind || r.text == "" {
			t.Errorf("%s: %d %s", name, r.status, h.Get("Content-Type"))
		}
		own := d.Listener.Addr().String() + base
		for _, want := range []string{
			"sandbox allow-scripts;", "default-src 'none';", "script-src " + own + " ", "connect-src " + own + ";", "form-action 'none'", "base-uri 'none'", "frame-ancestors 'self'",
		} {
			if !strings.Contains(h.Get("Content-Security-Policy"), want) {
				t.Errorf("%s: its policy lacks %s: %s", name, want, h.Get("Content-Security-Policy"))
			}
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "SAMEORIGIN" || h.Get("Cache-Control") != "no-store" ||
			h.Get("Set-Cookie") != "" || h.Get("Access-Control-Allow-Origin") != "" || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", name, h)
		}
	}
	if r := d.ask("HEAD", base+"ui/index.html", "", "Authorization", ""); r.status != 200 || r.text != "" || r.head.Get("Content-Length") != "35" {
		t.Errorf("HEAD: %d %v %s", r.status, r.head, r.text)
	}
	// A page's own origin is nobody's: what it loads is sent as from there.
	if r := d.see(base+"ui/data.json", "Origin", "null", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "empty"); r.status != 200 || r.head.Get("Access-Control-Allow-Origin") != "null" {
		t.Errorf("its own data: %d %v", r.status, r.head)
	}
	// A host that policies can't name.
	if r := d.see(base+"ui/", "Host", "[::1]:1"); r.status != 200 || !strings.Contains(r.head.Get("Content-Security-Policy"), "script-src 'self' ") {
		t.Errorf("asked by an IPv6 address: %d %v", r.status, r.head)
	}
}

// TestViewRefusals: nothing but files of the views' folders, for nobody but a frame of the console and what it loads.
func TestViewRefusals(t *testing.T) {
	t.Parallel()
	d, _ := withClock(t, "ui/big.png", strings.Repeat("x", 16<<20+1), "ui/full.png", strings.Repeat("x", 16<<20))
	base := strings.TrimSuffix(d.views()[1], "ui/index.html")
	for _, name := range []string{
		"", "ui", "secret.txt", "agentenv.plugin.yaml", "uix/a.html", "ui/../secret.txt", "ui/%2e%2e/secret.txt", "ui/..%2fsecret.txt", "ui/..%5csecret.txt", "ui/%00", "ui/app.js%00.html", "ui//app.js", "/ui/app.js",
		"ui/.secret", "ui/.d/x.html", "ui/none", "ui/none/", "ui/app.js/", "ui/./app.js", "%2fetc/passwd", "ui/%ff", "ui/" + strings.Repeat("a", 5000),
	} {
		if r := d.see(base + name); r.status != 404 || !strings.HasPrefix(r.head.Get("Content-Security-Policy"), "sandbox allow-scripts;") {
			t.Errorf("%s: %d %s", name, r.status, r.text)
		}
	}
	d.see(base + "ui/big.png").is(403).says("16 MiB")
	if r := d.see(base + "ui/full.png"); r.status != 200 || len(r.text) != 16<<20 {
		t.Errorf("a file of 16 MiB: %d", r.status)
	}
	page := base + "ui/app.js"
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		if r := d.ask(method, page, "{}", "Authorization", "").is(405); r.head.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %v", method, r.head)
		}
	}
	for _, wrong := range []string{"/views", "/views/", "/views//ui/app.js", "/views/x/ui/app.js", "/views/" + strings.ToUpper(base[len("/views/"):]) + "ui/app.js", base[:len(base)-2] + "/ui/app.js", base[:len(base)-1] + "a/ui/app.js", "/views/" + token + "/ui/app.js"} {
		d.ask("GET", wrong, "").is(404) // the token changes nothing
	}
	for _, ask := range [][]string{
		{"Origin", "https://evil.example"},
		{"Origin", d.URL},
		{"Sec-Fetch-Dest", "document"},
		{"Sec-Fetch-Dest", "object"},
		{"Sec-Fetch-Dest", "serviceworker", "Sec-Fetch-Site", "same-origin"},
		{"Sec-Fetch-Dest", "worker", "Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Dest", "script", "Sec-Fetch-Site", "same-origin"},
		{"Sec-Fetch-Dest", "empty", "Sec-Fetch-Site", "same-origin"},
		{"Host", "evil.example"},
	} {
		d.see(page, ask...).is(403)
	}
	if r := d.see(page, "Sec-Fetch-Dest", "iframe", "Sec-Fetch-Site", "same-origin"); r.status != 200 {
		t.Errorf("the console's frame: %d", r.status)
	}
	// What a page of nobody's origin asks the API for is refused, with the token too.
	d.ask("GET", "/api/plugins/installed", "", "Origin", "null").is(403)
	// A frame of the console leads to views alone.
	if p := d.see("/").head.Get("Content-Security-Policy"); !strings.HasSuffix(p, "; frame-src "+d.Listener.Addr().String()+"/views/") {
		t.Errorf("the console's policy is %s", p)
	}
	if p := d.see("/", "Host", "127.0.0.1:1; script-src *").head.Get("Content-Security-Policy"); !strings.HasSuffix(p, "; frame-src 'self'") {
		t.Errorf("a host became a part of the policy: %s", p)
	}
}

// TestViewEnds: a path is gone with what it was handed out for.
func TestViewEnds(t *testing.T) {
	t.Parallel()
	d, repo := withClock(t)
	page := d.views()[1]
	gone := func(why string) {
		t.Helper()
		if r := d.see(page); r.status != 404 {
			t.Errorf("%s: %d", why, r.status)
		}
	}
	on := func(is bool) { d.post("/api/plugins/clock/enabled", map[string]any{"enabled": is}).is(200) }
	on(false)
	gone("off, before anybody lists it")
	if now := d.views(); strings.Join(now, "") != "" {
		t.Errorf("of a plugin that is off: %q", now)
	}
	on(true)
	gone("on again")
	page = d.views()[1]
	if r := d.see(page); r.status != 200 {
		t.Fatalf("handed out anew: %d", r.status)
	}
	config := d.file("config.toml")
	if !strings.Contains(config, "[git_plugins.sources]\n") {
		t.Fatalf("the configuration is %s", config)
	}
	d.write("config.toml", strings.Replace(config, "[git_plugins.sources]\n", "[git_plugins.sources]\nallow = []\n", 1))
	gone("not allowed any more")
	d.write("config.toml", config)
	if r := d.see(page); r.status != 200 {
		t.Fatalf("allowed again: %d", r.status)
	}
	repo.Commit("ui/index.html", "<!doctype html>new")
	d.consent(d.post("/api/plugins/clock/update", map[string]any{}).is(200))
	d.post("/api/plugins/clock/update", map[string]any{}).is(200)
	gone("updated")
	page = d.views()[1]
	d.see(page).says("new")
	old := page
	d.serve()
	if now := d.views()[1]; now == old || d.see(old).status != 404 {
		t.Errorf("a path outlives the console: %s", now)
	}
	page = d.views()[1]
	d.ask("DELETE", "/api/plugins/clock", "").is(200)
	gone("removed")
}

// TestViewLinks: what is no plain file of the tree is not served, whoever put it there.
func TestViewLinks(t *testing.T) {
	t.Parallel()
	d, _ := withClock(t)
	base := strings.TrimSuffix(d.views()[1], "index.html")
	var ui string
	err := filepath.WalkDir(d.env["XDG_STATE_HOME"], func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "ui" && e.IsDir() {
			ui = p
		}
		return err
	})
	if err != nil || ui == "" {
		t.Fatalf("where are the files? %v", err)
	}
	if err := os.Chmod(ui, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"out.html": "/etc/passwd", "near.html": "index.html", "up": "..", "self": "."} {
		if err := os.Symlink(to, filepath.Join(ui, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"out.html", "near.html", "up/secret.txt", "self/index.html", "up/ui/index.html"} {
		if r := d.see(base + name); r.status != 404 {
			t.Errorf("%s: %d", name, r.status)
		}
	}
}
