package computer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a desktop in memory: it notes what it is told, and its picture has another colour at each pixel.
type desk struct {
	mu      sync.Mutex
	display computer.Display
	pointer computer.Point
	did     []string
	fail    error            // of the next input
	down    error            // of captures
	spots   []computer.Point // that are white
	block   chan struct{}    // inputs wait for it; nil: none do
	entered chan struct{}    // told of each input that begins
}

func newDesk() *desk {
	return &desk{display: computer.Display{Width: 200, Height: 100, Scale: 1}, entered: make(chan struct{}, 100)}
}

func (d *desk) note(ctx context.Context, format string, args ...any) (*computer.Effect, error) {
	d.entered <- struct{}{}
	if d.block != nil {
		select {
		case <-d.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fail; err != nil {
		d.fail = nil
		return nil, err
	}
	d.did = append(d.did, fmt.Sprintf(format, args...))
	return nil, nil
}

// notes is what was done since the last time this was asked.
func (d *desk) notes() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := strings.Join(d.did, "; ")
	d.did = nil
	return out
}

func (d *desk) Features() computer.Features {
	return computer.Features{
		Buttons: []computer.Button{computer.Left, computer.Right}, MaxClickCount: 3, MaxDragPoints: 3, MaxTextLength: 5, MaxKeyRepeat: 2, MaxScrollAmount: 4,
		Modes: []computer.Size{{Width: 200, Height: 100}, {Width: 100, Height: 100}},
	}
}

func (d *desk) Display(context.Context) (computer.Display, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.display, nil
}

func (d *desk) Capture(context.Context) (computer.Image, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, h := int(float64(d.display.Width)*d.display.Scale), int(float64(d.display.Height)*d.display.Scale)
	m := computer.Image{Format: computer.BGRX, Width: w, Height: h, Data: make([]byte, 4*w*h)}
	for i := range w * h {
		m.Data[4*i], m.Data[4*i+1], m.Data[4*i+2] = byte(i%w), byte(i/w), 7
	}
	for _, p := range d.spots {
		copy(m.Data[4*(p.Y*w+p.X):], "\xff\xff\xff")
	}
	return m, d.down
}

func (d *desk) Click(ctx context.Context, c computer.Click) (*computer.Effect, error) {
	return d.note(ctx, "click %s %d,%d ×%d %v", c.Button, c.At.X, c.At.Y, c.Count, c.Modifiers)
}

func (d *desk) Drag(ctx context.Context, g computer.Drag) (*computer.Effect, error) {
	return d.note(ctx, "drag %s %v %s %v", g.Button, g.Path, g.Duration, g.Modifiers)
}

func (d *desk) Scroll(ctx context.Context, s computer.Scroll) (*computer.Effect, error) {
	return d.note(ctx, "scroll %s %d,%d ×%d %v", s.Direction, s.At.X, s.At.Y, s.Amount, s.Modifiers)
}

func (d *desk) Type(ctx context.Context, text string, t computer.Timing) (*computer.Effect, error) {
	return d.note(ctx, "type %q %s %s", text, t.Hold, t.Delay)
}

func (d *desk) Press(ctx context.Context, keys []computer.Key, _ computer.Timing) (*computer.Effect, error) {
	return d.note(ctx, "press %v", keys)
}

func (d *desk) PointerMove(ctx context.Context, to computer.Point) error {
	_, err := d.note(ctx, "move %d,%d", to.X, to.Y)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pointer = to
	return err
}

func (d *desk) PointerDown(ctx context.Context, b computer.Button) error {
	_, err := d.note(ctx, "down %s", b)
	return err
}

func (d *desk) PointerUp(ctx context.Context, b computer.Button) error {
	_, err := d.note(ctx, "up %s", b)
	return err
}

func (d *desk) PointerPosition(context.Context) (computer.Point, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pointer, nil
}

func (d *desk) KeyDown(ctx context.Context, keys []computer.Key) error {
	_, err := d.note(ctx, "keys down %v", keys)
	return err
}

func (d *desk) KeyUp(ctx context.Context, keys []computer.Key) error {
	_, err := d.note(ctx, "keys up %v", keys)
	return err
}

func (d *desk) SetDisplay(_ context.Context, to computer.Display) (computer.Display, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.display = to
	return to, nil
}

// rig is a served computer and a client of it.
type rig struct {
	t    *testing.T
	desk *desk
	url  string
	home string
	on   *computer.Computer
	c    *mcp.ClientSession
}

func none(string) (string, bool) { return "", false }

// serve serves a desk, or the driver that stands on it.
func serve(t *testing.T, d *desk, change func(*computer.Options), on ...computer.Driver) *rig {
	t.Helper()
	s := computer.DefaultSettings()
	o := computer.Options{Home: t.TempDir(), Lookup: none, Settings: &s, Platform: &computer.Platform{OS: "linux", Arch: "amd64", Display: "x11"}, Identity: func(c env.Call) string { return c.Role }}
	if change != nil {
		change(&o)
	}
	c, err := computer.New(append(on, d)[0], o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	r := &rig{t: t, desk: d, url: srv.URL, home: o.Home, on: c}
	r.c = r.connect("")
	t.Cleanup(func() {
		r.c.Close()
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		srv.CloseClientConnections()
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// as adds the header that tells a caller's role.
type as struct{ role string }

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if a.role != "" {
		r.Header.Set("AgentEnv-Role", a.role)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (r *rig) connect(role string) *mcp.ClientSession {
	r.t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(r.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: r.url + "/mcp", HTTPClient: &http.Client{Transport: as{role}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

type result map[string]any

// call is a tool's structured content; a refusal has code.
func (r *rig) call(name, args string) result {
	r.t.Helper()
	return r.callBy(r.c, name, args)
}

func (r *rig) callBy(s *mcp.ClientSession, name, args string) result {
	res, err := s.CallTool(r.t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	if err != nil {
		r.t.Errorf("%s %s: %v", name, args, err)
		return result{}
	}
	out := result{}
	if m, ok := res.StructuredContent.(map[string]any); ok {
		out = m
	}
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.ImageContent:
			out["image"], out["mime"] = c.Data, c.MIMEType
		case *mcp.TextContent:
			out["text"] = c.Text
		}
	}
	if res.IsError && out["code"] == nil {
		out["code"] = "?"
	}
	return out
}

// refuses checks that a call is refused with a code, and that nothing was done.
func (r *rig) refuses(code, name, args string) {
	r.t.Helper()
	got := r.call(name, args)
	if got["code"] != code || got["applied"] != "no" {
		r.t.Errorf("%s %s: %v, want %s", name, args, got, code)
	}
	if did := r.desk.notes(); did != "" {
		r.t.Errorf("%s %s did %s", name, args, did)
	}
}

// does checks what a call makes the desktop do.
func (r *rig) does(want, name, args string) result {
	r.t.Helper()
	got := r.call(name, args)
	if got["code"] != nil {
		r.t.Errorf("%s %s: %v", name, args, got)
	}
	if did := r.desk.notes(); did != want {
		r.t.Errorf("%s %s did %q, want %q", name, args, did, want)
	}
	return got
}

// ext calls an extension: GET with body "".
func (r *rig) ext(path, body string) (int, string) {
	r.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

func (r *rig) rpc(method, params string) string {
	r.t.Helper()
	_, body := r.ext("/agentenv", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	return body
}

var errBroken = errors.New("it broke")

// eventually waits for what happens beside calls.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for give := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(give) {
			t.Fatal("never: " + what)
		}
	}
}
