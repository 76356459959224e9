package child

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// roundTripper is what both ways to a server have.
type roundTripper interface {
	http.RoundTripper
	CloseIdleConnections()
}

// bothWays runs a test with connections of ours and with those of net/http, which must not differ.
func bothWays(t *testing.T, test func(t *testing.T, rt roundTripper)) {
	t.Helper()
	for name, rt := range map[string]roundTripper{"ours": NewTransport(nil), "net/http": NewTransport(nil).Transport} {
		t.Run(name, func(t *testing.T) {
			defer rt.CloseIdleConnections()
			test(t, rt)
		})
	}
}

// post sends a body, and tells whether it went over a connection that was there.
func post(ctx context.Context, t *testing.T, rt http.RoundTripper, url, body string) (resp *http.Response, reused bool, err error) {
	t.Helper()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err = rt.RoundTrip(req)
	return resp, reused, err
}

// said posts a body and reads the whole answer.
func said(t *testing.T, rt http.RoundTripper, url, body string) (answer string, reused bool) {
	t.Helper()
	resp, reused, err := post(t.Context(), t, rt, url, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, b), reused
}

func TestTransportAnswers(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/json" || r.ContentLength != int64(len(b)) || r.Host == "" {
			http.Error(w, "what came isn't what was sent", http.StatusBadRequest)
			return
		}
		switch r.URL.Path {
		case "/early":
			w.Header().Set("Link", "</x>")
			w.WriteHeader(http.StatusEarlyHints)
		case "/none":
			w.WriteHeader(http.StatusAccepted)
			return
		case "/pieces":
			_, _ = w.Write(b[:1])
			_ = http.NewResponseController(w).Flush()
			b = b[1:]
		case "/last":
			w.Header().Set("Connection", "close")
		}
		_, _ = w.Write(b)
	}))
	defer srv.Close()
	large := strings.Repeat("x", 2*small)
	bothWays(t, func(t *testing.T, rt roundTripper) {
		before := "/first"
		for _, c := range []struct{ path, body, want string }{
			{"/echo", "a", "200 a"}, {"/early", "b", "200 b"}, {"/none", "c", "202 "}, {"/pieces", "de", "200 de"},
			{"/echo?q=1", large[:small], "200 " + large[:small]}, {"/last", "f", "200 f"}, {"/echo", "g", "200 g"},
		} {
			got, reused := said(t, rt, srv.URL+c.path, c.body)
			if got != c.want {
				t.Errorf("%s: %.80q, want %.80q", c.path, got, c.want)
			}
			if want := before != "/first" && before != "/last"; reused != want {
				t.Errorf("%s after %s: over a connection that was there: %v, want %v", c.path, before, reused, want)
			}
			before = c.path
		}
		if got, _ := said(t, rt, srv.URL+"/echo", large); got != "200 "+large {
			t.Errorf("a large message was answered with %d bytes", len(got))
		}
	})
}

// raw serves connections by hand.
func raw(t *testing.T, serve func(n int, c net.Conn, r *bufio.Reader)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// take reads one request.
func take(r *bufio.Reader) error {
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err
}

func TestTransportClosedIdle(t *testing.T) {
	var dials atomic.Int32
	closed := make(chan struct{})
	url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		dials.Add(1)
		if take(r) == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		c.Close()
		closed <- struct{}{}
	})
	rt := NewTransport(nil)
	defer rt.CloseIdleConnections()
	for range 10 {
		if got, _ := said(t, rt, url, "x"); got != "200 ok" {
			t.Fatal(got)
		}
		<-closed
	}
	if n := dials.Load(); n != 10 {
		t.Errorf("%d connections, want 10", n)
	}
}

func TestTransportNotReused(t *testing.T) {
	for name, answer := range map[string]string{
		"more than was asked": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
		"until the end":       "HTTP/1.1 200 OK\r\n\r\nok",
		"of an older kind":    "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				for take(r) == nil {
					_, _ = io.WriteString(c, answer)
					if name == "until the end" {
						return
					}
				}
			})
			rt := NewTransport(nil)
			defer rt.CloseIdleConnections()
			for range 3 {
				if got, reused := said(t, rt, url, "x"); got != "200 ok" || reused {
					t.Fatalf("%q, over a connection that was there: %v", got, reused)
				}
			}
		})
	}
}

func TestTransportBroken(t *testing.T) {
	endless := strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 16<<10)
	for name, answer := range map[string]string{
		"nothing": "", "no HTTP": "hello\r\n\r\n", "half a head": "HTTP/1.1 200 OK\r\nContent-", "a head without end": "HTTP/1.1 200 OK\r\n" + endless,
		"another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"never an answer":  strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100),
	} {
		t.Run(name, func(t *testing.T) {
			rt := NewTransport(nil)
			defer rt.CloseIdleConnections()
			url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if take(r) == nil {
					_, _ = io.WriteString(c, answer)
				}
			})
			if resp, _, err := post(t.Context(), t, rt, url, "x"); err == nil {
				resp.Body.Close()
				t.Fatalf("it was answered with %s", resp.Status)
			}
		})
	}
	bothWays(t, func(t *testing.T, rt roundTripper) {
		url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
			if take(r) == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			}
		})
		resp, _, err := post(t.Context(), t, rt, url, "x")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(b) != "half" {
			t.Errorf("%q, %v", b, err)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if resp, _, err := post(t.Context(), t, NewTransport(nil), "http://"+l.Addr().String(), "x"); err == nil {
		resp.Body.Close()
		t.Error("nobody listens, and it was answered")
	}
}

func TestTransportCancelled(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprint("answer begun: ", begun), func(t *testing.T) {
			bothWays(t, func(t *testing.T, rt roundTripper) {
				left := make(chan error, 1)
				came := make(chan struct{})
				url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
					if take(r) != nil {
						return
					}
					if begun {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
					}
					close(came)
					_, err := r.ReadByte()
					left <- err
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					<-came
					cancel()
				}()
				resp, _, err := post(ctx, t, rt, url, "x")
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if err == nil {
					t.Error("it was answered")
				}
				if err := <-left; err == nil {
					t.Error("the server wasn't told")
				}
			})
		})
	}
}

func TestTransportGivenUp(t *testing.T) {
	bothWays(t, func(t *testing.T, rt roundTripper) {
		left := make(chan error, 1)
		url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
			if take(r) == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata")
				_, err := r.ReadByte()
				left <- err
			}
		})
		resp, _, err := post(t.Context(), t, rt, url, "x")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Millisecond, func() { resp.Body.Close() })
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("a body that was closed while it was read came to an end")
		}
		if err := <-left; err == nil {
			t.Error("the server wasn't told")
		}
	})
}

func TestTransportIdle(t *testing.T) {
	open := map[net.Conn]bool{}
	var mu sync.Mutex
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if s == http.StateNew {
			open[c] = true
		} else if s == http.StateClosed {
			delete(open, c)
		}
	}
	srv.Start()
	defer srv.Close()
	none := func(when string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			n := len(open)
			mu.Unlock()
			if n == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d connections are open %s", n, when)
			}
		}
	}
	rt := NewTransport(nil)
	rt.IdleConnTimeout = 50 * time.Millisecond
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				if got, _ := said(t, rt, srv.URL, "x"); got != "200 ok" {
					t.Error(got)
				}
			}
		})
	}
	wg.Wait()
	none("after they were idle for too long")
	rt = NewTransport(nil)
	rt.IdleConnTimeout = time.Hour
	said(t, rt, srv.URL, "x")
	rt.CloseIdleConnections()
	none("after all were closed")
}

// mute hides what a connection could be asked.
type mute struct{ net.Conn }

func TestTransportBlind(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer srv.Close()
	rt := NewTransport(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return mute{c}, err
	})
	defer rt.CloseIdleConnections()
	for i, want := range []bool{false, false, true, true} { // the first connection is used once
		if got, reused := said(t, rt, srv.URL, "x"); got != "200 x" || reused != want {
			t.Errorf("message %d: %q, over a connection that was there: %v", i, got, reused)
		}
	}
}

func FuzzTransport(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f.Add([]byte("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 404 No\r\n\r\nuntil the end"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		rt := NewTransport(func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				if take(bufio.NewReader(there)) == nil {
					_, _ = there.Write(answer)
				}
			}()
			return here, nil
		})
		resp, _, err := post(t.Context(), t, rt, "http://server", "x")
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if n, _ := io.Copy(io.Discard, resp.Body); n > int64(len(answer)) || resp.StatusCode < 200 {
			t.Errorf("%s with %d bytes of %d", resp.Status, n, len(answer))
		}
	})
}

// BenchmarkTransport is one message and its answer, over connections of ours and of net/http; the server's share is in both.
func BenchmarkTransport(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer srv.Close()
	body := bytes.Repeat([]byte("x"), 200)
	for name, rt := range map[string]roundTripper{"ours": NewTransport(nil), "net/http": NewTransport(nil).Transport} {
		b.Run(name, func(b *testing.B) {
			defer rt.CloseIdleConnections()
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL, bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
