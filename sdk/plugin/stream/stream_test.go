package stream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/plugin/rpc"
	"agentenv.internal/agentenv/sdk/plugin/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// side is one end of a connection that has nothing but streams.
type side struct {
	*stream.Mux
	peer *rpc.Peer
}

func (s *side) Handle(context.Context, string, json.RawMessage) (any, error) { return nil, nil }
func (s *side) Notify(method string, params json.RawMessage)                 { s.Mux.Notify(method, params) }

// pair are two sides that are connected until the test ends.
func pair(t *testing.T) (a, b *side) {
	t.Helper()
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	a, b = &side{}, &side{}
	a.peer, b.peer = rpc.New(ar, aw, a), rpc.New(br, bw, b)
	a.Mux = stream.NewMux("a", a.peer.Notify)
	b.Mux = stream.NewMux("b", b.peer.Notify)
	var work sync.WaitGroup
	for _, s := range []*side{a, b} {
		work.Go(func() { _ = s.peer.Run(context.WithoutCancel(t.Context())); s.Close() })
	}
	t.Cleanup(func() {
		_ = errors.Join(aw.Close(), bw.Close(), ar.Close(), br.Close())
		work.Wait()
	})
	return a, b
}

// open is one stream, at both ends.
func open(t *testing.T, a, b *side) (*stream.Stream, *stream.Stream) {
	t.Helper()
	named := a.Make()
	taken, err := b.Take(named.Name())
	if err != nil {
		t.Fatal(err)
	}
	return named, taken
}

func TestBytesBothWays(t *testing.T) {
	a, b := pair(t)
	var work sync.WaitGroup
	for range 8 {
		x, y := open(t, a, b)
		for _, ends := range [][2]*stream.Stream{{x, y}, {y, x}} {
			data := make([]byte, rand.IntN(3<<20))
			for i := range data {
				data[i] = byte(rand.Uint32())
			}
			work.Go(func() {
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 1+rand.IntN(200<<10))
					if _, err := ends[0].Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				if err := ends[0].CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			work.Go(func() {
				h := sha256.New()
				if n, err := io.Copy(h, ends[1]); err != nil || n != int64(len(data)) {
					t.Errorf("%d of %d bytes came: %v", n, len(data), err)
				}
				if want := sha256.Sum256(data); !bytes.Equal(h.Sum(nil), want[:]) {
					t.Error("other bytes came")
				}
			})
		}
	}
	work.Wait()
}

// TestWindow: who isn't read can send a window and no more, and holds up nobody else.
func TestWindow(t *testing.T) {
	a, b := pair(t)
	x, y := open(t, a, b)
	fill := func() int {
		t.Helper()
		if err := x.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := x.Write(make([]byte, 10<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("sent %d, %v", n, err)
		}
		return n
	}
	sent := fill()
	for end := time.Now().Add(30 * time.Second); sent < stream.Window && time.Now().Before(end); {
		sent += fill() // a busy machine takes longer
	}
	if sent += fill(); sent != stream.Window {
		t.Errorf("sent %d", sent)
	}
	p, q := open(t, a, b)
	if _, err := q.Write([]byte("hi")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2)
	if _, err := io.ReadFull(p, buf); err != nil || string(buf) != "hi" {
		t.Errorf("%q, %v", buf, err)
	}
	if err := errors.Join(x.Close(), y.Close(), p.Close(), q.Close()); err != nil {
		t.Error(err)
	}
}

func TestEnds(t *testing.T) {
	a, b := pair(t)
	x, y := open(t, a, b)
	if err := x.CloseWith(&stream.Fault{Message: "oh", Code: "gone"}); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Read(make([]byte, 1)); err == nil || err.Error() != "oh" {
		t.Errorf("an early end is read as %v", err)
	}
	if err := x.CloseRead(); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 1000 {
		if _, err = y.Write(make([]byte, 1000)); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write that nobody reads: %v", err)
	}
	if _, err := x.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
	if _, err := x.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read after the stop: %v", err)
	}
	if err := y.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read past its time: %v", err)
	}
}

// TestEndedBeforeTaken: what is ended before the other side has taken it is ended for it too.
func TestEndedBeforeTaken(t *testing.T) {
	a, b := pair(t)
	x := a.Make()
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	y, err := b.Take(x.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	z := a.Make()
	b.Refuse(z.Name())
	if _, err := z.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a refused stream is read as %v", err)
	}
	if _, err := b.Take(""); err == nil {
		t.Error("a stream without a name is taken")
	}
}

func TestBrokenConnection(t *testing.T) {
	a, b := pair(t)
	x, y := open(t, a, b)
	go a.Close()
	if _, err := x.Read(make([]byte, 1)); !errors.Is(err, stream.ErrBroken) {
		t.Errorf("read: %v", err)
	}
	if _, err := a.Make().Write([]byte("x")); !errors.Is(err, stream.ErrBroken) {
		t.Errorf("write: %v", err)
	}
	_ = y
}

// FuzzNotify: whatever the other side says, no more than a window is kept, and nothing blocks.
func FuzzNotify(f *testing.F) {
	f.Add("stream/data", `{"stream":"b1","data":"aGk="}`)
	f.Add("stream/end", `{"stream":"b1","error":{"message":"x"}}`)
	f.Add("stream/credit", `{"stream":"b1","bytes":-5}`)
	f.Add("stream/stop", `{"stream":"a1"}`)
	f.Fuzz(func(t *testing.T, method, params string) {
		m := stream.NewMux("a", func(string, any) error { return nil })
		m.Make()
		s, err := m.Take("b1")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			m.Notify(method, json.RawMessage(params))
		}
		_ = s.SetDeadline(time.Now().Add(-time.Second))
		_, _ = s.Read(make([]byte, 10))
		_, _ = s.Write(make([]byte, 10))
		_ = s.Close()
		m.Close()
	})
}
