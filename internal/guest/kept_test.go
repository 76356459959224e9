package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patientGuest is a Client whose PID 1 answers commands of the code that their first word has as its length, on connections that it keeps for so many each.
// "wait" is answered when its client hangs up.
func patientGuest(t *testing.T, each int) (b *Client, dialled *atomic.Int32) {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	dialled = &atomic.Int32{}
	serve := func(c *Conn) {
		defer c.Close()
		for n := range each {
			var r Request
			if err := c.RecvJSON(FrameRequest, &r); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("request %d: %v", n, err)
				}
				return
			}
			for _, f := range c.TakeFiles() {
				f.Close()
			}
			reply := Reply{Exit: &Exit{Code: len(r.Command.Argv[0])}, Kept: r.Keep}
			if r.Command.Argv[0] == "wait" {
				_, _, _ = c.Recv()
			}
			_ = c.SendJSON(FrameReply, reply)
		}
	}
	b = NewClient("test", func(context.Context) (*net.UnixConn, error) {
		dialled.Add(1)
		near, far := pair(t)
		wg.Go(func() { serve(NewConn(far)) })
		return near, nil
	}, nil)
	t.Cleanup(func() { b.Close() })
	return b, dialled
}

func execOf(t *testing.T, b *Client, word string) {
	t.Helper()
	if exit, err := b.Exec(t.Context(), Command{Argv: []string{word}}, [3]*os.File{}); err != nil || exit.Code != len(word) {
		t.Fatalf("%s: %+v, %v", word, exit, err)
	}
}

func TestCommandsShareAConnection(t *testing.T) {
	b, dialled := patientGuest(t, 1000)
	for range 10 {
		execOf(t, b, "word")
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("%d connections for commands one after the other", n)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { execOf(t, b, "longer") })
	}
	wg.Wait()
	if n := len(b.idle); n > maxIdle {
		t.Errorf("%d connections are kept, and %d is the most", n, maxIdle)
	}
}

// A guest that drops a connection that it had kept has not seen what is sent on it.
func TestADroppedConnectionIsMadeAnew(t *testing.T) {
	b, dialled := patientGuest(t, 1)
	for n := range 3 {
		execOf(t, b, "word")
		if got := dialled.Load(); int(got) != n+1 {
			t.Fatalf("%d connections after %d commands", got, n+1)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // until the guest has dropped it
			if b.idle[0].c.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
				t.Fatal("the connection isn't kept")
			}
			if _, err := b.idle[0].c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the guest keeps the connection")
			}
		}
		if err := b.idle[0].c.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAStoppedCommandKeepsNothing(t *testing.T) {
	b, dialled := patientGuest(t, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := b.Exec(ctx, Command{Argv: []string{"wait"}}, [3]*os.File{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	execOf(t, b, "word")
	if n := dialled.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Exec(t.Context(), Command{Argv: []string{"word"}}, [3]*os.File{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// A Box that is closed while it connects starts nothing any more: nobody would end it.
func TestCloseWhileConnecting(t *testing.T) {
	var b *Client
	served := make(chan error, 1)
	b = NewClient("test", func(context.Context) (*net.UnixConn, error) {
		near, far := pair(t)
		go func() {
			c := NewConn(far)
			defer c.Close()
			var r Request
			served <- c.RecvJSON(FrameRequest, &r)
		}()
		return near, b.Close()
	}, nil)
	if _, err := b.Exec(t.Context(), Command{Argv: []string{"word"}}, [3]*os.File{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it answers %v", err)
	}
	if err := <-served; !errors.Is(err, io.EOF) {
		t.Errorf("the guest was asked: %v", err)
	}
}
