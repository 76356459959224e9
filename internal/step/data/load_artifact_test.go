package data

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(fields string) string {
	return `{"id": "load", "type": "load_artifact", "sandbox_name": "box", ` + fields + `}`
}

func rig(t *testing.T) *steptest.Rig {
	r := steptest.New(t, fake.Options{})
	r.PutFile("@local/b/one", steptest.File{Path: "hello.txt", Text: "hello\n"})
	r.PutUniverse("@local/b/many", steptest.File{Path: "a/b.sh", Text: "#!/bin/sh\n", Mode: 0o755}, steptest.File{Path: "c d.txt", Text: "", Mode: 0o600})
	r.PutUniverse("@local/b/none")
	r.PutOther("@local/b/skill", "skill")
	r.Box()
	return r
}

func TestLoadArtifact(t *testing.T) {
	r := rig(t)
	e := NewLoadArtifact(r.Store, r.Deploy, nil, nil, NewDownloads(false))
	r.Must(e, load(`"artifact_id": "@local/b/one", "destination_path": "/app/greeting/"`))
	r.Must(e, load(`"artifacts": [{"id": "@local/b/many", "version": 1}, {"id": "@local/b/none"}]`))
	files := r.Fake.Machines()[0].Files
	for name, want := range map[string]string{
		"/app/greeting/hello.txt": "-rw-r--r-- hello\n",
		"/loaded/a/b.sh":          "-rwxr-xr-x #!/bin/sh\n",
		"/loaded/c d.txt":         "-rw------- ",
	} {
		info, err := files.Stat(name)
		if err != nil {
			t.Error(err)
			continue
		}
		b, _ := files.ReadFile(name)
		if got := info.Mode().String() + " " + string(b); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	r.Equal("record", r.View().List(LoadedPath), json.RawMessage(`[`+
		`{"id":"@local/b/one","version":1,"artifact_type":"file","env_id":null,"agent_name":null,"sandbox_name":"box","container_name":null,`+
		`"destination_path":"/app/greeting","files":["hello.txt"],"file_count":1},`+
		`{"id":"@local/b/many","version":1,"artifact_type":"file_artifact_universe","env_id":null,"agent_name":null,"sandbox_name":"box","container_name":null,`+
		`"destination_path":"/loaded","files":["a/b.sh","c d.txt"],"file_count":2},`+
		`{"id":"@local/b/none","version":1,"artifact_type":"file_artifact_universe","env_id":null,"agent_name":null,"sandbox_name":"box","container_name":null,`+
		`"destination_path":"/loaded","files":[],"file_count":0}]`))
}

func TestLoadArtifactFailures(t *testing.T) {
	r := rig(t)
	r.PutFile("@local/b/clash", steptest.File{Path: "a", Text: "x"})
	r.PutFile("@local/b/same", steptest.File{Path: "hello.txt", Text: "x"})
	e := NewLoadArtifact(r.Store, r.Deploy, nil, nil, NewDownloads(false))
	for text, want := range map[string]string{
		`"artifact_id": "@local/b/nosuch"`:                                       "NotFoundError: artifact @local/b/nosuch: not in the store",
		`"artifact_id": "@local/b/one", "artifact_version": 7`:                   "NotFoundError: artifact @local/b/one version 7: not in the store",
		`"artifact_id": "@local/b/skill"`:                                        "TypeError: '@local/b/skill' is of type skill, which can't be loaded into a sandbox",
		`"artifacts": [{"id": "@local/b/one"}, {"id": "@local/b/same"}]`:         "NameClash: 'hello.txt' comes from both '@local/b/one' and '@local/b/same'",
		`"artifacts": [{"id": "@local/b/many"}, {"id": "@local/b/clash"}]`:       "NameClash: 'a' is a file of '@local/b/clash' and a folder of '@local/b/many'",
		`"artifacts": [{"id": "@local/b/clash"}, {"id": "@local/b/many"}]`:       "NameClash: 'a' is a file of '@local/b/clash' and a folder of '@local/b/many'",
		`"artifact_id": "@local/b/one", "destination_path": "/etc/passwd/x/../"`: "none",
	} {
		err := r.Do(e, load(text))
		got := steptest.ErrorType(err)
		if err != nil {
			got += ": " + err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
	err := r.Do(e, strings.Replace(load(`"artifact_id": "@local/b/one"`), `"box"`, `"nosuch"`, 1))
	if got := steptest.ErrorType(err); got != "SandboxError" {
		t.Errorf("no sandbox: %s %v", got, err)
	}
	r.Fake.Machines()[0].Kill()
	if err := r.Do(e, load(`"artifact_id": "@local/b/one"`)); !step.IsInfra(err) {
		t.Errorf("dead sandbox: %v", err)
	}
}

// TestPluginsArtifactIsItsFiles: of an artifact of a plugin's type, what the plugin had stored is copied; one whose document has no files holds nothing to copy.
func TestPluginsArtifactIsItsFiles(t *testing.T) {
	r := rig(t)
	r.PutOther("@local/b/bare", "acme_note")
	e := NewLoadArtifact(r.Store, r.Deploy, nil, nil, NewDownloads(false))
	if err := r.Do(e, load(`"artifact_id": "@local/b/bare"`)); steptest.ErrorType(err) != "TypeError" {
		t.Errorf("without files: %v", err)
	}
	if l := e.Preflight(t.Context(), r.Doc(load(`"artifact_id": "@local/b/bare"`)), step.Plan{Type: func(context.Context, ref.Kind, string, int) string { return "acme_note" }}); l.HasErrors() {
		t.Errorf("preflight: %v", l)
	}
}

// damaged is a store whose objects have other bytes than their digest says.
type damaged struct{ Store }

func (d damaged) Open(ctx context.Context, dg ref.Digest) (io.ReadSeekCloser, int64, error) {
	r, n, err := d.Store.Open(ctx, dg)
	return flipped{r}, n, err
}

// flipped changes the first byte of every read.
type flipped struct{ io.ReadSeekCloser }

func (f flipped) Read(p []byte) (int, error) {
	n, err := f.ReadSeekCloser.Read(p)
	if n > 0 {
		p[0] ^= 1
	}
	return n, err
}

func TestDamagedBytesAreTheStoresFault(t *testing.T) {
	r := rig(t)
	err := r.Do(NewLoadArtifact(damaged{r.Store}, r.Deploy, nil, nil, NewDownloads(false)), load(`"artifact_id": "@local/b/one"`))
	if got := steptest.ErrorType(err); got != "infra: StoreError" || !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%s %v", got, err)
	}
}

func TestLoadArtifactPreflight(t *testing.T) {
	r := rig(t)
	e := NewLoadArtifact(r.Store, r.Deploy, nil, nil, NewDownloads(false))
	for text, want := range map[string]string{
		load(`"artifact_id": "@local/b/one"`):                                                    "",
		load(`"artifact_id": "@local/b/unknown"`):                                                "",
		load(`"artifacts": [{"id": "@local/b/one"}, {"id": "@local/b/skill"}]`):                  "artifacts[1].id: '@local/b/skill' is of type skill, which can't be loaded into a sandbox; load an artifact of type file or file_artifact_universe",
		load(`"artifact_id": "@local/b/one", "urls": [], "collected_artifacts_step_id": null`):   "",
		load(`"urls": ["http://x/y"]`):                                                           "",
		`{"id": "l", "type": "load_artifact", "env_id": "e", "artifact_id": "@local/b/one"}`:     "artifact_id: '@local/b/one' is of type file, which can't be loaded into an environment; load an artifact of type environment or environment_universe",
		`{"id": "l", "type": "load_artifact", "agent_name": "a", "artifact_id": "@local/b/one"}`: "",
	} {
		if got := steptest.Texts(e.Preflight(t.Context(), r.Doc(text), step.Plan{Type: r.Types})); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

var discard = slog.New(slog.DiscardHandler)
