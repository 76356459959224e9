package appserve

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is the app of a folder, served at its socket.
type rig struct {
	t      *testing.T
	home   string
	folder string
	socket string
	http   *http.Client
	stop   func() error
}

// lay writes a folder; files that begin with #! are programs.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func serve(t *testing.T, files map[string]string) *rig {
	t.Helper()
	r := &rig{t: t, home: t.TempDir(), folder: lay(t, files)}
	r.start(true)
	return r
}

// start serves until the test ends, or stop is called.
func (r *rig) start(launch bool) {
	r.t.Helper()
	a, l := appdir.ReadFolder(os.DirFS(r.folder), "", "clock", "")
	if err := l.Err(); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	up, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- Serve(ctx, a, Config{Folder: r.folder, Home: r.home, Port: -1, Launch: launch, Environ: os.Environ(), Serving: func(at string) { up <- at }})
	}()
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	select {
	case at := <-up:
		r.socket = strings.TrimPrefix(at, "unix:")
	case err := <-done:
		r.t.Fatal(err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
	}}
	r.http = &http.Client{Transport: tr}
	r.t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := r.stop(); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) ask(verb, path, body string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), verb, "http://app"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) rpc(method, params string) string {
	r.t.Helper()
	var resp struct {
		Result json.RawMessage
		Error  *wire.Error
	}
	b := r.ask(http.MethodPost, "/agentenv", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	if err := json.Unmarshal([]byte(b), &resp); err != nil {
		r.t.Fatal(b)
	}
	if resp.Error != nil {
		return fmt.Sprintf("%d %s %s", resp.Error.Code, resp.Error.Message, resp.Error.Data)
	}
	return string(resp.Result)
}

func (r *rig) is(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// clock keeps alarms by hooks: a line each in a file that no path declares.
var clock = map[string]string{
	"app.toml": `skill = "skill"
[linux]
launch = ["./bin/clock"]
[hooks]
add_data = ["./hooks/add"]
get_data = ["./hooks/get"]
reset_data = ["./hooks/reset"]
`,
	"bin/clock":      "#!/bin/sh\necho started >> \"$AGENTENV_HOME/starts\"\nexec sleep 600\n",
	"hooks/add":      "#!/bin/sh\nset -e\ntest \"$AGENTENV_APP\" = clock\ncp \"$AGENTENV_PARTS/parts.json\" \"$HOME/alarms\"\nif test -e \"$AGENTENV_PARTS/0\"; then cp \"$AGENTENV_PARTS/0\" \"$HOME/first\"; fi\n",
	"hooks/get":      "#!/bin/sh\nif test -e \"$HOME/alarms\"; then printf '[{\"kind\":\"data\",\"data\":{\"alarms\":%s}}]' \"$(wc -c < \"$HOME/alarms\")\" > \"$AGENTENV_OUT/parts.json\"; fi\n",
	"hooks/reset":    "#!/bin/sh\nrm -f \"$HOME/alarms\" \"$HOME/first\"\n",
	"skill/SKILL.md": "---\nname: alarms\ndescription: How alarms are set.\n---\nBody.\n",
	"skill/more.txt": "more",
}

// TestA16 holds what programs of the folder do as hooks, and that the app runs around them.
func TestA16(t *testing.T) {
	t.Parallel()
	r := serve(t, clock)
	r.is("an empty export", r.rpc("data/get", "{}"), `{"parts":[]}`)
	r.is("a load", r.rpc("data/add", `{"parts":[{"kind":"file","file":{"bytes":"`+b64("seven")+`","name":"a.txt","mimeType":"text/plain"}},{"kind":"text","text":"t"},{"kind":"data","data":{"x":1}}]}`), "{}")
	b, err := os.ReadFile(filepath.Join(r.home, "alarms"))
	var parts []part
	if err != nil || json.Unmarshal(b, &parts) != nil || len(parts) != 3 {
		t.Fatalf("%s %v", b, err)
	}
	r.is("the file's name", parts[0].Kind+" "+parts[0].Name+" "+parts[0].MimeType+" "+filepath.Base(parts[0].File), "file a.txt text/plain 0")
	r.is("the rest", *parts[1].Text+string(parts[2].Data), `t{"x":1}`)
	if _, err := os.Stat(parts[0].File); !errors.Is(err, os.ErrNotExist) {
		t.Error("the hook's folder is left")
	}
	if b, err := os.ReadFile(filepath.Join(r.home, "first")); err != nil || string(b) != "seven" {
		t.Errorf("%q %v", b, err)
	}
	r.is("the export", r.rpc("data/get", "{}"), fmt.Sprintf(`{"parts":[{"kind":"data","data":{"alarms":%d}}]}`, len(b)))
	r.is("the reset", r.rpc("data/reset", "{}"), "{}")
	r.is("an empty export", r.rpc("data/get", "{}"), `{"parts":[]}`)
	starts, err := os.ReadFile(filepath.Join(r.home, "starts"))
	if err != nil || strings.Count(string(starts), "started") > 3 {
		t.Errorf("%q %v", starts, err)
	}
	card, err := wire.ParseCard([]byte(r.ask(http.MethodGet, wire.CardPath, "")))
	if err != nil {
		t.Fatal(err)
	}
	r.is("the name", card.Name, "clock")
	if card.Extension(wire.URNIntake) != nil || card.Extension(wire.URNSkill) == nil {
		t.Error("the card is wrong about what goes in, or the skill")
	}
	skill, err := wire.ParseEnvSkill([]byte(r.ask(http.MethodGet, wire.SkillPath, "")))
	if err != nil || skill.Name != "alarms" || skill.Description != "How alarms are set." || len(skill.Files) != 2 || skill.Files[0].Path != "SKILL.md" {
		t.Errorf("%+v %v", skill, err)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.home, ".agentenv/apps/clock.pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the app's pid is left: %v", err)
	}
}

// changed is the clock with some files replaced.
func changed(files map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{clock, files} {
		maps.Copy(out, m)
	}
	return out
}

// TestHookThatFails: what it said last is the error, and the reset follows.
func TestHookThatFails(t *testing.T) {
	t.Parallel()
	r := serve(t, changed(map[string]string{
		"hooks/add":   "#!/bin/sh\necho half > \"$HOME/alarms\"\nhead -c 5000 /dev/zero | tr '\\0' x >&2\necho 'no such alarm' >&2\nexit 3\n",
		"hooks/reset": "#!/bin/sh\ntest -e \"$HOME/alarms\" || { echo nothing there >&2; exit 4; }\nrm \"$HOME/alarms\"\necho reset >> \"$HOME/resets\"\n",
	}))
	got := r.rpc("data/add", `{"parts":[{"kind":"text","text":"t"}]}`)
	if !strings.HasPrefix(got, "-32000 xxx") || !strings.HasSuffix(got, `xno such alarm {"code":"add_failed"}`) || len(got) > 2100 {
		t.Errorf("%d bytes: %s", len(got), got[max(0, len(got)-100):])
	}
	if b, err := os.ReadFile(filepath.Join(r.home, "resets")); err != nil || string(b) != "reset\n" {
		t.Errorf("%q %v", b, err)
	}
	r.is("the reset", r.rpc("data/reset", "{}"), `-32000 nothing there {"code":"reset_failed"}`)
}

// TestA24: a hook that goes on past its time is ended with all that it started, and the answer doesn't wait for that.
func TestA24(t *testing.T) {
	t.Parallel()
	var missed []string
	// Where a machine is busy a shell isn't up in the first time: what is missed counts when it is missed with more of it again and again.
	for _, limit := range []time.Duration{300 * time.Millisecond, time.Second, 4 * time.Second} {
		if missed = overdue(t, limit); len(missed) == 0 {
			return
		}
		t.Logf("with %s: %q", limit, missed)
	}
	t.Errorf("%q", missed)
}

// overdue has a load's hook go on past a limit, and answers what wasn't as it has to be.
func overdue(t *testing.T, limit time.Duration) (missed []string) {
	t.Helper()
	r := serve(t, changed(map[string]string{
		"app.toml": fmt.Sprintf("data_timeout_s = %g\n", limit.Seconds()) + clock["app.toml"],
		// Told to end, it goes on until the answer is there.
		"hooks/add": "#!/bin/sh\ntrap 'until test -e \"$HOME/answered\"; do sleep 0.01; done; echo told >> \"$HOME/told\"; exit 1' TERM\n" +
			"echo half > \"$HOME/alarms\"\nsleep 600 &\necho $! > \"$HOME/child\"\nwait\n",
	}))
	is := func(what, got, want string) {
		if got != want {
			missed = append(missed, fmt.Sprintf("%s is %q, not %q", what, got, want))
		}
	}
	file := func(name string) string {
		b, err := os.ReadFile(filepath.Join(r.home, name))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	begun := time.Now()
	is("the load", r.rpc("data/add", `{"parts":[{"kind":"text","text":"t"}]}`), fmt.Sprintf(`-32000 data/add took longer than %g s (data_timeout_s) {"code":"add_failed"}`, limit.Seconds()))
	const late = 2700 * time.Millisecond
	if d := time.Since(begun); d < limit || d > limit+late {
		missed = append(missed, fmt.Sprintf("the answer came after %s", d))
	}
	if err := os.WriteFile(filepath.Join(r.home, "answered"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	is("the export after the reset", r.rpc("data/get", "{}"), `{"parts":[]}`) // it waits for the turn
	is("what the hook was told", file("told"), "told\n")
	child, err := strconv.Atoi(strings.TrimSpace(file("child")))
	for end := time.Now().Add(late); err == nil && syscall.Kill(child, 0) == nil; time.Sleep(time.Millisecond) { // until it is reaped
		if time.Now().After(end) {
			missed = append(missed, "what the hook started is left")
			break
		}
	}
	if err != nil {
		missed = append(missed, err.Error())
	}
	is("the status", strings.SplitAfter(r.ask(http.MethodGet, "/agentenv/ext/computer-app/status", ""), ",")[0], `{"running":true,`)
	return missed
}

// TestHookTree: what a hook leaves in its folder is a tree; links out of it are no data.
func TestHookTree(t *testing.T) {
	t.Parallel()
	r := serve(t, changed(map[string]string{"hooks/get": "#!/bin/sh\nset -e\nmkdir -p \"$AGENTENV_OUT/a/b\"\nprintf 1 > \"$AGENTENV_OUT/a/b/c.json\"\nprintf 2 > \"$AGENTENV_OUT/z\"\nln -s /etc/hostname \"$AGENTENV_OUT/out\"\nmkfifo \"$AGENTENV_OUT/pipe\"\n"}))
	r.is("the export", r.rpc("data/get", "{}"), `{"parts":[{"kind":"file","file":{"bytes":"`+b64("1")+`","mimeType":"application/json","name":"c.json"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"a/b/c.json"}}},`+
		`{"kind":"file","file":{"bytes":"`+b64("2")+`","mimeType":"application/octet-stream","name":"z"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"z"}}}]}`)
}

// TestHookParts: a file that a hook lists stands in its folder, and nowhere else.
func TestHookParts(t *testing.T) {
	t.Parallel()
	r := serve(t, changed(map[string]string{"hooks/get": "#!/bin/sh\ncp \"$HOME/list\" \"$AGENTENV_OUT/parts.json\"\nprintf 1 > \"$AGENTENV_OUT/f\"\nln -s /etc/hostname \"$AGENTENV_OUT/l\"\n"}))
	for list, want := range map[string]string{
		`[{"kind":"file","file":"f","name":"n.txt"}]`: `{"parts":[{"kind":"file","file":{"bytes":"MQ==","mimeType":"application/octet-stream","name":"n.txt"}}]}`,
		`[{"kind":"file","file":"f","path":"x/y"}]`:   `{"parts":[{"kind":"file","file":{"bytes":"MQ==","mimeType":"application/octet-stream","name":"y"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"x/y"}}}]}`,
		`[{"kind":"text","text":""}]`:                 `{"parts":[{"kind":"text","text":""}]}`,
		`[{"kind":"file","file":"/etc/hostname"}]`:    `-32000 parts.json: [0]: file: it lies outside AGENTENV_OUT {"code":"get_failed"}`,
		`[{"kind":"file","file":"../x"}]`:             `-32000 parts.json: [0]: file: it lies outside AGENTENV_OUT {"code":"get_failed"}`,
		`[{"kind":"file","file":"l"}]`:                `-32000 parts.json: [0]: file: openat l: path escapes from parent {"code":"get_failed"}`,
		`[{"kind":"file","file":"f","path":"/x"}]`:    `-32000 parts.json: [0]: path: the path must be relative, without empty, . or .. segments {"code":"get_failed"}`,
		`[{"kind":"data","data":[]}]`:                 `-32000 parts.json: [0]: data: want a JSON object {"code":"get_failed"}`,
		`{}`:                                          `-32000 parts.json: want a JSON list of objects, such as {"kind": "text", "text": "…"} {"code":"get_failed"}`,
	} {
		if err := os.WriteFile(filepath.Join(r.home, "list"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		r.is(list, r.rpc("data/get", "{}"), want)
	}
}

// TestOwnServer: an app's own server is given its socket, is told when it answers, and what it is told when it ends early.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	folder := lay(t, map[string]string{"app.toml": "[server]\ncommand = [\"./serve\"]\n", "serve": "#!/bin/sh\nexit 7\n"})
	a, l := appdir.ReadFolder(os.DirFS(folder), "", "own", "")
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	c := Config{Folder: folder, Home: t.TempDir(), Port: -1, Environ: os.Environ(), Output: io.Discard, Serving: func(at string) { t.Errorf("it serves at %s", at) }}
	if err := Serve(t.Context(), a, c); err == nil || err.Error() != "the app own's own server: exit status 7" {
		t.Errorf("%v", err)
	}
	c.Port = 0
	if err := Serve(t.Context(), a, c); err == nil || err.Error() != "serve the app own: its own server serves at a socket alone" {
		t.Errorf("%v", err)
	}
}

func FuzzParts(f *testing.F) {
	for _, s := range []string{`[]`, `[{"kind":"file","file":"f","path":"a/b"}]`, `[{"kind":"text","text":"t"}]`, `[{"kind":"data","data":{"a":1}}]`, `[{"kind":"file","file":"/etc/x"}]`, `null`, `[null]`} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeParts(b)
		if err != nil {
			return
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		for i := range list {
			out := home.NewAnswer(nil)
			if list[i].export(t.Context(), root, dir, out) != nil {
				continue
			}
			p := out.Parts()[0]
			if raw, err := wire.EncodeParts([]wire.Part{p}); err != nil {
				t.Errorf("%s: %v", b, err)
			} else if _, err := wire.ParseParts(raw); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
			if p.Kind == wire.KindFile && p.File.Bytes != "eA==" {
				t.Errorf("it read %s", p.File.Bytes)
			}
		}
	})
}
