package console_test

import (
	"strings"
	"testing"
)

// routes are all routes of the API.
var routes = []string{
	"GET /api/plugins/installed", "GET /api/plugins/updates", "GET /api/plugins/catalog", "GET /api/plugins/bundles", "GET /api/archetypes", "GET /api/archetypes/custom/preview",
	"POST /api/plugins/peek", "POST /api/plugins/install", "POST /api/plugins/ack", "POST /api/plugins/sync", "POST /api/plugins/install-deps",
	"POST /api/plugins/board/enabled", "POST /api/plugins/board/update", "DELETE /api/plugins/board",
	"POST /api/plugins/bundles/set/update", "DELETE /api/plugins/bundles/set", "GET /api/fleet", "POST /api/fleet",
}

// TestWhoMayAsk is row 101: without the token 401, from pages elsewhere 403 even with it. There are no federation tokens here: another token is a wrong one.
func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	before := d.file("config.toml")
	for _, route := range append(routes, "GET /api", "GET /api/", "GET /api/none") {
		method, path, _ := strings.Cut(route, " ")
		for _, auth := range []string{"", "Bearer", "Bearer " + token + "x", "Bearer " + token[1:], "Basic " + token, token, "Bearer  "} {
			r := d.ask(method, path, "{}", "Authorization", auth).is(401)
			if r.head.Get("WWW-Authenticate") == "" {
				t.Errorf("%s says nothing of how to ask", route)
			}
		}
		d.ask(method, path, "{}", "Authorization", "", "X-API-Key", "wrong").is(401)
		for _, origin := range []string{"https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://", "http://evil.example@" + d.Listener.Addr().String()} {
			d.ask(method, path, "{}", "Origin", origin).is(403)
		}
		d.ask(method, path, "{}", "Sec-Fetch-Site", "cross-site").is(403)
		d.ask(method, path, "{}", "Sec-Fetch-Site", "same-site").is(403)
		d.ask(method, path, "{}", "Host", "evil.example").is(403)
	}
	d.ask("GET", "/api/plugins/installed", "", "Authorization", "", "X-API-Key", token).is(200)
	d.ask("GET", "/api/plugins/installed", "", "Authorization", "bearer "+token).is(200)
	d.ask("GET", "/api/plugins/installed", "", "Origin", d.URL, "Sec-Fetch-Site", "same-origin").is(200)
	d.ask("OPTIONS", "/api/plugins/installed", "", "Origin", "https://evil.example", "Authorization", "").is(403)
	if d.file("config.toml") != before || d.file("plugins.lock") != "" {
		t.Error("somebody without the right to it changed the workspace")
	}
}

// TestNames: a name that was made to lead here (DNS rebinding) is refused on pages and routes; addresses of this machine, localhost and given names are not.
func TestNames(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	for host, status := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:9": 200, "localhost": 200, "LOCALHOST:80": 200, "[::1]:8234": 200, "desk.example": 200, "Desk.Example:8234": 200,
		"evil.example": 403, "evil.example:8234": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "192.0.2.1": 403, "0.0.0.0": 403, "[::ffff:192.0.2.1]": 403, "desk.example.": 403,
	} {
		for _, path := range []string{"/", "/plugins.js", "/api/plugins/installed"} {
			if r := d.ask("GET", path, "", "Host", host); r.status != status {
				t.Errorf("%s asked as %s: %d, want %d", path, host, r.status, status)
			}
		}
	}
	d.ask("GET", "/api/plugins/installed", "", "Host", "desk.example", "Origin", "https://desk.example").is(200) // behind a server that speaks TLS
	d.ask("GET", "/api/plugins/installed", "", "Host", "desk.example", "Origin", d.URL).is(403)
}

// TestPages: pages need no token, say nothing of the workspace, and may load and run nothing but their own files.
func TestPages(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	for path, kind := range map[string]string{"/": "text/html", "/computers": "text/html", "/computers.js": "text/javascript", "/plugins.js": "text/javascript", "/api.js": "text/javascript", "/console.css": "text/css"} {
		r := d.ask("GET", path, "", "Authorization", "")
		if r.status != 200 || !strings.HasPrefix(r.head.Get("Content-Type"), kind+";") || r.text == "" {
			t.Errorf("%s: %d %s", path, r.status, r.head.Get("Content-Type"))
		}
		policy := r.head.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: its policy lacks %s", path, want)
			}
		}
		if strings.Contains(policy, "unsafe") || r.head.Get("X-Content-Type-Options") != "nosniff" || r.head.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, r.head)
		}
		if strings.Contains(r.text, d.root) || strings.Contains(r.text, token) || strings.Contains(r.text, "innerHTML") {
			t.Errorf("%s holds what it should not", path)
		}
		d.ask("POST", path, "{}", "Authorization", "").is(405)
	}
	for _, path := range []string{"/none", "/page/plugins.html", "/plugins.html", "/../api/plugins/installed", "/%2e%2e/", "//"} {
		if r := d.ask("GET", path, "", "Authorization", ""); r.status != 404 && r.status != 401 {
			t.Errorf("%s: %d", path, r.status)
		}
	}
}

// TestRouting: what there is no route for is told in the one shape of all errors.
func TestRouting(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.ask("GET", "/api/none", "").is(404)
	d.ask("GET", "/api/plugins", "").is(404)
	if r := d.ask("POST", "/api/plugins/installed", "{}").is(405); !strings.Contains(r.head.Get("Allow"), "GET") {
		t.Errorf("Allow is %q", r.head.Get("Allow"))
	}
	d.ask("GET", "/api/plugins/install", "").is(405)
}
