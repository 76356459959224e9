//go:build integration && linux

package cli_test

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/docker"
)

// engineImage is what the scripts' boxes are made of: a shell.
const engineImage = "agentenv-test-script:1"

// TestEngineScripts runs testdata/engine against the machine's engine.
func TestEngineScripts(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err == nil {
		err = buildEngineImage(t, busybox)
	}
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/engine", RequireExplicitExec: true, RequireUniqueNames: true, Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonAt},
		Setup: func(e *testscript.Env) error {
			e.Setenv("IMAGE", engineImage)
			e.Setenv("DOCKER_HOST", os.Getenv("DOCKER_HOST"))
			return setup(e)
		},
	})
}

func buildEngineImage(t *testing.T, busybox string) error {
	t.Helper()
	p, err := docker.New(docker.Options{StateRoot: t.TempDir(), Env: os.LookupEnv})
	if err != nil {
		return err
	}
	defer p.Close()
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range map[string][]byte{
		"Dockerfile": []byte("FROM scratch\nCOPY busybox /bin/busybox\nRUN [\"/bin/busybox\", \"--install\", \"/bin\"]\n"), "busybox": program,
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = p.Build(t.Context(), sandbox.Build{Context: &b, Tag: engineImage})
	return err
}
