package computer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/computer"
)

func settings(change func(*computer.Settings)) func(*computer.Options) {
	return func(o *computer.Options) { change(o.Settings) }
}

// TestTurns: inputs come one after another in the order they came (Q1), give up their place when they waited too long or their caller left, and
// nothing else queues.
func TestTurns(t *testing.T) {
	d := newDesk()
	r := serve(t, d, settings(func(s *computer.Settings) { s.QueueWait = 0.3 }))
	r.call("computer_screenshot", `{}`)
	d.block = make(chan struct{})
	first := make(chan result)
	go func() { first <- r.call("computer_type", `{"text":"0"}`) }()
	<-d.entered
	if got := r.call("computer_type", `{"text":"late"}`); got["code"] != "input_busy" || got["retryable"] != true || got["applied"] != "no" {
		t.Errorf("%v", got)
	}
	for _, c := range [][2]string{{"computer_screenshot", `{}`}, {"computer_wait", `{"ms":1}`}} {
		if got := r.call(c[0], c[1]); got["code"] != nil {
			t.Errorf("%s waits for its turn: %v", c[0], got)
		}
	}
	if status, body := r.ext("/agentenv/ext/computer-display/set", `{"width":200,"height":100}`); status != 409 || !strings.Contains(body, "input_busy") {
		t.Errorf("%d %s", status, body)
	}
	close(d.block)
	<-first
	if did := d.notes(); did != `type "0" 50ms 10ms` {
		t.Error(did)
	}
}

// TestOrder: first come, first served, and one that left is skipped.
func TestOrder(t *testing.T) {
	d := newDesk()
	r := serve(t, d, nil)
	r.call("computer_wait", `{"ms":0}`)
	d.block = make(chan struct{})
	done := make(chan result, 5)
	for i := range 5 {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go func() {
			_, err := r.c.CallTool(ctx, &mcp.CallToolParams{Name: "computer_type", Arguments: map[string]any{"text": fmt.Sprint(i)}})
			done <- result{"err": err}
		}()
		if i == 0 {
			<-d.entered
			continue
		}
		time.Sleep(50 * time.Millisecond) // no one can see from outside that a call waits
		if i == 2 {
			leave()
			<-done
		}
	}
	close(d.block)
	for range 4 {
		<-done
	}
	if did := d.notes(); did != `type "0" 50ms 10ms; type "1" 50ms 10ms; type "3" 50ms 10ms; type "4" 50ms 10ms` {
		t.Error(did)
	}
}

// TestOthers: a result tells how many inputs of other callers came since the frame (Q3).
func TestOthers(t *testing.T) {
	r := serve(t, newDesk(), nil)
	other := r.connect("other")
	defer other.Close()
	r.call("computer_screenshot", `{}`)
	r.call("computer_type", `{"text":"a"}`)
	for range 3 {
		r.callBy(other, "computer_type", `{"text":"b"}`)
	}
	if got := r.call("computer_click", `{"x":1,"y":1}`); got["others_since_frame"] != 3.0 {
		t.Errorf("%v", got)
	}
	r.call("computer_screenshot", `{}`)
	if got := r.call("computer_click", `{"x":1,"y":1}`); got["others_since_frame"] != 0.0 {
		t.Errorf("%v", got)
	}
	if got := r.callBy(other, "computer_click", `{"x":1,"y":1}`); got["code"] != "stale_frame" { // F2: the latest frame is each caller's own
		t.Errorf("%v", got)
	}
}

// TestHolds: keys are released by their caller, or by the server (K4, K5).
func TestHolds(t *testing.T) {
	d := newDesk()
	r := serve(t, d, settings(func(s *computer.Settings) { s.MaxHold = 150 }))
	r.does("keys down [Shift]", "computer_keyboard_down", `{"keys":["Shift"]}`)
	r.does("keys down [a]", "computer_keyboard_down", `{"keys":["a"]}`)
	r.does("keys up [Shift a]", "computer_keyboard_up", `{}`)
	r.refuses("invalid_argument", "computer_keyboard_up", `{}`)
	r.does("keys down [Control s]; keys up [s Control]", "computer_keyboard_down", `{"keys":["Control","s"],"hold_ms":1}`)
	r.does("keys down [Alt x]", "computer_keyboard_down", `{"keys":["Alt","x"]}`)
	eventually(t, "the keys are released", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return len(d.did) > 0 })
	if did := d.notes(); did != "keys up [x Alt]" {
		t.Error(did)
	}
	r.refuses("invalid_argument", "computer_keyboard_up", `{}`)
	// A caller that leaves a hold leaves no key down.
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-d.entered; leave() }()
	for len(d.entered) > 0 {
		<-d.entered
	}
	_, err := r.c.CallTool(ctx, &mcp.CallToolParams{Name: "computer_keyboard_down", Arguments: map[string]any{"keys": []string{"b"}, "hold_ms": 150}})
	if err == nil {
		t.Error("a call that was left answers")
	}
	eventually(t, "the key is released", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return len(d.did) == 2 })
	if did := d.notes(); did != "keys down [b]; keys up [b]" {
		t.Error(did)
	}
}

// TestKeyboardSettings: the extension reads and writes four settings.
func TestKeyboardSettings(t *testing.T) {
	r := serve(t, newDesk(), nil)
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{"", 200, `{"tap_hold_ms":50,"type_delay_ms":10,"layout":"us","max_hold_ms":10000}`},
		{`{"tap_hold_ms":0,"type_delay_ms":1}`, 200, `{"tap_hold_ms":0,"type_delay_ms":1,"layout":"us","max_hold_ms":10000}`},
		{`{"tap_hold_ms":1001}`, 400, `"invalid_argument"`},
		{`{"layout":"de"}`, 501, `"unsupported"`},
		{`{"speed":1}`, 400, `"invalid_params"`},
	} {
		path := "/agentenv/ext/computer-keyboard/set"
		if c.body == "" {
			path = "/agentenv/ext/computer-keyboard/get"
		}
		if status, body := r.ext(path, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.body, status, body)
		}
	}
	r.does(`type "a" 0s 1ms`, "computer_type", `{"text":"a"}`)
}

// TestSettings: what whoever runs a computer writes is read strictly, and everything wrong is told.
func TestSettings(t *testing.T) {
	if _, err := computer.ParseSettings(`{"tap_hold":1}`); err == nil || !strings.Contains(err.Error(), "tap_hold") {
		t.Error(err)
	}
	_, err := computer.ParseSettings(`{"data_paths":["","a/../b","/x","a\\b","ok"],"default_space":"s","queue_wait_s":0,"exec_timeout_s":3601,"max_hold_ms":600001}`)
	for _, want := range []string{`""`, "a/../b", "/x", `a\\b`, "default_space", "queue_wait_s", "exec_timeout_s", "max_hold_ms"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
	if s, err := computer.ParseSettings(`{"data_paths":["a/b"]}`); err != nil || s.TapHold != 50 || s.DataPaths[0] != "a/b" {
		t.Errorf("%+v %v", s, err)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add(`{"data_paths":["a"],"tap_hold_ms":3}`)
	f.Add(`[{"name":"a","socket":"s","paths":["p"]}]`)
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := computer.ParseSettings(s); err == nil {
			if err := got.Check(); err != nil {
				t.Error(err)
			}
		}
		if apps, err := computer.ParseApps(s); err == nil {
			for _, a := range apps {
				if a.Name == "" || a.Socket == "" {
					t.Errorf("%+v", a)
				}
			}
		}
	})
}
