package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/sdk/computer"
)

// shelf is computers of a test: one, which shows "a", and then what comes out of pictures until that is closed.
type shelf struct {
	dark     bool // it shows no "a"
	pictures chan computer.Piece
	broken   error // how the stream ends; nil: like one that ends

	mu     sync.Mutex
	stands bool
	open   int      // screens that are not closed
	held   int      // lists and screens that are not let go of
	calls  []string // of tools
	stale  int      // so many inputs meet a frame of another size
}

func newShelf() *shelf { return &shelf{pictures: make(chan computer.Piece, 10), stands: true} }

func (s *shelf) Desktops(context.Context) ([]deploy.Desktop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stands {
		return nil, errors.New("an engine is off")
	}
	return []deploy.Desktop{
		{ID: "box1", Name: "desk", Env: "@local/a/desk", Run: "a/t-12345678", Step: "up", Provider: "local"}, {ID: "box2", Name: "pc", Env: "@local/a/pc", Run: "env/k"},
	}, nil
}

func (s *shelf) Open(_ context.Context, id string) (Screen, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "box1" {
		return nil, fmt.Errorf("computer %s: %w", id, sandbox.ErrNotFound)
	}
	s.open++
	return shown{s}, nil
}

type shown struct{ *shelf }

func (s shown) Follow(ctx context.Context, _ float64) iter.Seq2[computer.Piece, error] {
	return func(yield func(computer.Piece, error) bool) {
		if !s.dark && !yield(piece(0, 0, "a"), nil) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case p, ok := <-s.pictures:
				switch {
				case !ok && s.broken != nil:
					yield(computer.Piece{}, s.broken)
					return
				case !ok || !yield(p, nil):
					return
				}
			}
		}
	}
}

func (s shown) Call(_ context.Context, tool string, args json.RawMessage) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, tool+" "+string(args))
	switch {
	case tool == "computer_screenshot":
		return json.RawMessage(`{"content":[],"structuredContent":{"width":200,"height":100}}`), nil
	case s.stale > 0:
		s.stale--
		return json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"another size"}],"structuredContent":{"code":"stale_frame"}}`), nil
	case strings.Contains(string(args), "refused"):
		return json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"there is no such key"}],"structuredContent":{"code":"invalid_argument"}}`), nil
	default:
		return json.RawMessage(`{"content":[],"structuredContent":{"summary":"did it"}}`), nil
	}
}

func (s shown) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	return nil
}

func (s *shelf) console(takeOver bool) *Server {
	return New(Options{Token: testToken, Log: slog.New(slog.DiscardHandler), TakeOver: takeOver, Computers: func(context.Context) (Computers, func(context.Context) error, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held++
		return s, func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.held--
			return nil
		}, nil
	}})
}

// free waits until nothing of the computers is held.
func (s *shelf) free(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		open, held := s.open, s.held
		s.mu.Unlock()
		if open == 0 && held == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d screens are open, and %d are held", open, held)
		}
	}
}

func piece(x, y int, png string) computer.Piece {
	p := computer.Piece{Screen: computer.Size{Width: 200, Height: 100}, PNG: []byte(png)}
	p.Place.X, p.Place.Y = x, y
	return p
}

// watcher reads a stream of a console that listens.
type watcher struct {
	t     *testing.T
	in    *bufio.Reader
	body  io.Closer
	watch string
}

func watch(t *testing.T, base string, status int) *watcher {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/computers/box1/screen", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != status {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("answered %d, want %d: %s", res.StatusCode, status, b)
	}
	w := &watcher{t: t, in: bufio.NewReader(res.Body), body: res.Body}
	if status == http.StatusOK {
		w.watch = w.line()["watch"].(string)
	}
	return w
}

func (w *watcher) line() map[string]any {
	w.t.Helper()
	b, err := w.in.ReadBytes('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil {
		w.t.Fatalf("%v: %s", err, b)
	}
	return out
}

// picture wants the next picture.
func (w *watcher) picture(want computer.Piece) {
	w.t.Helper()
	l := w.line()
	png := make([]byte, int(l["bytes"].(float64)))
	if _, err := io.ReadFull(w.in, png); err != nil {
		w.t.Fatal(err)
	}
	if l["x"] != float64(want.Place.X) || l["y"] != float64(want.Place.Y) || l["width"] != 200.0 || l["height"] != 100.0 || string(png) != string(want.PNG) {
		w.t.Errorf("%v %q", l, png)
	}
}

// ends wants the end.
func (w *watcher) ends(end, detail string) {
	w.t.Helper()
	if l := w.line(); l["end"] != end || !strings.Contains(l["detail"].(string), detail) {
		w.t.Errorf("it ends with %v", l)
	}
	if b, err := io.ReadAll(w.in); len(b) > 0 || err != nil {
		w.t.Errorf("after the end: %q %v", b, err)
	}
}

// TestScreen: a stream is the screen at first, then what changes, and says how it ended; nothing is held after it.
func TestScreen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end, detail string
		stands      bool
		broken      error
	}{
		{"broken", "can't be read", true, errors.New("a part can't be read")}, {"broken", "driver ended the stream", true, nil}, {"broken", "an engine is off", false, nil},
	} {
		s := newShelf()
		srv := httptest.NewServer(s.console(false))
		w := watch(t, srv.URL, 200)
		w.picture(piece(0, 0, "a"))
		s.pictures <- piece(3, 4, "{part}\n")
		w.picture(piece(3, 4, "{part}\n"))
		s.mu.Lock()
		s.stands, s.broken = c.stands, c.broken
		s.mu.Unlock()
		close(s.pictures)
		w.ends(c.end, c.detail)
		srv.Close()
		s.free(t)
	}
}

// TestScreenLeft: a watcher who leaves, and a console that stops, end the stream, and the console says so.
func TestScreenLeft(t *testing.T) {
	t.Parallel()
	s := newShelf()
	c := s.console(false)
	ctx, stop := context.WithCancel(t.Context())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx, l) }()
	base := "http://" + l.Addr().String()
	w := watch(t, base, 200)
	w.picture(piece(0, 0, "a"))
	w.body.Close()
	s.free(t)
	if len(c.hands.of) != 0 {
		t.Errorf("hands of streams that ended: %v", c.hands.of)
	}
	w = watch(t, base, 200)
	w.picture(piece(0, 0, "a"))
	stop()
	w.ends("stopping", "was stopped")
	if err := <-served; err != nil {
		t.Error(err)
	}
	s.free(t)
}

// TestScreenLimits: so many watch at once and no more, and their places are free again.
func TestScreenLimits(t *testing.T) {
	t.Parallel()
	s := newShelf()
	srv := httptest.NewServer(s.console(false))
	defer srv.Close()
	var all []*watcher
	for range mostScreens {
		all = append(all, watch(t, srv.URL, 200))
	}
	watch(t, srv.URL, 429)
	for _, w := range all {
		w.body.Close()
	}
	s.free(t)
	w := watch(t, srv.URL, 200)
	w.body.Close()
	s.free(t)
}

// TestComputersRefused: nothing of computers is for who lacks the token, and what isn't there is told.
func TestComputersRefused(t *testing.T) {
	t.Parallel()
	s := newShelf()
	c := s.console(false)
	for _, r := range [][2]string{{"GET", "/api/computers"}, {"GET", "/api/computers/box1/screen"}, {"POST", "/api/computers/box1/input"}} {
		req := httptest.NewRequest(r[0], r[1], http.NoBody)
		req.Host = "127.0.0.1"
		w := httptest.NewRecorder()
		c.ServeHTTP(w, req)
		if w.Code != 401 {
			t.Errorf("%v without the token: %d", r, w.Code)
		}
		req.Header.Set("Authorization", "Bearer "+testToken)
		req.Header.Set("Origin", "https://evil.example")
		w = httptest.NewRecorder()
		c.ServeHTTP(w, req)
		if w.Code != 403 {
			t.Errorf("%v from another page: %d", r, w.Code)
		}
	}
	if w := ask(c, "GET", "/api/computers/box7/screen", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "no such computer") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(c, "POST", "/api/computers/box1/input", `{"watch":"x","action":"type","text":"x"}`); w.Code != 403 || !strings.Contains(w.Body.String(), "--take-over") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.dark, s.broken = true, errors.New("it answered 404")
	close(s.pictures)
	if w := ask(c, "GET", "/api/computers/box1/screen", ""); w.Code != 502 || !strings.Contains(w.Body.String(), "it answered 404") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.free(t)
	if len(s.calls) > 0 {
		t.Errorf("tools were called: %q", s.calls)
	}
}

// TestComputersListed: what stands, whoever deployed it, and what couldn't be asked.
func TestComputersListed(t *testing.T) {
	t.Parallel()
	s := newShelf()
	w := ask(s.console(true), "GET", "/api/computers", "")
	for _, want := range []string{`"take_over":true`, `"id":"box1"`, `"run_id":"a/t-12345678","step_id":"up","by_hand":false`, `"env_id":"@local/a/pc","by_hand":true`, `"warnings":[]`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("without %s: %s", want, w.Body)
		}
	}
	s.stands = false
	if w := ask(s.console(false), "GET", "/api/computers", ""); !strings.Contains(w.Body.String(), `"take_over":false,"computers":[],"warnings":["an engine is off"]`) {
		t.Errorf("%s", w.Body)
	}
	s.free(t)
}

// TestInput: what a person does becomes calls of tools at the pixels of a frame of their own, taken anew when it doesn't fit any more.
func TestInput(t *testing.T) {
	t.Parallel()
	s := newShelf()
	c := s.console(true)
	srv := httptest.NewServer(c)
	defer srv.Close()
	w := watch(t, srv.URL, 200)
	w.picture(piece(0, 0, "a"))
	do := func(status int, body, said string) {
		t.Helper()
		r := ask(c, "POST", "/api/computers/box1/input", `{"watch":"`+w.watch+`",`+body+`}`)
		if r.Code != status || !strings.Contains(r.Body.String(), said) {
			t.Errorf("%s: %d %s", body, r.Code, r.Body)
		}
	}
	calls := func(want ...string) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		if got, want := strings.Join(s.calls, "\n"), strings.Join(want, "\n"); got != want {
			t.Errorf("called\n%s\nwant\n%s", got, want)
		}
		s.calls = nil
	}
	do(200, `"action":"click","at":[0.5,1],"button":"right","count":2,"modifiers":["Shift"]`, `"said":"did it"`)
	calls("computer_screenshot {}", `computer_click {"button":"right","count":2,"modifiers":["Shift"],"x":100,"y":99}`)
	do(200, `"action":"drag","path":[[0,0],[0.25,0.25]]`, "did it")
	do(200, `"action":"scroll","at":[1,0],"direction":"down","amount":2`, "did it")
	do(200, `"action":"type","text":"hé"`, "did it")
	calls(`computer_drag {"path":[[0,0],[50,25]]}`, `computer_scroll {"amount":2,"direction":"down","x":199,"y":0}`, `computer_type {"text":"hé"}`)
	s.stale = 1
	do(200, `"action":"click","at":[0,0]`, "did it")
	calls(`computer_click {"x":0,"y":0}`, "computer_screenshot {}", `computer_click {"x":0,"y":0}`)
	do(409, `"action":"key","keys":["refused"]`, "there is no such key")
	s.calls = nil
	for body, said := range map[string]string{
		`"action":"exec"`: "action has to be", `"action":"click"`: "at has to be made of", `"action":"click","at":[0,1.1]`: "from 0 to 1", `"action":"click","at":[0,0,0]`: "made of",
		`"action":"drag","path":[[0,0]]`: "2 to", `"action":"type","text":""`: "1 to", `"action":"key","keys":[]`: "1 to", `"action":"key","keys":[1]`: "names of keys",
		`"action":"type","text":"x","at":[0,0]`: "no key of this route", `"action":"click","at":[0,0],"count":1.5`: "whole number", `"action":"key","keys":{"a":"b"}`: "names of keys",
	} {
		do(400, body, said)
	}
	if r := ask(c, "POST", "/api/computers/box2/input", `{"watch":"`+w.watch+`","action":"type","text":"x"}`); r.Code != 404 {
		t.Errorf("by the stream of another computer: %d", r.Code)
	}
	w.body.Close()
	s.free(t)
	do(404, `"action":"type","text":"x"`, "nobody watches")
	calls()
}

// FuzzGesture: whatever an input is, it is refused, or is one of the tools of mouse and keyboard with points on the screen.
func FuzzGesture(f *testing.F) {
	for _, s := range []string{`{"action":"click","at":[0.5,1],"button":"right"}`, `{"action":"drag","path":[[0,0],[1,1]]}`, `{"action":"key","keys":["a"]}`, `{"action":"scroll","at":[1e-9,0],"amount":-1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		b, err := parseBody([]byte(src))
		if err != nil {
			return
		}
		in := b.gesture()
		if b.done() != nil {
			return
		}
		switch in.tool {
		case "computer_click", "computer_drag", "computer_scroll", "computer_type", "computer_key":
		default:
			t.Errorf("%s became %s", src, in.tool)
		}
		for _, p := range in.points {
			if x, y := pixel(p[0], 200), pixel(p[1], 100); !(x >= 0 && x < 200 && y >= 0 && y < 100) {
				t.Errorf("%s: %v is at %g,%g", src, p, x, y)
			}
		}
	})
}
