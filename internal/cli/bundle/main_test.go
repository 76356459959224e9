//go:build linux

package bundle_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/term"
)

// childVar makes the test binary play a process that another test kills or shuts in: its value is the part to play.
const childVar = "BUNDLE_TEST_CHILD"

func TestMain(m *testing.M) {
	pid1.Dispatch()
	nethost.Dispatch()
	if part := os.Getenv(childVar); part != "" {
		os.Exit(parts()[part](context.Background(), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// program is one command line, as main runs it.
func program(ctx context.Context, args []string) int {
	return cli.Main(ctx, args, term.System(os.LookupEnv), os.LookupEnv)
}

// home is a home folder with a bundle b in it: small and large files, and a task that loads them.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b/artifacts/f/a.txt":         "small",
		"b/artifacts/u/large":         strings.Repeat("0123456789abcdef", 16<<10), // a file of the store
		"b/artifacts/u/sub/large":     strings.Repeat("fedcba9876543210", 16<<10),
		"b/artifacts/u/sub/run.sh":    "#!/bin/sh\n",
		"b/artifacts/e/artifact.toml": "type = 'environment'\nenvironment_name = 'x'\nfile = 'f'\n",
		"b/artifacts/unused/file":     "no task needs it",
		"b/tasks/t.json":              `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"},{"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"u"},{"id":"f"},{"id":"e"}]}]`,
		"b/evals/all.toml":            "tasks = ['t']\n",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// command is a process that plays a part in a home folder, behind the words of wrap.
func command(t *testing.T, home string, wrap []string, part string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat(wrap, []string{exe}, args)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), childVar+"="+part, "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "XDG_CONFIG_HOME="+home, "GOMAXPROCS=1", "GOTRACEBACK=single")
	return cmd
}

// does runs a command line that must end with a code, and answers all that it says.
func does(t *testing.T, home string, code int, args ...string) string {
	t.Helper()
	out, err := command(t, home, nil, "program", args...).CombinedOutput()
	got := 0
	if ee, ok := err.(*exec.ExitError); ok {
		got = ee.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != code {
		t.Fatalf("%s ends with %d: %s", strings.Join(args, " "), got, out)
	}
	return string(out)
}

// below lists what lies in a folder, with the names of what lies in that.
func below(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != dir {
			name, _ := filepath.Rel(dir, path)
			if d.IsDir() {
				name += "/"
			}
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func show(dir string) {
	entries, err := os.ReadDir(dir)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	fmt.Println("holds", names, err)
}
