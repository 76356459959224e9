//go:build integration

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

// TestRequires: bundles that use and require plugins, with real installs from a folder of wheels that is made here: nothing reaches a network.
func TestRequires(t *testing.T) {
	for _, tool := range []string{"python3", "uv"} {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if os.Getenv("REQUIRE") != "" {
			t.Fatalf("%s is missing", tool)
		}
		t.Skipf("%s is missing", tool)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/requires", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			if err := setup(e); err != nil {
				return err
			}
			dir := filepath.Join(e.WorkDir, "wheels")
			for name, value := range map[string]string{"UV_FIND_LINKS": dir, "UV_OFFLINE": "1", "UV_CACHE_DIR": filepath.Join(e.WorkDir, "cache"), "TERM": "dumb"} {
				e.Setenv(name, value)
			}
			return writeWheels(dir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonAt, "tty": onPty, "racing": racing, "killed": killed, "killedAt": killedAt, "gitplugin": gitPlugin},
		Condition: func(cond string) (bool, error) {
			if cond == "loop" {
				return exec.CommandContext(t.Context(), "losetup", "-f").Run() == nil, nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
	})
}

func writeWheels(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	local := wheeltest.Acme("1.2.0+acme.1")
	local.Name = "agentenv-e2e-local"
	for _, w := range []wheeltest.Wheel{
		wheeltest.Acme("1.2.0"), wheeltest.Broken(), wheeltest.Clash(), wheeltest.BadType(), wheeltest.Shipper(), wheeltest.Bundled(), wheeltest.NotPlugin(), wheeltest.Room(), local,
	} {
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

// onPty is `tty CODE REPLY command…`: the command, whose streams are a terminal, is answered as answer does and must end with the code, -15 for SIGTERM. A
// reply of "-" wants no question. What it said is in the file tty.
func onPty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[2] != "agent-env" {
		ts.Fatalf("usage: tty CODE REPLY agent-env…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var env []string
	for _, name := range []string{"PATH", "HOME", "XDG_STATE_HOME", "UV_FIND_LINKS", "UV_OFFLINE", "UV_CACHE_DIR", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "AGENT_ENV_RERUN", "AGENT_ENV_CONFIG"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	got, err := answer(context.Background(), ts.MkAbs("."), env, args[1], args[3:]...)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("tty"), []byte(got.out), 0o600))
	code := got.code
	if got.signal != 0 {
		code = -int(got.signal)
	}
	asked := 1
	if args[1] == "-" {
		asked = 0
	}
	if code != want || got.asked != asked {
		ts.Fatalf("ends with %d, asks %d times, says\n%s", code, got.asked, got.out)
	}
}

// racing is `racing N command…`: so many at once must all end with 0. What each said on stderr is in the files race.1 to race.N.
func racing(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: racing N command…")
	}
	var all []*exec.Cmd
	var said []*strings.Builder
	for range n {
		cmd, out := processOf(ts, args[1:]...), &strings.Builder{}
		cmd.Stderr = out
		ts.Check(cmd.Start())
		all, said = append(all, cmd), append(said, out)
	}
	for i, cmd := range all {
		err = errors.Join(err, cmd.Wait())
		ts.Check(os.WriteFile(ts.MkAbs(fmt.Sprintf("race.%d", i+1)), []byte(said[i].String()), 0o600))
	}
	ts.Check(err)
}

func processOf(ts *testscript.TestScript, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = os.Environ()
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "UV_FIND_LINKS", "UV_OFFLINE", "UV_CACHE_DIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	return cmd
}

// killed is `killed N BUNDLE command…`: so many runs of a command on a bundle without bundle.toml are killed at moments that are spread over the time it takes.
// Each leaves a whole file or none, nothing beside it, and both must occur.
func killed(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 3 {
		ts.Fatalf("usage: killed N BUNDLE command…")
	}
	dir := ts.MkAbs(args[1])
	manifest := filepath.Join(dir, "bundle.toml")
	const whole = "requires = [\"agentenv-e2e-acme>=1.2.0\"]\n"
	ts.Check(os.Remove(manifest))
	cmd, began := processOf(ts, args[2:]...), time.Now()
	ts.Check(cmd.Run())
	took := time.Since(began)
	left := map[string]int{}
	for i := 0; i < n || (left["whole"] == 0 || left["none"] == 0) && i < 6*n; i++ {
		if i > 0 && i%n == 0 {
			took *= 2 // the machine has got slower since it was measured
		}
		if err := os.Remove(manifest); err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		cmd := processOf(ts, args[2:]...)
		ts.Check(cmd.Start())
		time.Sleep(took * time.Duration(i%n) / time.Duration(n))
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		b, err := os.ReadFile(manifest)
		switch {
		case errors.Is(err, os.ErrNotExist):
			left["none"]++
		case string(b) == whole:
			left["whole"]++
		default:
			ts.Fatalf("killed after %d of %d: %q, %v", i, n, b, err)
		}
		entries, err := os.ReadDir(dir)
		ts.Check(err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				ts.Fatalf("%s stays", e.Name())
			}
		}
	}
	ts.Logf("of %d runs that were killed over %v: %d left the file, %d left none, none left a part", n, took, left["whole"], left["none"])
	if left["whole"] == 0 || left["none"] == 0 {
		ts.Fatalf("only one outcome: %v", left)
	}
}

// killedAt is `killedAt CALLS BUNDLE command…`: the command, on a bundle without bundle.toml, is killed at the first call of these that a thread makes, then at the
// second, and so on until it lives. Each leaves a whole file or none, nothing beside it, and both must occur.
func killedAt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: killedAt CALLS BUNDLE command…")
	}
	dir := ts.MkAbs(args[1])
	manifest := filepath.Join(dir, "bundle.toml")
	const whole, most = "requires = [\"agentenv-e2e-acme>=1.2.0\"]\n", 300
	left := map[string]int{}
	k := 1
	for ; k <= most; k++ {
		if err := os.Remove(manifest); err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		wrap := []string{"strace", "-f", "-qq", "-o", os.DevNull, "-e", "signal=none", "-e", "trace=" + args[0], "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", args[0], k)}
		ended := processOf(ts, append(wrap, args[2:]...)...).Run()
		switch b, err := os.ReadFile(manifest); {
		case errors.Is(err, os.ErrNotExist):
			left["none"]++
		case string(b) == whole:
			left["whole"]++
		default:
			ts.Fatalf("killed at call %d: %q, %v", k, b, err)
		}
		entries, err := os.ReadDir(dir)
		ts.Check(err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				ts.Fatalf("killed at call %d: %s stays", k, e.Name())
			}
		}
		if ended == nil {
			break
		}
	}
	ts.Logf("killed at calls 1 to %d of %s: %d left the file, %d left none, none left a part", k-1, args[0], left["whole"], left["none"])
	if left["whole"] == 0 || left["none"] == 0 || k > most {
		ts.Fatalf("it was killed %d times: %v", k-1, left)
	}
}
