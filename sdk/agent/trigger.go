package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"agentenv.internal/agentenv/sdk/wire"
)

const (
	triggerPath = "/ext/triggers"
	decidePath  = "/ext/triggers/decide"
)

// Bounds of triggers.
const (
	maxTriggers        = 256
	maxTriggerContexts = 1024 // further ones are refused: forgetting one would let its triggers fire again
	maxTriggerLog      = 1024
	maxTriggerID       = 128 // characters, as are the next ones
	maxTriggerContext  = 256
	maxRegex           = 4096
	maxSay             = 8192
	maxSolverMessage   = 200_000
	maxTriggerSpec     = 16 << 10 // bytes
	maxTriggerRaw      = 64 << 10 // bytes as sent, with all its blanks
	maxTriggerDepth    = 32
	regexBudget        = time.Second // of all that one decide matches
)

// WithTriggers serves triggers: rules that say, turn by turn, what a simulated user says next and when it is done.
func WithTriggers() Option {
	return func(a *Agent) { a.triggers = &triggers{contexts: map[string]*triggerContext{}} }
}

func (a *Agent) triggerExtension() (extension, bool, error) {
	if a.triggers == nil {
		return extension{}, false, nil
	}
	return newExtension(wire.URNTriggers, "Decides by rules what is said next.", triggerPath,
		operation{name: "register", verb: http.MethodPost, path: triggerPath, request: `{"required":["triggers"]}`, serve: a.triggers.register},
		operation{name: "state", verb: http.MethodGet, path: triggerPath, response: `{"required":["triggers","firing_log"]}`, serve: a.triggers.state},
		operation{
			name: "decide", verb: http.MethodPost, path: decidePath, response: `{"required":["parts","done","fired"]}`,
			request: `{"required":["turn"],"optional":["solver_message","context_id","env_triggers"]}`, serve: a.triggers.decide,
		})
}

// triggers are the rules, in the order in which they came, and what they did in each context.
type triggers struct {
	mu       sync.Mutex
	rules    []*trigger
	contexts map[string]*triggerContext
	log      []firing
	seq      int64
}

type triggerContext struct {
	fired map[string]bool
	last  int64 // turn
}

// firing is a row of the log.
type firing struct {
	Seq     int64          `json:"seq"`
	Time    string         `json:"ts"`
	Kind    string         `json:"kind"` // registered, reset or fired
	Trigger string         `json:"trigger_id,omitempty"`
	Context string         `json:"context_id,omitempty"`
	Turn    int64          `json:"turn,omitempty"`
	Detail  map[string]any `json:"detail,omitempty"`
}

func (g *triggers) emit(f firing) {
	g.seq++
	f.Seq, f.Time = g.seq, stamp()
	if len(g.log) >= 2*maxTriggerLog { // not at each row, which would copy them all each time
		g.log = append([]firing(nil), g.rows()...)
	}
	g.log = append(g.log, f)
}

// rows are the newest of the log.
func (g *triggers) rows() []firing { return g.log[max(0, len(g.log)-maxTriggerLog):] }

func (g *triggers) find(id string) *trigger {
	for _, t := range g.rules {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (g *triggers) register(_ context.Context, body []byte) (any, error) {
	in, err := decodeTriggers(body)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var fresh []*trigger
	added := []string{}
	for _, t := range in {
		switch old := g.find(t.id); {
		case old == nil:
			fresh = append(fresh, t)
		case old.spec != t.spec:
			return nil, invalid("the trigger %q is there already, and says something else: give this one another id", t.id)
		}
		added = append(added, t.id)
	}
	if len(g.rules)+len(fresh) > maxTriggers {
		return nil, invalid("there would be more than %d triggers", maxTriggers)
	}
	g.rules = append(g.rules, fresh...)
	g.emit(firing{Kind: "registered", Detail: map[string]any{"added": added}})
	all := []string{}
	for _, t := range g.rules {
		all = append(all, t.id)
	}
	return map[string]any{"ok": true, "added": added, "all": all}, nil
}

func (g *triggers) state(context.Context, []byte) (any, error) {
	type shown struct {
		ID   string `json:"id"`
		When string `json:"when_type"`
		Once bool   `json:"once"`
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out := []shown{}
	for _, t := range g.rules {
		out = append(out, shown{t.id, t.when.Type, t.once})
	}
	return map[string]any{"triggers": out, "firing_log": append([]firing{}, g.rows()...)}, nil
}

// decideRequest is what rules are asked about.
type decideRequest struct {
	turn    int64
	message string
	context string
	env     map[string]map[string]string
}

func decodeDecide(body []byte) (decideRequest, error) {
	f, err := readFields(body, "turn", "solver_message", "context_id", "env_triggers")
	if err != nil {
		return decideRequest{}, err
	}
	if !f.has("turn") {
		f.fail("turn", "it is missing")
	}
	r := decideRequest{turn: f.integer("turn", 1, 1<<53, 1), context: wire.DefaultRole}
	r.message = member(f, "solver_message", false, func(b []byte) (string, error) { return decodeText(b, 0, maxSolverMessage) })
	if f.has("context_id") {
		r.context = member(f, "context_id", false, func(b []byte) (string, error) { return decodeText(b, 1, maxTriggerContext) })
	}
	r.env = member(f, "env_triggers", false, decodeEnvTriggers)
	return r, f.err()
}

func decodeEnvTriggers(b []byte) (map[string]map[string]string, error) {
	envs, err := wire.ParseObject(b)
	if err != nil {
		return nil, errors.New("want an object of objects of texts")
	}
	out := map[string]map[string]string{}
	for _, e := range envs {
		f := &fields{values: map[string]json.RawMessage{e.Name: e.Value}}
		if out[e.Name] = f.texts(e.Name); len(f.bad) > 0 {
			return nil, errors.New("want an object of objects of texts")
		}
	}
	return out, nil
}

func (g *triggers) decide(_ context.Context, body []byte) (any, error) {
	r, err := decodeDecide(body)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.contexts[r.context]
	if c == nil && len(g.contexts) >= maxTriggerContexts {
		return nil, invalid("context_id: there are %d contexts already", maxTriggerContexts)
	}
	reset := c != nil && r.turn <= c.last
	deadline := time.Now().Add(regexBudget)
	var texts []string
	fired, done := []string{}, false
	for _, t := range g.rules {
		if t.once && c != nil && !reset && c.fired[t.id] {
			continue
		}
		yes, err := t.when.holds(&r, deadline)
		if err != nil { // nothing has been noted yet, so that the same call may be repeated
			return nil, err
		}
		if !yes {
			continue
		}
		fired = append(fired, t.id)
		for _, x := range t.actions {
			if x.Type == "end" {
				done = true
			} else {
				texts = append(texts, x.Text)
			}
		}
	}
	g.note(&r, c, reset, fired)
	parts := []wire.Part{}
	if len(texts) > 0 {
		parts = append(parts, wire.TextPart(strings.Join(texts, "\n")))
	}
	return map[string]any{"parts": parts, "done": done, "fired": fired}, nil
}

// note keeps what a decision did.
func (g *triggers) note(r *decideRequest, c *triggerContext, reset bool, fired []string) {
	if c == nil {
		c = &triggerContext{fired: map[string]bool{}}
		g.contexts[r.context] = c
	}
	if reset {
		clear(c.fired)
		g.emit(firing{Kind: "reset", Context: r.context, Turn: r.turn})
	}
	c.last = r.turn
	for _, id := range fired {
		c.fired[id] = true
		g.emit(firing{Kind: "fired", Trigger: id, Context: r.context, Turn: r.turn})
	}
}

// timed gives a text rune by rune until a deadline, where it ends early and says so.
type timed struct {
	s        string
	at, n    int
	deadline time.Time
	late     bool
}

func (t *timed) ReadRune() (rune, int, error) {
	if t.n++; t.n%64 == 0 && time.Now().After(t.deadline) {
		t.late = true
	}
	if t.late || t.at >= len(t.s) {
		return 0, 0, io.EOF
	}
	r, n := utf8.DecodeRuneInString(t.s[t.at:])
	t.at += n
	return r, n, nil
}
