//go:build integration && linux

package budget_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
	"agentenv.internal/agentenv/internal/treestore"
)

// TestBudgetPlugins: with 50 plugins installed, `run hello`, which uses none, looks at no file of theirs and takes no longer than without, the best of twenty each,
// in turns, and of twenty more where it took longer: the machine has other work. The kernel counts CPU by ticks, so that it must be longer by both clocks to
// count.
func TestBudgetPlugins(t *testing.T) {
	const limit = 10 * time.Millisecond
	bin := installed(t, builtBinary(t))
	bare, full := t.TempDir(), t.TempDir()
	var wheels []wheeltest.Wheel
	for i := range 50 {
		w := wheeltest.Acme("1.2.0")
		w.Name = fmt.Sprintf("agentenv-many-%02d", i)
		w.Entries = map[string]map[string]string{wheeltest.Steps: {fmt.Sprintf("many_%02d", i): "agentenv_e2e_acme:AcmeCheck"}}
		wheels = append(wheels, w)
	}
	plugins := filepath.Join(full, "state", "agentenv", "plugins")
	store := treestore.Open(filepath.Join(plugins, "generations"), treestore.Options{Volatile: true})
	if err := wheeltest.Generation(t.Context(), store, "test", wheels...); err != nil {
		t.Fatal(err)
	}
	if err := dist.Index(store.PathOf("test")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(plugins, "current.json"), []byte(`{"format_version":1,"generation":"test"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	hello := func(home string, wrap ...string) (wall, cpu time.Duration) {
		t.Helper()
		argv := append(append([]string{}, wrap...), bin, "run", "hello")
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = home, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + filepath.Join(home, "state")}
		begin := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return time.Since(begin), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	list := exec.CommandContext(t.Context(), bin, "plugin", "list", "--no-load")
	list.Dir, list.Env = full, []string{"HOME=" + full, "XDG_STATE_HOME=" + filepath.Join(full, "state")}
	if out, err := list.CombinedOutput(); err != nil || strings.Count(string(out), "agentenv-many-") < 50 {
		t.Fatalf("the plugins aren't installed: %v: %s", err, out)
	}
	hello(bare) // the first makes what is kept
	hello(full)
	least := map[string][2]time.Duration{bare: {time.Hour, time.Hour}, full: {time.Hour, time.Hour}}
	more := func() [2]time.Duration {
		return [2]time.Duration{least[full][0] - least[bare][0], least[full][1] - least[bare][1]}
	}
	for i := range 60 {
		if i >= 20 && min(more()[0], more()[1]) <= limit {
			break
		}
		for _, home := range []string{bare, full} {
			wall, cpu := hello(home)
			least[home] = [2]time.Duration{min(wall, least[home][0]), min(cpu, least[home][1])}
		}
	}
	ms := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	t.Logf("run hello: %v and %v of CPU with 50 plugins, %v and %v without", ms(least[full][0]), ms(least[full][1]), ms(least[bare][0]), ms(least[bare][1]))
	if m := more(); min(m[0], m[1]) > limit {
		t.Errorf("50 plugins add %v, %v of CPU", m[0], m[1])
	}
	trace := filepath.Join(t.TempDir(), "trace")
	hello(full, "strace", "-f", "-qq", "-o", trace, "-e", "trace=%file")
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), plugins) {
		t.Fatal("nothing was traced")
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "/site-packages/") { // the generation's index tells which bundles and types there are
			t.Errorf("it looks at %s", line)
		}
	}
}
