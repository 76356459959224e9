package dist_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
	"agentenv.internal/agentenv/internal/requirement"
)

// wheel is a distribution with entry points "group name value".
func wheel(name, version string, entries ...string) wheeltest.Wheel {
	w := wheeltest.Wheel{Name: name, Version: version, Entries: map[string]map[string]string{}}
	for _, e := range entries {
		f := strings.Fields(e)
		if w.Entries[f[0]] == nil {
			w.Entries[f[0]] = map[string]string{}
		}
		w.Entries[f[0]][f[1]] = f[2]
	}
	return w
}

func own() []dist.Own {
	return []dist.Own{{Name: "agentenv-framework", Version: "0.9.1375"}, {Name: "agentenv-framework-protocol", Version: "0.1.379"}}
}

// open makes an environment of these distributions.
func open(t testing.TB, wheels ...wheeltest.Wheel) *dist.Environment {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plugins")
	wheeltest.Environment(t, dir, wheels...)
	e, err := dist.Open(t.Context(), dist.Options{Dir: dir, Own: own()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func spell(all []dist.Contribution) []string {
	var out []string
	for _, c := range all {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s %s", c.Package, strings.TrimPrefix(c.Group, "agent_env."), c.Name, c.Status, c.Code)))
	}
	return out
}

// TestResolve: who gets a name, before anything is loaded.
func TestResolve(t *testing.T) {
	newer := wheel("agentenv-newer", "1", "agent_env.task_steps newer_step m:C", "agent_env.task_steps twice m:C")
	newer.Requires = []string{"agentenv-framework>=99", "not a requirement", "agentenv-framework>=98; extra == 'x'"}
	fine := wheel("agentenv-fine", "1", "agent_env.task_steps fine_step m:C")
	fine.Requires = []string{"agentenv_framework>=0.9", "agentenv-framework-protocol>=0.1.275,<0.2", "agentenv-framework>=99; sys_platform == 'win32'"}
	e := open(t, newer, fine,
		wheel("agentenv-a", "1", "agent_env.task_steps twice a:C", "agent_env.bundles shared a", "agent_env.cli_plugins tool a:c", "agent_env.cli_root_options label a:o"),
		wheel("Agentenv_B", "2", "agent_env.task_steps twice b:C", "agent_env.bundles shared b", "agent_env.cli_plugins tool b:c", "agent_env.cli_root_options label b:o"),
		wheel("agentenv-core", "1", "agent_env.task_steps deploy_env c:C", "agent_env.bundles hello c", "agent_env.cli_plugins run c:c", "console_scripts x y:z"),
	)
	builtin := func(group, name string) bool { return slices.Contains([]string{"deploy_env", "hello", "run"}, name) }
	all, bad := e.Distributions()
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	found := dist.Resolve(all, builtin, requirement.Newest())
	want := []string{
		"agentenv-a task_steps twice: conflict name-conflict",
		"agentenv-a cli_plugins tool:",
		"agentenv-a cli_root_options label:",
		"agentenv-a bundles shared: active qualified-only",
		"Agentenv_B task_steps twice: conflict name-conflict",
		"Agentenv_B cli_plugins tool: skipped name-conflict",
		"Agentenv_B cli_root_options label:",
		"Agentenv_B bundles shared: active qualified-only",
		"agentenv-core task_steps deploy_env: skipped builtin-name",
		"agentenv-core cli_plugins run: skipped builtin-name",
		"agentenv-core bundles hello: active qualified-only",
		"agentenv-fine task_steps fine_step:",
		"agentenv-newer task_steps newer_step: failed incompatible-core",
		"agentenv-newer task_steps twice: failed incompatible-core", // and so no part of the conflict
	}
	if got := spell(found); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range found {
		switch {
		case c.Name == "newer_step" && c.Reason != "needs agentenv-framework>=99 (installed: 0.9.1375)":
			t.Errorf("reason %q", c.Reason)
		case c.Name == "twice" && c.Package == "agentenv-a":
			if len(c.Conflicts) != 1 || c.Conflicts[0].Package != "Agentenv_B" || !strings.HasPrefix(c.Reason, "also registered by 'twice' from Agentenv_B 2 (b:C)") {
				t.Errorf("conflict %+v", c)
			}
		}
	}
	if d, ok := e.Find("agentenv-framework"); !ok || d.Version != "0.9.1375" {
		t.Errorf("the program itself is %v, %v", d, ok)
	}
}

// TestExecutables: an executable stands for the types that agentenv_plugin.json says it serves.
func TestExecutables(t *testing.T) {
	w := wheel("agentenv-go", "1", "agent_env.exec main go-plugin")
	w.Files = map[string]string{"@/agentenv_plugin.json": `{"format_version":1,"types":[{"group":"agent_env.task_steps","name":"go_step"},{"group":"agent_env.envs","name":"go_env"}]}`}
	w.Scripts = map[string][]byte{"go-plugin": []byte("#!/bin/sh\n")}
	bare := wheel("agentenv-bare", "1", "agent_env.exec main bare-plugin")
	two := wheel("agentenv-two", "1", "agent_env.exec a one", "agent_env.exec b two")
	e := open(t, w, bare, two)
	all, bad := e.Distributions()
	got := spell(dist.Resolve(all, nil, requirement.Newest()))
	want := []string{"agentenv-bare exec main:", "agentenv-go envs go_env:", "agentenv-go task_steps go_step:", "agentenv-two exec a:", "agentenv-two exec b:"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(bad) != 2 || bad[0].Code != dist.CodeManifest || bad[0].Package != "agentenv-bare" || bad[1].Package != "agentenv-two" {
		t.Errorf("problems %v", bad)
	}
	if p := e.Script("go-plugin"); filepath.Base(p) != "go-plugin" || e.Script("../go-plugin") != "" || e.Script("none") != "" {
		t.Errorf("script %q", p)
	}
}

// TestShips finds the package that a class of the configuration comes with.
func TestShips(t *testing.T) {
	e := open(t, wheeltest.Shipper(), wheeltest.Bundled())
	for class, want := range map[string]string{
		"agentenv_e2e_shipper:ShippedCheck": "agentenv-e2e-shipper", "agentenv_e2e_bundled:BundledCheck": "agentenv-e2e-bundled",
		"agentenv_e2e_bundled.bundles:X": "agentenv-e2e-bundled", "agentenv_e2e_ship:X": "", "nowhere:X": "", "": "",
	} {
		if d, ok := e.Ships(class); d.Name != want || ok != (want != "") {
			t.Errorf("%s comes with %q, want %q", class, d.Name, want)
		}
	}
}
