//go:build integration && linux

package deploy_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/docker"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// engineProvider makes boxes of the machine's engine over a state root of its own.
func engineProvider(t testing.TB) *docker.Provider {
	t.Helper()
	p, err := docker.New(docker.Options{StateRoot: t.TempDir(), Guest: func() ([]byte, error) { return os.ReadFile("/proc/self/exe") }, Env: os.LookupEnv})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context(), sandbox.Spec{Image: "any"}); err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return p
}

const wordsDockerfile = "FROM scratch\nCOPY agent-env /agent-env\nUSER 10001\nENV MCP_HOST=0.0.0.0 COLOUR=blue\nWORKDIR /work\nCMD [\"/agent-env\", \"serve\", \"words\"]\n"

func onEngine(t *testing.T) (*steptest.Rig, *docker.Provider) {
	p := engineProvider(t)
	return steptest.WithAll(t, deploy.EnvOptions{}, steptest.Named{Name: "docker", Provider: p}), p
}

func load(t *testing.T, r *steptest.Rig, v *deploy.Env, id string) {
	t.Helper()
	d, err := envstore.ReadData(t.Context(), r.Store, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Load(t.Context(), r.Store, d); err != nil {
		t.Fatal(err)
	}
}

// A folder's Dockerfile is built, the program put where it is copied from, and its server serves as another user.
func TestDockerfile(t *testing.T) {
	r, p := onEngine(t)
	r.PutEnv("@local/mail", "mail", "", steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
	r.PutEnvironment("@local/seed", "mail", `{"words":["ant","bee"]}`)
	for i, id := range []string{"first", "again"} {
		began := time.Now()
		v := r.DeployEnv("@local/mail", id)
		ready := time.Since(began)
		vars := tool(t, v, owner, "mail_vars", "{}")
		t.Logf("deployment %d: ready after %s, first tool call after %s", i, ready.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if !strings.Contains(vars, "COLOUR=blue\n") || !strings.Contains(vars, "uid=10001") || !strings.Contains(vars, "MCP_HOST=127.0.0.1\n") {
			t.Error(vars)
		}
		load(t, r, v, "@local/seed")
		if got := tool(t, v, owner, "mail_words", "{}"); got != "ant bee" {
			t.Error(got)
		}
	}
	gone(t, r, p)
}

func TestWebsiteOfImages(t *testing.T) {
	r, p := onEngine(t)
	r.PutWebsite("@local/shop", "shop", websiteFiles()...)
	v := r.DeployEnv("@local/shop", "up")
	checkWebsite(t, v)
	gone(t, r, p)
}

// A build that fails tells the end of its output, and a server that dies what it wrote; nothing is left of either.
func TestImagesThatFail(t *testing.T) {
	r, p := onEngine(t)
	for name, c := range map[string]struct{ dockerfile, want string }{
		"build": {"FROM scratch\nCOPY nosuch /nosuch\n", "nosuch"},
		"dies":  {strings.ReplaceAll(wordsDockerfile, `"words"`, `"nosuch"`), "the last that it wrote:\nno server \"nosuch\""},
		"mute":  {strings.ReplaceAll(wordsDockerfile, `"words"`, `"mute"`), "waiting for the database"},
		"none":  {"FROM scratch\nCOPY agent-env /agent-env\n", "neither ENTRYPOINT nor CMD"},
	} {
		r.PutEnv("@local/"+name, name, "", steptest.File{Path: "Dockerfile", Text: c.dockerfile})
		stored, err := envstore.Read(t.Context(), r.Store, "@local/"+name, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Envs.Deploy(t.Context(), deploy.EnvRequest{Run: steptest.Run, Step: name, Attempt: 1, Env: stored, Wait: 2 * time.Second})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if left, lerr := p.List(t.Context()); lerr != nil || len(left) != 0 {
			t.Errorf("%s: left %+v %v", name, left, lerr)
		}
	}
}

// In a chain each provider does what it can: what has a process file runs without the engine.
func TestChainOfProviders(t *testing.T) {
	l, d := localProvider(t, nil), engineProvider(t)
	r := steptest.WithAll(t, deploy.EnvOptions{}, steptest.Named{Name: "local", Provider: l}, steptest.Named{Name: "docker", Provider: d})
	r.PutEnv("@local/mail", "mail", serveWords, steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
	r.PutEnv("@local/calendar", "calendar", "", steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
	r.PutWebsite("@local/shop", "shop", websiteFiles()...)
	pin := func(id, typ string) any { return map[string]any{"id": id, "version": 1, "type": typ} }
	r.PutEnvDoc("@local/office", "multi", map[string]any{
		"mcp_server_envs": []any{pin("@local/mail", "mcp_server"), pin("@local/calendar", "mcp_server")}, "website_envs": []any{pin("@local/shop", "website")},
	})
	v := r.DeployEnv("@local/office", "up")
	var got []string
	for _, s := range v.Servers {
		got = append(got, s.Name+" "+s.Box.Provider)
	}
	if text := strings.Join(got, ", "); text != "mail local, calendar docker, shop local, shop local" {
		t.Error(text)
	}
	r.PutEnvironments("@local/day", map[string]string{"mail": `{"words":["m"]}`, "calendar": `{"words":["c"]}`, "shop": `{"words":["s"]}`})
	load(t, r, v, "@local/day")
	if got := tool(t, v, owner, "mail_words", "{}") + tool(t, v, owner, "calendar_words", "{}"); got != "mc" {
		t.Error(got)
	}
	gone(t, r, l, d)
}

// An agent's Dockerfile is built, and the agent works in a container of the engine as another user.
func TestAgentOnEngine(t *testing.T) {
	r, p := onEngine(t)
	r.PutEnv("@local/mail", "mail", "", steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
	r.PutAgent("@local/talker", "", steptest.File{Path: "Dockerfile", Text: "FROM scratch\nCOPY agent-env /agent-env\nUSER 10001\nWORKDIR /work\nCMD [\"/agent-env\", \"serve\", \"talker\"]\n"})
	works(t, r)
	gone(t, r, p)
}

// dockerCLI asks the engine, for what the product never does.
func dockerCLI(t testing.TB, stdin io.Reader, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "docker", args...)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("docker %s: %s", strings.Join(args, " "), exit.Stderr)
	}
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return out
}

// saved is a tarball of an image of the words server, and its reference with the digest.
var saved = struct {
	sync.Once
	tar []byte
	id  string
}{}

func savedImage(t testing.TB) (path, reference string) {
	t.Helper()
	saved.Do(func() {
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, text := range map[string]string{"Dockerfile": wordsDockerfile, "agent-env": string(self)} {
			if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}), second(w.Write([]byte(text)))); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		saved.id = strings.TrimSpace(string(dockerCLI(t, &b, "build", "-q", "-")))
		saved.tar = dockerCLI(t, nil, "save", saved.id)
	})
	path = filepath.Join(t.TempDir(), "words.tar")
	if err := os.WriteFile(path, saved.tar, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, "docker-archive:" + path + "@" + saved.id
}

func second[A any](_ A, err error) error { return err }

// The same tarball runs on both providers, by its digest.
func TestTarball(t *testing.T) {
	_, reference := savedImage(t)
	for _, c := range []struct {
		name string
		p    sandbox.Provider
	}{
		{"local", localProvider(t, image.Open(image.Options{Dir: t.TempDir(), Floor: -1}))},
		{"docker", engineProvider(t)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := steptest.WithAll(t, deploy.EnvOptions{}, steptest.Named{Name: c.name, Provider: c.p})
			r.PutEnvOf("@local/mail", "mail", reference)
			r.PutEnvironment("@local/seed", "mail", `{"words":["ant","bee"]}`)
			for i, id := range []string{"first", "again"} {
				began := time.Now()
				v := r.DeployEnv("@local/mail", id)
				vars := tool(t, v, owner, "mail_vars", "{}")
				t.Logf("deployment %d: first tool call after %s", i, time.Since(began).Round(time.Millisecond))
				if !strings.Contains(vars, "COLOUR=blue\n") || !strings.Contains(vars, "uid=10001") {
					t.Error(vars)
				}
				load(t, r, v, "@local/seed")
				if got := tool(t, v, owner, "mail_words", "{}"); got != "ant bee" {
					t.Error(got)
				}
			}
			gone(t, r, c.p)
		})
	}
}

// An image that the engine has is found by its name, from either provider.
func TestEnginesImage(t *testing.T) {
	_, _ = savedImage(t)
	dockerCLI(t, nil, "tag", saved.id, "agentenv-test-words:1")
	t.Cleanup(func() { dockerCLI(t, nil, "rmi", "agentenv-test-words:1") })
	for name, p := range map[string]sandbox.Provider{"local": localProvider(t, image.Open(image.Options{Dir: t.TempDir(), Floor: -1})), "docker": engineProvider(t)} {
		r := steptest.WithAll(t, deploy.EnvOptions{}, steptest.Named{Name: name, Provider: p})
		r.PutEnvDoc("@local/mail", "mcp_server", map[string]any{
			"environment_name": "mail", "env_provider_type": "gateway", "docker_image_artifact": map[string]any{"id": "@local/i", "version": 1, "type": "docker_image"},
		})
		r.PutImageNamed("@local/i", "docker-daemon:agentenv-test-words:1")
		v := r.DeployEnv("@local/mail", "up")
		if got := tool(t, v, owner, "mail_words", "{}"); got != "" {
			t.Error(got)
		}
		gone(t, r, p)
	}
}
