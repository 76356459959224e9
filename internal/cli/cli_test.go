package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/sdk/plugin"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	image.Dispatch(context.Background())
	nethost.Dispatch()
	if _, ok := os.LookupEnv(plugin.Variable); ok {
		os.Exit(acme().Main(context.Background(), os.Args[1:]))
	}
	// Most of what a test takes is waiting for other processes. The flag of the command line, which is parsed later, overrules it.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testscript.Main(m, map[string]func(){"agent-env": program})
}

func program() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], term.System(os.LookupEnv), os.LookupEnv))
}

// TestScripts: each script is the specification of one behaviour of the command line. The first word of its name is the topic.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Condition:           condition,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonAt, "python": needsPython, "registry": serveImage, "servers": serveServers, "port": freePort, "engine": serveEngine, "plugins": installPlugins, "gitplugin": gitPlugin, "get": askConsole},
	})
}

// setup gives every script a home and a state root of its own. The root is there already, with the trees that all share: a script that
// says what makes a state root begins with `rm $HOME/state`.
func setup(e *testscript.Env) error {
	home := filepath.Join(e.WorkDir, "home")
	e.Setenv("HOME", home)
	e.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	return errors.Join(os.MkdirAll(home, 0o755), sandboxtest.ShareTrees(stateRoot(home)))
}

// stateRoot is the folder of all state of the program in a home of a test.
func stateRoot(home string) string { return filepath.Join(home, "state", "agentenv") }

// newHome is the home of a test that has a state root of its own.
func newHome(t testing.TB) string {
	t.Helper()
	home := t.TempDir()
	if err := sandboxtest.ShareTrees(stateRoot(home)); err != nil {
		t.Fatal(err)
	}
	return home
}

// condition knows [tun]: sandboxes can have a network here.
func condition(name string) (bool, error) {
	if name != "tun" {
		return false, fmt.Errorf("no condition %q", name)
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return false, nil
	}
	return true, f.Close()
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
		ts.Fatalf("%s ends with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// jsonAt is `json FILE PATH [VALUE]`: the last line of a file (or stdout) is JSON that holds VALUE, spelled as JSON, at a dotted path;
// without VALUE that there is something. A negated command wants nothing there.
func jsonAt(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: json FILE PATH [VALUE]")
	}
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	var v any
	ts.Check(json.Unmarshal([]byte(lines[len(lines)-1]), &v))
	found := true
	for name := range strings.SplitSeq(args[1], ".") {
		switch in := v.(type) {
		case map[string]any:
			v, found = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if found = err == nil && i < len(in); found {
				v = in[i]
			}
		default:
			found = false
		}
		if !found {
			break
		}
	}
	if neg {
		if found {
			ts.Fatalf("%s holds something at %s", args[0], args[1])
		}
		return
	}
	if !found {
		ts.Fatalf("%s holds nothing at %s:\n%s", args[0], args[1], lines[len(lines)-1])
	}
	if len(args) == 3 {
		got, err := json.Marshal(v)
		ts.Check(err)
		if string(got) != args[2] {
			ts.Fatalf("%s holds %s at %s, want %s", args[0], got, args[1], args[2])
		}
	}
}

// freePort is `port NAME`: a variable with a port of loopback that nothing listens on.
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: port NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(errors.Join(err, l.Close()))
	ts.Setenv(args[0], port)
}

// needsPython skips a script where python3 is missing; where $REQUIRE is set that is a failure.
func needsPython(ts *testscript.TestScript, _ bool, _ []string) {
	if _, err := exec.LookPath("python3"); err == nil {
		return
	}
	if os.Getenv("REQUIRE") != "" {
		ts.Fatalf("python3 is missing")
	}
	ts.Check(fmt.Errorf("needs python3"))
}
