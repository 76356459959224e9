package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/env"
)

// fault breaks a server in one way: of a request that holds all of when, the answer gets another status, or old becomes new in it.
type fault struct {
	when     []string
	status   int
	old, new string
	drop     bool // the request never reaches the server; new is the answer
}

func (f fault) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		said := r.Method + " " + r.URL.Path + " " + r.Header.Get("Accept") + " " + string(body)
		for _, part := range f.when {
			if !strings.Contains(said, part) {
				next.ServeHTTP(w, r)
				return
			}
		}
		rec := httptest.NewRecorder()
		if f.drop {
			rec.Header().Set("Content-Type", "application/json")
			rec.Body.WriteString(f.new)
		} else {
			next.ServeHTTP(rec, r)
		}
		maps.Copy(w.Header(), rec.Header())
		w.Header().Del("Content-Length")
		status := rec.Code
		if f.status != 0 {
			status = f.status
		}
		w.WriteHeader(status)
		answer := rec.Body.String()
		if f.old != "" {
			answer = strings.ReplaceAll(answer, f.old, f.new)
		}
		_, _ = io.WriteString(w, answer)
	})
}

// TestEachRowFails: a row is worth something only if a server that breaks it fails it.
func TestEachRowFails(t *testing.T) {
	const result = `{"jsonrpc":"2.0","id":1,"result":{}}`
	for row, faults := range map[string][]fault{
		"E1":  {{when: []string{"GET /.well-known"}, old: `"protocolVersion"`, new: `"version"`}, {when: []string{"GET /.well-known"}, old: `"capabilities":{`, new: `"capabilities":null,"x":{`}},
		"E2":  {{when: []string{"POST /.well-known"}, status: 200}},
		"E3":  {{when: []string{"data/reset"}, drop: true, new: result}, {when: []string{"data/reset"}, status: 204}},
		"E4":  {{when: []string{"data/add", "seed-a"}, drop: true, new: result}},
		"E5":  {{when: []string{`"parts":[]`}, old: "-32602", new: "-32000"}, {when: []string{"video"}, old: `"detail"`, new: `"text"`}},
		"E6":  {{when: []string{"bad seed"}, old: "add_failed", new: "failed"}, {when: []string{"bad seed"}, drop: true, new: result}},
		"E7":  {{when: []string{`"id":1,"method":"data/get"}`}, old: `"kind":"data"`, new: `"kind":"data","metadata":null`}, {when: []string{`"id":1,"method":"data/get"}`}, old: `"kind":"data"`, new: `"kind":"dat"`}},
		"E8":  {{when: []string{"write_namespace", `"max_objects":1,`, "https:", "root_path\":\"conform"}, old: `"result":{"parts"`, new: `"result":{"items"`}},
		"E9":  {{when: []string{"write_namespace", "+02:00"}, old: "expires_at", new: "canary-7d1f"}, {when: []string{"write_namespace", `"more"`}, drop: true, new: `{"jsonrpc":"2.0","id":1,"result":{"parts":[]}}`}},
		"E11": {{when: []string{"data/nothing", `"id":1`}, old: "-32601", new: "-32600"}},
		"E12": {{when: []string{`"jsonrpc":"1.0"`}, old: `"id":"a"`, new: `"id":null`}, {when: []string{"{bad", "/agentenv "}, status: 400}},
		"E13": {{when: []string{`"id":13`}, status: 500}},
		"E14": {{when: []string{`{"jsonrpc":"2.0","method":"data/nothing"}`}, old: `"id":null`, new: `"id":0`}},
		"E15": {{when: []string{"GET /agentenv "}, status: 200}},
		"E16": {{when: []string{"fault/set", `"0.5"`}, old: "{}", new: "null"}, {when: []string{"GET", "fault/read"}, old: "}", new: ""}},
		"E17": {{when: []string{"fault/set", "sleepy"}, status: 422}, {when: []string{"fault/set", "conform_unknown"}, drop: true, new: "{}"}, {when: []string{"fault/set", "fast"}, old: `"no"`, new: `"yes"`}},
		"E18": {{when: []string{"fault/set", "fixed"}, old: "set it live first", new: "wait"}, {when: []string{"fault/set", "fixed"}, status: 400}},
		"E19": {{when: []string{"fault/set", `"rate":2`}, old: "unknown", new: "no"}},
		"E20": {{when: []string{"DELETE /agentenv/ext"}, status: 200}, {when: []string{"conform/nothing"}, status: 400}},
		"E21": {{when: []string{"DELETE /mcp"}, status: 204}, {when: []string{"notifications/initialized"}, status: 200}},
		"E22": {{when: []string{"POST /mcp text/html"}, status: 400}, {when: []string{"tools/list"}, status: 200}},
		"E23": {{when: []string{`"coded"`}, old: "structuredContent", new: "structured"}, {when: []string{`"coded"`}, old: "bad_note: ", new: ""}},
		"E24": {{when: []string{"conform_no_such_tool"}, old: `"isError":true`, new: `"isError":false`}, {when: []string{"middling"}, old: `"result"`, new: `"outcome"`}},
		"E25": {{when: []string{"tools/list"}, old: `{"tools":[`, new: `{"tools":[{"name":"admin","inputSchema":{"type":"object"}},`}, {when: []string{"tools/call", `"admin"`}, old: "permission_denied", new: "no"}},
		"E26": {{when: []string{"POST /tools/disable", `"tools":5`}, status: 200}, {when: []string{"POST /tools/enable", `["a"]`}, old: `"allowed":["a"]`, new: `"allowed":[]`}},
		"E27": {{when: []string{"whoami"}, old: "solver", new: "default"}},
		"E28": {{when: []string{"whoami", "sess9"}, old: "sess9", new: "other"}},
	} {
		for _, f := range faults {
			e := newNotes(env.WithToolAccess())
			h, err := e.Handler()
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(f.wrap(h))
			r, err := conformance.Run(t.Context(), conformance.Target{URL: srv.URL, Fixture: parseFixture(t)})
			err = errors.Join(err, e.Close(context.WithoutCancel(t.Context())))
			srv.Close()
			if err != nil {
				t.Errorf("%s: %v", row, err)
				continue
			}
			for _, x := range r.Results {
				if x.Row == row && x.Status != conformance.Failed {
					t.Errorf("%s holds for a server with the fault %+v: %s %s", row, f, x.Status, x.Reason)
				}
			}
		}
	}
}
