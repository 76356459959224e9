package console_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// card asks an agent for its card and answers the status; 0 where nobody answers.
func card(t *testing.T, url string, headers ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+wire.AgentCardPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return 0
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) { // it is about to end
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// freePort is one that nobody has just now.
func freePort(t *testing.T) (port int, l net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port, l
}

// TestAgents: a workspace that is created is served at once, is told where, is stopped, started where one says, and removed.
func TestAgents(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	port, taken := freePort(t)
	d.post("/api/fleet", map[string]any{"name": "one", "port": port}).is(400).says("port " + strconv.Itoa(port))
	d.nothing("one")
	r := d.post("/api/fleet", map[string]any{"name": "one"}).is(200)
	url, _ := r.at("agent", "a2a_url").(string)
	if r.at("agent", "running") != true || r.at("agent", "start_error") != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("create: %s", r.text)
	}
	if got := card(t, url); got != 200 {
		t.Errorf("its card: %d", got)
	}
	if r := d.ask("GET", "/api/fleet", "").is(200); r.at("agents", 0, "a2a_url") != url {
		t.Errorf("list: %s", r.text)
	}
	// No page may ask it, and nobody without its secret.
	for _, h := range [][]string{{"Origin", d.URL}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Host", "evil.example"}, {"Host", "localhost.evil.example:80"}, {"Host", "192.0.2.1:80"}} {
		if got := card(t, url, h...); got != http.StatusForbidden {
			t.Errorf("a page with %v: %d", h, got)
		}
	}
	for _, host := range []string{"localhost:1234", "LOCALHOST", "[::1]:80", "127.0.0.1"} { // through a tunnel
		if got := card(t, url, "Host", host); got != 200 {
			t.Errorf("asked as %s: %d", host, got)
		}
	}
	if got := card(t, url[:len(url)-1]); got != http.StatusNotFound {
		t.Errorf("without the secret: %d", got)
	}
	// The console's checks are those of its other routes.
	for _, path := range []string{"start", "stop"} {
		d.ask("POST", "/api/fleet/one/"+path, "", "Authorization", "").is(http.StatusUnauthorized)
		d.ask("POST", "/api/fleet/one/"+path, "", "Origin", "https://evil.example").is(http.StatusForbidden)
		d.ask("POST", "/api/fleet/none/"+path, "").is(http.StatusNotFound)
		d.ask("POST", "/api/fleet/one/"+path, `{"x": 1}`).is(http.StatusBadRequest)
	}
	if r := d.ask("POST", "/api/fleet/one/start", "").is(http.StatusConflict); r.at("code") != "running" {
		t.Errorf("started twice: %s", r.text)
	}
	if r := d.ask("POST", "/api/fleet/one/stop", "").is(200); r.at("agent", "running") != false || r.at("agent", "a2a_url") != nil || r.at("agent", "start_error") != nil {
		t.Errorf("stop: %s", r.text)
	}
	if got := card(t, url); got != 0 {
		t.Errorf("after stop: %d", got)
	}
	d.post("/api/fleet/one/start", map[string]any{"port": port}).is(400).says("another program has it")
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	r = d.post("/api/fleet/one/start", map[string]any{"port": port}).is(200)
	url, _ = r.at("agent", "a2a_url").(string)
	if r.at("agent", "port") != float64(port) || !strings.HasPrefix(url, fmt.Sprintf("http://127.0.0.1:%d/", port)) || card(t, url) != 200 {
		t.Errorf("start: %s", r.text)
	}
	d.ask("DELETE", "/api/fleet/one?purge=true", "").is(200)
	d.nothing("one")
	if got := card(t, url); got != 0 {
		t.Errorf("after its removal: %d", got)
	}
}

// agent is a workspace as the list has it.
func (d *desk) agent(name string) map[string]any {
	d.t.Helper()
	all, _ := d.ask("GET", "/api/fleet", "").is(200).at("agents").([]any)
	for _, a := range all {
		if a, _ := a.(map[string]any); a["name"] == name {
			return a
		}
	}
	d.t.Fatalf("there is no workspace %s", name)
	return nil
}

// TestAgentThatFails: a workspace whose agent can't be started stays, with what the agent said last; one that ends by itself is told as well.
func TestAgentThatFails(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "[model]\ndefault = 'some-model'\n")
	r := d.post("/api/fleet", map[string]any{"name": "one", "inherit_config": true, "soul": "Be kind."}).is(200)
	if said, _ := r.at("agent", "start_error").(string); r.at("ok") != true || r.at("agent", "running") != false || !strings.Contains(said, "the agent can't be served: it ended with exit code") || !strings.Contains(said, "some-model") {
		t.Errorf("create: %s", r.text)
	}
	if b, err := os.ReadFile(filepath.Join(d.made("one"), ".agentenv", "SOUL.md")); string(b) != "Be kind." {
		t.Errorf("its soul: %q, %v", b, err)
	}
	d.post("/api/fleet", map[string]any{"name": "two", "start": false}).is(200)
	config := filepath.Join(d.made("two"), ".agentenv", "config.toml")
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("[nonsense\n")
	r = d.ask("POST", "/api/fleet/two/start", "").is(400).says("ended with exit code", "config.toml")
	why, _ := r.at("detail").(string)
	if a := d.agent("two"); a["start_error"] != why || a["running"] != false {
		t.Errorf("list: %v, want %q", a, why)
	}
	put(string(good))
	r = d.ask("POST", "/api/fleet/two/start", "").is(200)
	if r.at("agent", "start_error") != nil {
		t.Errorf("started: %s", r.text)
	}
	pid := served(t, d.made("two"))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		a := d.agent("two")
		if why, _ := a["start_error"].(string); a["running"] == false {
			if why != "the agent was ended by the signal killed" {
				t.Errorf("it is told that %q", why)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it is told to run: %v", a)
		}
	}
}

// TestRemoveItself: the console doesn't remove what it is served in, by whatever path, nor what is around that.
func TestRemoveItself(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	home := filepath.Dir(d.root)
	link := filepath.Join(filepath.Dir(home), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	d.post("/api/fleet", map[string]any{"name": "around", "dir": filepath.Join(home, "around"), "start": false}).is(200)
	d.post("/api/fleet", map[string]any{"name": "inside", "dir": filepath.Join(home, "around", "inside"), "start": false}).is(200)
	d.root = filepath.Join(link, "around", "inside")
	d.Server.Close()
	d.serve()
	for _, path := range []string{"/api/fleet/inside", "/api/fleet/inside?purge=true", "/api/fleet/around?purge=true"} {
		d.ask("DELETE", path, "").is(400).says("the console is served in the folder of the workspace")
	}
	if a, b := d.agent("around"), d.agent("inside"); a["error"] != nil || b["error"] != nil {
		t.Errorf("%v %v", a, b)
	}
	d.ask("DELETE", "/api/fleet/around", "").is(200) // what it is served in stays
	if a := d.agent("inside"); a["error"] != nil {
		t.Errorf("%v", a)
	}
}

// TestConfigurationByName: agents have the configuration of their own workspace, whichever the console was told to read.
func TestConfigurationByName(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "[model]\ndefault = 'some-model'\n")
	d.env["AGENT_ENV_CONFIG"] = d.path("config.toml")
	d.Server.Close()
	d.serve()
	r := d.post("/api/fleet", map[string]any{"name": "one"}).is(200)
	if r.at("agent", "running") != true || r.at("agent", "model") != "" {
		t.Errorf("create: %s", r.text)
	}
}

// served is the process that serves the agent of a workspace.
func served(t *testing.T, root string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, cwd := range all {
		if at, err := os.Readlink(cwd); err != nil || at != root {
			continue
		}
		if b, _ := os.ReadFile(filepath.Join(filepath.Dir(cwd), "cmdline")); strings.Contains(string(b), "\x00run\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(cwd)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("nobody serves %s", root)
	return 0
}

// TestUpKilled: nothing of an agent is left when the console is killed, and its workspace can be removed and served again.
func TestUpKilled(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "up", "--port", "0", "--json")
	cmd.Dir, cmd.Env, cmd.Stderr = d.root, d.environ(), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var at struct {
		API   string `json:"api_url"`
		Token string `json:"token"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err := errors.Join(err, json.Unmarshal(line, &at)); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	url := strings.TrimSuffix(at.API, "/api/")
	d.Server.URL, url = url, d.Server.URL // ask that one for a while
	r := d.ask("POST", "/api/fleet", `{"name": "one"}`, "Authorization", "Bearer "+at.Token).is(200)
	d.Server.URL = url
	agent, _ := r.at("agent", "a2a_url").(string)
	pid := served(t, d.made("one"))
	if card(t, agent) != 200 {
		t.Fatalf("create: %s", r.text)
	}
	d.ask("DELETE", "/api/fleet/one", "").is(400).says("is served by another process")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the agent outlives the console")
		}
	}
	for end := time.Now().Add(20 * time.Second); card(t, agent) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its address is served")
		}
	}
	d.ask("DELETE", "/api/fleet/one", "").is(200)
	d.nothing("one")
}
