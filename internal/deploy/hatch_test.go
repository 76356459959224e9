package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/unixsocket"
)

// desktopOf is a deployed computer of a test, without a sandbox: its driver answers whatever input with a code.
func desktopOf(t *testing.T, hands string, o Observer) (*Envs, *Env, string) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "pc", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "computer_key", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "pressed"}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "computer_click", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done() // it hangs
		return nil, ctx.Err()
	})
	driver := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: true}))
	t.Cleanup(func() {
		driver.Close()
		for session := range s.Sessions() { // one whose client left without a word
			_ = session.Close()
		}
	})
	d := New(nil, nil, slog.New(slog.DiscardHandler))
	d.Open("r", Policy{Observer: o})
	e := NewEnvs(d, nil, EnvOptions{Hands: hands})
	log := filepath.Join(t.TempDir(), "calls.jsonl")
	g, err := front.New(t.Context(), front.Options{CallLog: log, Children: []front.Child{{Name: "pc", URL: driver.URL, MCP: driver.URL}}})
	if err != nil {
		t.Fatal(err)
	}
	v := &Env{ID: "@local/pc", Run: "r", Step: "up", Instance: "@local/pc-1", Gateway: g, Servers: []*Server{{Name: "pc", Box: sandbox.Info{ID: "box1"}, computer: &envstore.Computer{}}}}
	e.openHatches(t.Context(), v)
	if len(v.hatches) != 1 {
		t.Fatal("no hatch")
	}
	return e, v, log
}

const press = `{"keys":["a"]}`

// TestHatch: who takes a computer over is told of before they do anything and when they leave, or when the computer goes; then nobody can.
func TestHatch(t *testing.T) {
	o := &seen{}
	// Deeper than an address of a socket can name, where that can be.
	hands := t.TempDir()
	if runtime.GOOS == "linux" {
		hands = filepath.Join(hands, strings.Repeat("deep/", 30))
	}
	old := filepath.Join(hands, "left")
	if err := os.MkdirAll(hands, 0o700); err != nil {
		t.Fatal(err)
	}
	leave(t, old)
	odd, err := net.ListenPacket("unixgram", filepath.Join(t.TempDir(), "odd")) // one that can't be asked
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	kept := filepath.Join(hands, "kept")
	if err := errors.Join(os.Rename(odd.LocalAddr().String(), kept), os.Chtimes(kept, long(), long())); err != nil {
		t.Fatal(err)
	}
	e, v, log := desktopOf(t, hands, o)
	if _, err := os.Lstat(old); !os.IsNotExist(err) {
		t.Errorf("a socket that nobody listens at is left: %v", err)
	}
	if err := os.Remove(kept); err != nil {
		t.Errorf("a socket of which nobody knows whether somebody listens is gone: %v", err)
	}
	screen := func() *Screen {
		return &Screen{hatch: hatchPath(hands, "box1"), way: &http.Transport{}, box: shut{}}
	}
	look := screen() // who only looks takes nothing over
	if err := look.Close(); err != nil {
		t.Fatal(err)
	}
	a, b := screen(), screen()
	for range 2 {
		if out, err := a.Call(t.Context(), "computer_key", json.RawMessage(press)); err != nil || !strings.Contains(string(out), "pressed") {
			t.Fatalf("%s %v", out, err)
		}
	}
	if _, err := a.Call(t.Context(), "computer_exec", json.RawMessage(press)); err == nil || !strings.Contains(err.Error(), front.ErrNoInput.Error()) {
		t.Errorf("a tool that is no input: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); len(o.told()) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody was told that it was given back")
		}
	}
	if _, err := b.Call(t.Context(), "computer_key", json.RawMessage(press)); err != nil {
		t.Fatal(err)
	}
	if err := e.end(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	want := "pc of up is taken by console, ended false after 0; pc of up is taken by console, ended true after 2; pc of up is taken by console, ended false after 0; pc of up is taken by console, ended true after 1"
	if got := strings.Join(o.told(), "; "); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
	if _, err := b.Call(t.Context(), "computer_key", json.RawMessage(press)); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("when it is gone: %v", err)
	}
	if _, err := b.Call(t.Context(), "computer_key", json.RawMessage(press)); !errors.Is(err, ErrNoHand) {
		t.Errorf("once more: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(lines), `"event_type":"person_input"`); got != 3 || strings.Count(string(lines), "given_back") != 2 || strings.Contains(string(lines), `["a"]`) {
		t.Errorf("the log is\n%s", lines)
	}
	if left, err := os.ReadDir(hands); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}

// TestHatchUnrecorded: what the run can't have on record isn't done.
func TestHatchUnrecorded(t *testing.T) {
	hands := t.TempDir()
	e, v, log := desktopOf(t, hands, full{})
	s := &Screen{hatch: hatchPath(hands, "box1"), way: &http.Transport{}, box: shut{}}
	if _, err := s.Call(t.Context(), "computer_key", json.RawMessage(press)); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
	if err := errors.Join(s.Close(), e.end(t.Context(), v)); err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(log)
	if err != nil || strings.Contains(string(lines), "person_input") {
		t.Errorf("%s %v", lines, err)
	}
}

// flaky fails once.
type flaky struct {
	net.Listener
	failed bool
}

func (l *flaky) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

// TestHatchUnderStrain: a hatch that couldn't take a connection takes the next, a call that hangs ends, and one that nobody waits for ends no hand.
func TestHatchUnderStrain(t *testing.T) {
	o := &seen{}
	e, v, _ := desktopOf(t, t.TempDir(), o)
	h := &hatch{envs: e, env: v, server: v.Servers[0], path: filepath.Join(t.TempDir(), "h"), limit: 100 * time.Millisecond}
	h.ctx, h.stop = context.WithCancel(t.Context())
	l, err := unixsocket.Listen(t.Context(), h.path)
	if err != nil {
		t.Fatal(err)
	}
	h.l = &flaky{Listener: l}
	h.wg.Go(h.serve)
	v.hatches = append(v.hatches, h)
	s := &Screen{hatch: h.path, way: &http.Transport{}, box: shut{}}
	if _, err := s.Call(t.Context(), "computer_click", json.RawMessage(`{"x":1,"y":1}`)); err == nil || !strings.Contains(err.Error(), child.ErrTimeout.Error()) {
		t.Errorf("a call that hangs: %v", err)
	}
	h.limit = handTime
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Call(gone, "computer_key", json.RawMessage(press)); !errors.Is(err, context.Canceled) {
		t.Errorf("of who is gone: %v", err)
	}
	if _, err := s.Call(t.Context(), "computer_key", json.RawMessage(press)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), e.end(t.Context(), v)); err != nil {
		t.Fatal(err)
	}
	want := "pc of up is taken by console, ended false after 0; pc of up is taken by console, ended true after 1"
	if got := strings.Join(o.told(), "; "); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
}

// FuzzHatch: whatever comes in at a hatch, the computer can be taken over afterwards.
func FuzzHatch(f *testing.F) {
	for _, s := range []string{"\n", "{}\n", `{"tool":"computer_key","arguments":{"keys":["a"]}}` + "\n", `{"tool":1}` + "\n{", "[\n]\n"} {
		f.Add([]byte(s))
	}
	hands := f.TempDir()
	f.Fuzz(func(t *testing.T, lines []byte) {
		e, v, _ := desktopOf(t, hands, nil)
		k, err := dialHatch(t.Context(), hatchPath(hands, "box1"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = k.c.Write(lines)
		_ = k.c.Close()
		s := &Screen{hatch: hatchPath(hands, "box1"), way: &http.Transport{}, box: shut{}}
		if _, err := s.Call(t.Context(), "computer_key", json.RawMessage(press)); err != nil {
			t.Error(err)
		}
		if err := errors.Join(s.Close(), e.end(t.Context(), v)); err != nil {
			t.Error(err)
		}
	})
}

// full is a run whose record takes nothing more.
type full struct{}

func (full) EnvTaken(string, TakeOver) error                 { return errors.New("the disk is full") }
func (full) EnvKept(string, Piece)                           {}
func (full) BoxCreated(string, string, sandbox.Info)         {}
func (full) BoxRemoved(_, _ string, _ sandbox.Info, _ error) {}

// shut is a box that is only closed.
type shut struct{ guest.Box }

func (shut) Close() error { return nil }

func (s *seen) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.text)
}

// leave makes a socket that nobody listens at, and did not since long.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := unixsocket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, long(), long()); err != nil {
		t.Fatal(err)
	}
}

// long is a time since which a socket is no new one.
func long() time.Time { return time.Now().Add(-2 * hatchGrace) }
