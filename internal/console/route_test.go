package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	stdpath "path"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

const testToken = "abcdefghijklmnopqrstuvwxyz"

// bare is a console of no workspace, with more routes.
func bare(more ...route) *Server {
	s := New(Options{
		Token: testToken, Log: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (*gitplugins.Plugins, func(context.Context) error, error) {
			return gitplugins.New(gitplugins.Options{
				Folder: func() (folder.Folder, error) { return folder.Folder{}, folder.ErrNone },
				Policy: func(context.Context) (git.Policy, error) { return git.Policy{Allow: []string{}}, nil }, // nothing may be asked
				Store: func(f folder.Folder, p git.Policy) (*git.Store, error) {
					return git.Open(git.Options{Folder: f, Policy: p}), nil
				},
			}), func(context.Context) error { return nil }, nil
		},
	})
	for _, r := range more {
		s.mux.HandleFunc(r.pattern, s.serve(r))
	}
	return s
}

func ask(s *Server, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1"
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestLate is row 105: what takes too long, here or in git, is 504 and not 500; a console that stops says so; a crash is a number and no stack.
func TestLate(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context, _ *call) (any, error) { <-ctx.Done(); return nil, context.Cause(ctx) }
	s := bare(
		route{pattern: "GET /api/late", limit: time.Millisecond, do: wait},
		route{pattern: "GET /api/slow", limit: quick, do: func(context.Context, *call) (any, error) {
			return nil, errors.Join(errors.New("a member"), &git.Failure{Message: "git didn't end within 10m", Timeout: true})
		}},
		route{pattern: "GET /api/made", limit: quick, do: func(context.Context, *call) (any, error) { // row 99
			return nil, errors.Join(&workspace.Late{Bundle: "https://h.example/set", Limit: time.Minute}, errors.New("git was ended"))
		}},
		route{pattern: "GET /api/crash", limit: quick, do: func(context.Context, *call) (any, error) { panic("secret inside") }},
	)
	for path, want := range map[string]int{"/api/late": 504, "/api/slow": 504, "/api/made": 504, "/api/crash": 500, "/api/plugins/installed": 409} {
		w := ask(s, "GET", path, "")
		var b struct{ Detail, Code string }
		if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || w.Code != want || b.Detail == "" || b.Code == "" {
			t.Errorf("%s: %d %s (%v)", path, w.Code, w.Body, err)
		}
		if strings.Contains(b.Detail, "secret inside") {
			t.Errorf("a crash is told: %s", b.Detail)
		}
	}
}

// TestServe: a console whose context ends ends what is under way at once, and closes its listener.
func TestServe(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	s := bare(route{pattern: "GET /api/wait", limit: time.Hour, do: func(ctx context.Context, _ *call) (any, error) {
		close(began)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	type answer struct {
		status int
		text   string
		err    error
	}
	answered := make(chan answer, 1)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/api/wait", http.NoBody)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		req.Header.Set("X-API-Key", testToken)
		res, err := client.Do(req)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		answered <- answer{res.StatusCode, string(b), err}
	}()
	<-began
	stop()
	if a := <-answered; a.err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.text, "stopped") {
		t.Errorf("what was under way was answered %+v", a)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		c.Close() // a program that another test starts just now has a copy of the socket
		if time.Now().After(end) {
			t.Fatal("it still listens")
		}
	}
}

// FuzzBody: whatever a body is, it is read or refused in the one shape of all errors, and never a fault of the console.
func FuzzBody(f *testing.F) {
	for _, b := range []string{
		``, `{}`, `[]`, `null`, `{"url":"https://h.example/r","ref":"v1","force":false,"inputs":{"a":1},"secrets":[{"key":"k","value":"v"}],"config_inputs":{"a.b":null}}`,
		`{"url":"x","trust_all":"yes"}`, `{"enabled":true}`, `{"id":"x"}`, "{\"url\":\"\\u0000\"}", `{"url":{"url":{}}}`, `{"url":"/../..","secrets":[null,5,{"key":""}]}`,
	} {
		f.Add(b)
	}
	s := bare()
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"install", "../fleet", "ack", "peek", "sync", "install-deps", "x/enabled", "x/update", "bundles/x/update"} {
			w := ask(s, "POST", stdpath.Join("/api/plugins", path), body)
			var got struct{ Detail, Code string }
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v: %s", path, err, w.Body)
			}
			if w.Code < 400 || w.Code >= 500 && w.Code != http.StatusNotImplemented || got.Detail == "" || got.Code == "" {
				t.Fatalf("%s %q: %d %s", path, body, w.Code, w.Body)
			}
		}
	})
}

// FuzzCatalog: entries that are taken have ids and repositories that can be meant.
func FuzzCatalog(f *testing.F) {
	f.Add([]byte(`{"plugins":[{"id":"a","repo":"https://h.example/r"},{"id":"b","bundled":true},5],"archetypes":[{"id":"c","repo":"/r","label":"C"},{}]}`))
	f.Add([]byte(`{"plugins":{}}`))
	f.Add([]byte(`{"plugins":[{"id":"../x"}]`))
	f.Fuzz(func(t *testing.T, src []byte) {
		offers, kinds, _ := readCatalog(src)
		for _, o := range offers {
			if git.CheckID(o.ID) != nil || o.Bundled == (o.Repo != "") {
				t.Fatalf("%+v was taken", o)
			}
		}
		for _, k := range kinds {
			if _, err := git.ParseSource(k.Bundle); err != nil || git.CheckID(k.ID) != nil || k.Label == "" {
				t.Fatalf("%+v was taken", k)
			}
		}
	})
}

// TestLooks: a look is kept for ten minutes, and not for ever.
func TestLooks(t *testing.T) {
	t.Parallel()
	l := looks{of: map[string]look{}}
	at := time.Unix(1000, 0)
	l.put("a", look{at: at})
	for d, want := range map[time.Duration]bool{0: true, lookFresh: true, lookFresh + 1: false, -time.Second: false} {
		if _, ok := l.get("a", at.Add(d)); ok != want {
			t.Errorf("after %s: %v", d, ok)
		}
	}
	for i := range 2 * maxLooks {
		l.put(string(rune('A'+i)), look{at: at.Add(time.Duration(i))})
	}
	if len(l.of) != maxLooks {
		t.Errorf("%d looks are kept", len(l.of))
	}
}
