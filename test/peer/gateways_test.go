//go:build integration

package peer_test

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// goNotes is a Go server whose tool tells who calls, as the fixture's context_tool does.
func goNotes(name string) *env.Env {
	e := env.New(name, env.WithLookup(nothing), env.WithClock())
	env.AddTool(e, name+"_whoami", "Tell who calls.", func(ctx context.Context, _ struct{}) (map[string]string, error) {
		c := env.CallFrom(ctx)
		return map[string]string{"role": c.Role, "session": c.Session}, nil
	})
	e.OnGet(func(context.Context) ([]wire.Part, error) { return []wire.Part{wire.TextPart("nothing")}, nil })
	e.OnReset(func(context.Context) error { return nil })
	return e
}

// ourGateway serves our gateway at its owner's door.
func ourGateway(t *testing.T, children map[string]string) string {
	t.Helper()
	o := front.Options{Name: "office"}
	for name, url := range children {
		o.Children = append(o.Children, front.Child{Name: name, URL: url})
	}
	g, err := front.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.Door(access.Principal{Owner: true}))
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return srv.URL
}

// peerGateway runs the peer's gateway.
func peerGateway(t *testing.T, children map[string]string) string {
	t.Helper()
	bin := peerBin(t)
	pkg, err := filepath.Glob(filepath.Join(bin, "..", "lib", "python3.*", "site-packages", "agent_env", "env", "gateway"))
	if err != nil || len(pkg) != 1 {
		t.Fatalf("the peer's gateway: %v, %v", pkg, err)
	}
	path := t.TempDir()
	if err := os.Symlink(pkg[0], filepath.Join(path, "gateway")); err != nil {
		t.Fatal(err)
	}
	var servers, proxied []string
	for name, url := range children {
		servers, proxied = append(servers, name+"="+url+"/mcp"), append(proxied, "mcp-"+name+"="+url)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "python"), "-m", "gateway.entrypoint") // ended by the cleanup, by its group
	cmd.Dir = path
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "MCP_HOST=127.0.0.1", "MCP_PORT="+port, "INTERNAL_MCP_SERVERS="+strings.Join(servers, ","),
		"REST_PROXY_URLS="+strings.Join(proxied, ","), "MCP_SERVER_NAME=office", "PYTHONDONTWRITEBYTECODE=1")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("the gateway said:\n%s", out.String())
		}
	})
	return "http://127.0.0.1:" + port
}

// TestGatewaysConform: both gateways, each in front of servers of both SDKs, keep the rows of gateways.
func TestGatewaysConform(t *testing.T) {
	fixture := conformance.Fixture{ContextTool: &conformance.ToolCall{Name: "cal_whoami"}}
	gateways := map[string]struct {
		start  func(*testing.T, map[string]string) string
		expect conformance.Expectations
	}{
		"ours": {ourGateway, nil},
		"peers": {peerGateway, conformance.Expectations{
			"E12": "the peer's gateway calls an empty body a parse error",
			"E13": "the peer's gateway looks a method up whatever its type: -32601",
		}},
	}
	for name, g := range gateways {
		for _, python := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " alone", true: " with the peer's server"}[python], func(t *testing.T) {
				children := map[string]string{"cal": goServer(t, goNotes("cal"))}
				if python {
					children["notes"] = pythonServer(t, filepath.Join("testdata", "notes.py"))
					if _, err := conformance.Run(t.Context(), conformance.Target{URL: children["notes"], Wait: time.Minute}); err != nil {
						t.Fatal(err)
					}
				}
				r, err := conformance.Run(t.Context(), conformance.Target{URL: g.start(t, children), Wait: time.Minute, Fixture: fixture, Expect: g.expect})
				if err != nil {
					t.Fatal(err)
				}
				if r.Kind != conformance.KindGateway {
					t.Fatalf("it is taken for a %s", r.Kind)
				}
				for _, x := range r.Results {
					switch x.Status {
					case conformance.Failed, conformance.Unexpected:
						t.Errorf("%s %s: %s: %s\n%s", x.Row, x.Name, x.Status, x.Reason, strings.Join(x.Evidence, "\n"))
					case conformance.Skipped:
						if x.Row != "G1" && x.Row != "G5" {
							t.Errorf("%s wasn't checked: %s", x.Row, x.Reason)
						}
					default:
					}
				}
			})
		}
	}
}
