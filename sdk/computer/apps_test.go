package computer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// appServer serves an app on a socket, with routes beside its own.
func appServer(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "app") //nolint:usetesting // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	e := env.New(name, env.WithLookup(none))
	e.OnReset(func(context.Context) error { return nil })
	type in struct {
		N int `json:"n"`
	}
	env.AddExtension(e, "urn:example:count/v1", "add", func(_ context.Context, i in) (in, error) { return in{i.N + 1}, nil }, env.Op())
	e.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/echo") {
				b, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %s?%s %q %v %s", r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Proxy-Authorization"), err, b)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.ServeListener(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// TestApps holds rows A27 to A29 and A33: cards of apps as children, their routes, and their paths left out.
func TestApps(t *testing.T) {
	notes := appServer(t, "notes")
	r := serve(t, newDesk(), func(o *computer.Options) {
		o.Settings.DataPaths = []string{"Notes", "other", "way", "Notes2"}
		o.Apps = []computer.App{{Name: "notes", Socket: notes, Paths: []string{"Notes"}}, {Name: "gone", Socket: "/nowhere/s"}}
	})
	_, body := r.ext("/.well-known/agent-env.json", "")
	card, err := wire.ParseCard([]byte(body))
	if err != nil || len(card.Children) != 1 {
		t.Fatalf("%v: %s", err, body)
	}
	child := card.Children[0]
	if child.Name != "notes" || child.URL != "/svc/notes/agentenv" || child.MCP() != "/svc/notes/mcp" || child.Children != nil {
		t.Errorf("%+v", child)
	}
	calls, err := child.Extension("urn:example:count/v1").Calls()
	if err != nil || len(calls) != 1 || calls[0].Path != "/svc/notes/agentenv/ext/example/count/add" {
		t.Errorf("%+v %v", calls, err)
	}
	if status, body := r.ext(calls[0].Path, `{"n":1}`); status != 200 || body != `{"n":2}` {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.ext("/svc/notes/echo/a%2Fb//c?x=%2F&y", ""); status != 200 || body != `GET /echo/a%2Fb//c?x=%2F&y "" <nil>` {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.ext("/svc/nobody/x", ""); status != 404 || body != `{"error":"Unknown service: nobody"}` {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.ext("/svc/gone/x", ""); status != 502 || !strings.HasPrefix(body, `{"error":"Proxy request failed: `) {
		t.Errorf("%d %s", status, body)
	}
	_, body = r.ext("/agentenv/ext/computer-ready/status", "")
	var ready computer.StatusResult
	if err := json.Unmarshal([]byte(body), &ready); err != nil || ready.Ready || len(ready.Checks) != 4 || ready.Checks[2] != (computer.Check{Name: "app:notes", OK: true, Detail: "answers as notes"}) || ready.Checks[3].Name != "app:gone" {
		t.Errorf("%v %+v", err, ready)
	}
	for _, p := range []string{"Notes/n", "Notes2", "other/o", ".agentenv/initial/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.home, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.home, p), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"other/link": "../Notes/n", "way": "Notes"} {
		if err := os.Symlink(to, filepath.Join(r.home, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, params := range []string{`{}`, `{"file_paths":["Notes/n","Notes","way","other","Notes2",".agentenv"]}`} {
		got := r.rpc("data/get", params)
		if strings.Count(got, `"path"`) != 2 || !strings.Contains(got, `"path":"other/o"`) || !strings.Contains(got, `"path":"Notes2"`) {
			t.Errorf("%s: %s", params, got)
		}
	}
}

// TestAppsThatLie: an app can't stand for another, nor name paths that lead out of it; what it names without a slash is below it.
func TestAppsThatLie(t *testing.T) {
	card := func(name, at, ext string) string {
		return fmt.Sprintf(`{"name":%q,"protocolVersion":"0.3.0","url":%q,"preferredTransport":"JSONRPC","capabilities":{"operations":[],"extensions":[{"uri":"urn:example:x/v1","params":{"endpoint":%q}}]}}`, name, at, ext)
	}
	cards := map[string]string{
		"notes": card("clock", "/agentenv", "/x"), "up": card("up", "/../../agentenv", "/x"), "coded": card("coded", "/agentenv", "/%2e%2e/notes"), "loose": card("loose", "agentenv", "x"),
	}
	var apps []computer.App
	for _, name := range []string{"notes", "up", "coded", "loose"} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, cards[name]) }))
		if err := web.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		web.Listener = l
		web.Start()
		t.Cleanup(web.Close)
		apps = append(apps, computer.App{Name: name, Socket: socket})
	}
	r := serve(t, newDesk(), func(o *computer.Options) { o.Apps = apps })
	_, body := r.ext("/.well-known/agent-env.json", "")
	got, err := wire.ParseCard([]byte(body))
	if err != nil || len(got.Children) != 1 || got.Children[0].Name != "loose" || got.Children[0].URL != "/svc/loose/agentenv" || !strings.Contains(body, `"/svc/loose/x"`) {
		t.Errorf("%v: %s", err, body)
	}
	_, body = r.ext("/agentenv/ext/computer-ready/status", "")
	if !strings.Contains(body, `"app:notes","ok":false,"detail":"what answers there is named \"clock\""`) {
		t.Error(body)
	}
}

// TestAppThatHangs: an app that doesn't answer in time is left out, and the others aren't (A27).
func TestAppThatHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket) // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	notes := appServer(t, "notes")
	r := serve(t, newDesk(), func(o *computer.Options) {
		o.Apps = []computer.App{{Name: "hangs", Socket: socket}, {Name: "notes", Socket: notes}}
	})
	const wait = 300 * time.Millisecond // not as long as it is in earnest
	r.on.SetAppTime(wait)
	began := time.Now()
	_, body := r.ext("/.well-known/agent-env.json", "")
	card, err := wire.ParseCard([]byte(body))
	if took := time.Since(began); err != nil || len(card.Children) != 1 || card.Children[0].Name != "notes" || took < wait || took > 20*time.Second {
		t.Errorf("%v after %s: %s", err, took, body)
	}
}

// TestFrontPasses: what is said to an app and answered goes through as it is, piece by piece, but for headers of one connection (A29).
func TestFrontPasses(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan struct{})
	got := make(chan http.Header, 1)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.Header().Set("X-Kept", "answered")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-next
		_, _ = io.WriteString(w, r.Method)
	}))
	if err := web.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	web.Listener = l
	web.Start()
	t.Cleanup(web.Close)
	r := serve(t, newDesk(), func(o *computer.Options) { o.Apps = []computer.App{{Name: "notes", Socket: socket}} })
	q, err := http.NewRequestWithContext(t.Context(), "PROPFIND", r.url+"/svc/notes/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Connection": "X-Hop", "X-Hop": "1", "Proxy-Authorization": "secret", "X-Kept": "asked"} {
		q.Header.Set(name, v)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	one := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, one); err != nil || string(one) != "one" || resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Kept") != "answered" {
		t.Errorf("%q %v %d", one, err, resp.StatusCode)
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "PROPFIND" {
		t.Errorf("%q %v", rest, err)
	}
	if h := <-got; h.Get("X-Hop") != "" || h.Get("Proxy-Authorization") != "" || h.Get("X-Kept") != "asked" {
		t.Errorf("the app got %v", h)
	}
}

// TestParseApps: everything that is wrong is told.
func TestParseApps(t *testing.T) {
	_, err := computer.ParseApps(`[{"name":"A","socket":"s"},{"name":"b","socket":"","paths":["x/y"]},{"name":"b","socket":"s","paths":["x","../z"]}]`)
	for _, want := range []string{`"A" can't be`, "b: its socket is missing", "two apps are named b", "x overlaps with x/y of b", `"../z"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
	if apps, err := computer.ParseApps(""); apps != nil || err != nil {
		t.Error(apps, err)
	}
	if _, err := computer.ParseApps(`[{"name":"a","socket":"s","port":1}]`); err == nil {
		t.Error("an unknown key is taken")
	}
}
