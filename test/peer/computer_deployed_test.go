//go:build soak

package peer_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestComputersDeployedSoak: the twenty computers of a bundle, deployed at once on local sandboxes, each with a gateway and a process that holds it; each is
// looked at, and nothing of them is left when they are stopped.
func TestComputersDeployedSoak(t *testing.T) {
	const crowd = 20
	for _, p := range []string{"Xvfb", "openbox"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatal(err)
		}
	}
	home, bin := t.TempDir(), builtBinary(t)
	var ids, steps []string
	for i := range crowd {
		name := fmt.Sprintf("pc%02d", i+1)
		dir := filepath.Join(home, "b/envs", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "env.toml"), []byte("type = \"computer\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, "@local/~/b/"+name)
		steps = append(steps, fmt.Sprintf(`{"id": "up-%s", "type": "deploy_env", "env_id": %q}`, name, name))
	}
	if err := os.Mkdir(filepath.Join(home, "b/tasks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "b/tasks/all.json"), []byte("["+strings.Join(steps, ",")+"]"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, home, bin, "bundle", "register", "./b")
	quiet := load(t)

	deployed := true
	t.Cleanup(func() {
		for _, id := range ids {
			if deployed { // the test failed
				_ = asUser(exec.Command(bin, "env", "stop", id), home).Run()
			}
		}
	})
	first, last := atOnce(t, home, ids, func(id string) []string { return []string{bin, "env", "deploy", id, "--sandbox", "local"} })
	busy := load(t)
	t.Logf("%d computers: the first ready after %s, the last after %s; load of the machine %s before, %s then", crowd, first, last, quiet, busy)
	for range 2 { // the first ones wake what has been given back to the machine since the start
		first, last = atOnce(t, home, ids, func(id string) []string { return []string{bin, "env", "call", id, "computer_screenshot"} })
		t.Logf("a screenshot of each at once: the first after %s, the last after %s", first, last)
	}

	holders := owners(t, home, bin)
	if len(holders) != crowd {
		t.Fatalf("%d deployments stand", len(holders))
	}
	held, all := 0, 0
	names := map[int]string{}
	for _, pid := range holders {
		names[pid] = "agent-env"
		held += memory(t, pid, "smaps_rollup", "Pss")
		for id, name := range family(t, pid) {
			names[id] = name
		}
	}
	by := map[string]int{}
	for pid, name := range names {
		kb := memory(t, pid, "smaps_rollup", "Pss")
		all += kb
		by[name] += kb
	}
	t.Logf("%d processes; %.1f MB each computer (shared pages counted once), %.1f MB of it the process that holds it; kB by command: %v", len(names), float64(all)/1024/crowd, float64(held)/1024/crowd, by)

	_, last = atOnce(t, home, ids, func(id string) []string { return []string{bin, "env", "stop", id} })
	deployed = false
	t.Logf("all stopped after %s; load %s", last, load(t))
	began := time.Now()
	run(t, home, bin, "run", "./b", "--quiet")
	t.Logf("one run that deploys all of them and takes them down: %s", time.Since(began).Round(time.Millisecond))
	for pid, name := range names {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.TrimSpace(string(b)) == name {
			t.Errorf("left running: %d %s", pid, name)
		}
	}
	if out := strings.Join(strings.Fields(run(t, home, bin, "sandbox", "list", "--json")), ""); !strings.Contains(out, `"sandboxes":[]`) {
		t.Errorf("sandboxes are left: %s", out)
	}
	nothingAt(t, home)
}

// atOnce runs a command for each id, all at one time, and answers when the first and the last had ended well.
func atOnce(t *testing.T, home string, ids []string, argv func(id string) []string) (first, last time.Duration) {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, id := range ids {
		all.Go(func() {
			args := argv(id)
			out, err := asUser(exec.CommandContext(t.Context(), args[0], args[1:]...), home).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %v\n%s", args[1:], err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			last = time.Since(began).Round(time.Millisecond)
			if first == 0 {
				first = last
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return first, last
}

// asUser has a command use a home as run does.
func asUser(cmd *exec.Cmd, home string) *exec.Cmd {
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
	return cmd
}

// owners are the processes that hold the deployments of a home.
func owners(t *testing.T, home, bin string) (pids []int) {
	t.Helper()
	var list struct {
		Deployments []struct {
			PID int `json:"pid"`
		} `json:"deployments"`
	}
	if err := json.Unmarshal([]byte(run(t, home, bin, "env", "list", "--deployed", "--limit", "100", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	for _, d := range list.Deployments {
		pids = append(pids, d.PID)
	}
	return pids
}

// nothingAt: nothing is mounted in a folder, and no socket stands there.
func nothingAt(t *testing.T, home string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), home) {
		t.Errorf("mounts are left below %s:\n%s", home, mounts)
	}
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 {
			t.Errorf("a socket is left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// load is how many processes wanted to run, on average of the last minute.
func load(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
