package computer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/computer"
)

// spot makes a pixel white.
func (d *desk) spot(x, y int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spots = append(d.spots, computer.Point{X: x, Y: y})
}

func (r *rig) live(query string, header ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+computer.LivePath+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestLive: a page's img gets the whole screen in each part, at once, and a part more when something changes.
func TestLive(t *testing.T) {
	d := newDesk()
	d.pointer = computer.Point{X: 150, Y: 50}
	r := serve(t, d, nil)
	resp := r.live("?fps=30")
	if kind := resp.Header.Get("Content-Type"); kind != "multipart/x-mixed-replace; boundary=agentenv-screen" {
		t.Fatal(kind)
	}
	parts := multipart.NewReader(resp.Body, "agentenv-screen")
	for i, spots := range [][2]int{{-1, -1}, {10, 20}} {
		if i > 0 {
			d.spot(spots[0], spots[1])
		}
		p, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(p)
		if err != nil {
			t.Fatal(err)
		}
		if m.Bounds() != image.Rect(0, 0, 200, 100) {
			t.Errorf("%v %v", m.Bounds(), p.Header)
		}
		white := color.RGBA{255, 255, 255, 255}
		if at := m.At(10, 20); (at == white) != (i == 1) {
			t.Errorf("part %d: the spot is %v", i, at)
		}
		if tip, inside := m.At(150, 50), m.At(151, 53); tip != white || inside != (color.RGBA{0, 0, 0, 255}) {
			t.Errorf("the pointer is drawn with %v and %v", tip, inside)
		}
	}
	if did := d.notes(); did != "" {
		t.Errorf("watching did %s", did)
	}
	if got := r.call("computer_click", `{"x":1,"y":1}`); got["code"] != "stale_frame" { // what is watched is no frame
		t.Errorf("%v", got)
	}
}

// TestLiveRefusals: what is asked is checked, and who may not take screenshots may not watch.
func TestLiveRefusals(t *testing.T) {
	r := serve(t, newDesk(), nil)
	for query, want := range map[string]string{"?fps=0": "fps", "?fps=31": "fps", "?fps=x": "fps", "?changes=2": "changes"} {
		resp := r.live(query)
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 400 || !strings.Contains(string(b), `"code":"invalid_argument","message":"`+want) {
			t.Errorf("%s: %d %s %v", query, resp.StatusCode, b, err)
		}
	}
	resp, err := http.Post(r.url+"/tools/disable", "application/json", strings.NewReader(`{"role":"blind","tools":["computer_screenshot"]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp := r.live("", "AgentEnv-Role", "blind"); resp.StatusCode != 403 {
		t.Errorf("a role without screenshots gets %d", resp.StatusCode)
	}
	for i := range 17 {
		if resp := r.live(""); (resp.StatusCode == 429) != (i == 16) {
			t.Errorf("watcher %d gets %d", i+1, resp.StatusCode)
		}
	}
}

// TestLiveDown: while the screen can't be captured nothing is sent, and then it goes on.
func TestLiveDown(t *testing.T) {
	d := newDesk()
	d.down = io.ErrUnexpectedEOF
	r := serve(t, d, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	time.AfterFunc(50*time.Millisecond, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.down = nil
	})
	for p, err := range computer.Follow(ctx, http.DefaultClient, r.url, 30) {
		if err != nil || p.Screen != (computer.Size{Width: 200, Height: 100}) {
			t.Errorf("%v %v", p.Screen, err)
		}
		return
	}
	t.Error("nothing was shown")
}

// film is an animated PNG taken apart: its pictures as they are seen, and for how long.
type film struct {
	screens []*image.RGBA
	delays  []time.Duration
}

// readFilm plays a film.
func readFilm(t *testing.T, b []byte) film {
	t.Helper()
	var f film
	var header, control, data []byte
	var order uint32
	canvas := image.NewRGBA(image.Rectangle{})
	told := -1
	show := func() {
		if control == nil {
			return
		}
		n := func(i int) int { return int(binary.BigEndian.Uint32(control[i:])) }
		at := image.Pt(n(12), n(16))
		p := onePNG(t, n(4), n(8), header, data)
		box := p.Bounds().Add(at)
		if !box.In(canvas.Bounds()) {
			t.Fatalf("picture %d at %v is outside of %v", len(f.screens), box, canvas.Bounds())
		}
		draw.Draw(canvas, box, p, image.Point{}, draw.Src)
		now := image.NewRGBA(canvas.Bounds())
		copy(now.Pix, canvas.Pix)
		f.screens = append(f.screens, now)
		f.delays = append(f.delays, time.Second*time.Duration(binary.BigEndian.Uint16(control[20:]))/time.Duration(binary.BigEndian.Uint16(control[22:])))
	}
	next := func(b []byte) {
		if got := binary.BigEndian.Uint32(b); got != order {
			t.Fatalf("number %d comes where %d should", got, order)
		}
		order++
	}
	ended := false
	for rest := b[8:]; len(rest) > 0; {
		n := int(binary.BigEndian.Uint32(rest))
		body := rest[8 : 8+n]
		switch string(rest[4:8]) {
		case "IHDR":
			header = body
			canvas = image.NewRGBA(image.Rect(0, 0, int(binary.BigEndian.Uint32(body)), int(binary.BigEndian.Uint32(body[4:]))))
		case "acTL":
			told = int(binary.BigEndian.Uint32(body))
		case "fcTL":
			show()
			next(body)
			control, data = body, nil
		case "IDAT":
			data = append(data, body...)
		case "fdAT":
			next(body)
			data = append(data, body[4:]...)
		case "IEND":
			ended = true
		}
		rest = rest[12+n:]
	}
	show()
	if told != len(f.screens) || !ended {
		t.Errorf("the film tells of %d pictures and has %d; ended: %v", told, len(f.screens), ended)
	}
	return f
}

// onePNG decodes the data of a picture.
func onePNG(t *testing.T, w, h int, header, data []byte) image.Image {
	t.Helper()
	head := binary.BigEndian.AppendUint32(nil, uint32(w))
	head = append(binary.BigEndian.AppendUint32(head, uint32(h)), header[8:]...)
	b := computer.AppendChunk([]byte("\x89PNG\r\n\x1a\n"), "IHDR", head)
	b = computer.AppendChunk(computer.AppendChunk(b, "IDAT", data), "IEND", nil)
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRecord: a film of what happened, played picture for picture, with the screen made smaller and larger meanwhile.
func TestRecord(t *testing.T) {
	d := newDesk()
	r := serve(t, d, nil)
	path := filepath.Join(t.TempDir(), "film.png")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type end struct {
		r   computer.Recording
		err error
	}
	done := make(chan end, 1)
	go func() {
		rec, err := computer.Record(ctx, http.DefaultClient, r.url, f, computer.RecordOptions{FPS: 30})
		done <- end{rec, err}
	}()
	waitSize := func(more int64) int64 {
		for {
			st, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if st.Size() > more {
				return st.Size()
			}
			time.Sleep(time.Millisecond)
		}
	}
	// Each picture is written as it comes.
	size := waitSize(0)
	if b, err := os.ReadFile(path); err != nil || !bytes.Contains(b, []byte("IDAT")) {
		t.Errorf("the first picture waits: %v", err)
	}
	d.spot(100, 60)
	size = waitSize(size)
	d.spot(120, 70)
	size = waitSize(size)
	for _, to := range []computer.Display{{Width: 100, Height: 100, Scale: 1}, {Width: 250, Height: 120, Scale: 1}} {
		if _, err := d.SetDisplay(ctx, to); err != nil {
			t.Fatal(err)
		}
		size = waitSize(size)
	}
	d.spot(220, 110) // out of sight
	time.Sleep(100 * time.Millisecond)
	cancel()
	got := <-done
	if got.err != nil || got.r.Truncated {
		t.Fatalf("%+v", got)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	film := readFilm(t, b)
	if len(film.screens) != 5 || got.r.Pictures != 5 || int(got.r.Bytes) != len(b) {
		t.Fatalf("%d pictures in %d bytes, told of as %+v", len(film.screens), len(b), got.r)
	}
	white, black := color.RGBA{255, 255, 255, 255}, color.RGBA{0, 0, 0, 255}
	seen := ""
	for i, s := range film.screens {
		for _, p := range []image.Point{{100, 60}, {120, 70}, {150, 20}} {
			c := "-"
			switch s.RGBAAt(p.X, p.Y) {
			case white:
				c = "w"
			case black:
				c = "b"
			}
			seen += c
		}
		seen += " "
		if i < 4 && film.delays[i] > 5*time.Second || i == 4 && film.delays[i] < 50*time.Millisecond {
			t.Errorf("picture %d stands for %s", i, film.delays[i])
		}
	}
	if seen != "--- w-- ww- bbb ww- " {
		t.Errorf("seen: %s", seen)
	}
}

// TestFilm: pauses can be cut short, and a film that gets too large ends early.
func TestFilm(t *testing.T) {
	d := newDesk()
	r := serve(t, d, nil)
	f, err := os.Create(filepath.Join(t.TempDir(), "film.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	one, err := os.Create(filepath.Join(t.TempDir(), "one.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	first, err := computer.Record(t.Context(), http.DefaultClient, r.url, one, computer.RecordOptions{FPS: 30, MaxBytes: 1})
	if err != nil || !first.Truncated || first.Pictures != 1 {
		t.Fatalf("%+v %v", first, err)
	}
	time.AfterFunc(300*time.Millisecond, func() { d.spot(1, 90) })
	rec, err := computer.Record(t.Context(), http.DefaultClient, r.url, f, computer.RecordOptions{FPS: 30, Pause: 20 * time.Millisecond, MaxBytes: first.Bytes})
	if err != nil || !rec.Truncated || rec.Pictures != 2 {
		t.Fatalf("%+v %v", rec, err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if film := readFilm(t, b); film.delays[0] != 20*time.Millisecond {
		t.Errorf("%v", film.delays)
	}
	if _, err := computer.Record(t.Context(), http.DefaultClient, r.url+"/nowhere", f, computer.RecordOptions{}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
}

// TestRecordLast: a film goes on when the stream was cut, and holds what changed just before its end, also where it had got too large.
func TestRecordLast(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int64{"whole": 0, "too large": 200} {
		d := newDesk()
		r := serve(t, d, nil)
		to, err := url.Parse(r.url)
		if err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int32
		way := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if asked.Add(1) == 1 {
				ctx, cancel := context.WithTimeout(q.Context(), 100*time.Millisecond)
				defer cancel()
				q = q.WithContext(ctx)
			}
			defer func() { _ = recover() }() // how the proxy cuts an answer
			way.ServeHTTP(w, q)
		}))
		path := filepath.Join(t.TempDir(), "film.png")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		var rec computer.Recording
		go func() {
			var err error
			rec, err = computer.Record(ctx, http.DefaultClient, srv.URL, f, computer.RecordOptions{FPS: 0.5, Stay: true, Last: 10 * time.Second, MaxBytes: most})
			done <- err
		}()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if most > 0 { // its first picture is too large, and all that it has until the end
				if st, err := f.Stat(); err == nil && st.Size() > most {
					break
				}
			} else if asked.Load() >= 2 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it wasn't followed again, or isn't too large")
			}
		}
		time.Sleep(100 * time.Millisecond)
		d.spot(100, 60) // the next look is far
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		film := readFilm(t, b)
		n := len(film.screens)
		if n == 0 || n != rec.Pictures || film.screens[n-1].RGBAAt(100, 60) != (color.RGBA{255, 255, 255, 255}) || rec.Truncated != (most > 0) {
			t.Errorf("%s: %+v", name, rec)
		}
		srv.Close()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzFilm: no picture breaks a film other than by an error.
func FuzzFilm(f *testing.F) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 2, 2))); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), 2, 2, 0, 0)
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x00IDAT\x00\x00\x00\x00"), 9, 9, 1, 1)
	f.Fuzz(func(t *testing.T, b []byte, w, h, x, y int) {
		file, err := os.Create(filepath.Join(t.TempDir(), "film"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		film := computer.NewFilm(file)
		const most = 1000
		for range 2 {
			if film.Add(computer.Piece{Screen: computer.Size{Width: w % most, Height: h % most}, Place: image.Pt(x, y), PNG: b}) != nil {
				return
			}
		}
		if err := film.Close(time.Now()); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzFollow: no stream makes its reader fail other than by an error.
func FuzzFollow(f *testing.F) {
	f.Add("--agentenv-screen\r\nAgentenv-At: 1,2\r\nAgentenv-Screen: 3x4\r\nAgentenv-Time: 2026-01-02T03:04:05Z\r\n\r\nabc\r\n--agentenv-screen\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		client := &http.Client{Transport: said(s)}
		for p, err := range computer.Follow(t.Context(), client, "http://x", 1) {
			if err == nil && (p.At.IsZero() && !strings.Contains(s, "0001-01-01") || p.Place.X < 0 || p.Screen.Width < 0) {
				t.Errorf("%+v", p)
			}
		}
	})
}

// said answers any request with a stream.
type said string

func (s said) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {"multipart/x-mixed-replace; boundary=agentenv-screen"}}
	return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(string(s))), Request: r}, nil
}

func ExampleRecord() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, err := os.Create("run.png")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	r, err := computer.Record(ctx, http.DefaultClient, "http://127.0.0.1:18765", f, computer.RecordOptions{Pause: 3 * time.Second})
	fmt.Println(r.Pictures, "pictures", err)
}
