//go:build integration

package pyhost_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/pyhost"
)

// Installers take the wheels without an index, and what they installed loads and serves.
func TestInstallersTakeTheWheels(t *testing.T) {
	base, _ := basePython()
	if base == "" {
		t.Fatal("no python3")
	}
	wheels := t.TempDir()
	made, err := pyhost.Wheels(wheels)
	if err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(t.TempDir(), "venv")
	run(t, base, "-m", "venv", venv)
	python := filepath.Join(venv, "bin", "python")
	run(t, python, "-m", "pip", "install", "-q", "--no-index", "--find-links", wheels, made[1].Name+"=="+made[1].Version)
	run(t, python, "-m", "pip", "check")
	if got := run(t, python, "-m", "pip", "list", "--format=freeze"); !strings.Contains(got, "agentenv-framework==0.9.1375\n") || !strings.Contains(got, "agentenv-framework-protocol==0.1.379\n") {
		t.Errorf("installed:\n%s", got)
	}
	site := strings.TrimSpace(run(t, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
	write(t, filepath.Join(site, "good", "__init__.py"), "")
	write(t, filepath.Join(site, "good", "steps.py"), goodStep)
	e := stepEntry("good", "good.steps:Good")
	got, err := pyhost.Loader{Python: python}.Load(t.Context(), []pyhost.Entry{e})
	if err != nil || len(got) != 1 || !got[0].OK() {
		t.Fatalf("load: %+v, %v", got, err)
	}
	if ops, err := start(t, python, nil).execute(e, map[string]any{"id": "s", "type": "good"}, nil); err != nil || len(ops) != 0 {
		t.Errorf("execute: %v, %v", ops, err)
	}
	if uv, err := exec.LookPath("uv"); err == nil {
		other := filepath.Join(t.TempDir(), "venv")
		run(t, uv, "venv", "-q", "--no-project", "--relocatable", "--python", base, other)
		run(t, uv, "pip", "install", "-q", "--no-index", "--find-links", wheels, "--python", filepath.Join(other, "bin", "python"), made[1].Name)
		run(t, filepath.Join(other, "bin", "python"), "-I", "-c", "import agent_env, agentenv_protocol.client, agentenv_host.server")
	}
}

func run(t *testing.T, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PIP_DISABLE_PIP_VERSION_CHECK=1", "UV_NO_CONFIG=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}
