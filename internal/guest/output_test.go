package guest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// funcBox is a Box whose commands are a function.
type funcBox struct {
	Box
	exec func(ctx context.Context, c Command, stdio [3]*os.File) (Exit, error)
}

func (b funcBox) Exec(ctx context.Context, c Command, stdio [3]*os.File) (Exit, error) {
	return b.exec(ctx, c, stdio)
}

// Whatever pieces a stream comes in, what is kept of it depends on its bytes and the limit alone.
func TestCaptureKeepsHeadAndTail(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		all := make([]byte, rnd.IntN(60))
		for i := range all {
			all[i] = byte(rnd.Uint32())
		}
		limit := int64(rnd.IntN(40) - 1)
		c := &capture{keep: limit}
		for rest := all; len(rest) > 0; {
			n := 1 + rnd.IntN(len(rest))
			c.add(rest[:n])
			rest = rest[n:]
		}
		got := c.captured()
		if got.Total != int64(len(all)) {
			t.Fatalf("limit %d: total %d of %d", limit, got.Total, len(all))
		}
		if limit < 0 || int64(len(all)) <= limit {
			if got.Truncated || !bytes.Equal(got.Bytes(), all) {
				t.Fatalf("limit %d: %q became %+v", limit, all, got)
			}
			continue
		}
		if !got.Truncated || int64(len(got.Bytes())) != limit || !bytes.HasPrefix(all, got.Head) || !bytes.HasSuffix(all, got.Tail) {
			t.Fatalf("limit %d: %q became %+v", limit, all, got)
		}
		if d := len(got.Head) - len(got.Tail); d < 0 || d > 1 {
			t.Fatalf("limit %d: %d bytes of head, %d of tail", limit, len(got.Head), len(got.Tail))
		}
	}
}

func TestOutput(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		b := funcBox{exec: func(_ context.Context, c Command, stdio [3]*os.File) (Exit, error) {
			in := make([]byte, 5)
			n, _ := stdio[0].Read(in)
			stdio[1].Write(append([]byte("out "), in[:n]...))
			stdio[2].WriteString("err")
			return Exit{Code: 4}, nil
		}}
		r, err := Output(t.Context(), b, Command{}, Limits{Stdin: []byte("hello")})
		if err != nil || r.Stdout.String() != "out hello" || r.Stderr.String() != "err" || r.Exit.Code != 4 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("an error keeps what was written", func(t *testing.T) {
		b := funcBox{exec: func(_ context.Context, _ Command, stdio [3]*os.File) (Exit, error) {
			stdio[1].WriteString("so far")
			return Exit{}, ErrGone
		}}
		r, err := Output(t.Context(), b, Command{}, Limits{})
		if !errors.Is(err, ErrGone) || r.Stdout.String() != "so far" {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("no stdin", func(t *testing.T) {
		b := funcBox{exec: func(_ context.Context, _ Command, stdio [3]*os.File) (Exit, error) {
			if stdio[0] != nil {
				t.Error("a command without stdin got one")
			}
			return Exit{}, nil
		}}
		if _, err := Output(t.Context(), b, Command{}, Limits{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("stdin that nobody reads", func(t *testing.T) {
		b := funcBox{exec: func(context.Context, Command, [3]*os.File) (Exit, error) { return Exit{}, nil }}
		if _, err := Output(t.Context(), b, Command{}, Limits{Stdin: make([]byte, 1<<20)}); err != nil {
			t.Error(err)
		}
	})
}

// A process that is left behind holds the streams open: all that was written before the command's end is kept, and nobody waits for the rest.
func TestOutputOfADaemon(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 60000} {
		var daemon *os.File
		b := funcBox{exec: func(_ context.Context, _ Command, stdio [3]*os.File) (Exit, error) {
			var err error
			if daemon, err = dup(stdio[1]); err != nil {
				return Exit{}, err
			}
			_, err = stdio[1].Write(bytes.Repeat([]byte("x"), size))
			return Exit{}, err
		}}
		begin := time.Now()
		r, err := Output(t.Context(), b, Command{}, Limits{})
		took := time.Since(begin)
		daemon.Close()
		if err != nil || r.Stdout.Total != int64(size) {
			t.Errorf("%d bytes: %d, %v", size, r.Stdout.Total, err)
		}
		if took > 3*time.Second {
			t.Errorf("it waited %s", took)
		}
	}
}

// A daemon that never stops writing can't hold Output either.
func TestOutputOfATalkativeDaemon(t *testing.T) {
	stop := make(chan struct{})
	done := make(chan struct{})
	b := funcBox{exec: func(_ context.Context, _ Command, stdio [3]*os.File) (Exit, error) {
		daemon, err := dup(stdio[1])
		if err != nil {
			return Exit{}, err
		}
		go func() {
			defer close(done)
			defer daemon.Close()
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := daemon.WriteString("and on and on "); err != nil {
						return
					}
				}
			}
		}()
		return Exit{}, nil
	}}
	begin := time.Now()
	r, err := Output(t.Context(), b, Command{}, Limits{Stdout: 1000})
	close(stop)
	<-done
	if err != nil || r.Stdout.Total == 0 || time.Since(begin) > 3*time.Second {
		t.Errorf("%d bytes, %v, %s", r.Stdout.Total, err, time.Since(begin))
	}
}
