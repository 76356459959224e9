package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/term"
)

// TestMain lets this binary be agent-env too: the console starts agents with it, and a test the console.
func TestMain(m *testing.M) {
	pid1.Dispatch()
	image.Dispatch(context.Background())
	nethost.Dispatch()
	if len(os.Args) > 1 && (os.Args[1] == "workspace" || os.Args[1] == "up") {
		os.Exit(cli.Main(context.Background(), os.Args[1:], term.System(os.LookupEnv), os.LookupEnv))
	}
	goleak.VerifyTestMain(m)
}

const token = "0123456789012345678901"

// desk is a workspace with a console.
type desk struct {
	t    *testing.T
	root string
	env  map[string]string
	// takeOver is how the next console is served.
	takeOver bool
	*httptest.Server
}

// newDesk makes a workspace whose configuration has these lines, and serves its console.
func newDesk(t *testing.T, config string, env ...string) *desk {
	t.Helper()
	home := t.TempDir()
	d := &desk{t: t, root: filepath.Join(home, "desk"), env: map[string]string{
		"HOME": home, "PATH": os.Getenv("PATH"), "XDG_STATE_HOME": filepath.Join(home, "state"),
	}}
	for i := 0; i+1 < len(env); i += 2 {
		d.env[env[i]] = env[i+1]
	}
	if err := os.MkdirAll(filepath.Join(d.root, ".agentenv"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.write("config.toml", config)
	d.serve()
	return d
}

// serve serves the console anew, as another process would.
func (d *desk) serve() {
	d.t.Helper()
	env := maps.Clone(d.env)
	a := app.New(app.Options{Dir: d.root, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	d.t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			d.t.Error(err)
		}
	})
	s, err := a.Console(app.ConsoleOptions{Token: token, Names: []string{"desk.example"}, TakeOver: d.takeOver, Environ: d.environ()})
	if err != nil {
		d.t.Fatal(err)
	}
	d.Server = httptest.NewServer(s)
	d.t.Cleanup(d.Server.Close)
}

// environ is the environment as processes have it.
func (d *desk) environ() []string {
	var out []string
	for k, v := range d.env {
		out = append(out, k+"="+v)
	}
	return out
}

func (d *desk) path(name string) string { return filepath.Join(d.root, ".agentenv", name) }

func (d *desk) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// file is a file of the workspace; "" when there is none.
func (d *desk) file(name string) string {
	b, err := os.ReadFile(d.path(name))
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	return string(b)
}

// reply is what a route answered.
type reply struct {
	t      *testing.T
	status int
	head   http.Header
	text   string
	body   map[string]any
}

// ask asks a route with the token; body is JSON, "" for none.
func (d *desk) ask(method, path, body string, headers ...string) reply {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.URL+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			req.Host = headers[i+1]
		case headers[i+1] == "":
			req.Header.Del(headers[i])
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := d.Client().Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	out := reply{t: d.t, status: res.StatusCode, head: res.Header, text: string(b)}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		dec := json.NewDecoder(bytes.NewReader(b))
		if err := dec.Decode(&out.body); err != nil {
			d.t.Fatalf("%s %s: %v: %s", method, path, err, b)
		}
	}
	return out
}

// post is ask with values that are told as JSON.
func (d *desk) post(path string, values map[string]any) reply {
	d.t.Helper()
	b, err := json.Marshal(values)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.ask("POST", path, string(b))
}

// is wants a status, and of an error the one shape that all have.
func (r reply) is(status int) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("answered %d, want %d: %s", r.status, status, r.text)
	}
	if status >= 400 {
		if d, _ := r.body["detail"].(string); d == "" {
			r.t.Fatalf("an error without detail: %s", r.text)
		}
		if c, _ := r.body["code"].(string); c == "" {
			r.t.Fatalf("an error without code: %s", r.text)
		}
	}
	return r
}

// says wants a text in the answer.
func (r reply) says(parts ...string) reply {
	r.t.Helper()
	for _, part := range parts {
		if !strings.Contains(r.text, part) {
			r.t.Errorf("answered without %q: %s", part, r.text)
		}
	}
	return r
}

// at is a value of the answer, by keys and indexes.
func (r reply) at(path ...any) any {
	r.t.Helper()
	var v any = r.body
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				r.t.Fatalf("there is no %v in %s", path, r.text)
			}
			v = l[p]
		}
	}
	return v
}

// texts is a list of texts of the answer.
func (r reply) texts(path ...any) string {
	r.t.Helper()
	l, ok := r.at(path...).([]any)
	if !ok {
		r.t.Fatalf("%v is no list: %s", path, r.text)
	}
	var out []string
	for _, v := range l {
		s, _ := v.(string)
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// consent consents to the plan that an answer asks for.
func (d *desk) consent(r reply) {
	d.t.Helper()
	digest, _ := r.at("plan_digest").(string)
	if r.at("needs_ack") != true || len(digest) != 64 {
		d.t.Fatalf("there is no plan to consent to: %s", r.text)
	}
	src, _ := r.at("source").(string)
	if src == "" {
		src, _ = r.at("source_url").(string)
	}
	d.post("/api/plugins/ack", map[string]any{"url": src, "plan_digest": digest}).is(200)
}
