package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is an environment server with one number. step is what is lost of it at every export.
func counter(step int) http.Handler {
	e := env.New("counter", env.WithLookup(func(string) (string, bool) { return "", false }))
	type input struct {
		By int `json:"by" jsonschema:"How much to add."`
	}
	env.AddTool(e, "count", "Add to the counter.", func(_ context.Context, in input) (int, error) { return in.By, nil })
	type seed struct {
		N int `json:"n"`
	}
	var mu sync.Mutex
	n := 0
	e.OnReset(func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		n = 0
		return nil
	})
	e.OnAdd(func(ctx context.Context, inputs []*env.Input) error {
		for _, in := range inputs {
			var s seed
			if err := in.Decode(ctx, &s); err != nil {
				return err
			}
			mu.Lock()
			n += s.N
			mu.Unlock()
		}
		return nil
	})
	e.OnGet(func(context.Context) ([]wire.Part, error) {
		mu.Lock()
		defer mu.Unlock()
		n -= step
		p, err := wire.DataPart(seed{n})
		return []wire.Part{p}, err
	})
	e.Handle("GET /openapi.yaml", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if step == 0 {
			http.NotFound(w, nil)
			return
		}
		_, _ = io.WriteString(w, openapi)
	}))
	h, err := e.Handler()
	if err != nil {
		panic(err)
	}
	return h
}

const openapi = `
openapi: 3.1.0
paths:
  /count:
    post:
      operationId: count
      requestBody: {$ref: "#/components/requestBodies/count"}
  /undo/{n}:
    parameters: [{name: n, in: path, required: true}]
    post: {operationId: undo}
components:
  requestBodies:
    count: {content: {application/json: {schema: {type: object, required: [step], properties: {step: {type: integer}}}}}}
`

// program serves a handler in a fake box, with files that are staged there put into the requests that name them.
func program(h http.Handler) fake.Program {
	return func(ctx context.Context, p *fake.Proc) guest.Exit {
		l, err := p.Listen(ctx, "tcp", p.Env["MCP_HOST"]+":"+p.Env["MCP_PORT"])
		if err != nil {
			return fake.Code(1)
		}
		staged := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if req, werr := wire.DecodeRequest(b); werr == nil && req.Method == wire.Add {
				var in struct{ Parts []wire.Part }
				if json.Unmarshal(req.Params, &in) == nil && len(in.Parts) == 1 && in.Parts[0].File != nil && in.Parts[0].File.URI != "" {
					file, _ := p.Machine.Files.ReadFile(strings.TrimPrefix(in.Parts[0].File.URI, "file://"))
					req.Params = fmt.Appendf(nil, `{"parts":[{"kind":"data","data":%s}]}`, file)
					b, _ = json.Marshal(req)
				}
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			h.ServeHTTP(w, r)
		})
		web := &http.Server{Handler: staged, ReadHeaderTimeout: time.Minute}
		stop := context.AfterFunc(ctx, func() { _ = web.Close() })
		defer stop()
		_ = web.Serve(l)
		return guest.Exit{Signal: 9}
	}
}

func rig(t *testing.T, lost int) *steptest.Rig {
	t.Helper()
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"server": program(counter(lost))}})
	r.PutEnv("@local/counter", "counter", `command = ["server"]`)
	r.DeployEnv("@local/counter", "up")
	return r
}

// told are the rows of a verification as text: "criterion: ok", "criterion: skipped (why)" or "criterion: why".
func told(v step.Verification) string {
	var out []string
	for _, r := range v.Results {
		text := "ok"
		switch why, _ := r["justification"].(string); {
		case r["skipped"] == true:
			text = "skipped (" + why + ")"
		case r["result"] != true:
			text = why
		}
		out = append(out, fmt.Sprintf("%s: %s", r["criterion"], text))
	}
	return strings.Join(out, "\n")
}

func TestGoodServer(t *testing.T) {
	r := rig(t, 0)
	for typ, e := range map[string]step.Executor{
		EnvCard: NewVerifyEnvCard(r.Envs), CoreProtocol: NewVerifyEnvCoreProtocol(r.Envs), ToolSchema: NewVerifyMCPToolSchema(r.Envs), SpecConformance: NewVerifySpecConformance(r.Envs),
	} {
		r.Must(e, `{"id": "`+typ+`", "type": "verify_`+typ+`", "env_id": "@local/counter"}`)
		if v := r.Verification(typ); v.Score != 1 || len(v.Results) == 0 {
			t.Errorf("%s: %v\n%s", typ, v.Score, told(v))
		}
	}
	if got, want := told(r.Verification(CoreProtocol)), `reset: whatever params, and nothing added is left: ok
add: loads: ok
get: a list of parts without nulls: ok
any: a method that isn't served: ok`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := told(r.Verification(SpecConformance)); got != "the tools are those of the OpenAPI document: skipped (the server has no /openapi.yaml)" {
		t.Error(got)
	}
	r.Must(NewValidationGateAggregator(), `{"id": "g", "type": "validation_gate_aggregator", "env_id": "@local/counter", "required_gates": ["mcp_tool_schema", "spec_conformance"]}`)
	r.Equal("gate", get(t, r, GatePath), json.RawMessage(`{"env_id":"@local/counter","gates":{"mcp_tool_schema":"passed","spec_conformance":"skipped"},"passed":true}`))
	r.Must(NewValidationGateAggregator(), `{"id": "g2", "type": "validation_gate_aggregator", "env_id": "@local/counter"}`)
	if v := r.Verification(Gate); v.Score != 0 || told(v) != "mcp_tool_schema: ok\nmcp_tool_correctness: it was not checked" {
		t.Error(told(v))
	}
	if err := r.Do(NewVerifyEnvCard(r.Envs), `{"id": "x", "type": "verify_env_card", "env_id": "@local/other"}`); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
}

func get(t *testing.T, r *steptest.Rig, path string) any {
	t.Helper()
	var v any
	if ok, err := r.View().Get(path, &v); !ok || err != nil {
		t.Fatal(path, err)
	}
	return v
}

func TestSpecConformance(t *testing.T) {
	r := rig(t, 1)
	r.Must(NewVerifySpecConformance(r.Envs), `{"id": "s", "type": "verify_spec_conformance", "env_id": "@local/counter"}`)
	if v := r.Verification(SpecConformance); v.Score != 0 || told(v) != "tool of count: it takes no 'step'; it requires 'by', which the document doesn't name\ntool of undo: there is no such tool" {
		t.Error(told(v))
	}
}

func TestRoundTrip(t *testing.T) {
	const universe = `{"id": "r", "type": "verify_universe_load_export_roundtrip", "env_id": "@local/counter", "universe_artifact_id": "@local/world", "emit_file_artifact_universe": true}`
	const combine = `{"id": "c", "type": "combine_universe_verdicts", "env_id": "@local/counter", "universe_artifact_id": "@local/world", "universe_artifact_version": 1, "judge_verifier_id": "judge"}`
	for lost, want := range map[int]string{0: "export, load and export again give the same: ok", 1: "export, load and export again give the same: the export differs"} {
		r := rig(t, lost)
		r.PutEnvironments("@local/world", map[string]string{"counter": `{ "n": 7 }`, "calendar": "{}"})
		e := NewVerifyUniverseRoundTrip(r.Store, r.Envs)
		r.Must(e, universe)
		want += "\nexport, load and export again give the same: skipped (the environment has no server of that name)"
		v := r.Verification(RoundTrip)
		if told(v) != want || v.Score != float64(1-lost) {
			t.Errorf("%v %s", v.Score, told(v))
		}
		d, err := r.Store.Get(t.Context(), store.Artifact, steptest.Run+"-r", 0)
		if err != nil || d.Type != "file_artifact_universe" || !bytes.Contains(d.Body, []byte(`"export-2/counter/data.json"`)) {
			t.Errorf("%s %s %v", d.Type, d.Body, err)
		}
		r.Must(NewCombineUniverseVerdicts(), combine)
		if got := told(r.Verification(UniverseVerdict)); !strings.HasSuffix(got, "\njudge: no step left the verification 'judge'") || strings.HasPrefix(got, "comparison: ok") != (lost == 0) {
			t.Error(got)
		}
		r.PutEnvironment("@local/bad", "counter", "no number")
		if err := r.Do(e, strings.ReplaceAll(universe, "world", "nosuch")); steptest.ErrorType(err) != "NotFoundError" {
			t.Error(err)
		}
	}
}

func TestSchemaFaults(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"integer"}},"c":{"enum":["x"]},"d":{"anyOf":[{"type":"null"},{"type":"object","additionalProperties":true}]}},"required":["a"]}`: "",
		`{"type":"object"}`: "",
		`[]`:                "its input schema is no object",
		`{}`:                `its input schema is not of type "object"`,
		`{"type":"object","properties":{"b":{},"a":{"type":"array"},"f":{"type":"object","properties":{"tags":{"type":"array","items":{}}}},"g":{"type":"object"}}}`: "a: it is an array without items; b: it has no type; " +
			"f.tags[]: it has no type; g: it is an object and says neither properties nor additionalProperties",
		`{"type":"object","properties":{"a":{"type":"integer","enum":[1,1.5,"x"]},"b":{"enum":[]}},"required":["c"]}`: `a: its enum holds 1.5, which is not of type integer; a: its enum holds "x", which is not of type integer; ` +
			"b: its enum holds no values; required names 'c', which is none of the properties",
		`{"type":"object","properties":3,"required":"x"}`: "its properties are no object; required is no list of names",
	} {
		if got := strings.Join(schemaFaults(wire.Tool{Name: "t", Description: "d", InputSchema: json.RawMessage(schema)}), "; "); got != want {
			t.Errorf("%s\n got %s\nwant %s", schema, got, want)
		}
	}
	if got := schemaFaults(wire.Tool{InputSchema: json.RawMessage(`{"type":"object"}`)}); len(got) != 1 || got[0] != "it has no description" {
		t.Error(got)
	}
}

func TestAssessment(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	at := 1000
	answer := func(id, response string) {
		at++
		r.History.Commit(at, []step.Op{{Op: "append", Path: promptsPath, Value: fmt.Appendf(nil, `{"prompt_id":%q,"response":%q}`, id, response)}})
	}
	answer("good", `I tried {both}: {"results": [{"tool_name": "a", "passed": true}, {"tool_name": "b", "passed": false, "note": "500"}]}`)
	answer("none", "all is well")
	answer("half", `{"results": [{"tool_name": "a"}]}`)
	for id, want := range map[string]string{
		"good": "a: ok\nb: ",
		"none": "the assessment can be read: the reply holds no results",
		"half": "the assessment can be read: results[0] has no tool_name, or a passed that is neither true nor false",
	} {
		r.Must(NewVerifyMCPEnvAssessment(), `{"id": "`+id+`", "type": "verify_mcp_env_assessment", "env_id": "e", "prompt_id": "`+id+`"}`)
		if got := told(r.Verification(ToolCorrectness)); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
}

func FuzzSchemaFaults(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":["string","null"],"enum":[1]}},"required":["a"]}`))
	f.Add([]byte(`{"anyOf":[{"$ref":"#/x"},3]}`))
	f.Fuzz(func(_ *testing.T, b []byte) { schemaFaults(wire.Tool{Name: "t", InputSchema: b}) })
}

func FuzzOperations(f *testing.F) {
	f.Add([]byte(openapi))
	f.Add([]byte("paths: {/a: {$ref: '#/paths/~1a', get: {operationId: x, parameters: [{$ref: '#/paths'}]}}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ops, err := operations(b)
		if err == nil && len(ops) == 0 {
			t.Error("no operations and no error")
		}
		for _, o := range ops {
			difference(o, nil)
		}
	})
}

func FuzzAssessment(f *testing.F) {
	f.Add([]byte("null"), `{"results":[{"tool_name":"a","passed":true}]}`)
	f.Fuzz(func(t *testing.T, structured []byte, text string) {
		rows, err := assessment(structured, text)
		if err == nil {
			if v := Verification("s", rows); v.Score != 0 && v.Score != 1 {
				t.Error(v.Score)
			}
		}
	})
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":1,"a":[1.0]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(canonical(b)) > 1 && !bytes.Contains(b, []byte("PK")) {
			t.Error("an archive out of nothing")
		}
	})
}
