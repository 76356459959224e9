package app_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/wire"
)

// rig is an app that is served for a test.
type rig struct {
	t    *testing.T
	home string
	s    *app.Server
	web  *httptest.Server
}

// serve opens an app in a home that put fills.
func serve(t *testing.T, a app.App, put map[string]string) *rig {
	t.Helper()
	home := t.TempDir()
	for name, text := range put {
		write(t, filepath.Join(home, name), text)
	}
	return serveIn(t, home, a)
}

func serveIn(t *testing.T, home string, a app.App) *rig {
	t.Helper()
	s, err := app.Open(t.Context(), a, app.Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	h, err := s.Handler()
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &rig{t, home, s, web}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) ask(verb, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), verb, r.web.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// rpc is what a method answers: its result, or the code, message and data.code of its error.
func (r *rig) rpc(method, params string) string {
	r.t.Helper()
	status, b := r.ask(http.MethodPost, "/agentenv", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	var resp struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
			Data    struct{ Code string }
		}
	}
	if err := json.Unmarshal([]byte(b), &resp); err != nil || status != http.StatusOK {
		r.t.Fatalf("%d %s", status, b)
	}
	if e := resp.Error; e != nil {
		return strings.TrimSpace(fmt.Sprintf("%d %s: %s", e.Code, e.Data.Code, e.Message))
	}
	return string(resp.Result)
}

func file(path, text string) string {
	return fmt.Sprintf(`{"kind":"file","file":{"bytes":%q,"name":"n"},"metadata":{"urn:agentenv:data-objects/v1":{"path":%q}}}`, base64.StdEncoding.EncodeToString([]byte(text)), path)
}

func (r *rig) add(parts ...string) string {
	r.t.Helper()
	return r.rpc(wire.Add, `{"parts":[`+strings.Join(parts, ",")+`]}`)
}

func (r *rig) reset() string { r.t.Helper(); return r.rpc(wire.Reset, "{}") }

// tree is what data/get answers: path=text, in order.
func (r *rig) tree() string {
	r.t.Helper()
	got := r.rpc(wire.Get, "{}")
	parts, err := wire.ParseParts([]byte(got))
	if err != nil {
		return got
	}
	var out []string
	for _, p := range parts {
		path, content, err := app.PartBytes(r.t.Context(), p)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, path+"="+string(content))
	}
	return strings.Join(out, " ")
}

func (r *rig) is(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func notes() app.App { return app.App{Name: "notes", Paths: []string{"Notes", ".notesrc"}} }

// TestA14: a load is additive, an export answers the files, a reset makes the paths as they were, whatever was done to them.
func TestA14(t *testing.T) {
	t.Parallel()
	r := serve(t, notes(), map[string]string{"Notes/welcome.txt": "hi", "Notes/sub/run": "x", "other": "kept"})
	if err := os.Chmod(filepath.Join(r.home, "Notes/welcome.txt"), 0o640); err != nil { // the copy is made already
		t.Fatal(err)
	}
	r.is("the load", r.add(file("Notes/a.txt", "A"), file("Notes/sub/deep/b", "B"), file("Notes/welcome.txt", "changed"), file(".notesrc", "rc")), "{}")
	r.is("the export", r.tree(), "Notes/a.txt=A Notes/sub/deep/b=B Notes/sub/run=x Notes/welcome.txt=changed .notesrc=rc")
	if err := os.RemoveAll(filepath.Join(r.home, "Notes/sub")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(r.home, "other"), "changed")
	r.is("the reset", r.reset(), "{}")
	r.is("the export", r.tree(), "Notes/sub/run=x Notes/welcome.txt=hi")
	if st, err := os.Stat(filepath.Join(r.home, "Notes/welcome.txt")); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if b, err := os.ReadFile(filepath.Join(r.home, "other")); err != nil || string(b) != "changed" {
		t.Errorf("a reset touched what isn't the app's: %s %v", b, err)
	}
}
