//go:build integration || soak

package peer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// desktop is a session that the built binary brought up.
type desktop struct {
	url     string
	pid     int
	stop    func()
	started time.Duration // from nothing to ready
}

// startDesktop brings a session up: as root asks for it, or as an ordinary user from the beginning.
func startDesktop(t *testing.T, asRoot bool, vars ...string) *desktop {
	t.Helper()
	began := time.Now()
	d := launchDesktop(t, asRoot, vars...)
	d.ready(t, 30*time.Second)
	d.started = time.Since(began)
	return d
}

// launchDesktop is startDesktop that doesn't wait until the desktop is ready.
func launchDesktop(t *testing.T, asRoot bool, vars ...string) *desktop {
	t.Helper()
	for _, p := range []string{"Xvfb", "openbox", "kill"} {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("REQUIRE") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	const someone = 1000
	home := filepath.Join(t.TempDir(), "home")
	for _, dir := range []string{filepath.Dir(home), filepath.Dir(filepath.Dir(home))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := exec.Command(builtBinary(t), "computer", "session", "--home", home)
	// Debian's python3 has Tk, which the suite's program needs.
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + home, "MCP_HOST=127.0.0.1", "MCP_PORT=" + strconv.Itoa(port)}, vars...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !asRoot || os.Geteuid() != 0 {
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if !asRoot && os.Geteuid() == 0 {
		if err := os.Chown(home, someone, someone); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: someone, Gid: someone}
		readable(t, cmd)
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &desktop{url: fmt.Sprintf("http://127.0.0.1:%d", port), pid: cmd.Process.Pid}
	stopped := false
	d.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM) // one that is gone is gone
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("the session ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the session said\n%s", said.String())
		}
	}
	t.Cleanup(d.stop)
	return d
}

// readable puts the binary where an ordinary user may read it.
func readable(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	b, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = filepath.Join(t.TempDir(), "agent-env")
	if err := os.WriteFile(cmd.Path, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func (d *desktop) ready(t *testing.T, within time.Duration) {
	t.Helper()
	for give := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if status, body := d.ask(t, "/agentenv/ext/computer-ready/status", ""); status == 200 && strings.HasPrefix(body, `{"ready":true`) {
			return
		} else if time.Now().After(give) {
			t.Fatalf("the desktop isn't ready: %d %s", status, body)
		}
	}
}

// ask GETs a path, or POSTs a body to it. Status 0 is no answer.
func (d *desktop) ask(t *testing.T, path, body string) (int, string) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// suite runs the peer's conformance suite and answers how long that took. Its exit code says nothing of what it couldn't check.
func suite(t *testing.T, d *desktop) time.Duration {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), filepath.Join(peerBin(t), "python"), "-m", "agentenv_protocol.computer.conformance", d.url, "--level", "full", "--json", report)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	b, readErr := os.ReadFile(report)
	if readErr != nil {
		t.Fatalf("the suite reports nothing: %v\n%s", err, out)
	}
	var got struct {
		Checks     []struct{ Check, Name, Status, Detail string }
		Extensions map[string]string
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, c := range got.Checks {
		switch c.Status {
		case "passed":
			passed++
		case "not_applicable":
		default:
			t.Errorf("%s %s %s: %s", c.Status, c.Check, c.Name, c.Detail)
		}
	}
	for uri, status := range got.Extensions {
		if status != "verified" {
			t.Errorf("%s: %s", uri, status)
		}
	}
	if passed < 49 {
		t.Errorf("%d checks passed, want 49", passed)
	}
	return took
}

// TestComputerConformance: the peer's suite on a session, started by root and by an ordinary user.
func TestComputerConformance(t *testing.T) {
	conform(t, 3)
}

func conform(t *testing.T, runs int) {
	for i := range runs {
		asRoot := i%2 == 0
		t.Run(fmt.Sprintf("%d root=%v", i+1, asRoot), func(t *testing.T) {
			d := startDesktop(t, asRoot)
			took := suite(t, d)
			t.Logf("ready after %s, the suite took %s", d.started.Round(time.Millisecond), took.Round(time.Millisecond))
		})
	}
}

// descendants are the processes below one, by command.
func descendants(t *testing.T, pid int) map[string]int {
	t.Helper()
	out := map[string]int{}
	for id, name := range family(t, pid) {
		out[name] = id
	}
	return out
}

// family is the commands of the processes below one.
func family(t *testing.T, pid int) map[int]string {
	t.Helper()
	out := map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parents := map[int]int{}
	names := map[int]string{}
	for _, s := range stats {
		b, err := os.ReadFile(s)
		if err != nil {
			continue // it ended
		}
		open, end := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
		id, err1 := strconv.Atoi(strings.TrimSpace(string(b[:open])))
		parent, err2 := strconv.Atoi(strings.Fields(string(b[end+1:]))[1])
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		parents[id], names[id] = parent, string(b[open+1:end])
	}
	for id, name := range names {
		for p := parents[id]; p > 1; p = parents[p] {
			if p == pid {
				out[id] = name
				break
			}
		}
	}
	return out
}

// TestComputerFaults: an X server that is killed is there again, as large as it was, with nothing sent twice; and when the session ends, all that it
// started ends.
func TestComputerFaults(t *testing.T) {
	d := startDesktop(t, true)
	if status, body := d.ask(t, "/agentenv/ext/computer-display/set", `{"width":1024,"height":768}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := d.ask(t, "/agentenv/ext/computer-exec/run", `{"argv":["sh","-c","setsid sleep 300 >/dev/null 2>&1 & id -u"],"request_id":"1"}`); status != 200 || strings.Contains(body, `"stdout":"0\n"`) {
		t.Errorf("%d %s", status, body)
	}
	before := descendants(t, d.pid)
	if before["Xvfb"] == 0 {
		t.Fatalf("no X server: %v", before)
	}
	if err := syscall.Kill(before["Xvfb"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.ready(t, 20*time.Second)
	if status, body := d.ask(t, "/agentenv/ext/computer-display/get", ""); status != 200 || !strings.HasPrefix(body, `{"width":1024,"height":768`) {
		t.Errorf("%d %s", status, body)
	}
	after := descendants(t, d.pid)
	if after["Xvfb"] == before["Xvfb"] || after["Xvfb"] == 0 || after["sleep"] == 0 {
		t.Errorf("before %v, after %v", before, after)
	}
	d.stop()
	var left []string
	for name, id := range after {
		if syscall.Kill(id, 0) == nil {
			left = append(left, fmt.Sprintf("%s %d", name, id))
		}
	}
	if slices.Sort(left); left != nil {
		t.Errorf("left running: %v", left)
	}
}
