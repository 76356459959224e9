//go:build linux

package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/sandbox"
)

// fakeEngine answers as an engine does, as far as making a box goes, and fails where a test says so. It starts nothing.
type fakeEngine struct {
	mu         sync.Mutex
	calls      []string                                            // "METHOD /path", without the version
	faults     map[string]func(http.ResponseWriter, *http.Request) // by "METHOD /path", a regular expression
	containers map[string]bool
	images     map[string]bool
}

func newFakeEngine(t *testing.T) (*fakeEngine, string) {
	t.Helper()
	f := &fakeEngine{
		faults: map[string]func(http.ResponseWriter, *http.Request){}, containers: map[string]bool{},
		images: map[string]bool{"there": true},
	}
	socket := filepath.Join(t.TempDir(), "s")
	if len(socket) > 100 { // longer than the address of a socket may be
		t.Fatalf("the folder of the test has a long name: %s", socket)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: f}}
	srv.Start()
	t.Cleanup(srv.Close)
	return f, socket
}

var version = regexp.MustCompile(`^/v1\.\d+`)

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := r.Method + " " + version.ReplaceAllString(r.URL.Path, "")
	f.mu.Lock()
	f.calls = append(f.calls, call)
	var fault func(http.ResponseWriter, *http.Request)
	for pattern, h := range f.faults {
		if regexp.MustCompile("^" + pattern + "$").MatchString(call) {
			fault = h
		}
	}
	f.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	f.answer(w, r, call)
}

func (f *fakeEngine) answer(w http.ResponseWriter, r *http.Request, call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	method, path, _ := strings.Cut(call, " ")
	part := strings.Split(strings.Trim(path, "/"), "/")
	name := part[len(part)-1]
	reply := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(v)
	}
	missing := func() { reply(404, map[string]string{"message": "no such thing: " + name}) }
	switch {
	case path == "/_ping":
		w.Header().Set("API-Version", "1.41")
		w.Header().Set("OSType", "linux")
		fmt.Fprint(w, "OK")
	case part[0] == "images" && method == "GET":
		if !f.images[part[1]] {
			missing()
			return
		}
		reply(200, map[string]any{"Id": "sha256:" + strings.Repeat("a", 64), "Os": "linux", "Config": map[string]any{"Env": []string{"A=b"}}})
	case path == "/containers/create":
		f.containers[r.URL.Query().Get("name")] = true
		reply(201, map[string]any{"Id": r.URL.Query().Get("name"), "Warnings": []string{}})
	case part[0] == "containers" && name == "start":
		w.WriteHeader(204)
	case part[0] == "containers" && name == "logs":
		w.Header().Set("Content-Type", "application/vnd.docker.multiplexed-stream")
		text := "sandbox: what it said last\n"
		w.Write(append([]byte{2, 0, 0, 0, 0, 0, 0, byte(len(text))}, text...))
	case part[0] == "containers" && name == "json" && len(part) == 3:
		if !f.containers[part[1]] {
			missing()
			return
		}
		reply(200, map[string]any{"Id": part[1], "State": map[string]any{"Running": false, "ExitCode": 3, "Status": "exited"}})
	case path == "/containers/json":
		reply(200, []any{})
	case method == "DELETE" && part[0] == "containers":
		if !f.containers[name] {
			missing()
			return
		}
		delete(f.containers, name)
		w.WriteHeader(204)
	default:
		reply(500, map[string]string{"message": "the fake engine knows no " + call})
	}
}

func (f *fakeEngine) fail(pattern string, h func(http.ResponseWriter, *http.Request)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[pattern] = h
}

func (f *fakeEngine) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.faults)
}

// left are the containers that it has.
func (f *fakeEngine) left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name := range f.containers {
		out = append(out, name)
	}
	return out
}

// answering is a fault that answers with a code and an engine's message.
func answering(code int, message string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(map[string]string{"message": message})
	}
}

// cut ends the connection after some bytes.
func cut(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func fakeProvider(t *testing.T, socket string) *Provider {
	t.Helper()
	p, err := New(Options{StateRoot: t.TempDir(), Socket: socket, Image: "there", Guest: func() ([]byte, error) { return []byte("#!"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return p
}

// A start that fails anywhere says what the engine said, and leaves nothing in it or on the host.
func TestFailedStartsLeaveNothing(t *testing.T) {
	for _, c := range []struct {
		name, at string
		fault    func(http.ResponseWriter, *http.Request)
		spec     sandbox.Spec
		want     string
	}{
		{"image", "GET /images/there/json", answering(500, "disk on fire"), sandbox.Spec{}, "look at the image there: the engine says: Error response from daemon: disk on fire"},
		{"no image, no pull", "POST /images/create", answering(404, "no such repository"), sandbox.Spec{Image: "gone"}, "the engine has no image gone and can't pull it"},
		{"pull tells of a fault", "POST /images/create", cut(`{"status":"Pulling"}{"errorDetail":{"message":"toomanyrequests"},"error":"toomanyrequests"}`), sandbox.Spec{Image: "gone"}, "toomanyrequests"},
		{"pull is cut", "POST /images/create", cut(`{"status":"Pulling"}{"stat`), sandbox.Spec{Image: "gone"}, "the engine's answer ended early"},
		{"create", "POST /containers/create", answering(500, "no space left on device"), sandbox.Spec{}, "make the container: the engine says: Error response from daemon: no space left on device"},
		{"create is cut", "POST /containers/create", cut(`{"I`), sandbox.Spec{}, "make the container"},
		{"start", "POST /containers/.*/start", answering(500, "exec format error"), sandbox.Spec{}, "start the container: the engine says: Error response from daemon: exec format error"},
		{"no TUN", "POST /containers/.*/start", answering(500, "error gathering device information while adding custom device \"/dev/net/tun\": no such file or directory"),
			sandbox.Spec{Network: sandbox.NetAllowAll}, "modprobe tun"},
		{"ends at once", "POST /nothing", nil, sandbox.Spec{}, "the container ended at its start with code 3: sandbox: what it said last"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, socket := newFakeEngine(t)
			f.fail(c.at, c.fault)
			p := fakeProvider(t, socket)
			c.spec.Tied = true
			_, err := p.Create(t.Context(), c.spec)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left := f.left(); len(left) > 0 {
				t.Errorf("the engine has %v", left)
			}
			if infos, err := p.List(t.Context()); err != nil || len(infos) > 0 {
				t.Errorf("listed: %v, %v", infos, err)
			}
		})
	}
}

// A container of that name that was there before is not the box's, and stays.
func TestForeignContainerStays(t *testing.T) {
	f, socket := newFakeEngine(t)
	f.fail("POST /containers/create", answering(409, "the name is in use"))
	p := fakeProvider(t, socket)
	if _, err := p.Create(t.Context(), sandbox.Spec{Tied: true}); err == nil || !strings.Contains(err.Error(), "the name is in use") {
		t.Errorf("%v", err)
	}
	if slices.ContainsFunc(f.calls, func(c string) bool { return strings.HasPrefix(c, "DELETE /containers/") }) {
		t.Errorf("the engine was asked to remove it: %v", f.calls)
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("the engine has %v", left)
	}
}

// What an engine refuses to remove stays listed as dead until a sweep can remove it.
func TestSweepFinishesWhatUndoCouldNot(t *testing.T) {
	f, socket := newFakeEngine(t)
	f.fail("POST /containers/.*/start", answering(500, "busy"))
	f.fail("DELETE /containers/.*", answering(500, "busier"))
	p := fakeProvider(t, socket)
	if _, err := p.Create(t.Context(), sandbox.Spec{Name: "left"}); err == nil || !strings.Contains(err.Error(), "busy") || !strings.Contains(err.Error(), "busier") {
		t.Errorf("%v", err)
	}
	infos, err := p.List(t.Context())
	if err != nil || len(infos) != 1 || infos[0].State != sandbox.StateDead || infos[0].Name != "left" || infos[0].Cause != sandbox.CauseOwner {
		t.Fatalf("listed: %+v, %v", infos, err)
	}
	if swept, err := p.Sweep(t.Context()); err == nil || len(swept) > 0 {
		t.Errorf("swept %v, %v while the engine refuses", swept, err)
	}
	f.heal()
	if swept, err := p.Sweep(t.Context()); err != nil || !slices.Equal(swept, []string{infos[0].ID}) {
		t.Errorf("swept %v, %v", swept, err)
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("the engine has %v", left)
	}
}

// Nothing dials an engine before one is needed, and a machine without one is told what to do.
func TestNoEngine(t *testing.T) {
	env := func(values map[string]string) lookup {
		return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	}
	nowhere := filepath.Join(t.TempDir(), "s")
	dead, err := net.Listen("unix", nowhere)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"not there", Options{Socket: "/no/such/socket"}, "the engine at /no/such/socket does not answer"},
		{"nobody listens", Options{Socket: nowhere}, "does not answer; start it"},
		{"elsewhere", Options{Env: env(map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2375"})}, `DOCKER_HOST: "tcp://10.0.0.1:2375" is an engine elsewhere`},
		{"by ssh", Options{Env: env(map[string]string{"DOCKER_HOST": "ssh://me@host"})}, "an engine elsewhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.StateRoot, c.o.Image = filepath.Join(t.TempDir(), "state"), "there"
			p, err := New(c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if infos, err := p.List(t.Context()); err != nil || len(infos) > 0 {
				t.Errorf("list: %v, %v", infos, err)
			}
			if swept, err := p.Sweep(t.Context()); err != nil || len(swept) > 0 {
				t.Errorf("sweep: %v, %v", swept, err)
			}
			_, err = p.Create(t.Context(), sandbox.Spec{})
			if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("create: %v, want %q", err, c.want)
			}
			if _, err := os.Stat(c.o.StateRoot); err == nil {
				t.Error("a refusal made the state root")
			}
		})
	}
}
