package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/internal/treestore"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	testscript.Main(m, map[string]func(){"agent-env": program})
}

func program() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], term.System(os.LookupEnv), os.LookupEnv))
}

// TestScripts: reports about distributions that no installer put there, so that no Python is needed.
func TestScripts(t *testing.T) { scripts(t, "testdata/plain", nil) }

func scripts(t *testing.T, dir string, more func(*testscript.Env) error) {
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			e.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
			if err := os.MkdirAll(home, 0o755); err != nil || more == nil {
				return err
			}
			return more(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "wheels": wheels, "installed": installed, "same": same},
	})
}

// named is a wheel by the word that scripts use.
func named(ts *testscript.TestScript, name string) wheeltest.Wheel {
	name, version, _ := strings.Cut(name, "=")
	all := map[string]func() wheeltest.Wheel{
		"acme": func() wheeltest.Wheel {
			if version == "" {
				version = "1.2.0"
			}
			return wheeltest.Acme(version)
		},
		"broken": wheeltest.Broken, "clash": wheeltest.Clash, "badtype": wheeltest.BadType, "shipper": wheeltest.Shipper, "bundled": wheeltest.Bundled,
		"not-plugin": wheeltest.NotPlugin, "incompat": wheeltest.Incompat, "cli": wheeltest.CLI, "options": wheeltest.RootOptions,
		"click": func() wheeltest.Wheel {
			w, ok := wheeltest.Click(context.Background())
			if !ok {
				ts.Fatalf("python3 has no click")
			}
			return w
		},
		"slow": func() wheeltest.Wheel { return wheeltest.Slow(30) },
		"unreadable": func() wheeltest.Wheel {
			w := wheeltest.Acme("1.0")
			w.Name = "agentenv-unreadable"
			w.Files["@/entry_points.txt"] = "no section = here\n"
			return w
		},
	}
	if all[name] == nil {
		ts.Fatalf("no wheel %q", name)
	}
	return all[name]()
}

// wheels is `wheels DIR NAME…`: a folder of packages.
func wheels(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	for _, name := range args[1:] {
		w := named(ts, name)
		b, err := w.Bytes()
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(dir, w.File()), b, 0o644))
	}
}

// installed is `installed NAME…`: a plugin environment that holds these, without an interpreter.
func installed(ts *testscript.TestScript, _ bool, args []string) {
	dir := filepath.Join(ts.Getenv("XDG_STATE_HOME"), "agentenv", "plugins")
	var all []wheeltest.Wheel
	for _, name := range args {
		all = append(all, named(ts, name))
	}
	ts.Check(wheeltest.Generation(context.Background(), treestore.Open(filepath.Join(dir, "generations"), treestore.Options{Volatile: true}), "test", all...))
	ts.Check(os.WriteFile(filepath.Join(dir, "current.json"), []byte(`{"format_version":1,"generation":"test"}`), 0o600))
}

// same is `same FILE`: the plugin environment is, byte for byte, what it was when the file was written by the first such line.
func same(ts *testscript.TestScript, neg bool, args []string) {
	now := fingerprint(ts.Getenv("XDG_STATE_HOME"))
	path := ts.MkAbs(args[0])
	before, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		ts.Check(os.WriteFile(path, []byte(now), 0o644))
		return
	}
	ts.Check(err)
	if (string(before) == now) == neg {
		ts.Fatalf("before:\n%s\nnow:\n%s", before, now)
	}
}

// exits is `exits N command…`: the command must end with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N command…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s ended with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// fingerprint is which generation is current, and every file of it with its mode, time and digest.
func fingerprint(state string) string {
	dir := filepath.Join(state, "agentenv", "plugins")
	b, err := os.ReadFile(filepath.Join(dir, "current.json"))
	if err != nil {
		return "none\n"
	}
	var c struct{ Generation string }
	if err := json.Unmarshal(b, &c); err != nil {
		return err.Error()
	}
	out := below(treestore.Open(filepath.Join(dir, "generations"), treestore.Options{}).PathOf(c.Generation))
	slices.Sort(out)
	return string(b) + strings.Join(out, "\n") + "\n"
}
