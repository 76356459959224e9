package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type note struct {
	Text string `json:"text"`
	Pri  string `json:"pri,omitempty" enum:"lo,hi" default:"lo"`
}

type setFault struct {
	Mode string  `json:"mode" enum:"live,fixed"`
	Rate float64 `json:"rate" default:"0.0"`
}

// newNotes is a Go server that does what the fixture says.
func newNotes(opts ...env.Option) *env.Env {
	var mu sync.Mutex
	var texts []string
	mode := ""
	e := env.New("notes", append([]env.Option{env.WithLookup(func(string) (string, bool) { return "", false })}, opts...)...)
	env.AddTool(e, "notes_add", "Add a note.", func(_ context.Context, in note) (string, error) {
		switch in.Text {
		case "coded":
			return "", env.Fail("bad_note", "no such note").WithHint("try another")
		case "crash":
			panic("kaboom")
		}
		return "ok", nil
	})
	who := func(ctx context.Context, _ struct{}) (any, error) {
		c := env.CallFrom(ctx)
		return map[string]string{"role": c.Role, "session": c.Session}, nil
	}
	env.AddTool(e, "whoami", "Tell who calls.", who)
	env.AddTool(e, "admin", "Only for tasks.", who, env.Hidden())
	e.OnReset(func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		texts = nil
		return nil
	})
	e.OnAdd(func(ctx context.Context, inputs []*env.Input) error {
		mu.Lock()
		defer mu.Unlock()
		for _, in := range inputs {
			if in.Part.Kind == wire.KindText {
				texts = append(texts, in.Part.Text)
				continue
			}
			var seed struct {
				Notes []note
				Fail  string
			}
			if err := in.Decode(ctx, &seed); err != nil {
				return err
			}
			if seed.Fail != "" {
				return fmt.Errorf("%s", seed.Fail)
			}
			for _, n := range seed.Notes {
				texts = append(texts, n.Text)
			}
		}
		return nil
	})
	e.OnExport(func(ctx context.Context, to *env.Namespace) ([]wire.Part, error) {
		mu.Lock()
		defer mu.Unlock()
		p, err := wire.DataPart(map[string]any{"notes": texts})
		return []wire.Part{p}, err
	})
	env.AddExtension(e, "urn:example:fault/v1", "set", func(_ context.Context, in setFault) (any, error) {
		if in.Rate > 1 {
			panic("rate out of range")
		}
		if in.Mode == "fixed" && mode == "fixed" {
			return nil, env.Fail("conflict", "already fixed").Retry().WithStatus(409).WithHint("set it live first")
		}
		mode = in.Mode
		return nil, nil
	}, env.Op())
	env.AddExtension(e, "urn:example:fault/v1", "read", func(_ context.Context, in struct {
		N int `json:"n"`
	},
	) (map[string]int, error) {
		return map[string]int{"n": in.N}, nil
	}, env.Op(), env.Verb("GET"))
	return e
}

func serve(t *testing.T, e *env.Env) string {
	t.Helper()
	h, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return srv.URL
}

func run(t *testing.T, target conformance.Target) conformance.Report {
	t.Helper()
	r, err := conformance.Run(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func parseFixture(t *testing.T) conformance.Fixture {
	t.Helper()
	b, err := os.ReadFile("testdata/notes.json") // what newNotes and the Python server of the integration tier understand
	if err != nil {
		t.Fatal(err)
	}
	f, err := conformance.ParseFixture(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGoServer: every row holds for servers written with sdk/env, and but for those that need an own kind none is left out.
func TestGoServer(t *testing.T) {
	skips := map[string][]string{}
	for name, opts := range map[string][]env.Option{"plain": nil, "with tool access and clock": {env.WithToolAccess(), env.WithClock()}} {
		t.Run(name, func(t *testing.T) {
			r := run(t, conformance.Target{URL: serve(t, newNotes(opts...)), Fixture: parseFixture(t)})
			for _, x := range r.Results {
				switch x.Status {
				case conformance.Passed:
				case conformance.Skipped:
					skips[name] = append(skips[name], x.Row)
				default:
					t.Errorf("%s %s: %s: %s\n%s", x.Row, x.Name, x.Status, x.Reason, strings.Join(x.Evidence, "\n"))
				}
			}
			if r.Count(conformance.Passed) == 0 || r.Kind != conformance.KindEnvironment || r.Name != "notes" {
				t.Errorf("%+v", r)
			}
		})
	}
	if got := fmt.Sprint(skips["plain"], skips["with tool access and clock"]); got != "[E10 E26 E25] [E10]" {
		t.Errorf("rows left out: %s", got)
	}
}

// TestBareServer: a server of tools alone is checked for what it has.
func TestBareServer(t *testing.T) {
	e := env.New("bare", env.WithLookup(func(string) (string, bool) { return "", false }))
	env.AddTool(e, "hi", "Say hi.", func(context.Context, struct{}) (string, error) { return "hi", nil })
	e.OnGet(func(context.Context) ([]wire.Part, error) { return nil, nil })
	r := run(t, conformance.Target{URL: serve(t, e)})
	for _, x := range r.Results {
		if x.Status != conformance.Passed && x.Status != conformance.Skipped {
			t.Errorf("%s: %s: %s\n%s", x.Row, x.Status, x.Reason, strings.Join(x.Evidence, "\n"))
		}
		if x.Row == "E10" && x.Status != conformance.Passed {
			t.Errorf("E10: %s: %s", x.Status, x.Reason)
		}
	}
}

// TestExpectations: a known failure is no problem, one that is none any more is.
func TestExpectations(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wire.CardPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(wire.Card{Name: "x", ProtocolVersion: "1.0", URL: "/agentenv", PreferredTransport: "JSONRPC"})
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	expect, err := conformance.ParseExpectations([]byte(`{"failures":[{"row":"E11","reason":"it has no data plane"},{"row":"E1","reason":"was broken once"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, conformance.Target{URL: srv.URL, Expect: expect})
	got := map[string]conformance.Status{}
	for _, x := range r.Results {
		got[x.Row] = x.Status
	}
	if got["E11"] != conformance.Expected || got["E1"] != conformance.Unexpected || got["E12"] != conformance.Failed || r.Problems() == 0 {
		t.Errorf("%v", got)
	}
}

func TestFilesAreStrict(t *testing.T) {
	for _, bad := range []string{`{"failures":[{"row":"E1"}]}`, `{"failures":[{"reason":"x"}]}`, `{"failures":[{"row":"E1","reason":"x"},{"row":"E1","reason":"y"}]}`, `{"rows":[]}`, `{} {}`} {
		if _, err := conformance.ParseExpectations([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if _, err := conformance.ParseFixture([]byte(`{"tool":{}}`)); err == nil {
		t.Error("an unknown member of a fixture was taken")
	}
	if _, err := conformance.Run(t.Context(), conformance.Target{URL: "http://127.0.0.1:9", Expect: conformance.Expectations{"E99": "x"}}); err == nil || !strings.Contains(err.Error(), "E99") {
		t.Errorf("%v", err)
	}
	if _, err := conformance.Run(t.Context(), conformance.Target{URL: "http://127.0.0.1:9"}); err == nil || !strings.Contains(err.Error(), "reach the server") {
		t.Errorf("%v", err)
	}
}

// FuzzFiles: what people write is read or refused.
func FuzzFiles(f *testing.F) {
	b, err := os.ReadFile("testdata/notes.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"failures":[{"row":"E1","reason":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = conformance.ParseFixture(b)
		if e, err := conformance.ParseExpectations(b); err == nil {
			for row, why := range e {
				if row == "" || strings.TrimSpace(why) == "" {
					t.Errorf("%q: %q", row, why)
				}
			}
		}
	})
}
