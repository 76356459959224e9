package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/agent"
)

const (
	triggers = "/ext/triggers"
	decide   = "/ext/triggers/decide"
)

// TestTriggers: rules fire by turn, message and environment, once in each context unless they say otherwise, and a turn that goes back begins anew.
func TestTriggers(t *testing.T) {
	r := serve(t, echo, agent.WithTriggers())
	r.want("POST", triggers, `{"triggers":[
		{"id":"a","when":{"type":"step"},"actions":[{"type":"say","text":"hi"}]},
		{"id":"b","once":false,"when":{"type":"conversational","where":{"message":{"regex":"(?i)\\bdone\\b"}}},"actions":[{"type":"say","text":"bye"},{"type":"end"}]},
		{"id":"c","when":{"type":"all","of":[{"type":"step","turn":2,"cmp":"gte"},{"type":"any","of":[{"type":"env_trigger","env_id":"e","trigger_id":"x"},{"type":"conversational","where":{"message":{"equals":"now"}}}]}]},"actions":[{"type":"say","text":"c"}]},
		{"id":"d","when":{"type":"conversational","where":{"message":{"exists":true}}},"actions":[{"type":"say","text":"said"}]}
	]}`, 200, `{"added":["a","b","c","d"],"all":["a","b","c","d"],"ok":true}`)
	r.want("POST", triggers, `{"triggers":[{"id":"a","once":true,"when":{"turn":1,"type":"step","cmp":"eq"},"actions":[{"text":"hi","type":"say"}]}]}`, 200, `"added":["a"]`)
	r.want("POST", triggers, `{"triggers":[{"id":"a","when":{"type":"step","turn":2},"actions":[{"type":"end"}]}]}`, 400, `"a"`)
	for _, c := range []struct{ body, want string }{
		{`{"turn":1,"context_id":"k"}`, `{"done":false,"fired":["a"],"parts":[{"kind":"text","text":"hi"}]}`},
		{`{"turn":2,"context_id":"k","solver_message":"all DONE."}`, `{"done":true,"fired":["b","d"],"parts":[{"kind":"text","text":"bye\nsaid"}]}`},
		{`{"turn":3,"context_id":"k","solver_message":"done","env_triggers":{"e":{"x":"fired","y":"z"}}}`, `"fired":["b","c"]`},
		{`{"turn":4,"context_id":"k","solver_message":"now"}`, `{"done":false,"fired":[],"parts":[]}`},
		{`{"turn":2,"solver_message":"now"}`, `"fired":["c","d"]`},
		{`{"turn":1,"context_id":"k"}`, `"fired":["a"]`},
	} {
		r.want("POST", decide, c.body, 200, c.want)
	}
	out := r.want("GET", triggers, "", 200, `{"id":"c","when_type":"all","once":true}`)
	for _, want := range []string{`"kind":"registered"`, `"kind":"reset","context_id":"k","turn":1`, `"kind":"fired","trigger_id":"b","context_id":"k","turn":2`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\ndoesn't hold %s", out, want)
		}
	}
	for _, body := range []string{`{"turn":1.5}`, `{"turn":true}`, `{}`, `{"turn":1,"context_id":""}`, `{"turn":1,"context_id":"` + strings.Repeat("x", 257) + `"}`, `{"turn":1,"env_triggers":{"e":{"x":1}}}`, `{"turn":1,"more":1}`} {
		r.want("POST", decide, body, 400, "")
	}
	when := func(w string) string {
		return `{"triggers":[{"when":` + w + `,"actions":[{"type":"end"}]}]}`
	}
	for _, body := range []string{
		`{"triggers":[]}`, `{"triggers":{}}`, `{"triggers":[{"when":{"type":"step"},"actions":[]}]}`, `{"triggers":[{"id":"","when":{"type":"step"},"actions":[{"type":"end"}]}]}`,
		`{"triggers":[{"id":"z","when":{"type":"step"},"actions":[{"type":"end"}]},{"id":"z","when":{"type":"step"},"actions":[{"type":"end"}]}]}`,
		when(`{"type":"step","turn":0}`), when(`{"type":"step","cmp":"lt"}`), when(`{"type":"step","of":[]}`), when(`{"type":"never"}`), when(`{"type":"any","of":[]}`),
		when(`{"type":"conversational","where":{"tool":{"exists":true}}}`), when(`{"type":"conversational","where":{"message":{"regex":"("}}}`), when(`{"type":"conversational","where":{"message":{"exists":true,"equals":"x"}}}`),
		when(strings.Repeat(`{"type":"all","of":[`, 40) + `{"type":"step"}` + strings.Repeat(`]}`, 40)),
		when(`{"type":"conversational","where":{"message":{"equals":"` + strings.Repeat("x", 17<<10) + `"}}}`),
	} {
		if out := r.want("POST", triggers, body, 400, ""); strings.Contains(out, "Correlation") {
			t.Error(out)
		}
	}
}

// TestTriggerLimits: what is kept is bounded, and a decision that takes too long notes nothing.
func TestTriggerLimits(t *testing.T) {
	r := serve(t, echo, agent.WithTriggers())
	var many []string
	for i := range 255 {
		many = append(many, fmt.Sprintf(`{"id":"t%d","when":{"type":"step","turn":9999},"actions":[{"type":"end"}]}`, i))
	}
	r.want("POST", triggers, `{"triggers":[`+strings.Join(many, ",")+`]}`, 200, "")
	two := `{"triggers":[{"id":"x","when":{"type":"conversational","where":{"message":{"regex":"` + slowPattern() + `"}}},"actions":[{"type":"end"}]},{"id":"y","when":{"type":"step"},"actions":[{"type":"end"}]}]}`
	r.want("POST", triggers, two, 400, "more than 256")
	r.want("POST", triggers, strings.Split(two, `,{"id":"y"`)[0]+"]}", 200, "")
	began := time.Now()
	r.want("POST", decide, `{"turn":1,"solver_message":"`+strings.Repeat("a", 199_000)+`"}`, 504, "took longer than 1s")
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("it took %v", d)
	}
	if out := r.want("GET", triggers, "", 200, ""); strings.Contains(out, `"fired"`) {
		t.Error(out)
	}
	r.want("POST", decide, `{"turn":1,"solver_message":"`+strings.Repeat("a", 200_001)+`"}`, 400, "solver_message")
	for i := range 1024 {
		r.want("POST", decide, fmt.Sprintf(`{"turn":9999,"context_id":"c%d"}`, i), 200, "")
	}
	r.want("POST", decide, `{"turn":1,"context_id":"one more"}`, 400, "1024 contexts")
	r.want("POST", decide, `{"turn":9998,"context_id":"c7"}`, 200, `"fired":[]`)
	if out := r.want("GET", triggers, "", 200, ""); strings.Count(out, `"seq"`) != 1024 || strings.Contains(out, `"registered"`) {
		t.Errorf("%d rows", strings.Count(out, `"seq"`))
	}
}

// slowPattern keeps hundreds of threads alive on a text of a's, and never matches.
func slowPattern() string { return "(a?){300}(a|aa)*(.*a){200}b$" }
