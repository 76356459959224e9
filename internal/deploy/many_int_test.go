//go:build integration && linux

package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envdb"
	"agentenv.internal/agentenv/internal/envdb/envdbtest"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/docker"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// Fifty deployments that begin together all serve, and all go; of an engine, which starts a few containers a second, twenty.
func TestFiftyAtOnce(t *testing.T) {
	for name, p := range map[string]sandbox.Provider{"local": localProvider(t, nil), "docker": engineProvider(t)} {
		t.Run(name, func(t *testing.T) {
			r := steptest.WithAll(t, deploy.EnvOptions{}, steptest.Named{Name: name, Provider: p})
			r.PutEnv("@local/mail", "mail", serveWords, steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
			stored, err := envstore.Read(t.Context(), r.Store, "@local/mail", 0)
			if err != nil {
				t.Fatal(err)
			}
			n := 50
			if name == "docker" {
				n = 20
			}
			took := make([]time.Duration, n)
			errs := make([]error, n)
			began := time.Now()
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					v, err := r.Envs.Deploy(t.Context(), deploy.EnvRequest{Run: steptest.Run, Step: fmt.Sprint("s", i), Attempt: 1, Env: stored})
					if errs[i] = err; err == nil {
						_, errs[i] = v.Gateway.CallTool(t.Context(), owner, "mail_words", []byte("{}"))
					}
					took[i] = time.Since(began)
				})
			}
			wg.Wait()
			all := time.Since(began)
			for i, err := range errs {
				if err != nil {
					t.Errorf("deployment %d: %v", i, err)
				}
			}
			slices.Sort(took)
			began = time.Now()
			gone(t, r, p)
			t.Logf("%d deployments: first tool calls after %s to %s (median %s); down in %s", n, took[0].Round(time.Millisecond), all.Round(time.Millisecond),
				took[n/2].Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		})
	}
}

// Deployments one after another, each with its first tool call: what a task waits for. On an engine the image is built before.
func TestFirstCall(t *testing.T) {
	for name, p := range map[string]sandbox.Provider{"local": localProvider(t, nil), "docker": engineProvider(t)} {
		t.Run(name, func(t *testing.T) {
			r := steptest.WithAll(t, deploy.EnvOptions{}, steptest.Named{Name: name, Provider: p})
			r.PutEnv("@local/mail", "mail", serveWords, steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
			stored, err := envstore.Read(t.Context(), r.Store, "@local/mail", 0)
			if err != nil {
				t.Fatal(err)
			}
			var took []time.Duration
			for i := range 21 {
				run, began := fmt.Sprint("run", i), time.Now()
				v, err := r.Envs.Deploy(t.Context(), deploy.EnvRequest{Run: run, Step: "up", Attempt: 1, Env: stored})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := v.Gateway.CallTool(t.Context(), owner, "mail_words", []byte("{}")); err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(began))
				if _, err := r.Deploy.Down(t.Context(), run); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(took[1:]) // the first makes what the others share
			t.Logf("first tool call after %s, then p50 %s, longest %s", took[0].Round(time.Millisecond), took[11].Round(time.Millisecond), took[20].Round(time.Millisecond))
			gone(t, r, p)
		})
	}
}

const (
	stateVar    = "AGENTENV_TEST_DEPLOY_STATE"
	postgresVar = "AGENTENV_TEST_DEPLOY_POSTGRES"
)

// providersAt makes boxes over one state root.
func providersAt(t *testing.T, state string) (sandbox.Provider, sandbox.Provider) {
	t.Helper()
	l, err := local.New(local.Options{StateRoot: state})
	if err != nil {
		t.Fatal(err)
	}
	d, err := docker.New(docker.Options{StateRoot: state, Guest: func() ([]byte, error) { return os.ReadFile("/proc/self/exe") }, Env: os.LookupEnv})
	if err != nil {
		t.Fatal(err)
	}
	return l, d
}

// TestDeployUntilKilled is the process that TestKilled kills.
func TestDeployUntilKilled(t *testing.T) {
	state := os.Getenv(stateVar)
	if state == "" {
		t.Skip("for TestKilled alone")
	}
	server, err := envdb.Parse(os.Getenv(postgresVar))
	if err != nil {
		t.Fatal(err)
	}
	l, d := providersAt(t, state)
	r := steptest.WithAll(t, deploy.EnvOptions{Postgres: server}, steptest.Named{Name: "local", Provider: l}, steptest.Named{Name: "docker", Provider: d})
	r.PutEnv("@local/killed", "killed", serveWords)
	r.PutEnv("@local/built", "built", "", steptest.File{Path: "Dockerfile", Text: wordsDockerfile})
	r.PutWebsite("@local/shop", "shop", websiteFiles()...)
	for i := range 5 {
		r.DeployEnv("@local/killed", fmt.Sprint("s", i))
	}
	r.DeployEnv("@local/built", "built")
	r.DeployEnv("@local/shop", "shop")
	fmt.Println("all stand")
	<-t.Context().Done()
}

// A process that is killed leaves no server, no box, no container and no schema: the first two at once, the rest at the next sweep.
func TestKilled(t *testing.T) {
	engineProvider(t).Close()
	state := t.TempDir()
	if err := sandboxtest.ShareTrees(state); err != nil {
		t.Fatal(err)
	}
	url, _ := envdbtest.Start(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestDeployUntilKilled$", "-test.v")
	cmd.Env = append(os.Environ(), stateVar+"="+state, postgresVar+"="+url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "all stand") {
		said.WriteString(lines.Text() + "\n")
	}
	if n := servers(t); !strings.Contains(lines.Text(), "all stand") || n < 8 {
		t.Errorf("%d servers\n%s", n, said.String())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	began := time.Now()
	for servers(t) > 0 && time.Since(began) < 5*time.Second {
		time.Sleep(5 * time.Millisecond)
	}
	if n := servers(t); n > 0 {
		t.Errorf("%d servers live 5 s after the kill", n)
	}
	t.Logf("no server lives %s after the kill", time.Since(began).Round(time.Millisecond))
	l, d := providersAt(t, state)
	began = time.Now()
	for _, p := range []sandbox.Provider{l, d} {
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if left, err := p.List(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("%+v %v", left, err)
		}
	}
	server, err := envdb.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	next, err := server.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	t.Logf("swept in %s", time.Since(began).Round(time.Millisecond))
	if left := envdbtest.Left(t, url); left != "" {
		t.Error(left)
	}
	if names := string(dockerCLI(t, nil, "ps", "-a", "--filter", "label=dev.agentenv.id", "--format", "{{.Names}}")); names != "" {
		t.Error(names)
	}
	for _, p := range []sandbox.Provider{l, d} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// servers counts the living servers of environments that TestDeployUntilKilled deploys: they have its names among their variables.
func servers(t *testing.T) int {
	t.Helper()
	n := 0
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for _, env := range []string{"killed", "built", "shop"} {
			if slices.ContainsFunc(bytes.Split(b, []byte{0}), func(v []byte) bool { return string(v) == "ENVIRONMENT_NAME="+env }) {
				n++
			}
		}
	}
	return n
}
