package dist_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

// loader answers by value.
type loader map[string]dist.Loaded

func (l loader) Load(_ context.Context, claims []dist.Claim) ([]dist.Loaded, error) {
	out := make([]dist.Loaded, len(claims))
	for i, c := range claims {
		if r, ok := l[c.Value]; ok {
			out[i] = r
		} else {
			out[i] = dist.Loaded{Status: dist.Active, Type: c.Name}
		}
	}
	return out, nil
}

func flat(r dist.Report) []string {
	var all []dist.Contribution
	for _, p := range r.Plugins {
		all = append(all, p.Contributions...)
	}
	return spell(all)
}

// TestReport: what becomes of contributions with and without loading, under a configuration that names classes, and under a broken one.
func TestReport(t *testing.T) {
	e := open(t, wheeltest.Acme("1.2.0"), wheeltest.Broken(), wheeltest.Bundled(), wheeltest.NotPlugin(), wheeltest.Shipper())
	failed := dist.Loaded{Status: dist.Failed, Code: dist.CodeLoadFailed, Reason: "failed to load: X"}
	l := loader{"agentenv_e2e_broken:BrokenCheck": failed, "agentenv_e2e_shipper:ShippedCheck": {Status: dist.Active, Type: "acme_check"}, "m:Second": {Status: dist.Active, Type: "acme_check"}, "m:Bad": failed, "m:Core": {Status: dist.Active, Type: "deploy_env"}}
	impl := func(class string) dist.Impl {
		return dist.Impl{Group: dist.GroupSteps, Value: class, File: "/c.toml", Table: "task_steps"}
	}
	const (
		acme, broken, step, folder = "agentenv-e2e-acme task_steps acme_check: ", "agentenv-e2e-broken task_steps broken_check: ", "agentenv-e2e-bundled task_steps bundled_check: ", "agentenv-e2e-bundled bundles bundled: "
	)
	blocked := []string{acme + "blocked config-invalid", broken + "failed load-failed", step + "blocked config-invalid", folder + "active"}
	for name, c := range map[string]struct {
		o    dist.ReportOptions
		want []string
	}{
		"not loaded":         {dist.ReportOptions{}, []string{acme + "unloaded not-loaded", broken + "unloaded not-loaded", step + "unloaded not-loaded", folder + "active"}},
		"loaded":             {dist.ReportOptions{Loader: l}, []string{acme + "active", broken + "failed load-failed", step + "active", folder + "active"}},
		"its own class":      {dist.ReportOptions{Loader: l, Impls: []dist.Impl{impl("agentenv_e2e_acme:AcmeCheck")}}, []string{acme + "active", broken + "failed load-failed", step + "active", folder + "active"}},
		"replaced":           {dist.ReportOptions{Loader: l, Impls: []dist.Impl{impl("agentenv_e2e_shipper:ShippedCheck")}}, []string{acme + "replaced replaced-by-config", broken + "failed load-failed", step + "active", folder + "active"}},
		"two classes":        {dist.ReportOptions{Loader: l, Impls: []dist.Impl{impl("agentenv_e2e_shipper:ShippedCheck"), impl("m:Second")}}, blocked},
		"a class that fails": {dist.ReportOptions{Loader: l, Impls: []dist.Impl{impl("m:Bad")}}, blocked},
		"a built-in's name":  {dist.ReportOptions{Loader: l, Impls: []dist.Impl{impl("m:Core")}, Builtin: func(_, n string) bool { return n == "deploy_env" }}, blocked},
		"no configuration": {
			dist.ReportOptions{Loader: l, Config: &dist.Trouble{Code: dist.CodeConfigBad, Reason: "r"}},
			[]string{acme + "blocked config-unreadable", broken + "blocked config-unreadable", step + "blocked config-unreadable", folder + "active"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := e.Report(t.Context(), c.o)
			if err != nil {
				t.Fatal(err)
			}
			if got := flat(r); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if hindered := strings.Contains(c.want[0], "blocked"); hindered != (r.Groups[dist.GroupSteps].Code != "") {
				t.Errorf("group errors %v", r.Groups)
			}
		})
	}
	r, err := e.Report(t.Context(), dist.ReportOptions{Loader: l, Impls: []dist.Impl{impl("agentenv_e2e_shipper:ShippedCheck")}})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := r.Find("Agentenv.E2E_Acme")
	if by := p.Contributions[0].ReplacedBy; by == nil || *by != (dist.Replacement{File: "/c.toml", Table: "task_steps", Impl: "agentenv_e2e_shipper:ShippedCheck"}) {
		t.Errorf("replaced by %+v", by)
	}
}

// TestReportOfBrokenMetadata: entry points that can't be read hide no other plugin.
func TestReportOfBrokenMetadata(t *testing.T) {
	bad := wheeltest.Acme("2.0.0")
	bad.Name = "agentenv-bad"
	bad.Files["@/entry_points.txt"] = "no section = here\n"
	e := open(t, wheeltest.Acme("1.2.0"), bad, wheel("agentenv-nobundle", "1", "agent_env.bundles gone pkg.sub", "agent_env.bundles odd ../x"))
	r, err := e.Report(t.Context(), dist.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"agentenv-e2e-acme task_steps acme_check: unloaded not-loaded", "agentenv-nobundle bundles gone: failed invalid-plugin", "agentenv-nobundle bundles odd: failed invalid-plugin"}
	if got := flat(r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r.Discovery["agentenv-bad"].Code != dist.CodeEntryPoints || len(r.Plugins) != 3 {
		t.Errorf("discovery %v of %d plugins", r.Discovery, len(r.Plugins))
	}
}

// TestOpen: no environment is an empty one, a held one stays, and one that is damaged is told.
func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins")
	o := dist.Options{Dir: dir, Own: own()}
	e, err := dist.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if all, bad := e.Distributions(); len(all) != 2 || len(bad) != 0 || e.Python() != "" || e.Generation() != "" || e.Lock() != nil {
		t.Errorf("an empty environment has %v, %v", all, bad)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("opening made the folder")
	}
	wheeltest.Environment(t, dir, wheeltest.Acme("1.2.0"))
	if e, err = dist.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if d, ok := e.Find("agentenv-e2e-acme"); !ok || d.Version != "1.2.0" {
		t.Errorf("found %v, %v", d, ok)
	}
	wheeltest.Environment(t, dir, wheeltest.Acme("1.3.0"))
	if d, _ := e.Find("agentenv-e2e-acme"); d.Version != "1.2.0" {
		t.Error("an open environment changed")
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{"{": "names no generation", `{"format_version":2,"generation":"x"}`: "upgrade agent-env", `{"format_version":1,"generation":"gone"}`: "is missing"} {
		write(t, filepath.Join(dir, "current.json"), text)
		if e, err := dist.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s opens as %v, %v", text, e, err)
		}
	}
}

// TestRefused: what never reaches an installer.
func TestRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins")
	m := dist.NewManager(dist.Options{Dir: dir, Own: own()}, nil, nil)
	for spec, want := range map[string]string{
		"agentenv-framework==0.9.1": "is agent-env itself", "agent-env": "is agent-env itself", "Agentenv.Framework.Protocol": "is agent-env itself",
		"agentenv-protocol @ https://x.invalid/a": "is agent-env itself", "https://x.invalid/agentenv_framework-1-py3-none-any.whl#sha256=0": "is agent-env itself",
		"./agentenv-framework-1.0.tar.gz": "is agent-env itself", "--index-url=https://x.invalid": "is an option", " -e .": "is an option", "": "an empty text",
		"evil\x1b[2K": "can't be printed", "a\u202eb": "can't be printed", "a b": "isn't a requirement", "./no_such-1-py3-none-any.whl": "there is no file",
	} {
		_, err := m.Apply(t.Context(), dist.Change{Add: []string{"agentenv-fine", spec}}, dist.Talk{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q is refused with %v, want %q", spec, err, want)
		}
	}
	for name, want := range map[string]string{"agentenv-framework": "is agent-env itself", "nope": "is not installed", "-x": "is no name"} {
		if _, err := m.Apply(t.Context(), dist.Change{Remove: []string{name}}, dist.Talk{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("removing %q is refused with %v, want %q", name, err, want)
		}
	}
	wheeltest.Environment(t, dir, wheeltest.NotPlugin())
	if _, err := m.Apply(t.Context(), dist.Change{Remove: []string{"not-plugin", "nope"}}, dist.Talk{}); err == nil || !strings.Contains(err.Error(), "declares no agent_env entry point") || !strings.Contains(err.Error(), "nope is not installed") {
		t.Errorf("removing what is no plugin: %v", err)
	}
	if _, err := m.Apply(t.Context(), dist.Change{Add: []string{"a"}, IndexURL: "--x"}, dist.Talk{}); err == nil || !strings.Contains(err.Error(), "neither a URL nor a folder") {
		t.Errorf("an option as an index: %v", err)
	}
}

// TestReportOfOptions: whose a flag of the command line is, and what an older name of an artifact type needs.
func TestReportOfOptions(t *testing.T) {
	const options, artifacts = dist.GroupOptions, dist.GroupArtifacts
	one := wheeltest.Wheel{Name: "one", Version: "1", Entries: map[string]map[string]string{
		options:   {"a": "one:a", "again": "one:same_as_a", "core": "one:core", "shared": "one:shared"},
		artifacts: {"fresh": "one:Fresh", "stale": "one:Fresh", "lost": "one:Lost"},
	}}
	two := wheeltest.Wheel{Name: "two", Version: "2", Entries: map[string]map[string]string{options: {"shared": "two:shared", "ok": "two:ok"}}}
	option := func(object uint64, flags ...string) dist.Loaded {
		return dist.Loaded{Status: dist.Active, Option: &dist.Option{Flags: flags, Object: object}}
	}
	l := loader{
		"one:a": option(1, "--alpha", "-a"), "one:same_as_a": option(1, "--alpha", "-a"), "one:core": option(2, "--verbose", "--own"),
		"one:shared": option(3, "--shared"), "two:shared": option(4, "--shared", "-s"), "two:ok": option(5, "--ok"),
		"one:Fresh": {Status: dist.Active, Alias: "fresh"}, "one:Lost": {Status: dist.Active, Alias: "found"},
	}
	builtin := func(group, name string) bool { return group == options && name == "--verbose" }
	r, err := open(t, one, two).Report(t.Context(), dist.ReportOptions{Loader: l, Builtin: builtin})
	if err != nil {
		t.Fatal(err)
	}
	got := flat(r)
	want := []string{
		"one artifacts fresh: active", "one artifacts lost: failed alias-refused", "one artifacts stale: active",
		"one cli_root_options a: active", "one cli_root_options again: active already-attached", "one cli_root_options core: skipped builtin-name",
		"one cli_root_options shared: conflict name-conflict", "two cli_root_options ok: active", "two cli_root_options shared: conflict name-conflict",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
