//go:build integration

package peer_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/front"
)

// TestOfficialClientsAtOurGateway: the official Python client sees progress and a result of 64 MiB of a server on the Python SDK, and the Go client of both.
func TestOfficialClientsAtOurGateway(t *testing.T) {
	children := map[string]string{"big": pythonServer(t, filepath.Join("testdata", "big.py")), "cal": goServer(t, goNotes("cal"))}
	url := ourGateway(t, children)
	const size = 64 << 20
	cmd := exec.CommandContext(t.Context(), filepath.Join(peerBin(t), "python"), filepath.Join("testdata", "gateway_client.py"), url, strconv.Itoa(size))
	began := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the client: %v\n%s", err, stderr(err))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, most, _ := strings.Cut(string(status), "VmHWM:")
	most, _, _ = strings.Cut(most, "\n")
	t.Logf("the client had its results after %s; the process of the gateway held %s at most", time.Since(began).Round(10*time.Millisecond), strings.TrimSpace(most))
	var seen struct {
		Progress   []float64
		Version    string
		Server     string
		Tools      []string
		Structured map[string]int
		Bytes      int
		Error      bool
		Unknown    bool
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if seen.Version != "2025-11-25" || seen.Server != "office" || !slices.Equal(seen.Tools, []string{"big_count", "big_text", "cal_whoami"}) || !slices.Equal(seen.Progress, []float64{1, 2, 3}) ||
		seen.Structured["counted"] != 3 || seen.Bytes != size || seen.Error || !seen.Unknown {
		t.Errorf("the client saw %+v", seen)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for name, args := range map[string]map[string]any{"big_text": {"bytes": 5}, "cal_whoami": {}} {
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		if err != nil || r.IsError {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func stderr(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return string(exit.Stderr)
	}
	return ""
}

// TestKilledPythonServer: a server that is killed leaves the others alone, and is used again once somebody has started it anew.
func TestKilledPythonServer(t *testing.T) {
	big := startPython(t, "")
	o := front.Options{Name: "office", Children: []front.Child{{Name: "big", URL: big.url}, {Name: "cal", URL: goServer(t, goNotes("cal"))}}, CallLog: filepath.Join(t.TempDir(), "calls.jsonl")}
	g, err := front.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner := access.Principal{Owner: true}
	call := func(tool, args string) error {
		_, err := g.CallTool(t.Context(), owner, tool, json.RawMessage(args))
		return err
	}
	if err := call("big_text", `{"bytes":1}`); err != nil {
		t.Fatal(err)
	}
	big.kill(t)
	waiting := make(chan error, 1)
	go func() {
		err := call("big_text", `{"bytes":2}`)
		if errors.Is(err, child.ErrLost) { // it went into a connection whose end had not been seen yet: it may have been done, so it isn't repeated
			err = call("big_text", `{"bytes":2}`)
		}
		waiting <- err
	}()
	for range 200 {
		began := time.Now()
		if err := call("cal_whoami", `{}`); err != nil || time.Since(began) > 2*time.Second {
			t.Fatalf("a living server: %v after %v", err, time.Since(began))
		}
	}
	startPython(t, big.port)
	if err := <-waiting; err != nil {
		t.Errorf("the call that waited: %v", err)
	}
	log, err := os.ReadFile(o.CallLog)
	if n := strings.Count(string(log), "\n"); err != nil || n != 404 && n != 406 {
		t.Errorf("%d lines, %v", n, err)
	}
}

// process is a Python server that a test ends itself.
type process struct {
	url, port string
	cmd       *exec.Cmd
	ended     bool
}

// startPython runs big.py on a port; "" is one that is free.
func startPython(t *testing.T, port string) *process {
	t.Helper()
	if port == "" {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if _, port, err = net.SplitHostPort(l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p := &process{url: "http://127.0.0.1:" + port, port: port}
	p.cmd = exec.Command(filepath.Join(peerBin(t), "python"), filepath.Join("testdata", "big.py"))
	p.cmd.Env = append(os.Environ(), "MCP_HOST=127.0.0.1", "MCP_PORT="+port, "PYTHONDONTWRITEBYTECODE=1")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })
	return p
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.ended {
		return
	}
	p.ended = true
	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = p.cmd.Wait() // it was killed
}
