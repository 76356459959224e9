package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"agentenv.internal/agentenv/sdk/wire"
)

// trigger is a rule as it was registered.
type trigger struct {
	id      string
	once    bool
	when    *condition
	actions []triggerAction
	spec    string // the rule with all defaults, to compare with
}

// condition is when a rule fires.
type condition struct {
	Type    string            `json:"type"`
	Turn    int64             `json:"turn,omitempty"`
	Cmp     string            `json:"cmp,omitempty"`
	EnvID   string            `json:"env_id,omitempty"`
	Trigger string            `json:"trigger_id,omitempty"`
	Status  string            `json:"status,omitempty"`
	Where   *triggerPredicate `json:"where,omitempty"`
	Of      []*condition      `json:"of,omitempty"`
}

// triggerPredicate is what must be true of the message: exactly one of its members is set.
type triggerPredicate struct {
	Regex  string `json:"regex,omitempty"`
	Equals any    `json:"equals,omitempty"`
	Exists *bool  `json:"exists,omitempty"`

	Kind     string `json:"kind"`
	compiled *regexp.Regexp
}

type triggerAction struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
}

func decodeTriggers(body []byte) ([]*trigger, error) {
	f, err := readFields(body, "triggers")
	if err != nil {
		return nil, err
	}
	list := f.list("triggers", true)
	switch {
	case len(f.bad) > 0:
	case len(list) == 0:
		f.fail("triggers", "want at least 1")
	case len(list) > maxTriggers:
		f.fail("triggers", "want at most %d", maxTriggers)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	var out []*trigger
	seen := map[string]bool{}
	for i, raw := range list {
		t, err := decodeTrigger(raw)
		switch name := fmt.Sprintf("triggers[%d]", i); {
		case err != nil:
			f.fail(name, "%v", err)
			continue
		case seen[t.id]:
			f.fail(name, "its id is there twice")
		}
		seen[t.id] = true
		out = append(out, t)
	}
	return out, f.err()
}

func decodeTrigger(raw []byte) (*trigger, error) {
	if len(raw) > maxTriggerRaw {
		return nil, errors.New("it is too long")
	}
	f, err := readFields(raw, "id", "once", "when", "actions")
	if err != nil {
		return nil, err
	}
	t := &trigger{once: true}
	if f.has("id") {
		t.id = member(f, "id", false, func(b []byte) (string, error) { return decodeText(b, 1, maxTriggerID) })
	} else {
		t.id = "trg_" + newID(6)
	}
	if f.has("once") {
		t.once = member(f, "once", false, decodeBool)
	}
	t.when = member(f, "when", true, func(b []byte) (*condition, error) { return decodeCondition(b, 0) })
	actions := f.list("actions", true)
	if f.has("actions") && len(actions) == 0 {
		f.fail("actions", "want at least 1")
	}
	for i, raw := range actions {
		x, err := decodeAction(raw)
		if err != nil {
			f.fail(fmt.Sprintf("actions[%d]", i), "%v", err)
		}
		t.actions = append(t.actions, x)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	spec, err := encode(struct {
		ID      string          `json:"id"`
		Once    bool            `json:"once"`
		When    *condition      `json:"when"`
		Actions []triggerAction `json:"actions"`
	}{t.id, t.once, t.when, t.actions})
	if err == nil && len(spec) > maxTriggerSpec {
		err = fmt.Errorf("it has more than %d bytes", maxTriggerSpec)
	}
	t.spec = string(spec)
	return t, err
}

func decodeAction(raw []byte) (triggerAction, error) {
	f, err := readFields(raw, "type", "text")
	if err != nil {
		return triggerAction{}, err
	}
	x := triggerAction{Type: f.text("type", true)}
	switch x.Type {
	case "say":
		x.Text = member(f, "text", true, func(b []byte) (string, error) { return decodeText(b, 1, maxSay) })
	case "end":
		if f.has("text") {
			f.fail("text", "end has none")
		}
	case "":
	default:
		f.fail("type", "want say or end")
	}
	return x, f.err()
}

// decodeText is a text of least to most characters.
func decodeText(b []byte, least, most int) (string, error) {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return "", errors.New("want a text")
	}
	if n := utf8.RuneCountInString(s); n < least || n > most {
		return "", fmt.Errorf("want %d to %d characters", least, most)
	}
	return s, nil
}

func decodeCondition(raw []byte, depth int) (*condition, error) {
	if depth > maxTriggerDepth {
		return nil, fmt.Errorf("conditions are more than %d deep", maxTriggerDepth)
	}
	f, err := readFields(raw, "type", "turn", "cmp", "env_id", "trigger_id", "status", "where", "of")
	if err != nil {
		return nil, err
	}
	c := &condition{Type: f.text("type", true)}
	text := func(name, absent string, required bool) string {
		if !f.has(name) && !required {
			return absent
		}
		return member(f, name, required, func(b []byte) (string, error) { return decodeText(b, 1, maxTriggerContext) })
	}
	allowed := []string{"type"}
	switch c.Type {
	case "step":
		allowed = append(allowed, "turn", "cmp")
		c.Turn, c.Cmp = f.integer("turn", 1, 1<<53, 1), text("cmp", "eq", false)
		if c.Cmp != "eq" && c.Cmp != "gte" {
			f.fail("cmp", "want eq or gte")
		}
	case "env_trigger":
		allowed = append(allowed, "env_id", "trigger_id", "status")
		c.EnvID, c.Trigger, c.Status = text("env_id", "", true), text("trigger_id", "", true), text("status", "fired", false)
	case "conversational":
		allowed = append(allowed, "where")
		c.Where = member(f, "where", true, decodeWhere)
	case "all", "any":
		allowed = append(allowed, "of")
		of := f.list("of", true)
		if f.has("of") && len(of) == 0 {
			f.fail("of", "want at least 1")
		}
		for i, raw := range of {
			x, err := decodeCondition(raw, depth+1)
			if err != nil {
				f.fail(fmt.Sprintf("of[%d]", i), "%v", err)
			}
			c.Of = append(c.Of, x)
		}
	case "":
	default:
		f.fail("type", "want step, env_trigger, conversational, all or any")
		return nil, f.err()
	}
	for name := range f.values {
		if !slices.Contains(allowed, name) {
			f.fail(name, "a condition of type %s has none", c.Type)
		}
	}
	return c, f.err()
}

func decodeWhere(raw []byte) (*triggerPredicate, error) {
	w, err := readFields(raw, "message")
	if err != nil {
		return nil, err
	}
	p := member(w, "message", true, decodePredicate)
	return p, w.err()
}

func decodePredicate(raw []byte) (*triggerPredicate, error) {
	ms, err := wire.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	if len(ms) != 1 {
		return nil, errors.New("want exactly one of regex, equals and exists")
	}
	p := &triggerPredicate{Kind: ms[0].Name}
	switch v := ms[0].Value; p.Kind {
	case "regex":
		if p.Regex, err = decodeText(v, 0, maxRegex); err != nil {
			return nil, err
		}
		if p.compiled, err = regexp.Compile(p.Regex); err != nil {
			return nil, fmt.Errorf("regex: %w", err)
		}
	case "equals":
		if err := json.Unmarshal(v, &p.Equals); err != nil {
			return nil, errors.New("equals: it can't be read")
		}
	case "exists":
		if p.Exists = new(bool); json.Unmarshal(v, p.Exists) != nil || string(v) == "null" {
			return nil, errors.New("exists: want true or false")
		}
	default:
		return nil, errors.New("want exactly one of regex, equals and exists")
	}
	return p, nil
}

// holds tells whether a condition is true now.
func (c *condition) holds(r *decideRequest, deadline time.Time) (bool, error) {
	switch c.Type {
	case "step":
		return r.turn == c.Turn || c.Cmp == "gte" && r.turn > c.Turn, nil
	case "env_trigger":
		return r.env[c.EnvID][c.Trigger] == c.Status, nil
	case "conversational":
		return c.Where.holds(r.message, deadline)
	}
	for _, x := range c.Of {
		yes, err := x.holds(r, deadline)
		if err != nil || yes == (c.Type == "any") {
			return yes, err
		}
	}
	return c.Type == "all", nil
}

func (p *triggerPredicate) holds(message string, deadline time.Time) (bool, error) {
	switch p.Kind {
	case "equals":
		s, ok := p.Equals.(string)
		return ok && s == message, nil
	case "exists":
		return (message != "") == *p.Exists, nil
	}
	in := &timed{s: message, deadline: deadline}
	in.late = time.Now().After(deadline)
	yes := p.compiled.MatchReader(in)
	if in.late {
		return false, Refuse(http.StatusGatewayTimeout, "the regular expressions took longer than %v", regexBudget)
	}
	return yes, nil
}
