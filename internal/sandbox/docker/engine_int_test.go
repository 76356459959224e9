//go:build integration && linux

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// testTag names the image that the tests build.
const testTag = "agentenv-test-busybox:2"

// need stops a test for what the machine lacks: a failure where everything is to be here.
func need(t testing.TB, what string, err error) {
	t.Helper()
	if os.Getenv("REQUIRE") != "" {
		t.Fatalf("%s: %v", what, err)
	}
	t.Skipf("%s: %v", what, err)
}

// ownProgram is this test binary, which plays the guest.
var ownProgram = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("/proc/self/exe") })

// connectEngine is a provider of the machine's engine over a state root of its own, and the engine.
func connectEngine(t testing.TB) *Provider {
	t.Helper()
	p, err := New(Options{StateRoot: t.TempDir(), Image: testTag, Guest: ownProgram, Env: os.LookupEnv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	if _, err := p.engine(t.Context()); err != nil {
		need(t, "an engine", err)
	}
	return p
}

// buildOnce builds the image of the tests once in this process.
var buildOnce sync.Mutex

// openEngineProvider is a provider whose default image has a shell.
func openEngineProvider(t testing.TB) *Provider {
	t.Helper()
	p := connectEngine(t)
	buildOnce.Lock()
	defer buildOnce.Unlock()
	e, _ := p.engine(t.Context())
	if _, err := e.look(t.Context(), testTag); err == nil {
		return p
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		need(t, "busybox-static", err)
	}
	b, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	built, err := p.Build(t.Context(), sandbox.Build{Context: buildContext(t, "FROM scratch\nCOPY busybox /bin/busybox\nCOPY passwd /etc/passwd\nRUN [\"/bin/busybox\", \"--install\", \"/bin\"]\nWORKDIR /root\n",
		map[string]string{"busybox": string(b), "passwd": "root:x:0:0:root:/root:/bin/sh\n"}), Tag: testTag})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("built %s", built.ID)
	return p
}

func buildContext(t testing.TB, dockerfile string, files map[string]string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name, text string, mode int64) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	add("Dockerfile", dockerfile, 0o644)
	for name, text := range files {
		add(name, text, 0o755)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// left are the containers and networks of a provider's state root in the engine.
func left(t testing.TB, p *Provider) []string {
	t.Helper()
	e, err := p.engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine := client.Filters{}.Add("label", labelState+"="+p.stateLabel())
	cs, err := e.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: mine})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range cs.Items {
		out = append(out, strings.Join(c.Names, ","))
	}
	ns, err := e.NetworkList(t.Context(), client.NetworkListOptions{Filters: mine})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range ns.Items {
		out = append(out, "network "+n.Name)
	}
	return out
}

func TestSuite(t *testing.T) {
	openEngineProvider(t)
	sandboxtest.Run(t, func(t *testing.T) sandbox.Provider { return openEngineProvider(t) }, sandboxtest.Features{Real: true, Minded: true, Egress: true, Dir: "/root"})
}

// run is the output of a shell's text in a box.
func run(t testing.TB, p *Provider, id, text string) string {
	t.Helper()
	box, err := p.Connect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", text}}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout.String() + r.Stderr.String()
}

func start(t testing.TB, p *Provider, s sandbox.Spec) sandbox.Info {
	t.Helper()
	info, err := p.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Destroy(context.WithoutCancel(t.Context()), info.ID); err != nil {
			t.Error(err)
		}
	})
	return info
}
