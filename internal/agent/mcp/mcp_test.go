package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	tools "agentenv.internal/agentenv/internal/agent/mcp"
)

// role makes the test binary a server on its standard streams.
const role = "AGENTENV_TEST_MCP"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "serve":
		if err := server(os.Getenv("GREETING")).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case "die":
		fmt.Fprintln(os.Stderr, "no licence")
		os.Exit(3)
	}
	goleak.VerifyTestMain(m)
}

type in struct {
	Name string `json:"name"`
}

func server(greeting string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "greets"}, func(_ context.Context, _ *mcp.CallToolRequest, a in) (*mcp.CallToolResult, any, error) {
		if a.Name == "nobody" {
			return nil, nil, errors.New("nobody is there")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: greeting + " " + a.Name + os.Getenv("SECRET_OF_OURS")}}}, nil, nil
	})
	return s
}

func program(t *testing.T, what string) tools.Program {
	t.Helper()
	t.Setenv("SECRET_OF_OURS", "leak")
	return tools.Program{
		Name: "test", Argv: []string{os.Args[0]}, Env: map[string]string{role: what, "GREETING": "hello"}, Lookup: os.LookupEnv, Log: slog.New(slog.DiscardHandler),
	}
}

func opened(t *testing.T, s tools.Server, err error) tools.Server {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestServers is what every server does, however it is reached.
func TestServers(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) tools.Server{
		"program": func(t *testing.T) tools.Server {
			s, err := tools.Start(t.Context(), program(t, "serve"))
			return opened(t, s, err)
		},
		"remote": func(t *testing.T) tools.Server {
			inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server("hello") }, nil)
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer t" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				inner.ServeHTTP(w, r)
			}))
			t.Cleanup(h.Close)
			s, err := tools.Dial(t.Context(), tools.Remote{Name: "test", URL: h.URL + "/mcp", Headers: map[string]string{"Authorization": "Bearer t"}, Log: slog.New(slog.DiscardHandler)})
			return opened(t, s, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			list, err := s.Tools(t.Context())
			if err != nil || len(list) != 1 || !strings.Contains(string(list[0]), `"greet"`) {
				t.Fatalf("%s, %v", list, err)
			}
			got, err := s.Call(t.Context(), "greet", json.RawMessage(`{"name":"you"}`))
			if err != nil || !strings.Contains(string(got), `hello you"`) {
				t.Errorf("%s, %v", got, err)
			}
			if got, err := s.Call(t.Context(), "greet", json.RawMessage(`{"name":"nobody"}`)); err != nil || !strings.Contains(string(got), `"isError":true`) {
				t.Errorf("a tool that fails: %s, %v", got, err)
			}
			var refused *tools.ToolError
			if _, err := s.Call(t.Context(), "nosuch", nil); !errors.As(err, &refused) || errors.Is(err, tools.ErrGone) {
				t.Errorf("a tool that isn't there: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.Call(ctx, "greet", nil); !errors.Is(err, context.Canceled) {
				t.Errorf("a call that is cancelled: %v", err)
			}
		})
	}
}

func TestGone(t *testing.T) {
	if _, err := tools.Start(t.Context(), program(t, "die")); err == nil || !errors.Is(err, tools.ErrGone) || !strings.Contains(err.Error(), "no licence") {
		t.Errorf("a program that ends: %v", err)
	}
	if _, err := tools.Start(t.Context(), tools.Program{Name: "x", Argv: []string{"/no/such/program"}}); err == nil {
		t.Error("a program that isn't there")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := tools.Dial(ctx, tools.Remote{Name: "x", URL: "http://127.0.0.1:1/mcp", Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a server that isn't there")
	}
	s, err := tools.Start(t.Context(), program(t, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(t.Context(), "greet", nil); !errors.Is(err, tools.ErrGone) {
		t.Errorf("a call after the end: %v", err)
	}
}

// Row 99: servers that hang are given up in time, and nothing that they started stays.
func TestHanging(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "pid")
	begin := time.Now()
	_, err := tools.Start(t.Context(), tools.Program{
		Name: "slow", Argv: []string{"/bin/sh", "-c", "sleep 300 & echo $! > " + mark + "; wait"}, Limit: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), "didn't answer within 300ms") {
		t.Errorf("a program that hangs: %v", err)
	}
	b, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("what it started is there: %s", stat)
	}
	stop := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer h.Close()
	defer close(stop)
	if _, err := tools.Dial(t.Context(), tools.Remote{Name: "slow", URL: h.URL, Limit: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, tools.ErrGone) {
		t.Errorf("a server that hangs: %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}
