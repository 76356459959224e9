package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAction(t *testing.T) {
	w := &world{results: map[string]string{}}
	e, _ := newEngine(t, w)
	register(t, e, `{"triggers":[{"id":"t","when":{"type":"action","tool":"send","where":{"to":{"equals":"bob"},"result.id":{"exists":true}},"repeat":true},"barrier":{"at":"provoking_call"},
		"actions":[{"type":"tool","tool":"mirror","args":{"id":"${result.id}","n":"${args.n}","text":"to ${args.to}: ${args.missing?}!","gone":"${args.missing?}","list":["${result.tags[1]}"]},"as":" auditor "},
		           {"type":"permission","role":"default","action":"disable","tools":["send"]}]}]}`)
	call := func(role, args, text string) Hold { return e.ToolCall(role, "send", []byte(args), result(text, false)) }
	for _, miss := range []Hold{
		call("default", `{"to":"eve"}`, `{"id":1}`), call("default", `{"to":"bob"}`, `{}`), call("other", `{"to":"bob"}`, `{"id":1}`),
		e.ToolCall("default", "send", []byte(`{"to":"bob"}`), result(`{"id":1}`, true)),
	} {
		if len(miss.done) != 0 {
			t.Error("a call that doesn't meet the condition is held")
		}
	}
	h := call("default", `{"to":"bob","n":12345678901234567890}`, `{"id":"x7","tags":["a","b"]}`)
	if late, _ := h.Wait(t.Context()); late != nil {
		t.Errorf("late: %v", late)
	}
	want := `mirror {"id":"x7","list":["b"],"n":12345678901234567890,"text":"to bob: !"} auditor`
	if got := w.called(); len(got) != 1 || got[0] != want {
		t.Errorf("calls %q, want %q", got, want)
	}
	if len(w.access) != 1 || w.access[0] != "default[send] false" {
		t.Errorf("access %q", w.access)
	}
	if s := status(t, e, "t"); s != armed {
		t.Errorf("a trigger that repeats is %s", s)
	}
	// What a mirror wrote is private, but for names and ids.
	for _, r := range w.records {
		if strings.HasPrefix(r, "internal_tool_call") && (!strings.Contains(r, `"id":"x7"`) || strings.Contains(r, "to bob")) {
			t.Errorf("record %s", r)
		}
	}
	if got := kinds(e); got != "t:added t:detected t:action_ok t:action_ok t:fired" {
		t.Errorf("events %s", got)
	}
}

// TestMissingValue: a tool is never sent the text of a placeholder; a failure arms the trigger again.
func TestMissingValue(t *testing.T) {
	w := &world{}
	e, _ := newEngine(t, w)
	register(t, e, `{"triggers":[{"id":"t","when":{"type":"action","tool":"send"},"barrier":{"at":"provoking_call","timeout_seconds":5},"actions":[{"type":"tool","tool":"mirror","args":{"id":"${result.id}"}}]}]}`)
	h := e.ToolCall("default", "send", []byte(`{}`), result("plain text", false))
	h.Wait(t.Context())
	if len(w.called()) != 0 || status(t, e, "t") != armed || !strings.Contains(kinds(e), "t:action_failed t:failed") {
		t.Errorf("calls %v, status %s, events %s", w.called(), status(t, e, "t"), kinds(e))
	}
}

func TestQueueAndOneShot(t *testing.T) {
	w := &world{hold: make(chan struct{})}
	e, _ := newEngine(t, w)
	register(t, e, `{"triggers":[{"id":"r","when":{"type":"action","tool":"a","repeat":true},"actions":[{"type":"tool","tool":"m","args":{"n":"${args.n}"}}]},
		{"id":"once","when":{"type":"action","tool":"a"},"actions":[{"type":"tool","tool":"o"}]}]}`)
	for _, n := range []string{"1", "2", "3"} {
		e.ToolCall("default", "a", []byte(`{"n":`+n+`}`), result("", false))
	}
	if s := status(t, e, "r"); s != queued {
		t.Errorf("status %s", s)
	}
	close(w.hold)
	waitFor(t, "the end of the fires", func() bool { return status(t, e, "r") == armed && status(t, e, "once") == fired })
	var m []string
	for _, c := range w.called() {
		if strings.HasPrefix(c, "m") {
			m = append(m, c)
		}
	}
	if got := strings.Join(m, ","); got != `m {"n":1},m {"n":2},m {"n":3}` {
		t.Errorf("calls %s", got)
	}
}

func TestBarrierTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{hold: make(chan struct{})}
		e, _ := newEngine(t, w)
		register(t, e, `{"triggers":[{"id":"slow","when":{"type":"action","tool":"a"},"barrier":{"at":"provoking_call","timeout_seconds":1.5},"actions":[{"type":"tool","tool":"m"}]}]}`)
		began := time.Now()
		late, after := e.ToolCall("default", "a", nil, result("", false)).Wait(t.Context())
		if len(late) != 1 || late[0] != "slow" || time.Since(began) != 1500*time.Millisecond || after != 1500*time.Millisecond {
			t.Errorf("late %v after %v", late, time.Since(began))
		}
		e.Close()
	})
}

func TestState(t *testing.T) {
	w := &world{results: map[string]string{"list": `{"items":[{"id":7,"name":"x"},{"id":8,"name":"y"}]}`, "get": `{"state":"open"}`}}
	e, _ := newEngine(t, w)
	register(t, e, `{"triggers":[{"id":"s","when":{"type":"state","check":{"steps":[
		{"tool":"list","extract":{"path":"items","match":{"name":{"equals":"y"}},"take":"id"},"bind":"item"},
		{"tool":"get","args":{"id":"${item}"},"extract":"state","predicate":{"regex":"^op"}}]}},"actions":[{"type":"tool","tool":"act","verify":{"tool":"get","predicate":{"regex":"open"}}}]}]}`)
	e.ToolCall("default", "read_x", nil, result("", false)) // says that it changes nothing
	e.ToolCall("default", "write_x", nil, result("", false))
	waitFor(t, "the fire", func() bool { return status(t, e, "s") == fired })
	if got := strings.Join(w.called(), ","); got != `list {},get {"id":"8"},act {},get {}` {
		t.Errorf("calls %s", got)
	}
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		e, c := newEngine(t, w)
		e.Start()
		register(t, e, `{"triggers":[
			{"id":"at","when":{"type":"time","at":"PT1H"},"actions":[{"type":"tool","tool":"one"}]},
			{"id":"every","when":{"type":"time","every":"PT10M","count":3},"actions":[{"type":"tool","tool":"tick"}]},
			{"id":"after","when":{"type":"time","after":"at","offset":"PT30M"},"actions":[{"type":"tool","tool":"two"}]},
			{"id":"deadline","when":{"type":"time","after":"at","offset":"PT2H","unless":{"tool":"reply","where":{"ok":{"equals":true}}}},"actions":[{"type":"tool","tool":"late"}]},
			{"id":"until","when":{"type":"time","every":"PT1H","until":"PT90M"},"actions":[{"type":"tool","tool":"hour"}]}]}`)
		set(t, c, e, "2030-01-01T00:00:00Z", 60) // an hour a minute
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if got := strings.Join(w.called(), ","); got != "tick {},tick {},tick {}" {
			t.Errorf("after 59 minutes: %s", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := strings.Join(w.called()[3:], ","); got != "one {},hour {}" && got != "hour {},one {}" {
			t.Errorf("after 61 minutes: %s", got)
		}
		e.ToolCall("default", "reply", []byte(`{"ok":true}`), result("", false))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := strings.Join(w.called()[5:], ","); got != "two {}" {
			t.Errorf("at the end: %s", got)
		}
		if got := status(t, e, "deadline") + " " + status(t, e, "until") + " " + status(t, e, "every"); got != "cancelled fired fired" {
			t.Errorf("statuses %s", got)
		}
		e.Close()
	})
}

// TestCatchUp: what fell due while nobody looked fires at once, in order, at most 1000 marks a look.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		e, c := newEngine(t, w)
		register(t, e, `{"triggers":[{"id":"t","when":{"type":"time","every":"PT1S"},"actions":[{"type":"tool","tool":"x"}]}]}`)
		set(t, c, e, "2030-01-01T00:00:00Z", 86400)
		e.mu.Lock()
		e.lookAtTime()
		e.mu.Unlock()
		time.Sleep(100 * time.Millisecond) // 8640 virtual seconds
		e.mu.Lock()
		e.lookAtTime()
		e.mu.Unlock()
		synctest.Wait()
		if n := len(w.called()); n != maxCatchUp {
			t.Errorf("%d fires", n)
		}
		// Set anew, the backlog is dropped.
		set(t, c, e, "2031-01-01T00:00:00Z", 0)
		e.mu.Lock()
		e.lookAtTime()
		e.mu.Unlock()
		synctest.Wait()
		if n := len(w.called()); n != maxCatchUp || !strings.Contains(kinds(e), "t:reanchored") {
			t.Errorf("%d fires, events end %s", n, kinds(e))
		}
		e.Close()
	})
}

func TestDelayAndHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		e, c := newEngine(t, w)
		register(t, e, `{"executor":{"a2a_url":"http://agent/","role":"colleague","hours":{"start":"09:00","end":"17:00","time_zone":"Europe/Paris","days":["mon","tue","wed","thu","fri"]}},
			"triggers":[{"id":"t","when":{"type":"action","tool":"a"},"actions":[{"type":"tool","tool":"m","delay":"PT1H"},{"type":"nl","instruction":"Answer."}]}]}`)
		set(t, c, e, "2030-01-04T15:30:00Z", 3600) // a Friday, 16:30 in Paris; an hour a second
		e.ToolCall("default", "a", nil, result("", false))
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if len(w.called()) != 0 {
			t.Error("the delay wasn't waited for")
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if len(w.called()) != 1 || len(w.sent()) != 0 || e.CausedBy("colleague") != nil {
			t.Errorf("calls %v, errands %v", w.called(), w.sent())
		}
		// 17:36 in Paris on a Friday: Monday at nine is 63.4 hours away.
		time.Sleep(63 * time.Second)
		synctest.Wait()
		if len(w.sent()) != 0 {
			t.Error("the executor was asked before its hours")
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if len(w.sent()) != 1 || w.sent()[0].URL != "http://agent" || w.sent()[0].Context != "trigger-t" {
			t.Errorf("errands %v", w.sent())
		}
		e.Close()
	})
}

func TestExecutorRetries(t *testing.T) {
	w := &world{results: map[string]string{"look": "no"}}
	e, _ := newEngine(t, w)
	register(t, e, `{"executors":{"ann":{"a2a_url":"http://ann","role":"ann"}},"triggers":[
		{"id":"v","when":{"type":"action","tool":"a"},"barrier":{"at":"provoking_call"},"actions":[{"type":"nl","instruction":"Do it for $HOME","executor":"ann","verify":{"tool":"look","predicate":{"equals":"yes"}}}]}]}`)
	e.ToolCall("default", "a", nil, result("", false)).Wait(t.Context())
	if len(w.sent()) != 2 || w.sent()[0].Instruction == w.sent()[1].Instruction || status(t, e, "v") != armed {
		t.Errorf("errands %v, status %s", w.sent(), status(t, e, "v"))
	}
	// An executor's own calls provoke nothing.
	if e.Watches("ann") || !e.Watches("default") {
		t.Error("an executor's calls are watched")
	}
	w.reply = errNo
	e.ToolCall("default", "a", nil, result("", false)).Wait(t.Context())
	if len(w.sent()) != 3 || !strings.Contains(kinds(e), "v:action_failed v:failed") {
		t.Errorf("errands %v", w.sent())
	}
}

func TestWebsite(t *testing.T) {
	w := &world{}
	e, _ := newEngine(t, w)
	register(t, e, `{"triggers":[{"id":"buy","when":{"type":"website","app":"shop","method":"post","path":{"regex":"^/cart"},"where":{"sku":{"equals":"7"}}},
		"barrier":{"at":"provoking_call"},"actions":[{"type":"tool","tool":"ship","args":{"sku":"${args.sku}"}}]}]}`)
	if !e.WatchesWebsites("default") || e.WatchesWebsites("nobody") {
		t.Error("who is watched")
	}
	args := map[string]any{"sku": "7"}
	for _, h := range []Hold{e.WebsiteRequest("default", "shop", "GET", "/cart", 200, args), e.WebsiteRequest("default", "shop", "POST", "/cart", 404, args), e.WebsiteRequest("default", "shop", "POST", "/x", 200, args)} {
		if len(h.done) != 0 {
			t.Error("a request that doesn't match fires")
		}
	}
	e.WebsiteRequest("default", "shop", "POST", "/cart/add", 201, args).Wait(t.Context())
	if got := strings.Join(w.called(), ","); got != `ship {"sku":"7"}` {
		t.Errorf("calls %s", got)
	}
}

func TestRegisterRefuses(t *testing.T) {
	const action = `{"type":"tool","tool":"m"}`
	trg := func(when, actions string) string {
		return `{"triggers":[{"id":"t","when":` + when + `,"actions":[` + actions + `]}]}`
	}
	for body, want := range map[string]string{
		`[]`:                             "JSON object",
		`{}`:                             "triggers must be a list",
		`{"triggers":[7]}`:               "must be an object",
		trg(`{"type":"x"}`, action):      "when.type",
		trg(`{"type":"action"}`, action): "when.tool",
		trg(`{"type":"action","tool":"nobody"}`, action):                                                                                                        "unknown tool",
		trg(`{"type":"action","tool":"a","where":{"x":{"regex":"(?=a)"}}}`, action):                                                                             "RE2",
		trg(`{"type":"action","tool":"a","where":{"x":{"regex":"a","exists":true}}}`, action):                                                                   "exactly one",
		trg(`{"type":"action","tool":"a","roles":[]}`, action):                                                                                                  "when.roles",
		trg(`{"type":"state","check":{"steps":[{"tool":"a"}]}}`, action):                                                                                        "predicate",
		trg(`{"type":"state","check":{"tool":"a","predicate":{"exists":true}},"repeat":true}`, action):                                                          "repeat",
		trg(`{"type":"time"}`, action):                                                                                                                          "'at', 'after' or 'every'",
		trg(`{"type":"time","at":"PT1H","after":"x","offset":"PT1H"}`, action):                                                                                  "not both",
		trg(`{"type":"time","every":{"dist":"exp","mean":"PT1H"}}`, action):                                                                                     "seed",
		trg(`{"type":"time","at":"PT1H","count":2}`, action):                                                                                                    "needs an 'every'",
		trg(`{"type":"time","every":"PT0S"}`, action):                                                                                                           "longer than nothing",
		trg(`{"type":"website","app":"bank"}`, action):                                                                                                          "shop",
		trg(`{"type":"action","tool":"a"}`, `{"type":"nl","instruction":"x"}`):                                                                                  "needs an executor",
		trg(`{"type":"action","tool":"a"}`, `{"type":"tool","tool":"m","args":{"x":"${ args.y}"}}`):                                                             "no placeholder",
		trg(`{"type":"time","at":"PT1H"}`, `{"type":"tool","tool":"m","args":{"x":"${args.y}"}}`):                                                               "provoking call",
		trg(`{"type":"action","tool":"a"}`, `{"type":"tool","tool":"m","as":"default"}`):                                                                        "'as'",
		trg(`{"type":"action","tool":"a"}`, `{"type":"permission","role":"r","action":"x","tools":"*"}`):                                                        "'enable' or 'disable'",
		`{"watch_roles":["a"],"executor":{"a2a_url":"u","role":"a"},"triggers":[]}`:                                                                             "watched roles",
		`{"executor":{"a2a_url":"u","role":"x","hours":{"start":"9","end":"17:00"}},"triggers":[]}`:                                                             "HH:MM",
		`{"triggers":[{"id":"t","when":{"type":"time","at":"PT1H"},"barrier":{"at":"provoking_call"},"actions":[]}]}`:                                           "provoking call",
		`{"triggers":[{"id":"t","when":{"type":"action","tool":"a"},"barrier":{"at":"provoking_call"},"actions":[{"type":"tool","tool":"m","delay":"PT1S"}]}]}`: "delay",
	} {
		e, _ := newEngine(t, &world{})
		if _, err := e.Register([]byte(body)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		if list, _ := e.State()["triggers"].([]fields); len(list) != 0 {
			t.Errorf("%s: something was registered", body)
		}
	}
}

func TestRegisterTwice(t *testing.T) {
	e, _ := newEngine(t, &world{})
	one := `{"triggers":[{"id":"t","when":{"type":"action","tool":"a","roles":null},"actions":[]}]}`
	register(t, e, one)
	register(t, e, strings.Replace(one, `,"roles":null`, "", 1))
	if _, err := e.Register([]byte(strings.Replace(one, `"a"`, `"b"`, 1))); !errors.Is(err, ErrInvalid) {
		t.Errorf("another trigger of that id: %v", err)
	}
	if _, err := e.Register([]byte(`{"watch_roles":["x"],"triggers":[]}`)); !errors.Is(err, ErrInvalid) {
		t.Errorf("other watch roles: %v", err)
	}
	out, err := e.Remove([]byte(`{"ids":["t","none"]}`))
	if err != nil || len(out.Removed) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	e.Clear()
	register(t, e, `{"watch_roles":["x"],"triggers":[]}`)
}

// TestSave: another engine goes on where one ended; a schedule that a seed fixes goes on with its next draw.
func TestSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		e, c := newEngine(t, w)
		e.Start()
		register(t, e, `{"executors":{"ann":{"a2a_url":"http://ann","role":"ann","hours":{"start":"09:00","end":"08:00"}}},"triggers":[
			{"id":"s","when":{"type":"time","every":{"dist":"exp","mean":"PT1M"},"seed":42},"actions":[{"type":"tool","tool":"x"}]},
			{"id":"a","when":{"type":"action","tool":"a"},"actions":[{"type":"tool","tool":"m"}]}]}`)
		set(t, c, e, "2030-01-01T00:00:00Z", 1)
		e.ToolCall("default", "a", nil, result("", false))
		time.Sleep(70 * time.Second) // draws of 61.2, 1.5 and 19.3 s
		synctest.Wait()
		if n := len(w.called()); n != 3 {
			t.Errorf("%d calls: %v", n, w.called())
		}
		b, err := e.Save()
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
		again := New(context.WithoutCancel(t.Context()), w, w, c, e.log)
		if err := again.Restore(b); err != nil {
			t.Fatal(err)
		}
		again.Start()
		time.Sleep(13 * time.Second)
		synctest.Wait()
		if n := len(w.called()); n != 4 || status(t, again, "a") != fired {
			t.Errorf("%d calls: %v; a is %s", n, w.called(), status(t, again, "a"))
		}
		again.Close()
		var back map[string]any
		if json.Unmarshal(b, &back) != nil {
			t.Error("what was saved is no JSON")
		}
	})
}

// TestTwister holds the draws to those of Python's random.Random(seed).expovariate.
func TestTwister(t *testing.T) {
	r := newTwister(42)
	for _, want := range []float64{61.203617236488064, 1.5197303425643336, 19.297443844497934} {
		if got := r.exponential(60); math.Abs(got-want) > 1e-12 {
			t.Errorf("drew %v, want %v", got, want)
		}
	}
	r = newTwister(1<<40 + 7)
	for _, want := range []float64{0.9511507893050489, 1.6869471093672934} {
		if got := r.exponential(1); math.Abs(got-want) > 1e-12 {
			t.Errorf("drew %v, want %v", got, want)
		}
	}
}

func TestHours(t *testing.T) {
	read := func(s string) *hours {
		v, err := decode([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		h, err := readHours(v, "x")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, tt := range []struct{ hours, now, opens string }{
		{`{"start":"09:00","end":"17:00"}`, "2030-01-02T12:00:00Z", ""},
		{`{"start":"09:00","end":"17:00"}`, "2030-01-02T17:00:00Z", "2030-01-03T09:00:00Z"},
		{`{"start":"22:00","end":"06:00","utc_offset":"+02:00"}`, "2030-01-02T02:00:00Z", ""},
		{`{"start":"22:00","end":"06:00","utc_offset":"+02:00"}`, "2030-01-02T05:00:00Z", "2030-01-02T20:00:00Z"},
		{`{"start":"09:00","end":"17:00","days":["mon"]}`, "2030-01-07T18:00:00Z", "2030-01-14T09:00:00Z"},
		{`{"start":"02:30","end":"04:00","time_zone":"Europe/Paris"}`, "2030-03-31T00:00:00Z", "2030-03-31T01:00:00Z"}, // skipped: at the jump
		{`{"start":"09:00","end":"17:00","time_zone":"America/New_York"}`, "2030-07-01T12:00:00Z", "2030-07-01T13:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if opens, closed := read(tt.hours).opening(now); closed {
			got = opens.UTC().Format(time.RFC3339)
		}
		if got != tt.opens {
			t.Errorf("%s at %s: opens %q, want %q", tt.hours, tt.now, got, tt.opens)
		}
	}
}

func FuzzRegister(f *testing.F) {
	f.Add([]byte(`{"triggers":[{"id":"t","when":{"type":"action","tool":"a","where":{"args.x[0]":{"equals":1e9}}},"actions":[{"type":"tool","tool":"m","args":{"x":"${args.y?}"},"delay":{"dist":"exp","mean":"PT1S","seed":1}}]}]}`))
	f.Add([]byte(`{"executor":{"a2a_url":"u","role":"x","hours":{"start":"09:00","end":"17:00","days":["mon"]}},"triggers":[{"when":{"type":"time","every":"PT1S","until":"2030-01-01T00:00:00Z"},"actions":[]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, _ := newEngine(t, &world{})
		if _, err := e.Register(b); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		saved, err := e.Save()
		if err != nil {
			t.Fatal(err)
		}
		again, _ := newEngine(t, &world{})
		if err := again.Restore(saved); err != nil {
			t.Fatalf("what was registered can't be restored: %v\n%s", err, saved)
		}
	})
}
