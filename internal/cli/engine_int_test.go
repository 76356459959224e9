//go:build integration && linux

package cli_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/docker"
)

// engineImage is what the scripts' boxes are made of: a shell.
const engineImage = "agentenv-test-script:1"

// serverImage is this program as the echo server.
const serverImage = "agentenv-test-echo:1"

// TestEngineScripts runs testdata/engine against the machine's engine.
func TestEngineScripts(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err == nil {
		err = buildEngineImages(t, busybox)
	}
	var clickDir string
	if err == nil {
		_, err = exec.LookPath("uv") // the environment of Python plugins
	}
	if err == nil {
		var out []byte
		out, err = exec.CommandContext(t.Context(), "python3", "-c", "import click, os; print(os.path.dirname(click.__file__))").Output()
		clickDir = strings.TrimSpace(string(out))
	}
	examples, aerr := filepath.Abs("../../examples")
	err = errors.Join(err, aerr)
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/engine", RequireExplicitExec: true, RequireUniqueNames: true, Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonAt, "plugins": installPlugins, "containers": containers},
		Setup: func(e *testscript.Env) error {
			e.Setenv("IMAGE", engineImage)
			e.Setenv("SERVER", serverImage)
			e.Setenv("EXAMPLES", examples)
			e.Setenv("DOCKER_HOST", os.Getenv("DOCKER_HOST"))
			dir := filepath.Join(e.WorkDir, "wheels")
			for name, value := range map[string]string{"UV_FIND_LINKS": dir, "UV_OFFLINE": "1", "UV_CACHE_DIR": filepath.Join(e.WorkDir, "cache")} {
				e.Setenv(name, value)
			}
			return errors.Join(setup(e), writeDesk(dir, clickDir))
		},
	})
}

// buildImage has the engine make an image of files.
func buildImage(t *testing.T, tag string, files map[string][]byte) error {
	t.Helper()
	p, err := docker.New(docker.Options{StateRoot: t.TempDir(), Env: os.LookupEnv})
	if err != nil {
		return err
	}
	defer p.Close()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
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
	_, err = p.Build(t.Context(), sandbox.Build{Context: &b, Tag: tag})
	return err
}

// buildEngineImages makes the images of the scripts: busybox alone, and this program as the echo server.
func buildEngineImages(t *testing.T, busybox string) error {
	t.Helper()
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return errors.Join(
		buildImage(t, engineImage, map[string][]byte{
			"Dockerfile": []byte("FROM scratch\nCOPY busybox /bin/busybox\nRUN [\"/bin/busybox\", \"--install\", \"/bin\"]\n"), "busybox": shell,
		}),
		buildImage(t, serverImage, map[string][]byte{
			"Dockerfile": []byte("FROM scratch\nCOPY agent-env /agent-env\nUSER 10001\nENV MCP_HOST=0.0.0.0 MCP_PORT=18765\nEXPOSE 18765\nCMD [\"/agent-env\", \"serve\", \"echo-mcp\"]\n"), "agent-env": self,
		}),
	)
}

// writeDesk writes the wheel of a plugin with a command, and one of this machine's click, which it needs.
func writeDesk(dir, clickDir string) error {
	click := wheeltest.Wheel{Name: "click", Version: "8", Files: map[string]string{}}
	err := fs.WalkDir(os.DirFS(clickDir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".py" {
			return err
		}
		b, err := os.ReadFile(filepath.Join(clickDir, name))
		click.Files["click/"+name] = string(b)
		return err
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, w := range []wheeltest.Wheel{click, wheeltest.Desk()} {
		b, err := w.Bytes()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, w.File()), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// containers is `containers none`: the engine has no container of the script's runs.
func containers(ts *testscript.TestScript, neg bool, args []string) {
	c, err := client.New(client.FromEnv)
	ts.Check(err)
	defer c.Close()
	all, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true})
	ts.Check(err)
	for _, box := range all.Items {
		if strings.Contains(box.Labels["dev.agentenv.run"], ts.Getenv("WORK")) {
			ts.Fatalf("a container is left: %s, %s", box.ID, box.Image)
		}
	}
}
