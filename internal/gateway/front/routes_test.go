package front_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/sdk/wire"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func two(t *testing.T) map[string]*server {
	t.Helper()
	return map[string]*server{"cal": newServer(t, "cal", true), "notes": newServer(t, "notes", true)}
}

// TestCard holds rows G1 and G2.
func TestCard(t *testing.T) {
	servers := two(t)
	g, srv := newGateway(t, front.Options{Name: "office"}, servers)
	var card wire.Card
	a := do(t, "GET", srv.URL+wire.CardPath, "")
	if err := json.Unmarshal([]byte(a.body), &card); err != nil || a.status != 200 || len(card.Missing()) > 0 {
		t.Fatalf("HTTP %d %s: %v", a.status, a.body, err)
	}
	if card.Name != "office" || len(card.Capabilities.Extensions) != 8 || card.MCP() != "/mcp" || len(card.Children) != 2 {
		t.Errorf("card %s", a.body)
	}
	for _, e := range card.Capabilities.Extensions {
		if calls, err := e.Calls(); err != nil || len(calls) == 0 {
			t.Errorf("%s: %v, %v", e.URI, calls, err)
		}
	}
	child := card.Children[0]
	if child.Name != "cal" || child.URL != "/svc/mcp-cal/agentenv" || child.Children != nil || child.Interfaces == nil || len(child.Interfaces) != 0 || len(child.Capabilities.Operations) != 3 {
		t.Errorf("child %+v", child)
	}
	if calls, _ := child.Extension(wire.URNClock).Calls(); calls[0].Path != "/svc/mcp-cal/agentenv/ext/sync_time" {
		t.Errorf("clock of the child: %+v", calls)
	}
	if calls, _ := child.Extension(wire.URNDisableTool).Calls(); calls[0].Path != "/tools/disable" {
		t.Errorf("a path that the gateway serves itself: %+v", calls)
	}
	if !strings.Contains(a.body, `"x-own":{"kept":1.0}`) {
		t.Error("what we don't know of a card is lost")
	}
	// An agent's card tells of tools that its role may use, and of nothing that controls the environment.
	g.SetAccess("bob", []string{"notes_ping"}, false)
	a = do(t, "GET", door(t, g, access.Principal{Role: "bob"}).URL+wire.CardPath, "")
	for _, no := range []string{"/svc/", "/tools/", "triggers", "notes_ping", "set_time", "trajectory", "data/reset"} {
		if strings.Contains(a.body, no) {
			t.Errorf("an agent's card has %s: %s", no, a.body)
		}
	}
	if !strings.Contains(a.body, "cal_ping") {
		t.Errorf("an agent's card %s", a.body)
	}
	servers["cal"].CloseClientConnections()
	servers["cal"].Close()
	a = do(t, "GET", srv.URL+wire.CardPath, "")
	if a.status != 200 || strings.Contains(a.body, `"name":"cal"`) || !strings.Contains(a.body, `"name":"notes"`) {
		t.Errorf("with one server down: HTTP %d %s", a.status, a.body)
	}
	if state := do(t, "GET", srv.URL+"/state", ""); !strings.Contains(state.body, `"card_error":"its card can't be fetched`) {
		t.Errorf("the state doesn't tell: %s", state.body)
	}
}

// TestData holds row G3.
func TestData(t *testing.T) {
	one := map[string]*server{"cal": newServer(t, "cal", true)}
	g, srv := newGateway(t, front.Options{}, one)
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"method":"data/get"}`: `{"jsonrpc":"2.0","id":1,"result":{"from":"cal"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"x"}`:        `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found: x"}}`,
		`{bad`:                                         `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`,
	} {
		if a := do(t, "POST", srv.URL+"/agentenv", body); a.status != 200 || a.body != want {
			t.Errorf("%s: HTTP %d %s", body, a.status, a.body)
		}
	}
	if r, err := g.Data(t.Context(), "", wire.Add, json.RawMessage(`{"parts":[]}`)); err != nil || string(r) != `{"from":"cal"}` {
		t.Errorf("%s, %v", r, err)
	}
	if got := one["cal"].requests(); !slices.ContainsFunc(got, func(s seen) bool { return strings.Contains(s.Body, `"parts":[]`) }) {
		t.Errorf("the server saw %+v", got)
	}
	_, srv = newGateway(t, front.Options{}, two(t))
	if a := do(t, "POST", srv.URL+"/agentenv", `{"jsonrpc":"2.0","id":7,"method":"data/get"}`); !strings.Contains(a.body, `-32000,"message":"env-level data/get requires exactly one backing server, found 2"`) {
		t.Errorf("two servers: %s", a.body)
	}
}

// TestRoles holds row G4, and that only the owner's door takes a role from a header.
func TestRoles(t *testing.T) {
	g, srv := newGateway(t, front.Options{}, two(t))
	role := func(c *raw, headers ...string) any {
		t.Helper()
		var r struct{ Content []struct{ Text string } }
		if err := json.Unmarshal([]byte(c.call("tools/call", `{"name":"cal_meta","arguments":{},"_meta":{"agentenv.io/role":"admin"}}`, headers...)), &r); err != nil {
			t.Fatal(err)
		}
		var meta map[string]any
		if err := json.Unmarshal([]byte(r.Content[0].Text), &meta); err != nil {
			t.Fatal(err)
		}
		return meta[wire.RoleMeta]
	}
	owner := begin(t, srv.URL, wire.RoleHeader, " alice ")
	if got := role(owner, wire.RoleHeader, "mallory"); got != "alice" {
		t.Errorf("a session of alice acts as %v", got)
	}
	agent := door(t, g, access.Principal{Role: "bob", Deployment: "d"})
	if got := role(begin(t, agent.URL, wire.RoleHeader, "alice"), wire.RoleHeader, "alice"); got != "bob" {
		t.Errorf("bob's door acts as %v", got)
	}
	a := do(t, "POST", agent.URL+"/step", `{"action":"call_tool","tool_name":"cal_meta"}`, wire.RoleHeader, "alice")
	if !strings.Contains(a.body, `\"agentenv.io/role\":\"bob\"`) || strings.Contains(a.body, wire.SessionMeta) {
		t.Errorf("/step at bob's door: %s", a.body)
	}
	if a := do(t, "POST", srv.URL+"/step", `{"action":"call_tool","tool_name":"cal_meta"}`, wire.RoleHeader, "alice"); !strings.Contains(a.body, `\"agentenv.io/role\":\"alice\"`) {
		t.Errorf("/step at the owner's door: %s", a.body)
	}
}

// TestAgentsControlNothing: at an agent's door what controls is refused, whatever headers say.
func TestAgentsControlNothing(t *testing.T) {
	servers := two(t)
	g, _ := newGateway(t, front.Options{}, servers)
	agent := door(t, g, access.Principal{Role: "bob"})
	for _, r := range [][2]string{
		{"POST", "/agentenv"},
		{"GET", "/state"},
		{"POST", "/tools/disable"},
		{"POST", "/tools/enable"},
		{"PUT", "/clock/set-time"},
		{"POST", "/clock/clear"},
		{"GET", "/clock/state"},
		{"POST", "/triggers/register"},
		{"POST", "/triggers/remove"},
		{"POST", "/triggers/clear"},
		{"GET", "/triggers/state"},
		{"GET", "/trajectory"},
		{"GET", "/changes"},
		{"POST", "/svc/mcp-cal/agentenv"},
		{"POST", "/svc/mcp-cal/mcp"},
		{"GET", "/svc/"},
	} {
		if a := do(t, r[0], agent.URL+r[1], `{}`, wire.RoleHeader, "owner", "Authorization", "owner"); a.status != 403 {
			t.Errorf("%s %s: HTTP %d %s", r[0], r[1], a.status, a.body)
		}
	}
	for _, s := range servers {
		if got := s.requests(); len(got) != 0 {
			t.Errorf("a server saw %+v", got)
		}
	}
	for _, odd := range []string{"//svc/mcp-cal/agentenv", "/%73vc/mcp-cal/agentenv", "/./svc/mcp-cal/agentenv", "/x/../svc/mcp-cal/agentenv", "/SVC/mcp-cal/agentenv", "/tools/disable/", "/%2e/state"} {
		if a := do(t, "POST", agent.URL+odd, `{}`); a.status != 403 && a.status != 404 {
			t.Errorf("%s: HTTP %d %s", odd, a.status, a.body)
		}
	}
}

// TestOutside: only the secret opens a door, and clients that append paths to the door's URL reach everything; those that join them reach nothing.
func TestOutside(t *testing.T) {
	g, inside := newGateway(t, front.Options{}, two(t))
	secret, other := front.NewSecret(), front.NewSecret()
	if err := front.CheckSecret(secret); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(front.Outside(map[string]http.Handler{secret: g.Door(access.Principal{Owner: true}), other: g.Door(access.Principal{Role: "bob"})}))
	defer srv.Close()
	base := srv.URL + front.SecretPrefix + secret
	var card wire.Card
	if err := json.Unmarshal([]byte(do(t, "GET", base+wire.CardPath, "").body), &card); err != nil {
		t.Fatal(err)
	}
	path := card.Children[0].URL
	if a := do(t, "POST", base+path, `{"jsonrpc":"2.0","id":1,"method":"data/get"}`); a.status != 200 || !strings.Contains(a.body, "cal") {
		t.Errorf("an appended path: HTTP %d %s", a.status, a.body)
	}
	join := func(base string) string {
		u, err := url.Parse(base + "/")
		if err != nil {
			t.Fatal(err)
		}
		return u.JoinPath("x").ResolveReference(&url.URL{Path: path}).String()
	}
	if a := do(t, "POST", join(base), `{}`); a.status != 404 {
		t.Errorf("a joined path outside: HTTP %d", a.status)
	}
	if a := do(t, "POST", join(inside.URL), `{}`); a.status != 200 {
		t.Errorf("a joined path at a door without a prefix: HTTP %d", a.status)
	}
	if got := strings.Join(names(t, begin(t, base).call("tools/list", "{}")), " "); !strings.Contains(got, "cal_ping") {
		t.Errorf("tools %s", got)
	}
	if a := do(t, "GET", srv.URL+front.SecretPrefix+other+"/state", ""); a.status != 403 {
		t.Errorf("an agent's secret: HTTP %d", a.status)
	}
	for _, guess := range []string{"", "/", "/c", "/c/", "/c/" + secret[:len(secret)-1], "/c/" + secret + "x", "/c/" + strings.ToLower(secret) + "/state", "/c//" + secret + "/state", "/mcp", "/state", "/c/%2e%2e/state", "/c/x/../" + secret + "/state"} {
		a := do(t, "GET", srv.URL+guess, "")
		if guess == "/c/x/../"+secret+"/state" && a.status == 404 {
			continue
		}
		if a.status != 404 || a.body != `{"error":"Not Found"}` {
			t.Errorf("%s: HTTP %d %s", guess, a.status, a.body)
		}
	}
	for _, weak := range []string{"", "short", strings.Repeat("a", 21), strings.Repeat("a", 30) + "/", strings.Repeat("ü", 30)} {
		if front.CheckSecret(weak) == nil {
			t.Errorf("%q is taken for a secret", weak)
		}
	}
}

// TestClashes: tools of one name are both served, each under its server's; G5 is different here: nothing is lost.
func TestClashes(t *testing.T) {
	a, b := newServer(t, "cal", true), newServer(t, "notes", true)
	for _, s := range []*server{a, b} {
		s.addEcho("search")
	}
	_, srv := newGateway(t, front.Options{}, map[string]*server{"cal": a, "notes": b})
	c := begin(t, srv.URL)
	got := names(t, c.call("tools/list", `{}`))
	if !slices.Contains(got, "cal__search") || !slices.Contains(got, "notes__search") || slices.Contains(got, "search") {
		t.Errorf("tools %v", got)
	}
	if r := c.call("tools/call", `{"name":"notes__search","arguments":{}}`); !strings.Contains(r, "search of notes") {
		t.Errorf("call %s", r)
	}
	// The record of calls leads back to the server and to its own name, and is as it was for a tool that has its own.
	c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"x"}}`)
	var mapped []string
	for line := range strings.Lines(do(t, "GET", srv.URL+"/trajectory", "").body) {
		var e struct {
			Type string `json:"event_type"`
			Call struct {
				Name string `json:"function_name"`
			} `json:"tool_call"`
			By struct{ Server, Tool string } `json:"served_by"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == "tool_call" {
			mapped = append(mapped, fmt.Sprint(e.Call.Name, " ", e.By.Server, " ", e.By.Tool))
		}
	}
	if fmt.Sprint(mapped) != "[notes__search notes search cal_ping  ]" {
		t.Errorf("recorded %q", mapped)
	}
	if s := do(t, "GET", srv.URL+"/state", ""); !strings.Contains(s.body, `"tool_name_clashes":{"search":["cal","notes"]}`) {
		t.Errorf("state %s", s.body)
	}
}

// TestClock holds row G6.
func TestClock(t *testing.T) {
	g, srv := newGateway(t, front.Options{GetTimeURL: "http://gw/clock/time"}, two(t))
	get := func(method, path, body string) answer { t.Helper(); return do(t, method, srv.URL+path, body) }
	if a := get("GET", "/clock/time", ""); a.status != 404 || a.body != `{"error":"clock not armed","ok":false}` {
		t.Errorf("unarmed: %+v", a)
	}
	if a := get("GET", "/clock/state", ""); a.body != `{"armed":false}` {
		t.Errorf("unarmed state: %s", a.body)
	}
	for _, bad := range []string{`{"virtual_time":"x"}`, `{}`, `[]`, `{bad`, `{"virtual_time":"2030-01-02T03:04:05Z","virtual_seconds_per_real_second":-1}`, `{"virtual_time":"2030-01-02T03:04:05Z","virtual_seconds_per_real_second":86401}`, `{"virtual_time":"2030-01-02T03:04:05Z","virtual_seconds_per_real_second":"1"}`} {
		if a := get("PUT", "/clock/set-time", bad); a.status != 400 || !strings.Contains(a.body, `"ok":false`) {
			t.Errorf("%s: HTTP %d %s", bad, a.status, a.body)
		}
	}
	c := begin(t, srv.URL)
	if a := get("PUT", "/clock/set-time", `{"virtual_time":"2030-01-02T03:04:05Z","virtual_seconds_per_real_second":0}`); a.status != 200 || !strings.Contains(a.body, `"virtual_time":"2030-01-02T03:04:05Z"`) {
		t.Errorf("set: %+v", a)
	}
	if a := get("GET", "/clock/state", ""); !strings.Contains(a.body, `"env_get_time_url":"http://gw/clock/time"`) {
		t.Errorf("state: %s", a.body)
	}
	if a := do(t, "GET", door(t, g, access.Principal{Role: "bob"}).URL+"/clock/time", ""); a.body != `{"virtual_time":"2030-01-02T03:04:05Z"}` {
		t.Errorf("an agent reads %s", a.body)
	}
	if !slices.Contains(names(t, c.call("tools/list", `{}`)), "get_time") {
		t.Error("get_time isn't listed while the clock is armed")
	}
	if r := c.call("tools/call", `{"name":"get_time","arguments":{"time_zone":"Asia/Tokyo"}}`); !strings.Contains(r, `"structuredContent":{"current_time":"2030-01-02T03:04:05Z","time_zone":"Asia/Tokyo","local_time":"2030-01-02T12:04:05+09:00"}`) {
		t.Errorf("get_time %s", r)
	}
	if r := c.call("tools/call", `{"name":"get_time","arguments":{"time_zone":"Mars"}}`); !strings.Contains(r, `"isError":true`) {
		t.Errorf("get_time on Mars %s", r)
	}
	for range 2 {
		if a := get("POST", "/clock/clear", ""); a.status != 200 || a.body != `{"armed":false,"ok":true}` {
			t.Errorf("clear: %+v", a)
		}
	}
	if slices.Contains(names(t, c.call("tools/list", `{}`)), "get_time") {
		t.Error("get_time is listed while the clock is unarmed")
	}
	own := newServer(t, "svc0", true)
	own.addEcho("get_time")
	_, srv = newGateway(t, front.Options{}, map[string]*server{"svc0": own})
	if a := do(t, "PUT", srv.URL+"/clock/set-time", `{"virtual_time":"2030-01-02T03:04:05Z"}`); a.status != 409 {
		t.Errorf("a server with get_time: %+v", a)
	}
}

func TestStepAndAccess(t *testing.T) {
	_, srv := newGateway(t, front.Options{}, two(t))
	step := func(body string, headers ...string) answer {
		t.Helper()
		return do(t, "POST", srv.URL+"/step", body, headers...)
	}
	if a := step(`{"action":"list_tools"}`); !strings.Contains(a.body, `{"name":"cal_ping","description":`) || !strings.Contains(a.body, `"parameters":{`) {
		t.Errorf("list %s", a.body)
	}
	if a := step(`{"action":"call_tool","tool_name":"cal_ping","arguments":{"text":"z"}}`); a.status != 200 || !strings.Contains(a.body, `"z"`) || !strings.Contains(a.body, `"changelog_id":null`) {
		t.Errorf("call %+v", a)
	}
	for _, bad := range []struct {
		body   string
		status int
	}{{`{"action":"x"}`, 400}, {`[]`, 400}, {`{bad`, 400}, {`{"action":"call_tool"}`, 400}, {`{"action":"call_tool","tool_name":"cal_ping","arguments":[]}`, 400}, {`{"action":"call_tool","tool_name":"zip"}`, 404}} {
		if a := step(bad.body); a.status != bad.status || !strings.HasPrefix(a.body, `{"error":`) {
			t.Errorf("%s: HTTP %d %s", bad.body, a.status, a.body)
		}
	}
	for _, bad := range []string{`{}`, `{"role":"","tools":"*"}`, `{"role":"bob","tools":"x"}`, `{"role":"bob","tools":[1]}`, `{"role":7,"tools":[]}`, `x`} {
		if a := do(t, "POST", srv.URL+"/tools/disable", bad); a.status != 400 || !strings.HasPrefix(a.body, `{"error":`) {
			t.Errorf("%s: HTTP %d %s", bad, a.status, a.body)
		}
	}
	if a := do(t, "POST", srv.URL+"/tools/disable", `{"role":"bob","tools":["cal_ping","no_such"]}`); a.body != `{"allowed":[],"disabled":["cal_ping","no_such"],"role":"bob"}` {
		t.Errorf("disable: %s", a.body)
	}
	if a := step(`{"action":"call_tool","tool_name":"cal_ping","arguments":{"text":"z"}}`, wire.RoleHeader, "bob"); a.status != 403 || a.body != `{"error":"Tool 'cal_ping' is disabled for role 'bob'"}` {
		t.Errorf("a disabled tool: %+v", a)
	}
	c := begin(t, srv.URL, wire.RoleHeader, "bob")
	if r := c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"z"}}`); !strings.Contains(r, "Tool 'cal_ping' is disabled for role 'bob'") || !strings.Contains(r, "permission_denied") {
		t.Errorf("a disabled tool: %s", r)
	}
	if slices.Contains(names(t, c.call("tools/list", `{}`)), "cal_ping") {
		t.Error("a disabled tool is listed")
	}
	do(t, "POST", srv.URL+"/tools/enable", `{"role":"bob","tools":["cal_ping"]}`)
	if !slices.Contains(names(t, c.call("tools/list", `{}`)), "cal_ping") {
		t.Error("an enabled tool isn't listed")
	}
}

// TestKilledChild: the calls of others go on, and the dead one comes back alone (its Restart), without the gateway being restarted.
func TestKilledChild(t *testing.T) {
	dead, alive := newServer(t, "cal", true), newServer(t, "notes", true)
	addr := dead.Listener.Addr().String()
	gate := make(chan struct{})
	var restarts atomic.Int32
	o := front.Options{Children: []front.Child{{Name: "cal", URL: dead.URL, Restart: func(ctx context.Context) error {
		restarts.Add(1)
		<-gate
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		again := httptest.NewUnstartedServer(dead.Config.Handler)
		again.Listener.Close()
		again.Listener = l
		again.Start()
		t.Cleanup(again.Close)
		return nil
	}}, {Name: "notes", URL: alive.URL}}}
	_, srv := newGateway(t, o, nil)
	c := begin(t, srv.URL)
	dead.CloseClientConnections()
	dead.Close()
	waiting := make(chan string)
	go func() {
		waiting <- do(t, "POST", srv.URL+"/step", `{"action":"call_tool","tool_name":"cal_ping","arguments":{"text":"back"}}`).body
	}()
	for restarts.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	took := make([]time.Duration, 50)
	for i := range took {
		began := time.Now()
		r := c.call("tools/call", `{"name":"notes_ping","arguments":{"text":"fine"}}`)
		if took[i] = time.Since(began); !strings.Contains(r, "fine") || took[i] > time.Second {
			t.Errorf("a living server: %s after %v", r, took[i])
		}
	}
	slices.Sort(took)
	t.Logf("while one server was down, calls to the other took p50 %v, at most %v", took[25].Round(time.Microsecond), took[49].Round(time.Microsecond))
	if !slices.Contains(names(t, c.call("tools/list", `{}`)), "cal_ping") {
		t.Error("the dead server's tools are gone")
	}
	close(gate)
	if got := <-waiting; !strings.Contains(got, "back") || restarts.Load() != 1 {
		t.Errorf("the call that waited: %s after %d restarts", got, restarts.Load())
	}
	if r := c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"again"}}`); !strings.Contains(r, "again") {
		t.Errorf("a call later: %s", r)
	}
}

// TestNotReady names the server that doesn't answer, and its last state.
func TestNotReady(t *testing.T) {
	g, err := front.New(t.Context(), front.Options{Children: []front.Child{{Name: "gone", URL: "http://127.0.0.1:1"}, {Name: "cal", URL: newServer(t, "cal", true).URL}}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := g.Ready(ctx); err == nil || !strings.Contains(err.Error(), `"gone"`) || strings.Contains(err.Error(), `"cal"`) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Ready: %v", err)
	}
}

// TestNeverReady: a server that answers what can't become a card ends the waiting for all.
func TestNeverReady(t *testing.T) {
	bad := newServer(t, "bad", true)
	bad.card = `[]`
	g, err := front.New(t.Context(), front.Options{Children: []front.Child{{Name: "gone", URL: "http://127.0.0.1:1"}, {Name: "bad", URL: bad.URL}}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var invalid *front.CardError
	if err := g.Ready(t.Context()); !errors.As(err, &invalid) || invalid.Child != "bad" || strings.Contains(err.Error(), "gone") {
		t.Errorf("Ready: %v", err)
	}
	// A website may answer every path with a page.
	page := newServer(t, "page", true)
	page.card = `<html>`
	w, err := front.New(t.Context(), front.Options{Children: []front.Child{{Name: "page", URL: page.URL, Website: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Ready(t.Context()); err != nil {
		t.Errorf("a website's page: %v", err)
	}
}

// TestProxy: paths, queries, headers and bodies pass as they came, but for who calls.
func TestProxy(t *testing.T) {
	servers := two(t)
	_, srv := newGateway(t, front.Options{}, servers)
	do(t, "PUT", srv.URL+"/svc/mcp-cal/a%2Fb/c%20d?q=%31&q=2", "body", wire.RoleHeader, "bob", "X-Own", "1", "Connection", "close, X-Hop", "X-Hop", "1", "Te", "trailers")
	got := servers["cal"].requests()
	if len(got) != 1 || got[0].Method != "PUT" || got[0].Path != "/a%2Fb/c%20d?q=%31&q=2" || got[0].Body != "body" {
		t.Fatalf("the server saw %+v", got)
	}
	h := got[0].Header
	if h.Get(wire.RoleHeader) != "bob" || h.Get("X-Own") != "1" || h.Get("X-Hop") != "" {
		t.Errorf("headers %v", h)
	}
	for path, status := range map[string]int{"/svc/none/x": 404, "/svc/mcp%2Fcal/x": 400, "/website/none": 404} {
		if a := do(t, "GET", srv.URL+path, ""); a.status != status || !strings.HasPrefix(a.body, `{"error":`) {
			t.Errorf("%s: HTTP %d %s", path, a.status, a.body)
		}
	}
	// A message to a server's own MCP endpoint says who calls, whatever its client wrote.
	c := begin(t, srv.URL+"/svc/mcp-cal", wire.RoleHeader, "bob")
	if r := c.call("tools/call", `{"name":"cal_meta","arguments":{"x":1.0},"_meta":{"agentenv.io/role":"admin","agentenv.io/session":"s","k":1}}`, wire.RoleHeader, "bob"); !strings.Contains(r, `\"agentenv.io/role\":\"bob\"`) || strings.Contains(r, "agentenv.io/session") || !strings.Contains(r, `\"k\":1`) || !strings.Contains(r, `{\"x\":1.0}`) {
		t.Errorf("call %s", r)
	}
	servers["notes"].CloseClientConnections()
	servers["notes"].Close()
	if a := do(t, "GET", srv.URL+"/svc/mcp-notes/x", ""); a.status != 502 {
		t.Errorf("a dead server: HTTP %d", a.status)
	}
}

// TestProxyStreams: what a server sends is passed on as it is sent.
func TestProxyStreams(t *testing.T) {
	s := newServer(t, "cal", true)
	next, more := s.Config.Handler, make(chan struct{})
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			next.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "two")
	})
	_, srv := newGateway(t, front.Options{}, map[string]*server{"cal": s})
	resp, err := http.DefaultTransport.RoundTrip(httptestRequest(t, "GET", srv.URL+"/svc/mcp-cal/stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "one" {
		t.Errorf("%q, %v", b, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "two" {
		t.Errorf("%q, %v", rest, err)
	}
}

func httptestRequest(t *testing.T, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestLog: lines carry the peer's fields, secrets are taken out, and the route serves what was written before each answer.
func TestLog(t *testing.T) {
	var secrets redact.Redactor
	secrets.Add("hunter22")
	_, srv := newGateway(t, front.Options{Redact: &secrets}, two(t))
	c := begin(t, srv.URL, wire.RoleHeader, "bob")
	c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"hunter22"}}`)
	do(t, "POST", srv.URL+"/step", `{"action":"call_tool","tool_name":"cal_ping","arguments":{"wrong":1}}`)
	a := do(t, "GET", srv.URL+"/trajectory", "")
	if a.status != 200 || a.header.Get("Content-Type") != "application/jsonl" || a.header.Get("X-Trajectory-Total-Bytes") != fmt.Sprint(len(a.body)) || strings.Contains(a.body, "hunter22") {
		t.Errorf("trajectory %+v", a)
	}
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), a.body)
	}
	for i, want := range []string{
		`{"event_type":"tool_call","tool_call":{"function_name":"cal_ping","arguments":{"text":"***"}},"role":"bob","event_id":"event_1","timestamp_utc":"`,
		`{"event_type":"tool_call_result","tool_call_event_id":"event_1","tool_call_result":{"content":[`,
		`{"event_type":"tool_call","source":"step_api","tool_call":{"function_name":"cal_ping","arguments":{"wrong":1}},"role":"default","event_id":"event_3"`,
		`{"event_type":"tool_call_`,
	} {
		if !strings.HasPrefix(lines[i], want) || !json.Valid([]byte(lines[i])) {
			t.Errorf("line %d is %s", i+1, lines[i])
		}
	}
	if !strings.Contains(lines[1], `"changelog_id_before":null,"changelog_id":null`) {
		t.Errorf("line 2 is %s", lines[1])
	}
}

// TestSpill: a result that is too large for an agent is kept elsewhere; the agent gets its beginning and end, and the log holds it as the agent saw it.
func TestSpill(t *testing.T) {
	var kept string
	o := front.Options{SpillAbove: 100_000, Spill: func(_ context.Context, r io.Reader, media string) (string, error) {
		b, err := io.ReadAll(r)
		kept = string(b)
		return "artifact:1", err
	}}
	servers := two(t)
	servers["cal"].addBig("cal_big")
	_, srv := newGateway(t, o, servers)
	c := begin(t, srv.URL)
	for _, n := range []int{200_000, 8 << 20} { // in memory, and beyond it
		big := "HEAD" + strings.Repeat("é", n/2) + "TAIL"
		r := c.call("tools/call", fmt.Sprintf(`{"name":"cal_big","arguments":{"bytes":%d}}`, n))
		if len(r) > 40_000 || !strings.Contains(r, "HEAD") || !strings.Contains(r, "TAIL") || !strings.Contains(r, "artifact:1") || !strings.Contains(kept, big) {
			t.Errorf("%d: %d bytes: %.300s", n, len(r), r)
		}
	}
	if small := c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"small"}}`); strings.Contains(small, "artifact") {
		t.Errorf("a small result was spilled: %s", small)
	}
	if log := do(t, "GET", srv.URL+"/trajectory", ""); strings.Count(log.body, "artifact:1") != 4 {
		t.Errorf("the log names the artifact %d times", strings.Count(log.body, "artifact:1"))
	}
	o.Spill = func(context.Context, io.Reader, string) (string, error) { return "", errors.New("disk full") }
	_, srv = newGateway(t, o, two(t))
	if r := begin(t, srv.URL).call("tools/call", `{"name":"cal_ping","arguments":{"text":"`+strings.Repeat("x", 200_000)+`"}}`); !strings.Contains(r, "disk full") || !strings.Contains(r, `"isError":true`) {
		t.Errorf("a result that can't be kept: %.300s", r)
	}
}

// TestReadSpilled: who was answered a result that is too large to show reads it in pages and whole, and nobody else does.
func TestReadSpilled(t *testing.T) {
	var mu sync.Mutex
	held := map[string][]byte{}
	o := front.Options{
		SpillAbove: 100_000, Spill: func(_ context.Context, r io.Reader, _ string) (string, error) {
			b, err := io.ReadAll(r)
			mu.Lock()
			defer mu.Unlock()
			handle := fmt.Sprintf("sha256:%d", len(b))
			held[handle] = b
			return handle, err
		},
		Kept: func(_ context.Context, handle string) (io.ReadSeekCloser, int64, error) {
			mu.Lock()
			defer mu.Unlock()
			b, ok := held[handle]
			if !ok {
				return nil, 0, errors.New("gone")
			}
			return struct {
				io.ReadSeeker
				io.Closer
			}{bytes.NewReader(b), io.NopCloser(nil)}, int64(len(b)), nil
		},
	}
	servers := two(t)
	servers["cal"].addBig("cal_big")
	g, _ := newGateway(t, o, servers)
	mine, other := door(t, g, access.Principal{Role: "solver"}), door(t, g, access.Principal{Role: "checker"})
	c := begin(t, mine.URL)
	if got := strings.Join(names(t, c.call("tools/list", "{}")), " "); strings.Contains(got, "read_result") {
		t.Errorf("listed before there is a result: %s", got)
	}
	r := c.call("tools/call", `{"name":"cal_big","arguments":{"bytes":200000}}`)
	handle := regexp.MustCompile(`sha256:\d+`).FindString(r)
	if !strings.Contains(r, "the tool read_result reads parts of it") || handle == "" {
		t.Fatalf("%.400s", r)
	}
	if got := strings.Join(names(t, c.call("tools/list", "{}")), " "); !strings.Contains(got, "read_result") {
		t.Errorf("not listed: %s", got)
	}
	var text strings.Builder
	for offset := 0; ; {
		var got struct {
			Content []struct{ Text string }
			IsError bool
		}
		raw, err := g.CallTool(t.Context(), access.Principal{Role: "solver"}, "read_result", json.RawMessage(fmt.Sprintf(`{"handle":%q,"offset":%d,"length":20001}`, handle, offset)))
		if err != nil || json.Unmarshal(raw, &got) != nil || got.IsError {
			t.Fatalf("%v %.300s", err, raw)
		}
		head, page, _ := strings.Cut(got.Content[0].Text, "\n")
		text.WriteString(page)
		var from, to, size, next int
		if _, err := fmt.Sscanf(head, "Bytes %d to %d of %d; go on with offset %d.", &from, &to, &size, &next); err != nil {
			if !strings.HasSuffix(head, "; that is the end.") {
				t.Errorf("%s: %v", head, err)
			}
			break
		}
		if from != offset || next != to || size != len(held[handle]) || !utf8.ValidString(page) {
			t.Fatalf("%s", head)
		}
		offset = next
	}
	if text.String() != string(held[handle]) {
		t.Errorf("the pages make %d bytes of %d", text.Len(), len(held[handle]))
	}
	if got := do(t, "GET", mine.URL+"/results/"+handle, ""); got.status != 200 || got.body != string(held[handle]) {
		t.Errorf("whole: %d, %d bytes", got.status, len(got.body))
	}
	if got := do(t, "POST", mine.URL+"/results/"+handle, ""); got.status != 405 {
		t.Errorf("POST: %d", got.status)
	}
	for _, url := range []string{other.URL + "/results/" + handle, mine.URL + "/results/sha256:1", mine.URL + "/results/"} {
		if got := do(t, "GET", url, ""); got.status != 404 {
			t.Errorf("%s: %d %.100s", url, got.status, got.body)
		}
	}
	d := begin(t, other.URL)
	for args, want := range map[string]string{
		fmt.Sprintf(`{"handle":%q}`, handle): "there is no result",
		`{}`:                                 "there is no result",
	} {
		if got := d.call("tools/call", `{"name":"read_result","arguments":`+args+`}`); !strings.Contains(got, want) || !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s: %.300s", args, got)
		}
	}
	for args, want := range map[string]string{
		`"offset":-1`: "offset is a whole number", `"offset":1.5`: "offset is a whole number", `"length":0`: "offset is a whole number", `"length":65537`: "offset is a whole number",
		`"offset":99999999`: "there is nothing at offset",
	} {
		if got := c.call("tools/call", fmt.Sprintf(`{"name":"read_result","arguments":{"handle":%q,%s}}`, handle, args)); !strings.Contains(got, want) {
			t.Errorf("%s: %.300s", args, got)
		}
	}
	mu.Lock()
	delete(held, handle)
	mu.Unlock()
	if got := c.call("tools/call", fmt.Sprintf(`{"name":"read_result","arguments":{"handle":%q}}`, handle)); !strings.Contains(got, "can't be read now") {
		t.Errorf("gone: %.300s", got)
	}
}

// TestStateOutlives: rules, clock and triggers of a gateway that ended are those of the next.
func TestStateOutlives(t *testing.T) {
	dir := t.TempDir()
	o := front.Options{StateFile: filepath.Join(dir, "s", "state.json"), CallLog: filepath.Join(dir, "calls.jsonl")}
	servers := two(t)
	for _, n := range []string{"cal", "notes"} {
		o.Children = append(o.Children, front.Child{Name: n, URL: servers[n].URL})
	}
	g, err := front.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.SetAccess("bob", []string{"cal_ping"}, false)
	if _, err := g.SetTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := g.RegisterTriggers([]byte(`{"triggers":[{"id":"t","when":{"type":"action","tool":"cal_ping"},"barrier":{"at":"provoking_call"},"actions":[{"type":"tool","tool":"notes_ping","args":{"text":"${args.text}"}}]}]}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.CallTool(t.Context(), access.Principal{Owner: true}, "cal_ping", []byte(`{"text":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	o.Children = nil
	g, srv := newGateway(t, o, servers)
	if r := g.Access()["bob"]; len(r.Disabled) != 1 {
		t.Errorf("rules %+v", g.Access())
	}
	if a := do(t, "GET", srv.URL+"/clock/time", ""); a.body != `{"virtual_time":"2030-01-01T00:00:00Z"}` {
		t.Errorf("clock %s", a.body)
	}
	if a := do(t, "GET", srv.URL+"/triggers/state", ""); !strings.Contains(a.body, `"status":"fired"`) {
		t.Errorf("triggers %s", a.body)
	}
	log, _ := os.ReadFile(o.CallLog)
	if !strings.Contains(string(log), `"event_type":"internal_tool_call"`) || !strings.Contains(string(log), `"event_type":"trigger_fired"`) {
		t.Errorf("log %s", log)
	}
	if err := os.WriteFile(o.StateFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := front.New(t.Context(), front.Options{StateFile: o.StateFile}); err == nil || !strings.Contains(err.Error(), o.StateFile) {
		t.Errorf("a broken state file: %v", err)
	}
}

// TestTriggerRoutes: refusals are told as the peer's, and a barrier holds the call until the mirror is written.
func TestTriggerRoutes(t *testing.T) {
	servers := two(t)
	_, srv := newGateway(t, front.Options{}, servers)
	if a := do(t, "POST", srv.URL+"/triggers/register", `{"triggers":[{"id":"x","when":{"type":"action","tool":"no_such"},"actions":[]}]}`); a.status != 400 || !strings.Contains(a.body, `"ok":false`) || !strings.Contains(a.body, "no_such") {
		t.Errorf("an unknown tool: %+v", a)
	}
	a := do(t, "POST", srv.URL+"/triggers/register", `{"triggers":[{"id":"x","when":{"type":"action","tool":"cal_ping"},"barrier":{"at":"provoking_call"},"actions":[{"type":"permission","role":"default","action":"disable","tools":["notes_ping"]}]}]}`)
	if a.status != 200 || a.body != `{"ok":true,"added":["x"],"all":["x"]}` {
		t.Errorf("register: %+v", a)
	}
	c := begin(t, srv.URL)
	c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"x"}}`)
	if r := c.call("tools/call", `{"name":"notes_ping","arguments":{"text":"x"}}`); !strings.Contains(r, "disabled") {
		t.Errorf("the barrier didn't hold: %s", r)
	}
	if a := do(t, "POST", srv.URL+"/triggers/remove", `{"ids":["x"]}`); a.body != `{"ok":true,"removed":["x"]}` {
		t.Errorf("remove: %+v", a)
	}
	if a := do(t, "POST", srv.URL+"/triggers/clear", ``); a.body != `{"ok":true}` {
		t.Errorf("clear: %+v", a)
	}
}

// TestWebsite: pages come through the gateway, agents are told where they are, and a request fires a trigger before it is answered.
func TestWebsite(t *testing.T) {
	servers := two(t)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), b)
	}))
	defer pages.Close()
	backend := newServer(t, "shop", true)
	g, srv := newGateway(t, front.Options{Children: []front.Child{{Name: "shop", URL: backend.URL, Website: true, Frontend: pages.URL}}}, servers)
	for path, want := range map[string]string{"/website/shop": "GET / ", "/website/shop/a?b=1": "GET /a?b=1 "} {
		if a := do(t, "GET", srv.URL+path, ""); a.body != want {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	c := begin(t, srv.URL)
	if r := c.call("tools/call", `{"name":"list_website_urls","arguments":{}}`); !strings.Contains(r, pages.URL) {
		t.Errorf("websites: %s", r)
	}
	if a := do(t, "POST", srv.URL+"/svc/shop/agentenv", `{}`); a.status != 200 || !strings.Contains(a.body, "shop") {
		t.Errorf("the backend: %+v", a)
	}
	if _, err := g.RegisterTriggers([]byte(`{"triggers":[{"id":"w","when":{"type":"website","app":"shop","method":"POST","where":{"sku":{"equals":"7"}}},"barrier":{"at":"provoking_call"},"actions":[{"type":"permission","role":"default","action":"disable","tools":["cal_ping"]}]}]}`)); err != nil {
		t.Fatal(err)
	}
	if a := do(t, "POST", srv.URL+"/website/shop/buy", "sku=7", "Content-Type", "application/x-www-form-urlencoded"); a.body != "POST /buy sku=7" {
		t.Errorf("a request that fires: %s", a.body)
	}
	if slices.Contains(names(t, c.call("tools/list", `{}`)), "cal_ping") {
		t.Error("the trigger didn't fire before the answer")
	}
}

// changes is a log of changes in memory.
type changes struct{ last atomic.Int64 }

func (c *changes) Last(context.Context) (int64, error) { return c.last.Add(1), nil }
func (c *changes) After(_ context.Context, after int64, limit int) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for i := after + 1; i <= c.last.Load() && len(out) < limit; i++ {
		out = append(out, fmt.Appendf(nil, `{"id":%d,"table_name":"t"}`, i))
	}
	return out, nil
}

func TestChanges(t *testing.T) {
	_, srv := newGateway(t, front.Options{}, two(t))
	if a := do(t, "GET", srv.URL+"/changes", ""); a.status != 404 || a.body != `{"error":"this env keeps no changelog","ok":false}` {
		t.Errorf("without a log: %+v", a)
	}
	_, srv = newGateway(t, front.Options{Changes: &changes{}, Consistent: true}, two(t))
	begin(t, srv.URL, wire.RoleHeader, "bob").call("tools/call", `{"name":"cal_ping","arguments":{"text":"x"}}`)
	a := do(t, "GET", srv.URL+"/changes?after_id=1&limit=1", "")
	if a.body != `{"changes":[{"id":2,"table_name":"t","actors":[{"kind":"tool_call","event_id":"event_1","tool":"cal_ping","role":"bob"}]}],"has_more":false}` {
		t.Errorf("changes %s", a.body)
	}
	for _, q := range []string{"after_id=-1", "limit=0", "limit=10001", "after_id=x"} {
		if a := do(t, "GET", srv.URL+"/changes?"+q, ""); a.status != 400 {
			t.Errorf("%s: HTTP %d", q, a.status)
		}
	}
}
