package world

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// engine is a provider of fake boxes whose images it builds.
type engine struct {
	*fake.Provider
	absent error // Check's answer
	entry  sandbox.Entry

	mu     sync.Mutex
	builds []sandbox.Build
	files  []string // of the last context
}

func (e *engine) Check(context.Context, sandbox.Spec) error { return e.absent }

func (e *engine) Build(_ context.Context, b sandbox.Build) (sandbox.Built, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.builds, e.files = append(e.builds, b), nil
	for t := tar.NewReader(b.Context); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sandbox.Built{}, err
		}
		e.files = append(e.files, h.Name)
		if text, _ := io.ReadAll(t); strings.Contains(string(text), "RUN false") {
			return sandbox.Built{}, errors.New("build the image: RUN false ended with 1")
		}
	}
	return sandbox.Built{ID: "sha256:made"}, nil
}

func (e *engine) Load(context.Context, io.Reader) ([]string, error) {
	return nil, errors.New("not asked for")
}

func (e *engine) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	img := s.Image
	s.Image, s.Publish = "", nil
	info, err := e.Provider.Create(ctx, s)
	if img != "" {
		info.Image, info.Entry = img, &e.entry
	}
	return info, err
}

// web has one file.
type web struct{ zip []byte }

func (web) Check(url string) error {
	if strings.HasPrefix(url, "ftp:") {
		return errors.New("'" + url + "' is no http or https URL")
	}
	return nil
}

func (w web) Get(context.Context, string) (*os.File, int64, error) {
	if w.zip == nil {
		return nil, 0, step.Errorf("DownloadError", "404")
	}
	f, err := os.CreateTemp("", "zip")
	if err == nil {
		os.Remove(f.Name())
		_, err = f.Write(w.zip)
	}
	return f, int64(len(w.zip)), err
}

// bench has a sandbox box, a context, and an engine whose containers run what programs say.
func bench(t *testing.T, programs map[string]fake.Program) (*steptest.Rig, *engine) {
	e := &engine{Provider: fake.New(fake.Options{Programs: programs}), entry: sandbox.Entry{Entrypoint: []string{"/serve"}, Cmd: []string{"all"}, WorkingDir: "/work"}}
	r := steptest.With(t, e)
	r.Must(NewDeploySandbox(r.Deploy), box)
	r.PutUniverse("@local/ctx", steptest.File{Path: "Dockerfile", Text: "FROM scratch\n"}, steptest.File{Path: "src/main", Text: "x", Mode: 0o755}, steptest.File{Path: "secret", Text: "s"},
		steptest.File{Path: ".dockerignore", Text: "secret\n"})
	return r, e
}

func container(more string) string {
	return `{"id": "k", "type": "run_docker_container", "sandbox_name": "box", "docker_context_artifact_id": "@local/ctx"` + more + `}`
}

func TestRunDockerContainer(t *testing.T) {
	var mu sync.Mutex
	var ran [][]string
	began := make(chan struct{}, 1)
	run := func(ctx context.Context, p *fake.Proc) guest.Exit {
		mu.Lock()
		ran = append(ran, p.Argv)
		mu.Unlock()
		began <- struct{}{}
		<-ctx.Done()
		return fake.Code(0)
	}
	r, e := bench(t, map[string]fake.Program{"serve": run, "sh": func(context.Context, *fake.Proc) guest.Exit { return fake.Code(0) }})
	x := NewRunDockerContainer(r.Store, r.Deploy, web{}, nil)
	r.Must(x, container(`, "image_tag": "mine:1", "build_args": {"V": "2"}, "env_vars": {"A": "b"}, "command_override": "one 'two three' \"a\\\"b\""`))
	<-began
	mu.Lock()
	r.Equal("argv", ran, [][]string{{"/serve", "one", "two three", `a"b`}})
	mu.Unlock()
	b := e.builds[0]
	if b.Tag != "mine:1" || b.Dockerfile != "Dockerfile" || !reflect.DeepEqual(b.Args, map[string]string{"V": "2"}) || b.Sources == "" {
		t.Errorf("%+v", b)
	}
	slices.Sort(e.files)
	r.Equal("context", e.files, []string{".dockerignore", "Dockerfile", "src/main"})
	k, _, ok := step.FindContainer(r.View(), "box", "task-container")
	if !ok || k.Box != "container task-container of box" || k.Workdir != "/work" || k.Image != "sha256:made" || k.ID == "" {
		t.Errorf("%+v", k)
	}
	if _, err := r.Deploy.Box(t.Context(), steptest.Run, k.Box); err != nil {
		t.Error(err)
	}
	// A second one of that name is refused, and one of another isn't; the same sources are the same image.
	if err := r.Do(x, container("")); steptest.ErrorType(err) != "NameError" {
		t.Errorf("%s %v", steptest.ErrorType(err), err)
	}
	r.Must(x, `{"id": "k2", "type": "run_docker_container", "sandbox_name": "box", "docker_context_artifact_id": "@local/ctx", "container_name": "other",
		"build_args": {"V": "2"}, "ready_command": "true"}`)
	if e.builds[1].Sources != b.Sources {
		t.Error("the same folder and arguments are other sources")
	}
	r.Must(x, `{"id": "k3", "type": "run_docker_container", "sandbox_name": "box", "docker_context_artifact_id": "@local/ctx", "container_name": "third", "build_args": {"V": "3"}}`)
	if e.builds[2].Sources == b.Sources {
		t.Error("other arguments are the same sources")
	}
	// They go with their sandbox.
	r.Must(NewTeardownSandboxes(r.Deploy, r.Envs, r.Agents), `{"id": "down", "type": "teardown_sandboxes", "sandbox_names": ["box"]}`)
	if live := r.Deploy.Live(steptest.Run); len(live) != 0 {
		t.Errorf("%+v", live)
	}
	if n := len(r.View().List(TornDownPath)); n != 4 {
		t.Errorf("%d were torn down", n)
	}
}

func TestRunDockerContainerFailures(t *testing.T) {
	words := func(_ context.Context, p *fake.Proc) guest.Exit {
		fmt.Fprintln(p.Stderr, "no port")
		return fake.Code(3)
	}
	r, e := bench(t, map[string]fake.Program{"serve": words})
	x := NewRunDockerContainer(r.Store, r.Deploy, web{}, nil)
	r.PutUniverse("@local/bad", steptest.File{Path: "Dockerfile", Text: "FROM scratch\nRUN false\n"})
	r.PutUniverse("@local/none", steptest.File{Path: "x", Text: "x"})
	for text, want := range map[string]string{
		`"sandbox_name": "nosuch", "docker_context_artifact_id": "@local/ctx"`:                                 "NotFoundError: nosuch",
		`"sandbox_name": "box", "docker_context_artifact_id": "@local/nosuch"`:                                 "NotFoundError: nosuch",
		`"sandbox_name": "box", "docker_context_artifact_id": "@local/none"`:                                   "NotFoundError: there is no 'Dockerfile'",
		`"sandbox_name": "box", "docker_context_artifact_id": "@local/ctx", "dockerfile_path": "a/Dockerfile"`: "NotFoundError: there is no 'a/Dockerfile'",
		`"sandbox_name": "box", "docker_context_artifact_id": "@local/bad"`:                                    "BuildError: RUN false ended with 1",
		`"sandbox_name": "box", "docker_context_url": "https://example.com/c.zip"`:                             "DownloadError: 404",
	} {
		err := r.Do(x, `{"id": "f", "type": "run_docker_container", `+text+`}`)
		typ, part, _ := strings.Cut(want, ": ")
		if steptest.ErrorType(err) != typ || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %s %v", text, steptest.ErrorType(err), err)
		}
	}
	e.entry = sandbox.Entry{}
	if err := r.Do(x, container(`, "keep_alive_with_base_command": true`)); steptest.ErrorType(err) != "ValueError" {
		t.Error(err)
	}
	if n := len(r.Deploy.Live(steptest.Run)); n != 1 {
		t.Errorf("%d boxes are left", n)
	}
}

func TestContainerOfADownload(t *testing.T) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{"d/Dockerfile": "FROM scratch\n", "d/x": "1", "y": "2", ".dockerignore": "y\n"} {
		f, err := w.Create(name)
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	r, e := bench(t, nil)
	x := NewRunDockerContainer(r.Store, r.Deploy, web{b.Bytes()}, nil)
	r.Must(x, `{"id": "k", "type": "run_docker_container", "sandbox_name": "box", "docker_context_url": "https://example.com/c.zip", "dockerfile_path": "d/Dockerfile"}`)
	slices.Sort(e.files)
	r.Equal("context", e.files, []string{".dockerignore", "d/", "d/Dockerfile", "d/x"})
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	x = NewRunDockerContainer(r.Store, r.Deploy, web{[]byte("no zip")}, nil)
	err := r.Do(x, `{"id": "k", "type": "run_docker_container", "container_name": "b", "sandbox_name": "box", "docker_context_url": "https://example.com/c.zip"}`)
	if steptest.ErrorType(err) != "ValueError" {
		t.Error(err)
	}
}

// TestContainerPreflight: what can't be had is refused by name before anything is made.
func TestContainerPreflight(t *testing.T) {
	r, e := bench(t, nil)
	x := NewRunDockerContainer(r.Store, r.Deploy, web{}, nil)
	if l := x.Preflight(t.Context(), r.Doc(container("")), step.Plan{}); len(l) != 0 {
		t.Error(l.Err())
	}
	all := container(`, "network": "n", "extra_networks": ["m"], "devices": ["/dev/kvm"], "cap_add": ["X"], "volumes": ["/:/host"], "shm_size": "1g", "privileged": true,
		"command_override": "a 'b"`)
	l := x.Preflight(t.Context(), r.Doc(all), step.Plan{})
	var where []string
	for _, p := range l {
		where = append(where, p.Where)
	}
	r.Equal("fields", where, []string{"network", "extra_networks", "devices", "cap_add", "volumes", "shm_size", "privileged", "command_override"})
	e.absent = fmt.Errorf("no engine answers: %w", sandbox.ErrUnsupported)
	if l = x.Preflight(t.Context(), r.Doc(container("")), step.Plan{}); len(l) != 1 || !strings.Contains(l.Err().Error(), "no engine answers") {
		t.Error(l.Err())
	}
	r2 := steptest.New(t, fake.Options{})
	l = NewRunDockerContainer(r2.Store, r2.Deploy, web{}, nil).Preflight(t.Context(), r.Doc(container("")), step.Plan{})
	if len(l) != 1 || !strings.Contains(l.Err().Error(), "it has no container engine") {
		t.Error(l.Err())
	}
	l = x.Preflight(t.Context(), r.Doc(`{"id": "k", "type": "run_docker_container", "sandbox_name": "box", "docker_context_url": "ftp://x/c.zip"}`), step.Plan{Sandbox: []string{"elsewhere"}})
	if len(l) != 2 || !strings.Contains(l.Err().Error(), "'elsewhere': no such sandbox type here") {
		t.Error(l.Err())
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		``: `null`, `  `: `null`, `a b`: `["a","b"]`, `a'b c'd`: `["ab cd"]`, `"" ''`: `["",""]`, `"a\b\"\$"`: `["a\\b\"$"]`, `a\ b`: `["a b"]`, `'a\'`: `["a\\"]`,
	} {
		got, err := words(text)
		if b, _ := json.Marshal(got); err != nil || string(b) != want {
			t.Errorf("%s: %s %v, want %s", text, b, err, want)
		}
	}
	for _, text := range []string{`'`, `"a`, `a\`} {
		if got, err := words(text); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add(`a 'b c' "d\"e" \f`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := words(text)
		if err != nil {
			return
		}
		var quoted []string
		for _, w := range got {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		again, err := words(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(got, again) {
			t.Errorf("%q: %q, and quoted %q, %v", text, got, again, err)
		}
	})
}
