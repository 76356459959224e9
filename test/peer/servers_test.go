//go:build integration

package peer_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/exampleserver"
	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/env"
)

// pythonServer runs a script in the peer's Python as a server of an environment or agent until the test ends, and answers its base URL.
func pythonServer(t *testing.T, script string, args ...string) string {
	t.Helper()
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
	cmd := exec.Command(filepath.Join(peerBin(t), "python"), append([]string{script}, args...)...) // ended by the cleanup, by its group
	cmd.Env = append(os.Environ(), "MCP_HOST=127.0.0.1", "MCP_PORT="+port, "A2A_HOST=127.0.0.1", "A2A_PORT="+port, "ENVIRONMENT_NAME=", "PYTHONDONTWRITEBYTECODE=1")
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
			t.Logf("the server said:\n%s", out.String())
		}
	})
	return "http://127.0.0.1:" + port
}

// failures are the rows that the peer's own SDK fails, and why.
func failures() conformance.Expectations {
	return conformance.Expectations{"E13": "the peer looks a method up whatever its type, and a list is no key: status 500"}
}

// TestPeerServerConforms: a server on the peer's SDK, with every form of the data plane, keeps every row but those that are known.
func TestPeerServerConforms(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "sdk", "conformance", "testdata", "notes.json"))
	if err != nil {
		t.Fatal(err)
	}
	fixture, err := conformance.ParseFixture(b)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args    []string
		skipped string
	}{
		"behind a gateway": {nil, "E10 E26 E25"},
		"alone":            {[]string{"--tool-access", "--plain-get"}, "E8 E9"},
	} {
		t.Run(name, func(t *testing.T) {
			url := pythonServer(t, filepath.Join("testdata", "notes.py"), c.args...)
			r, err := conformance.Run(t.Context(), conformance.Target{URL: url, Wait: time.Minute, Fixture: fixture, Expect: failures()})
			if err != nil {
				t.Fatal(err)
			}
			var skipped []string
			for _, x := range r.Results {
				switch x.Status {
				case conformance.Failed, conformance.Unexpected:
					t.Errorf("%s %s: %s: %s\n%s", x.Row, x.Name, x.Status, x.Reason, strings.Join(x.Evidence, "\n"))
				case conformance.Skipped:
					skipped = append(skipped, x.Row)
				default:
				}
			}
			if got := strings.Join(skipped, " "); got != c.skipped {
				t.Errorf("not checked: %s, want %s", got, c.skipped)
			}
			if r.Count(conformance.Expected) != 1 {
				t.Errorf("%d expected failures", r.Count(conformance.Expected))
			}
		})
	}
}

// seen is what client.py prints.
type seen struct {
	Protocol, Server, Text string
	Tools                  []string
	Structured             map[string]any
	Failed, Unknown        bool
	Progress               [][]any
}

func pythonClient(t *testing.T, url, tool, args string) seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(peerBin(t), "python"), filepath.Join("testdata", "client.py"), url, tool, args)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var s seen
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

func goServer(t *testing.T, e *env.Env) string {
	t.Helper()
	h, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return srv.URL
}

func nothing(string) (string, bool) { return "", false }

// TestPythonClient: the official Python client uses our servers, and sees progress while a tool runs.
func TestPythonClient(t *testing.T) {
	e := env.New("slow", env.WithLookup(nothing))
	env.AddTool(e, "count", "Count, telling how far.", func(ctx context.Context, in struct {
		To int `json:"to"`
	},
	) (int, error) {
		for i := range in.To {
			env.Progress(ctx, float64(i+1), float64(in.To), "counting")
		}
		return in.To, nil
	})
	got := pythonClient(t, goServer(t, e)+"/mcp", "count", `{"to":3}`)
	want := seen{
		Protocol: "2025-11-25", Server: "slow", Tools: []string{"count"}, Text: "3", Structured: map[string]any{"result": 3.0}, Unknown: true,
		Progress: [][]any{{1.0, 3.0, "counting"}, {2.0, 3.0, "counting"}, {3.0, 3.0, "counting"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestExamplesAreThePeers: our example servers have the tools of the peer's of the same names, and answer alike, to both official clients.
func TestExamplesAreThePeers(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(peerBin(t), "..", "lib", "python3.*", "site-packages", "agent_env", "examples"))
	if err != nil || len(examples) != 1 {
		t.Fatalf("the peer's examples: %v, %v", examples, err)
	}
	for _, c := range []struct {
		bundle, env, tool string
		args              []string
	}{
		{"echo-mcp", "echo", "echo", []string{`{"text":"héllo <&> 🜂"}`, `{"text":""}`, `{}`, `{"text":[1]}`}},
		{"mail-mcp", "mail", "search_emails", []string{`{"query":"invoice"}`, `{"query":"EXAMPLE.COM password"}`, `{"query":"m-2"}`, `{"query":"  "}`, `{"query":"nothing such"}`, `{}`}},
	} {
		t.Run(c.bundle, func(t *testing.T) {
			theirs := pythonServer(t, filepath.Join(examples[0], c.bundle, "envs", c.env, "server.py"))
			ours := goServer(t, exampleserver.New(c.bundle, nothing))
			if _, err := conformance.Run(t.Context(), conformance.Target{URL: theirs, Wait: time.Minute}); err != nil {
				t.Fatal(err)
			}
			for _, args := range c.args {
				a, b := goCall(t, theirs, c.tool, args), goCall(t, ours, c.tool, args)
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%s: theirs %+v, ours %+v", args, a, b)
				}
			}
			a, b := pythonClient(t, theirs+"/mcp", c.tool, c.args[0]), pythonClient(t, ours+"/mcp", c.tool, c.args[0])
			if a.Server != b.Server || !reflect.DeepEqual(a.Tools, b.Tools) || a.Failed != b.Failed || a.Unknown != b.Unknown || !sameText(a.Text, b.Text) {
				t.Errorf("theirs %+v, ours %+v", a, b)
			}
			check := filepath.Join(c.bundle, "artifacts", "check_"+c.env)
			for _, script := range []string{filepath.Join(examples[0], check), filepath.Join("..", "..", "examples", check)} {
				for _, url := range []string{theirs, ours} {
					if rows := verify(t, script, url+"/mcp"); len(rows) != 1 || rows[0].Result != true || rows[0].ID == "" {
						t.Errorf("%s says of %s: %+v", script, url, rows)
					}
				}
			}
		})
	}
}

type verdict struct {
	ID     string
	Result bool
}

// verify runs a folder's verify.py as verifiers do.
func verify(t *testing.T, folder, url string) []verdict {
	t.Helper()
	const program = `import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import verify
print(json.dumps(asyncio.run(verify.verify(sys.argv[2]))))`
	cmd := exec.CommandContext(t.Context(), filepath.Join(peerBin(t), "python"), "-c", program, folder, url)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var rows []verdict
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return rows
}

// outcome is what a verifier can tell servers apart by: the text as JSON where it is some, and whether the call failed.
type outcome struct {
	Value  any
	Failed bool
}

func goCall(t *testing.T, url, tool, args string) outcome {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	if r.IsError {
		return outcome{Failed: true} // how it is said is each one's own
	}
	text := r.Content[0].(*mcp.TextContent).Text
	return outcome{Value: value(text)}
}

func value(text string) any {
	var v any
	if json.Unmarshal([]byte(text), &v) == nil {
		return v
	}
	return text
}

func sameText(a, b string) bool { return reflect.DeepEqual(value(a), value(b)) }

// TestPeerAgentConforms: an agent on the peer's SDK keeps the rows of agents.
func TestPeerAgentConforms(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "sdk", "conformance", "testdata", "agent.json"))
	if err != nil {
		t.Fatal(err)
	}
	fixture, err := conformance.ParseFixture(b)
	if err != nil {
		t.Fatal(err)
	}
	url := pythonServer(t, filepath.Join("testdata", "agent.py"))
	r, err := conformance.Run(t.Context(), conformance.Target{URL: url, Wait: time.Minute, Fixture: fixture})
	if err != nil {
		t.Fatal(err)
	}
	if r.Kind != conformance.KindAgent || r.Name != "told" || len(r.Results) != 20 {
		t.Fatalf("%s %s, %d rows", r.Kind, r.Name, len(r.Results))
	}
	for _, x := range r.Results {
		if x.Status != conformance.Passed {
			t.Errorf("%s %s: %s: %s\n%s", x.Row, x.Name, x.Status, x.Reason, strings.Join(x.Evidence, "\n"))
		}
	}
}
