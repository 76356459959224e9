package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// marked finds processes of this machine whose command line holds text.
func marked(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if line := string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})); err == nil && strings.Contains(line, text) {
			out = append(out, filepath.Base(filepath.Dir(f))+" "+line)
		}
	}
	return out
}

// TestKilled: nothing outlives a killed run, and the next command sweeps what it left and says so.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"tasks/t.json: v1", "step 1/2 box (deploy_sandbox)", "step 1/2 box done", "step 2/2 long (verify_sandbox)"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			home := sleeper(t)
			seconds := fmt.Sprintf("sleep 100.%d", time.Now().UnixNano()) // so that its process can be told from all others
			task := filepath.Join(home, "b", "tasks", "t.json")
			if err := os.WriteFile(task, []byte(strings.ReplaceAll(read(t, task), "sleep 100", seconds)), 0o644); err != nil {
				t.Fatal(err)
			}
			r := start(t, home, "run", "./b")
			r.until(t, at)
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			r.end(t, 10*time.Second)
			left := marked(t, seconds)
			for end := time.Now().Add(5 * time.Second); len(left) > 0 && time.Now().Before(end); left = marked(t, seconds) {
				time.Sleep(20 * time.Millisecond)
			}
			if len(left) > 0 {
				t.Errorf("five seconds later there are %v", left)
			}
			swept(t, home)
			folders, err := filepath.Glob(filepath.Join(home, "state", "agentenv", "boxes", "*"))
			if err != nil || len(folders) > 0 {
				t.Errorf("the next command leaves %v, %v", folders, err)
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || strings.Contains(string(mounts), home) {
				t.Errorf("mounts are left, %v", err)
			}
			list := start(t, home, "runs", "list", "--json")
			list.end(t, 10*time.Second)
			if out := strings.Join(list.out, "\n"); strings.Contains(at, "step") && !strings.Contains(out, `"status":"interrupted"`) && !strings.Contains(out, `"status":"running"`) {
				t.Errorf("the run's record is lost: %s", out)
			}
		})
	}
}

// TestTwelveAtOnce: of many runs of one folder one writes, the others find everything unchanged, and all pass.
func TestTwelveAtOnce(t *testing.T) {
	t.Parallel()
	home := sleeper(t)
	task := filepath.Join(home, "b", "tasks", "t.json")
	if err := os.WriteFile(task, []byte(strings.ReplaceAll(read(t, task), "sleep 100", "true")), 0o644); err != nil {
		t.Fatal(err)
	}
	const n = 12
	var mu sync.Mutex
	var wg sync.WaitGroup
	wrote, passed := 0, 0
	runs := make([]*running, n)
	for i := range runs {
		runs[i] = start(t, home, "run", "./b")
	}
	for _, r := range runs {
		wg.Go(func() {
			code := r.end(t, 60*time.Second)
			mu.Lock()
			defer mu.Unlock()
			out := strings.Join(r.out, "\n")
			if strings.Contains(out, "tasks/t.json: v1 (new)") {
				wrote++
			}
			if code == 0 && strings.Contains(out, "tasks/t.json v1: passed") {
				passed++
			} else {
				t.Errorf("one ends with %d:\n%s\n%s", code, out, r.stderr.String())
			}
		})
	}
	wg.Wait()
	if wrote != 1 || passed != n {
		t.Errorf("%d wrote and %d passed, want 1 and %d", wrote, passed, n)
	}
}

// TestTwelveThatOverlap: twelve runs of two bundles that declare one artifact of the same content, and of tasks that share others. All pass, and
// what two runs of one bundle share is written once.
func TestTwelveThatOverlap(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	for _, b := range []string{"a", "b"} {
		for name, text := range map[string]string{
			"artifacts/both/artifact.toml": "id = \"@local/shared/both\"\n",
			"artifacts/both/data.txt":      "one content\n",
			"artifacts/x/data.txt":         "x of " + b + "\n",
			"artifacts/y/data.txt":         "y of " + b + "\n",
			"tasks/x.json":                 overlapping("both", "x"),
			"tasks/y.json":                 overlapping("both", "y"),
			"tasks/all.json":               overlapping("both", "x", "y"),
		} {
			path := filepath.Join(home, b, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var runs []*running
	for range 2 {
		for _, b := range []string{"./a", "./b"} {
			for _, task := range []string{"x", "y", "all"} {
				runs = append(runs, start(t, home, "run", b, "--task", task))
			}
		}
	}
	wrote := map[string]int{}
	for i, r := range runs {
		code, bundle := r.end(t, 60*time.Second), i/3%2
		out := strings.Join(r.out, "\n")
		if code != 0 || !strings.Contains(out, ": passed") {
			t.Errorf("run %d ends with %d:\n%s\n%s", i, code, out, r.stderr.String())
		}
		for _, line := range r.out {
			if label, found := strings.CutSuffix(line, ": v1 (new)"); found {
				wrote[fmt.Sprint(bundle, label)]++
			}
		}
	}
	for _, bundle := range []string{"0", "1"} {
		for _, label := range []string{"artifacts/x", "artifacts/y", "tasks/x.json", "tasks/y.json", "tasks/all.json"} {
			if n := wrote[bundle+label]; n != 1 {
				t.Errorf("bundle %s: %s was written %d times", bundle, label, n)
			}
		}
	}
}

// overlapping is a task that loads artifacts and counts their files.
func overlapping(artifacts ...string) string {
	steps := `[{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"}`
	for _, a := range artifacts {
		steps += fmt.Sprintf(`, {"id": "load %[1]s", "type": "load_artifact", "sandbox_name": "box", "artifact_id": "%[1]s", "destination_path": "/app/%[1]s"}`, a)
	}
	return steps + fmt.Sprintf(`, {"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/app", "verifier_id": "v", "criteria": [
  {"type": "bash_cmd_succeeds", "criterion": "all are there", "bash_cmd": "test $(find . -type f | wc -l) = %d"}]}]`, len(artifacts))
}
