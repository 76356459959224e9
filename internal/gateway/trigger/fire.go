package trigger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/rawjson"
)

// fire runs the actions for one provoking call, then for those that came meanwhile. A failure arms the trigger again: what it watches for stays true.
func (e *Engine) fire(ctx context.Context, t *trig, p provocation) {
	for {
		ok := e.fireOnce(ctx, t, p)
		if !e.settle(ctx, t, ok, &p) {
			return
		}
	}
}

func (e *Engine) fireOnce(ctx context.Context, t *trig, p provocation) bool {
	e.mu.Lock()
	t.tries++
	e.mu.Unlock()
	members := rawjson.AppendString([]byte(`"source":"trigger_engine","trigger_id":`), t.id)
	tool := []byte("null")
	if t.when.kind == onAction {
		tool = rawjson.AppendString(nil, t.when.tool)
	}
	members = append(append(members, `,"provoking_tool":`...), tool...)
	if p.facts.request != nil {
		if b, err := json.Marshal(p.facts.request); err == nil {
			members = append(append(members, `,"provoking_request":`...), b...)
		}
	}
	e.host.Record("trigger_fired", members)
	for i := range t.actions {
		if !e.act(ctx, t, i, p) {
			e.note(t, "failed", fields{"action_index": i})
			return false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.fireCount++
	t.firedAt = now()
	if !t.removed {
		e.emit("fired", t.id, fields{"fire_count": t.fireCount})
		e.anchor(t.id)
	}
	return true
}

// settle gives the next call that waits, or ends the fire.
func (e *Engine) settle(ctx context.Context, t *trig, ok bool, p *provocation) (more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.changed()
	if len(t.pending) > 0 && ctx.Err() == nil {
		*p, t.pending = t.pending[0], t.pending[1:]
		t.detectedAt = now()
		if t.status = firing; len(t.pending) > 0 {
			t.status = queued
		}
		return true
	}
	t.pending = nil
	if t.status = fired; t.when.repeat || !ok {
		t.status = armed
	}
	return false
}

// act does one action of a trigger, and tells whether it went well.
func (e *Engine) act(ctx context.Context, t *trig, i int, p provocation) bool {
	a := &t.actions[i]
	fail := func(detail string, more fields) bool {
		f := fields{"action_index": i, "detail": short(detail)}
		maps.Copy(f, more)
		e.note(t, "action_failed", f)
		return false
	}
	if a.delay != nil && !e.wait(ctx, t, i, p.since) {
		return fail("it was ended while it waited", a.named())
	}
	before := e.host.LastChange(ctx)
	var detail fields
	switch a.kind {
	case "permission":
		e.host.SetAccess(a.role, a.tools, a.allow)
		detail = fields{"role": a.role, "action": map[bool]string{true: "enable", false: "disable"}[a.allow], "tools": a.tools}
	case "tool":
		shown, problem := e.callTool(ctx, t, i, &p.facts, before)
		if problem != "" {
			return fail(problem, shown)
		}
		detail = shown
	default:
		if problem := e.instruct(ctx, t, i, p.facts); problem != "" {
			return fail(problem, a.named())
		}
		detail = fields{"nl": short(a.instruction)}
		maps.Copy(detail, a.named())
	}
	if a.verify != nil && a.kind != "nl" {
		if ok, err := e.verify(ctx, t, i, &p.facts, a.as); err != nil {
			return fail(err.Error(), nil)
		} else if !ok {
			return false
		}
	}
	e.note(t, "action_ok", fields{
		"action_index": i, "detail": detail,
		"changelog_id_before": json.RawMessage(before), "changelog_id_after": json.RawMessage(e.host.LastChange(ctx)),
	})
	return true
}

// named are the members of events about an action for an executor that has a name.
func (a *action) named() fields {
	if a.executor == "" {
		return nil
	}
	return fields{"executor": a.executor}
}

// callTool calls an action's tool. problem is "" when it went well; shown is what events tell of the call, without what could be private.
func (e *Engine) callTool(ctx context.Context, t *trig, i int, c *facts, before string) (shown fields, problem string) {
	a := &t.actions[i]
	shown = fields{"tool": a.tool}
	filled, err := fill(a.args, nil, c)
	if err != nil {
		return shown, err.Error()
	}
	shown["args"] = echo(filled, "")
	if a.as != "" {
		shown["as"] = a.as
	}
	args, err := json.Marshal(filled)
	if err != nil {
		return shown, err.Error()
	}
	result, err := e.host.Call(ctx, a.tool, args, a.as)
	if err != nil {
		return shown, err.Error()
	}
	_, raw, isError := resultData(result)
	sum := sha256.Sum256([]byte(raw))
	var as any
	if a.as != "" {
		as = a.as
	}
	record, err := json.Marshal(fields{
		"source": "trigger_engine", "trigger_id": t.id, "action_index": i, "tool": a.tool, "arguments": shown["args"], "as": as, "ok": !isError,
		"result_len": utf8.RuneCountInString(raw), "result_sha256": hex.EncodeToString(sum[:8]),
		"changelog_id_before": json.RawMessage(before), "changelog_id_after": json.RawMessage(e.host.LastChange(ctx)),
	})
	if err != nil {
		return shown, err.Error()
	}
	e.host.Record("internal_tool_call", record[1:len(record)-1])
	if isError {
		return shown, raw
	}
	return shown, ""
}

// instruct has an executor carry out an instruction, twice when the first time can't be verified.
func (e *Engine) instruct(ctx context.Context, t *trig, i int, c facts) (problem string) {
	a := &t.actions[i]
	e.mu.Lock()
	x, ok := e.executors[a.executor]
	fire := t.tries
	e.mu.Unlock()
	if !ok {
		return "its executor is gone"
	}
	if x.Hours != nil && !e.waitHours(ctx, t, i, x.Hours) {
		return "it was ended while it waited for its executor's hours"
	}
	defer e.during(x.Role, cause{t.id, i, fire})()
	instruction := a.instruction
	for attempt := 1; ; attempt++ {
		bounded, cancel := context.WithTimeout(ctx, time.Duration(x.Timeout*float64(time.Second)))
		_, err := e.executor.Send(bounded, Errand{x.URL, "trigger-" + t.id, instruction})
		cancel()
		if err != nil {
			return fmt.Sprintf("attempt %d of the executor was not completed: %v", attempt, err)
		}
		if a.verify == nil {
			return ""
		}
		ok, err := e.verify(ctx, t, i, &c, "")
		switch {
		case err != nil:
			return err.Error()
		case ok:
			return ""
		case attempt == 2:
			return "it can't be verified after a second attempt"
		}
		instruction = a.instruction + "\n\nYou were asked this before, and the expected change can't be seen in the environment. Please do it again, exactly as described."
	}
}

// during has a role's calls counted to a fire until the end.
func (e *Engine) during(role string, c cause) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight[role] = append(e.inFlight[role], c)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		list := e.inFlight[role]
		if k := slices.Index(list, c); k >= 0 {
			e.inFlight[role] = slices.Delete(slices.Clone(list), k, k+1)
		}
	}
}

func (e *Engine) verify(ctx context.Context, t *trig, i int, c *facts, role string) (bool, error) {
	ok, err := e.check(ctx, t.actions[i].verify, c, role)
	if err != nil {
		return false, err
	}
	kind := "verify_failed"
	if ok {
		kind = "verify_ok"
	}
	e.note(t, kind, fields{"action_index": i})
	return ok, nil
}

// check runs the steps of a check; each must hold.
func (e *Engine) check(ctx context.Context, c check, f *facts, role string) (bool, error) {
	bindings := map[string]any{}
	for _, s := range c {
		filled, err := fill(s.args, bindings, f)
		if err != nil {
			return false, err
		}
		args, err := json.Marshal(filled)
		if err != nil {
			return false, err
		}
		result, err := e.host.Call(ctx, s.tool, args, role)
		if err != nil {
			return false, err
		}
		data, raw, isError := resultData(result)
		if isError {
			return false, nil
		}
		if _, isText := data.(string); isText && !json.Valid([]byte(raw)) {
			data = nil
		}
		v := s.extract.from(data, raw)
		if s.bind != "" {
			if empty(v) {
				return false, nil
			}
			bindings[s.bind] = v
		}
		if s.pred != nil && !s.pred.holds(v) {
			return false, nil
		}
	}
	return true, nil
}

// errWaitEnded tells that a wait was ended from outside.
var errWaitEnded = errors.New("ended")

// Which members of arguments are told in events: names and ids of things, never what is in them.
var (
	toldNames = []string{"action", "createdTime", "fileName", "kind", "mimeType", "modifiedTime", "name", "role", "title", "type"}
	idName    = lazyregexp.New(`(^id|Id|_id)$`)
)

const maxTold = 200

// echo is what events tell of arguments: the structure, values only of names and ids.
func echo(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = echo(x, k)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = echo(x, key)
		}
		return out
	case string:
		if told(key) && utf8.RuneCountInString(v) <= maxTold {
			return v
		}
		return fields{"redacted": fields{"type": "str", "len": utf8.RuneCountInString(v)}}
	}
	if told(key) {
		return v
	}
	kind := "NoneType"
	switch n := v.(type) {
	case bool:
		kind = "bool"
	case json.Number:
		if kind = "int"; strings.ContainsAny(string(n), ".eE") {
			kind = "float"
		}
	}
	return fields{"redacted": fields{"type": kind}}
}

func told(key string) bool {
	return key != "" && (slices.Contains(toldNames, key) || idName().MatchString(key))
}
