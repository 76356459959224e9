//go:build integration

package verdicts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"agentenv.internal/agentenv/test/peer/verdicts"
)

// incapable are refusals of a bundle that is right: it asks for what no executor does. The peer takes it; some of it it then fails to run.
var incapable = regexp.MustCompile(`by this version of agent-env|can't be loaded into (a sandbox|an environment)`)

// TestCommand holds the exit codes of the whole program's dry runs beside the peer's.
func TestCommand(t *testing.T) {
	peer, err := verdicts.Load(goldens)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "agent-env")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../../cmd/agent-env").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	start := verdicts.Program(bin)
	expected := verdicts.Deviations()
	var able, unable atomic.Int64
	t.Run("inputs", func(t *testing.T) {
		for _, in := range verdicts.Inputs() {
			t.Run(in.Name, func(t *testing.T) {
				t.Parallel()
				exit, stderr := command(t, in, start)
				g, d := peer[in.Name], expected[in.Name]
				got := verdictOf(nil)
				switch {
				case exit == 2:
					got = verdicts.Usage
				case exit == 1 && onlyIncapable(stderr):
					unable.Add(1)
				case exit == 1:
					got = verdicts.Refuse
				case exit != 0:
					t.Fatalf("exit %d\n%s", exit, stderr)
				default:
					able.Add(1)
				}
				want := g.Verdict
				switch {
				case d.Why != "":
					want = d.Verdict
				case want == verdicts.Crash:
					want = verdicts.Refuse
				}
				if got != want && !(exit == 1 && want == verdicts.Refuse) {
					t.Errorf("%s, want %s (exit %d)\n%s", got, want, exit, stderr)
				}
			})
		}
	})
	t.Logf("%d bundles can be run here, %d more are right but ask for what nothing executes", able.Load(), unable.Load())
	if able.Load() < 100 {
		t.Error("hardly any bundle can be run: the comparison says little")
	}
}

// command runs the program on an input and holds what is true of every answer.
func command(t *testing.T, in verdicts.Input, start verdicts.Start) (exit int, stderr string) {
	t.Helper()
	home := homeFolder(t)
	exit, stderr, err := in.Run(t.Context(), start, home, []string{"bundle", "register"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(stderr, "Error: ") > 1 || exit == 1 && !strings.Contains(stderr, "Error: ") {
		t.Errorf("exit %d\n%s", exit, stderr)
	}
	for _, line := range verdicts.Problems(stderr) {
		checkLines(t, []string{line}, home)
	}
	if _, err := os.Stat(filepath.Join(home, ".state")); in.Before == nil && err == nil {
		t.Error("the dry run wrote something into its state folder")
	}
	return exit, stderr
}

// onlyIncapable tells whether nothing is wrong with the bundle itself.
func onlyIncapable(stderr string) bool {
	return !slices.ContainsFunc(verdicts.Problems(stderr), func(line string) bool { return !incapable.MatchString(line) })
}
