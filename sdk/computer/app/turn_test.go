package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// diary is what hooks did, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, " ")
}

// in opens an app whose hooks write a diary, for calls without a network, in a bubble of synctest.
func in(t *testing.T, a app.App) (*app.Server, http.Handler) {
	t.Helper()
	a.Name = "clock"
	s, err := app.Open(t.Context(), a, app.Options{Home: t.TempDir(), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return s, h
}

func call(ctx context.Context, h http.Handler, method string) string {
	w := httptest.NewRecorder()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"parts":[{"kind":"text","text":"t"}]}}`, method)
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/agentenv", strings.NewReader(body)))
	return strings.TrimPrefix(w.Body.String(), `{"jsonrpc":"2.0","id":1,`)
}

// TestA21: one call at a time, in the order in which they came; one that is gone gives its place up.
func TestA21(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		n := 0
		s, h := in(t, app.App{
			Timeout: 90 * time.Second, // of a turn, which waiting is no part of
			Add: func(context.Context, []*app.Part) error {
				n++
				d.write("(%d", n)
				time.Sleep(time.Minute)
				d.write("%d)", n)
				return nil
			},
			Get: func(context.Context, *env.Namespace) ([]wire.Part, error) { d.write("get"); return nil, nil },
		})
		var calls sync.WaitGroup
		gone, leave := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{t.Context(), gone, t.Context()} {
			calls.Go(func() {
				if got := call(ctx, h, wire.Add); (got != `"result":{}}`) != (ctx == gone) {
					t.Errorf("%d: %s", i, got)
				}
			})
			synctest.Wait()
		}
		calls.Go(func() { call(t.Context(), h, wire.Get) })
		calls.Go(func() {
			time.Sleep(30 * time.Second)
			leave()
		})
		calls.Wait()
		if got := d.text(); got != "(1 1) (2 2) get" {
			t.Error(got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestA23: a call that takes too long is answered then; its reset waits for its work, and the turn lasts as long.
func TestA23(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, want, diary string
	}{
		{wire.Add, `"error":{"code":-32000,"message":"data/add took longer than 300 s (data_timeout_s)","data":{"code":"add_failed"}}}`, "add told worked reset get"},
		{wire.Reset, `"error":{"code":-32000,"message":"data/reset took longer than 300 s (data_timeout_s)","data":{"code":"reset_failed"}}}`, "reset get"},
		{wire.Get, `"error":{"code":-32000,"message":"data/get took longer than 300 s (data_timeout_s)","data":{"code":"get_failed"}}}`, "get get"},
	} {
		t.Run(c.method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				s, h := in(t, app.App{
					Add: func(ctx context.Context, _ []*app.Part) error {
						d.write("add")
						<-ctx.Done()
						d.write("told")
						time.Sleep(time.Minute) // it blocks on, whatever it is told
						d.write("worked")
						return nil
					},
					Get: func(context.Context, *env.Namespace) ([]wire.Part, error) {
						if d.text() == "" {
							time.Sleep(360 * time.Second)
						}
						d.write("get")
						return nil, nil
					},
					Reset: func(context.Context) error {
						time.Sleep(10 * time.Second)
						if c.method == wire.Reset {
							time.Sleep(350 * time.Second)
						}
						d.write("reset")
						return nil
					},
				})
				begun := time.Now()
				if got := call(t.Context(), h, c.method); got != c.want {
					t.Error(got)
				}
				if took := time.Since(begun); took != 300*time.Second {
					t.Errorf("it was answered after %s", took)
				}
				if got := call(t.Context(), h, wire.Get); got != `"result":{"parts":[]}}` {
					t.Error(got)
				}
				if took := time.Since(begun); took < 360*time.Second {
					t.Errorf("the next call had its turn after %s", took)
				}
				if got := d.text(); got != c.diary {
					t.Error(got)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestWorkThatEndsInTime: what follows a load that ended in time is waited for, however long.
func TestWorkThatEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := in(t, app.App{
			Add:   func(context.Context, []*app.Part) error { time.Sleep(299 * time.Second); return errors.New("no") },
			Reset: func(context.Context) error { time.Sleep(200 * time.Second); return errors.New("neither") },
		})
		begun := time.Now()
		// The caller knows why at the deadline: that the reset fails later on is not waited for.
		if got := call(t.Context(), h, wire.Add); got != `"error":{"code":-32000,"message":"no","data":{"code":"add_failed"}}}` {
			t.Error(got)
		}
		if took := time.Since(begun); took != 300*time.Second {
			t.Error(took)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestA22: a load that fails is followed by a reset; the caller gets the load's error, and the reset's when that fails too.
func TestA22(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		broken := false
		s, h := in(t, app.App{
			Add: func(context.Context, []*app.Part) error { d.write("add"); return errors.New("bad alarms") },
			Reset: func(context.Context) error {
				d.write("reset")
				if broken {
					panic("no clock")
				}
				return nil
			},
		})
		if got := call(t.Context(), h, wire.Add); got != `"error":{"code":-32000,"message":"bad alarms","data":{"code":"add_failed"}}}` || d.text() != "add reset" {
			t.Error(got, d.text())
		}
		broken = true
		want := `"error":{"code":-32000,"message":"bad alarms; the reset after it failed too: an internal fault; the server's log has it","data":{"code":"add_failed"}}}`
		if got := call(t.Context(), h, wire.Add); got != want {
			t.Error(got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		// The next server knows that the data aren't as they should be.
		d.lines, broken = nil, false
		again, err := app.Open(t.Context(), app.App{Name: "clock", Reset: func(context.Context) error { d.write("reset"); return nil }}, app.Options{Home: s.Home()})
		if err != nil || d.text() != "reset" {
			t.Fatal(err, d.text())
		}
		if err := again.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestNothingThatResets: the error of a load says so where nothing can undo it.
func TestNothingThatResets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := in(t, app.App{Add: func(context.Context, []*app.Part) error { return errors.New("no") }})
		want := `"error":{"code":-32000,"message":"no; the app has nothing that resets it: part of the load may be left","data":{"code":"add_failed"}}}`
		if got := call(t.Context(), h, wire.Add); got != want {
			t.Error(got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		again, err := app.Open(t.Context(), app.App{Name: "clock"}, app.Options{Home: s.Home()})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseUndoesALoad: a server that ends doesn't leave half a load, and serves no more.
func TestCloseUndoesALoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		s, h := in(t, app.App{
			Add:   func(ctx context.Context, _ []*app.Part) error { d.write("add"); <-ctx.Done(); return ctx.Err() },
			Reset: func(context.Context) error { d.write("reset"); return nil },
		})
		done := make(chan string, 2)
		for range 2 { // the second waits for its turn
			go func() { done <- call(t.Context(), h, wire.Add) }()
			synctest.Wait()
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want := `"error":{"code":-32000,"message":"the app's server is ending","data":{"code":"add_failed"}}}`
		for range 2 {
			if got := <-done; got != want {
				t.Error(got)
			}
		}
		if got := call(t.Context(), h, wire.Add); got != want || d.text() != "add reset" {
			t.Error(got, d.text())
		}
		if _, err := os.Stat(s.Home() + "/.agentenv/apps/clock.busy"); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}
