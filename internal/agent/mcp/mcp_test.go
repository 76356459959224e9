package mcp_test

import (
	"bufio"
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
	"sync"
	"sync/atomic"
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
	case "long-first", "long-last":
		if err := serveLong(os.Getenv(role) == "long-first"); err != nil {
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

// TestTokenOfNoUse: a server that takes its token no more, and one that has forgotten the session, hold up nobody: the next call fails at once, or works in a
// session that was begun anew once.
func TestTokenOfNoUse(t *testing.T) {
	var valid atomic.Pointer[string]
	var begun atomic.Int32
	var forget atomic.Bool
	first, second := "Bearer first", "Bearer second"
	valid.Store(&first)
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server("hello") }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" {
			begun.Add(1)
		}
		switch {
		case r.Header.Get("Authorization") != *valid.Load():
			http.Error(w, "token expired", http.StatusUnauthorized)
		case r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") != "" && forget.CompareAndSwap(true, false):
			http.Error(w, "Session not found", http.StatusNotFound)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close) // once the client has let go of its stream
	s, err := tools.Dial(t.Context(), tools.Remote{Name: "test", URL: h.URL + "/mcp", Headers: map[string]string{"Authorization": first}, Log: slog.New(slog.DiscardHandler)})
	s = opened(t, s, err)
	call := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // of the ten minutes that a call may take
		defer cancel()
		got, err := s.Call(ctx, "greet", json.RawMessage(`{"name":"you"}`))
		if ctx.Err() != nil {
			t.Errorf("the call hangs: %v", err)
		}
		return string(got), err
	}
	before := begun.Load()
	forget.Store(true)
	if got, err := call(); err != nil || !strings.Contains(got, "hello you") || begun.Load() != before+1 {
		t.Errorf("a session that was forgotten: %s %v, begun %d times", got, err, begun.Load()-before)
	}
	valid.Store(&second)
	if got, err := call(); err == nil || strings.Contains(err.Error(), "first") {
		t.Errorf("a token that is taken no more: %s %v", got, err)
	}
	valid.Store(&first)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if got, err := call(); err == nil && strings.Contains(got, "hello you") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("once the token is taken again: %s %v", got, err)
		}
	}
}

// serveLong answers every call with as many bytes as its tool's name says, in one line, with the answer's id at its beginning or at its end.
func serveLong(first bool) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var q struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil || q.ID == nil {
			continue
		}
		result := `{"protocolVersion":"2025-11-25"}`
		if n, err := strconv.Atoi(q.Params.Name); err == nil {
			result = `{"id":1,"text":"` + strings.Repeat("x", n) + `","more":[{"id":1}]}`
		}
		var err error
		if first {
			_, err = fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", q.ID, result)
		} else {
			_, err = fmt.Printf(`{"result":%s,"jsonrpc":"2.0","id":%s}`+"\n", result, q.ID)
		}
		if err != nil {
			return err
		}
	}
	return in.Err()
}

// TestLongLines: a message of 64 MiB in one line passes; one beyond the cap fails its own call, and neither the one beside it nor the session.
func TestLongLines(t *testing.T) {
	for where, big := range map[string]int{"long-first": 64 << 20, "long-last": 4 << 20} {
		p := program(t, where)
		s, err := tools.Start(t.Context(), p)
		s = opened(t, s, err)
		if got, err := s.Call(t.Context(), strconv.Itoa(big), nil); err != nil || len(got) < big {
			t.Errorf("%s: %d bytes, %v", where, len(got), err)
		}
		p.Max = 1 << 20
		s, err = tools.Start(t.Context(), p)
		s = opened(t, s, err)
		var wg sync.WaitGroup
		for _, n := range []int{1 << 10, 2 << 20, 1 << 16, 1<<20 + 1, 900 << 10} {
			wg.Go(func() {
				got, err := s.Call(t.Context(), strconv.Itoa(n), nil)
				var refused *tools.ToolError
				if n < 1<<20 && (err != nil || len(got) < n) || n > 1<<20 && (!errors.As(err, &refused) || !strings.Contains(err.Error(), "longer than 1 MiB")) {
					t.Errorf("%s: %d bytes: %d, %v", where, n, len(got), err)
				}
			})
		}
		wg.Wait()
		if got, err := s.Call(t.Context(), "10", nil); err != nil || len(got) < 10 {
			t.Errorf("%s: the call after: %s %v", where, got, err)
		}
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
