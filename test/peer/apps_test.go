//go:build integration || soak

package peer_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/wire"
)

// dark is a desktop that shows nothing: what is tested stands behind it.
type dark struct{}

func (dark) Features() computer.Features { return computer.Features{} }

func (dark) Display(context.Context) (computer.Display, error) {
	return computer.Display{Width: 8, Height: 8, Scale: 1}, nil
}

func (dark) Capture(context.Context) (computer.Image, error) {
	return computer.Image{Format: computer.RGB, Width: 8, Height: 8, Data: make([]byte, 8*8*3)}, nil
}

func (dark) Click(context.Context, computer.Click) (*computer.Effect, error)   { return nil, nil }
func (dark) Drag(context.Context, computer.Drag) (*computer.Effect, error)     { return nil, nil }
func (dark) Scroll(context.Context, computer.Scroll) (*computer.Effect, error) { return nil, nil }

func (dark) Type(context.Context, string, computer.Timing) (*computer.Effect, error) {
	return nil, nil
}

func (dark) Press(context.Context, []computer.Key, computer.Timing) (*computer.Effect, error) {
	return nil, nil
}

// serveApp runs the server of an app's folder and answers its socket, once it answers there.
func serveApp(t *testing.T, home, folder string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), builtBinary(t), "computer", "app", "serve", folder)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
			t.Error(err)
		}
	})
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // its output ends with it
	defer late.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "unix:")
}

// TestAppsSideBySide: an app on the peer's SDK and one that this program serves, behind one driver.
func TestAppsSideBySide(t *testing.T) {
	home, apps := t.TempDir(), t.TempDir()
	clock, err := filepath.Abs(filepath.Join("testdata", "clockapp.py"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"notes/app.toml": "[linux]\npaths = [\"Notes\"]\n",
		"clock/app.toml": fmt.Sprintf("[server]\ncommand = [%q, %q]\n", filepath.Join(peerBin(t), "python"), clock),
	} {
		p := filepath.Join(apps, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(home, "Notes"), 0o755), os.WriteFile(filepath.Join(home, "Notes/welcome"), []byte("hi"), 0o644)); err != nil {
		t.Fatal(err)
	}
	c, err := computer.New(dark{}, computer.Options{Name: "desk", Home: home, Settings: settings(t), Apps: []computer.App{
		{Name: "notes", Socket: serveApp(t, home, filepath.Join(apps, "notes")), Paths: []string{"Notes"}},
		{Name: "clock", Socket: serveApp(t, home, filepath.Join(apps, "clock"))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
	h, err := c.Handler()
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	defer web.Close()
	d := &desktop{url: web.URL}
	status, b := d.ask(t, wire.CardPath, "")
	card, err := wire.ParseCard([]byte(b))
	if err != nil || status != http.StatusOK {
		t.Fatal(status, b, err)
	}
	for i, want := range []string{"notes /svc/notes/agentenv data/reset,data/add,data/get", "clock /svc/clock/agentenv data/reset,data/add,data/get"} {
		if len(card.Children) != 2 {
			t.Fatalf("%d children", len(card.Children))
		}
		k := card.Children[i]
		if got := k.Name + " " + k.URL + " " + strings.Join(k.Capabilities.Operations, ","); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, s := range []struct{ app, method, params, want string }{
		{"clock", "data/get", "{}", `{"parts":[]}`},
		{"clock", "data/add", `{"parts":[{"kind":"data","data":{"alarms":["08:00","07:30"]}}]}`, "{}"},
		{"clock", "data/get", "{}", `{"parts":[{"kind":"data","data":{"alarms":["08:00","07:30"]}}]}`},
		{"notes", "data/add", `{"parts":[{"kind":"file","file":{"bytes":"MQ=="},"metadata":{"urn:agentenv:data-objects/v1":{"path":"Notes/one"}}}]}`, "{}"},
		{"", "data/get", `{"file_paths":["Notes"]}`, `{"parts":[]}`},
		{"notes", "data/reset", "{}", "{}"},
		{"clock", "data/reset", "{}", "{}"},
		{"clock", "data/get", "{}", `{"parts":[]}`},
	} {
		prefix := ""
		if s.app != "" {
			prefix = "/svc/" + s.app
		}
		_, b := d.ask(t, prefix+"/agentenv", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, s.method, s.params))
		var got struct{ Result json.RawMessage }
		var result bytes.Buffer
		if err := json.Unmarshal([]byte(b), &got); err != nil || json.Compact(&result, got.Result) != nil || result.String() != s.want {
			t.Errorf("%s %s: %s, want %s", s.app, s.method, b, s.want)
		}
	}
	if e, err := os.ReadDir(filepath.Join(home, "Notes")); err != nil || len(e) != 1 {
		t.Errorf("%v %v", e, err)
	}
	// The peer's app has tools of its own: they are reached where the card says.
	if got := callTool(t, web.URL+card.Children[1].MCP(), "next_alarm"); !strings.Contains(got, "none") {
		t.Error(got)
	}
	var took []time.Duration
	for range 200 {
		began := time.Now()
		d.ask(t, "/svc/notes/agentenv", `{"jsonrpc":"2.0","id":1,"method":"data/get","params":{}}`)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("an export of one file through the driver: %s, at the slowest of 200 %s", took[100], took[199])
}

func settings(t *testing.T) *computer.Settings {
	t.Helper()
	s, err := computer.ParseSettings("")
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

// callTool calls a tool without arguments, of a server that keeps sessions.
func callTool(t *testing.T, url, name string) string {
	t.Helper()
	session := ""
	ask := func(body string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
			session = s
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, name))
}
