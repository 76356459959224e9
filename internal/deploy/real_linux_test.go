package deploy_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ggcr "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// localProvider makes real boxes over a state root of its own.
func localProvider(t testing.TB, images *image.Store) *local.Provider {
	t.Helper()
	state := t.TempDir()
	if err := sandboxtest.ShareTrees(state); err != nil {
		t.Fatal(err)
	}
	p, err := local.New(local.Options{StateRoot: state, Images: images})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context(), sandbox.Spec{}); err != nil {
		t.Skip(err)
	}
	return p
}

const serveWords = `command = ["agent-env", "serve", "words"]`

// tool calls a tool and answers the text of its result.
func tool(t testing.TB, v *deploy.Env, p access.Principal, name, args string) string {
	t.Helper()
	raw, err := v.Gateway.CallTool(t.Context(), p, name, json.RawMessage(args))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var r struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Content) == 0 || r.IsError {
		t.Fatalf("%s: %s %v", name, raw, err)
	}
	return r.Content[0].Text
}

var owner = access.Principal{Owner: true}

// get is what the owner's door answers.
func get(t testing.TB, v *deploy.Env, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	v.Gateway.Door(owner).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

// websiteFiles are a website that runs without images, and with them.
func websiteFiles() []steptest.File {
	return []steptest.File{
		{Path: "process.backend.toml", Text: `command = ["agent-env", "serve", "backend"]`},
		{Path: "process.frontend.toml", Text: "command = [\"agent-env\", \"serve\", \"frontend\"]\nport = 3000"},
		{Path: "Dockerfile.backend", Text: "FROM scratch\nCOPY agent-env /agent-env\nCMD [\"/agent-env\", \"serve\", \"backend\"]\n"},
		{Path: "Dockerfile.frontend", Text: "FROM scratch\nCOPY [\"./agent-env\", \"/agent-env\"]\nENTRYPOINT [\"/agent-env\", \"serve\"]\nCMD [\"frontend\"]\n"},
	}
}

// checkWebsite looks at a deployed website called shop through its gateway.
func checkWebsite(t *testing.T, v *deploy.Env) {
	t.Helper()
	for path, want := range map[string]string{
		"/website/shop":       "<h1>words</h1>",
		"/website/shop/words": "the words of shop", // from the backend, as the frontend finds it by its variable
		"/website/shop/named": "the words of shop", // and by its name
		"/svc/shop/api/words": "the words of shop",
	} {
		if code, body := get(t, v, path); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}

func TestWebsite(t *testing.T) {
	p := localProvider(t, nil)
	r := steptest.With(t, p)
	r.PutWebsite("@local/shop", "shop", websiteFiles()...)
	v := r.DeployEnv("@local/shop", "up")
	if len(v.Servers) != 2 || v.Servers[0].Box.ID == v.Servers[1].Box.ID {
		t.Errorf("%d servers", len(v.Servers))
	}
	checkWebsite(t, v)
	gone(t, r, p)
}

// gone takes the run down and looks for what is left.
func gone(t *testing.T, r *steptest.Rig, ps ...sandbox.Provider) {
	t.Helper()
	if _, err := r.Deploy.Down(t.Context(), steptest.Run); err != nil {
		t.Error(err)
	}
	for _, p := range ps {
		if left, err := p.List(context.WithoutCancel(t.Context())); err != nil || len(left) != 0 {
			t.Errorf("left: %+v %v", left, err)
		}
	}
}

// Two servers and a website behind one gateway share a universe, each its own part.
func TestMulti(t *testing.T) {
	p := localProvider(t, nil)
	r := steptest.With(t, p)
	multi(r)
	v := r.DeployEnv("@local/office", "up")
	if got := strings.Join(v.Names(), " "); got != "mail calendar shop" {
		t.Error(got)
	}
	r.PutEnvironments("@local/day", map[string]string{"mail": `{"words":["m"]}`, "calendar": `{"words":["c","d"]}`, "shop": `{"words":["s"]}`, "fax": `{}`})
	d, err := envstore.ReadData(t.Context(), r.Store, "@local/day", 0)
	if err != nil {
		t.Fatal(err)
	}
	done, err := v.Load(t.Context(), r.Store, d)
	if err != nil || strings.Join(done.Skipped, " ") != "fax" {
		t.Errorf("%+v %v", done, err)
	}
	if got := tool(t, v, owner, "mail_words", "{}") + ", " + tool(t, v, owner, "calendar_words", "{}"); got != "m, c d" {
		t.Error(got)
	}
	checkWebsite(t, v)
	pin, _, err := v.Snapshot(t.Context(), r.Store, deploy.Snapshot{ID: "@local/after"})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := envstore.ReadData(t.Context(), r.Store, pin.ID, pin.Version)
	if err != nil || len(kept.Payloads) != 3 || kept.Payloads[2].Environment != "shop" {
		t.Errorf("%+v %v", kept, err)
	}
	gone(t, r, p)
}

// multi stores an environment of two servers and a website.
func multi(r *steptest.Rig) {
	r.PutEnv("@local/mail", "mail", serveWords)
	r.PutEnv("@local/calendar", "calendar", serveWords)
	r.PutWebsite("@local/shop", "shop", websiteFiles()...)
	pin := func(id, typ string) any { return map[string]any{"id": id, "version": 1, "type": typ} }
	r.PutEnvDoc("@local/office", "multi", map[string]any{
		"mcp_server_envs": []any{pin("@local/mail", "mcp_server"), pin("@local/calendar", "mcp_server")}, "website_envs": []any{pin("@local/shop", "website")},
	})
}

// layout is an OCI layout of an image of the words server, and its reference.
func layout(t testing.TB) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if x, err := elf.NewFile(bytes.NewReader(self)); err != nil || slices.ContainsFunc(x.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("the test program needs libraries: build it with CGO_ENABLED=0", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "agent-env", Mode: 0o755, Size: int64(len(self))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(self); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(b.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: rootOf(t, img),
		Config: v1.Config{Entrypoint: []string{"/agent-env", "serve"}, Cmd: []string{"words"}, Env: []string{"COLOUR=blue", "MCP_HOST=0.0.0.0"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at, err := ggcr.Write(dir, empty.Index)
	if err == nil {
		err = at.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return "oci:" + dir + "@" + digest.String()
}

func rootOf(t testing.TB, img v1.Image) v1.RootFS {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c.RootFS
}

// An image is the root of a local box, and its own command the server.
func TestImageOnLocal(t *testing.T) {
	p := localProvider(t, image.Open(image.Options{Dir: t.TempDir(), Floor: -1}))
	r := steptest.With(t, p)
	reference := layout(t)
	r.PutEnvOf("@local/mail", "mail", reference)
	r.PutEnvironment("@local/seed", "mail", `{"words":["ant","bee"]}`)
	v := r.DeployEnv("@local/mail", "up")
	if vars := tool(t, v, owner, "mail_vars", "{}"); !strings.Contains(vars, "COLOUR=blue\n") || !strings.Contains(vars, "MCP_HOST=127.0.0.1\n") {
		t.Error(vars)
	}
	d, err := envstore.ReadData(t.Context(), r.Store, "@local/seed", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Load(t.Context(), r.Store, d); err != nil {
		t.Fatal(err)
	}
	if got := tool(t, v, owner, "mail_words", "{}"); got != "ant bee" {
		t.Error(got)
	}
	gone(t, r, p)
}

// What a server exports as a file of its box is read as it comes.
func TestExportOfAFile(t *testing.T) {
	r := steptest.With(t, localProvider(t, nil))
	r.PutEnv("@local/filed", "filed", `command = ["agent-env", "serve", "filed"]`)
	v := r.DeployEnv("@local/filed", "up")
	x, err := v.Get(t.Context(), "filed")
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sum := sha256.New()
	n, err := io.Copy(sum, x)
	runtime.ReadMemStats(&after)
	want := sha256.Sum256(bytes.Repeat([]byte("0123456789abcdef"), deploy.FiledSize/16))
	if err := errors.Join(err, x.Close()); err != nil || n != deploy.FiledSize || !bytes.Equal(sum.Sum(nil), want[:]) || x.File != "out.bin" {
		t.Errorf("%s: %d bytes, %v", x.File, n, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > deploy.FiledSize/2 {
		t.Errorf("%d bytes of memory for a file of %d", got, deploy.FiledSize)
	}
	if _, err := v.Gateway.Data(t.Context(), "filed", "data/add", json.RawMessage(`{"parts":[{"kind":"text","text":"x"}]}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(t.Context(), "filed"); err == nil || !strings.Contains(err.Error(), "it is no regular file") {
		t.Errorf("a folder: %v", err)
	}
	gone(t, r)
}
