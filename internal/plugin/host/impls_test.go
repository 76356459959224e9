package host_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/sdk/plugin"
)

// shelf is a plugin environment with one distribution.
type shelf struct{ d dist.Distribution }

func (s shelf) Distributions() ([]dist.Distribution, []dist.Problem) {
	return []dist.Distribution{s.d}, nil
}

func (shelf) Markers(context.Context) (requirement.Environment, error) {
	return requirement.Newest(), nil
}
func (shelf) Generation() string                     { return "g" }
func (shelf) Python() string                         { return "/nowhere/python" }
func (shelf) Script(string) string                   { return "" }
func (shelf) Lock() *os.File                         { return nil }
func (shelf) Ships(string) (dist.Distribution, bool) { return dist.Distribution{}, false }

// TestConfiguredClassOfADistribution: a class that the configuration names and an entry point names too is the distribution's, however the entry point spells it.
func TestConfiguredClassOfADistribution(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "types.json")
	known := `{"format_version":1,"generation":"g","types":{` +
		`"[\"agent_env.task_steps\",\"\",\"acme:Check\"]":{"group":"agent_env.task_steps","name":"acme_check"},` +
		`"[\"agent_env.task_steps\",\"\",\"acme:Other\"]":{"group":"agent_env.task_steps","name":"other_check"}}}`
	if err := os.WriteFile(cache, []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	p := host.OpenPlugins(t.Context(), shelf{dist.Distribution{
		Name: "agentenv-acme", Version: "1.2.0", Entries: []dist.EntryPoint{{Group: plugin.GroupSteps, Name: "acme_check", Value: "acme:Check [fast]"}},
	}}, host.Setup{
		Options: host.Options{Log: slog.New(slog.DiscardHandler)}, Builtin: func(string, string) bool { return false }, Cache: cache,
		Impls: []dist.Impl{{Group: plugin.GroupSteps, Value: "acme:Check", File: "c.toml"}, {Group: plugin.GroupSteps, Value: "acme:Other", File: "c.toml"}},
	})
	t.Cleanup(func() { _ = p.Close(context.WithoutCancel(t.Context())) })
	for name, kind := range map[string]string{"acme_check": catalog.Distribution, "other_check": catalog.Config} {
		if o, ok := p.Origin(t.Context(), plugin.GroupSteps, name); !ok || o.Kind != kind {
			t.Errorf("%s is of %+v, %v; want %s", name, o, ok, kind)
		}
	}
}
