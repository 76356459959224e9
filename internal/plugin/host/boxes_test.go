package host_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/boxtest"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
	"agentenv.internal/agentenv/sdk/plugin"
)

// fakeAbilities are what sandboxes in memory can.
func fakeAbilities() plugin.SandboxAbilities {
	return plugin.SandboxAbilities{Isolation: sandbox.LevelNone, Networks: []string{"none", "allow_all", "allowlist"}, Can: []string{
		plugin.CanImages, plugin.CanShown, plugin.CanPublish, plugin.CanLimits, plugin.CanLeases, plugin.CanDial, plugin.CanListen, plugin.CanTrees,
	}}
}

// openBoxes starts the test program as the plugin that as names, and answers its provider.
func openBoxes(t testing.TB, as string, can plugin.SandboxAbilities, env ...string) *host.Sandboxes {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := host.New(host.Program{
		Name: "agentenv-boxes 1.0.0", Distribution: &plugin.Named{Name: "agentenv-boxes", Version: "1.0.0"}, Argv: []string{self}, Env: append(env, role+"="+as),
	}, host.Options{Host: plugin.Named{Name: "agent-env", Version: "0"}, Env: os.LookupEnv, Log: slog.New(slog.DiscardHandler), TempDir: t.TempDir()})
	t.Cleanup(func() { _ = p.Close(context.WithoutCancel(t.Context())) })
	e := plugin.Entry{Group: plugin.GroupProviders, Name: "boxes", Value: "boxes-plugin"}
	return host.NewSandboxes(p, plugin.Type{Group: plugin.GroupProviders, Name: "boxes", Sandbox: &can}, e, "agentenv-boxes 1.0.0", filepath.Join(t.TempDir(), "boxes"))
}

// TestSandboxesInMemory is the suite of all providers over the protocol, with sandboxes that are cheap.
func TestSandboxesInMemory(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandbox.Provider { return openBoxes(t, "fakeboxes", fakeAbilities()) }, sandboxtest.Features{Spec: sandbox.Spec{Isolation: sandbox.LevelNone}})
}

func playFakeBoxes() int {
	return boxesPlugin(fakeAbilities(), func() (sandbox.Provider, error) { return fake.New(fake.Options{}), nil })
}

// TestSandboxesRefuse: what a provider's abilities leave out is refused before anything is asked of it, all at once.
func TestSandboxesRefuse(t *testing.T) {
	p := openBoxes(t, "none", plugin.SandboxAbilities{Isolation: sandbox.LevelNone, Networks: []string{"allow_all"}})
	_, err := p.Create(t.Context(), sandbox.Spec{Image: "x", CPU: 1, Publish: []sandbox.Port{{Box: 1}}, Self: true})
	if !errors.Is(err, sandbox.ErrUnsupported) {
		t.Fatalf("create: %v", err)
	}
	for _, part := range []string{
		"agentenv-boxes 1.0.0", "its isolation is none, and namespaces is asked for", "no network policy none (it has allow_all)", "no sandboxes of images", "can't show files",
		"publishes no ports", "limits neither", "don't outlive",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q isn't in: %v", part, err)
		}
	}
	if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 { // nothing was made, so nobody is asked: the program would not even start
		t.Errorf("list: %v, %v", infos, err)
	}
	if err := p.Destroy(t.Context(), "x"); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// boxesPlugin is a plugin whose provider, boxes, is another.
func boxesPlugin(can plugin.SandboxAbilities, open func() (sandbox.Provider, error)) int {
	p := plugin.Plugin{Name: "boxes-plugin", Version: "1.0.0", Sandboxes: []plugin.Sandboxes{boxtest.Provider("boxes", can, open)}}
	return p.Main(context.Background(), os.Args[1:])
}
