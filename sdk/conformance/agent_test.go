package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/conformance"
)

type toldConfig struct {
	ProviderToken string `json:"provider_token" writeonly:"true"`
}

// newTold is a Go agent that does what the fixture says, with every extension.
func newTold(t *testing.T) *agent.Agent {
	t.Helper()
	dir := t.TempDir()
	return agent.New("told", func(ctx context.Context, turn *agent.Turn) (agent.Result, error) {
		if err := errors.Join(turn.TrajectoryFormat("told"), turn.Record(map[string]string{"told": turn.Text()})); err != nil {
			return agent.Result{}, err
		}
		switch turn.Text() {
		case "dawdle":
			<-ctx.Done()
			return agent.Result{}, ctx.Err()
		case "fail":
			return agent.Result{}, agent.Fail("told.refused", "I was told to")
		case "crash":
			panic("s3cret-text")
		}
		return agent.Text(turn.Text()), nil
	},
		agent.WithDescription("Does as it is told."),
		agent.WithLookup(func(name string) (string, bool) { return dir, name == agent.StagingDirVariable }),
		agent.WithConfig(toldConfig{}), agent.WithMCP(), agent.WithSkills("", nil), agent.WithTrajectory(), agent.WithTriggers(), agent.WithPeers(),
		agent.WithSnapshots(
			func(ctx context.Context, s *agent.Snapshot) error {
				return s.Trajectory.Write(ctx, bytes.NewReader([]byte("told")))
			},
			func(_ context.Context, s *agent.Saved) (string, error) { return s.TargetContextID, nil }),
		agent.WithChangelog(
			func(_ context.Context, _ *agent.Uploads, roots []string) ([]string, error) { return roots, nil },
			func(context.Context, *agent.Changes) (string, error) { return "", nil }))
}

func agentFixture(t *testing.T) conformance.Fixture {
	t.Helper()
	b, err := os.ReadFile("testdata/agent.json") // what newTold and the Python agent of the integration tier understand
	if err != nil {
		t.Fatal(err)
	}
	f, err := conformance.ParseFixture(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// checkAgent serves a new agent behind a fault and checks it.
func checkAgent(t *testing.T, wrap func(http.Handler) http.Handler) conformance.Report {
	t.Helper()
	a := newTold(t)
	h, err := a.Handler()
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	r, err := conformance.Run(t.Context(), conformance.Target{URL: srv.URL, Fixture: agentFixture(t)})
	if err := errors.Join(err, a.Close(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGoAgent: every row holds for agents written with sdk/agent, none left out.
func TestGoAgent(t *testing.T) {
	r := checkAgent(t, nil)
	for _, x := range r.Results {
		if x.Status != conformance.Passed {
			t.Errorf("%s %s: %s: %s\n%s", x.Row, x.Name, x.Status, x.Reason, strings.Join(x.Evidence, "\n"))
		}
	}
	if r.Kind != conformance.KindAgent || r.Name != "told" || len(r.Results) != 20 {
		t.Errorf("kind %s, name %s, %d rows", r.Kind, r.Name, len(r.Results))
	}
}

// TestEachAgentRowFails: a row is worth something only if an agent that breaks it fails it.
func TestEachAgentRowFails(t *testing.T) {
	for row, faults := range map[string][]fault{
		"A1":  {{when: []string{"GET /.well-known/agent.json"}, old: "Does", new: "Do"}, {when: []string{"GET /.well-known"}, old: `"0.3.0"`, new: `"0.2.0"`}},
		"A2":  {{when: []string{"message/send"}, old: `"kind":"task"`, new: `"kind":"message"`}, {when: []string{"message/send"}, old: `"id":"c"`, new: `"id":"c","x":`}},
		"A3":  {{when: []string{"message/send"}, drop: true, new: `{"jsonrpc":"2.0","id":"c","result":{"kind":"task","id":"1","contextId":"same","status":{"state":"submitted"}}}`}},
		"A4":  {{when: []string{`"parts":[]`}, old: "-32602", new: "-32603"}, {when: []string{`"boss"`}, drop: true, new: `{"jsonrpc":"2.0","id":"c","result":{}}`}},
		"A5":  {{when: []string{"tasks/cancel", "00000000-0000"}, old: "-32001", new: "-32002"}, {when: []string{"message/send", "00000000-0000"}, old: "-32001", new: "-32602"}},
		"A6":  {{when: []string{"tasks/cancel"}, old: `"canceled"`, new: `"working"`}, {when: []string{"tasks/cancel"}, old: "-32002", new: "-32603"}},
		"A7":  {{when: []string{"tasks/get"}, old: `"message":{"kind":"message"`, new: `"reply":{"kind":"message"`}},
		"A8":  {{when: []string{"tasks/get"}, old: "agent_error", new: "infra_error"}, {when: []string{"tasks/get"}, old: "An unexpected", new: "s3cret-text"}},
		"A10": {{when: []string{"POST /ext/agent-config", "conform_unknown"}, status: 200}, {when: []string{"POST /ext/agent-config", " {}"}, status: 400}},
		"A11": {{when: []string{"GET /ext/agent-config"}, old: "***", new: "canary-7d1f"}, {when: []string{"GET /ext/agent-config"}, status: 404}},
		"A12": {{when: []string{"POST /ext/mcp-config", `" "`}, status: 200}, {when: []string{"POST /ext/mcp-config", "/other"}, status: 200}},
		"A13": {{when: []string{"skill-config", "OTHER.md"}, status: 200}, {when: []string{"skill-config", "no spaces"}, status: 422}},
		"A14": {{when: []string{"/ext/trajectory", `"after":0`}, old: "running", new: "completed"}, {when: []string{"/ext/trajectory"}, status: 200}},
		"A15": {{when: []string{"/ext/trajectory", `"limit":1001`}, status: 200}, {when: []string{"/ext/trajectory", `"after":"0"`}, status: 500}},
		"A16": {{when: []string{"/ext/snapshot", "2001-"}, old: "grant_expired", new: "expired"}, {when: []string{"/ext/snapshot", "text/plain"}, status: 200}},
		"A17": {{when: []string{"PUT /ext/snapshot/changelog"}, old: `"count":0`, new: `"count":1`}, {when: []string{"PUT /ext/snapshot/changelog", "sequence"}, status: 200}},
		"A18": {{when: []string{"decide"}, old: `"now"`, new: `"later"`}, {when: []string{"decide", `{"turn":0}`}, status: 200}},
		"A19": {{when: []string{"PUT /ext/staging/short"}, status: 201}, {when: []string{"DELETE /ext/staging"}, status: 204}, {when: []string{"PUT /ext/staging/conform-0123456789abcdefghij/a/ "}, status: 201}},
		"A20": {{when: []string{"GET /health"}, old: "ok", new: "fine"}, {when: []string{"GET /health"}, status: 204}},
	} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			for _, f := range faults {
				for _, x := range checkAgent(t, f.wrap).Results {
					if x.Row == row && x.Status != conformance.Failed {
						t.Errorf("the row holds for an agent with the fault %+v: %s %s", f, x.Status, x.Reason)
					}
				}
			}
		})
	}
}

// TestOvertakenTaskFails: A9 fails for an agent whose second task of a context ends while the first still runs.
func TestOvertakenTaskFails(t *testing.T) {
	newest := map[string]string{}    // task by context
	overtaken := map[string]string{} // by the second of its context
	r := checkAgent(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			var answer struct {
				Result struct{ ID, ContextID string }
			}
			text := rec.Body.String()
			if r.URL.Path == "/a2a" && json.Unmarshal(rec.Body.Bytes(), &answer) == nil {
				id, c := answer.Result.ID, answer.Result.ContextID
				if strings.Contains(string(body), "message/send") {
					overtaken[newest[c]] = id
					newest[c] = id
				} else if overtaken[id] != "" {
					text = strings.ReplaceAll(text, `"completed"`, `"working"`)
				}
			}
			w.WriteHeader(rec.Code)
			_, _ = io.WriteString(w, text)
		})
	})
	for _, x := range r.Results {
		if x.Row == "A9" && x.Status != conformance.Failed {
			t.Errorf("%s %s", x.Status, x.Reason)
		}
	}
}
