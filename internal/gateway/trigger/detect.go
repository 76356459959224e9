package trigger

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/rawjson"
)

// Hold is what a provoking call waits for.
type Hold struct {
	fires   []*trig
	done    []chan struct{}
	timeout time.Duration
}

// Wait waits until the fires have ended, and gives the ids of those that haven't within the time that their barriers allow.
func (h Hold) Wait(ctx context.Context) (late []string, after time.Duration) {
	if len(h.done) == 0 {
		return nil, 0
	}
	timer := time.NewTimer(h.timeout)
	defer timer.Stop()
	for i, d := range h.done {
		select {
		case <-d:
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		for j := i; j < len(h.done); j++ {
			select {
			case <-h.done[j]:
			default:
				late = append(late, h.fires[j].id)
			}
		}
		return sorted(late), h.timeout
	}
	return nil, 0
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// Watches tells whether a call of a role could provoke anything; when not, nothing about it need be known.
func (e *Engine) Watches(role string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.order, func(t *trig) bool { return e.provokedBy(t, role) })
}

// WatchesWebsites tells whether requests to websites could provoke anything of a role.
func (e *Engine) WatchesWebsites(role string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.order, func(t *trig) bool {
		return (t.when.kind == onWebsite || t.when.kind == onState) && e.provokedBy(t, role)
	})
}

// provokedBy tells whether a role's calls can provoke a trigger: those that its condition names, else the watched ones, but never an executor's.
func (e *Engine) provokedBy(t *trig, role string) bool {
	roles := t.when.roles
	if roles == nil && t.when.unless != nil {
		roles = t.when.unless.roles
	}
	if roles != nil {
		return slices.Contains(roles, role)
	}
	if !slices.Contains(e.watch, role) {
		return false
	}
	for _, x := range e.executors {
		if x.Role == role {
			return false
		}
	}
	return true
}

// resultData is what a result's texts say: JSON when they are that, else the text; nil for none. isError tells of a call that failed.
func resultData(result []byte) (data any, raw string, isError bool) {
	var lines []string
	for item := range rawjson.Elements(rawjson.Get(result, "content")) {
		if kind, _ := rawjson.Text(rawjson.Get(item, "type")); kind == "text" {
			s, _ := rawjson.Text(rawjson.Get(item, "text"))
			lines = append(lines, s)
		}
	}
	raw = strings.Join(lines, "\n")
	isError = string(rawjson.Get(result, "isError")) == "true"
	if raw == "" {
		return nil, raw, isError
	}
	data, err := decode([]byte(raw))
	if err != nil {
		data = raw
	}
	return data, raw, isError
}

// ToolCall looks at a call that was answered. args are its arguments, result its CallToolResult.
func (e *Engine) ToolCall(role, tool string, args, result []byte) Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.provokable(role)
	if len(list) == 0 {
		return Hold{}
	}
	e.lookAtTime() // a call that failed is a tick of the clock too
	data, _, isError := resultData(result)
	if isError {
		return Hold{}
	}
	given, err := decode(args)
	if err != nil {
		given = map[string]any{}
	}
	c := facts{args: given, result: data}
	provoking := fields{"tool": tool, "role": role}
	for _, t := range list {
		e.cancelDeadline(t, tool, c, provoking)
	}
	var matched []*trig
	for _, t := range list {
		if t.when.kind == onAction && t.when.tool == tool {
			matched = append(matched, t)
		}
	}
	hold := e.detect(matched, provoking, c)
	if _, readOnly, _ := e.host.Tool(tool); !readOnly {
		e.lookAtStates(list, provoking)
	}
	return hold
}

func (e *Engine) provokable(role string) []*trig {
	var out []*trig
	for _, t := range e.order {
		if e.provokedBy(t, role) {
			out = append(out, t)
		}
	}
	return out
}

// cancelDeadline ends a deadline whose unless call this is. An anchored one can be cancelled once its anchor fires.
func (e *Engine) cancelDeadline(t *trig, tool string, c facts, provoking fields) {
	u := t.when.unless
	if u == nil || u.tool != tool || t.status != armed {
		return
	}
	if t.when.after != "" && !t.resolved {
		anchor := e.find(t.when.after)
		if anchor == nil || anchor.status != firing && anchor.status != queued {
			return
		}
	}
	if all(u.where, c) {
		e.retire(t, fields{"provoking": provoking})
	}
}

// retire cancels a time trigger, and those anchored on it, which can't fire any more.
func (e *Engine) retire(t *trig, why fields) {
	t.status, t.next = cancelled, time.Time{}
	e.emit("cancelled", t.id, why)
	for _, d := range e.order {
		if d.when.after == t.id && d.status == armed {
			e.retire(d, fields{"anchor": t.id})
		}
	}
	e.changed()
}

// WebsiteRequest looks at a request that was answered with status. fields are those of the query and the body.
func (e *Engine) WebsiteRequest(role, app, method, urlPath string, status int, args map[string]any) Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.provokable(role)
	if len(list) == 0 {
		return Hold{}
	}
	e.lookAtTime()
	request := fields{"app": app, "method": method, "path": urlPath, "status": status}
	provoking := fields{"source": "website", "role": role}
	maps.Copy(provoking, request)
	var matched []*trig
	for _, t := range list {
		if t.when.matches(app, method, urlPath, status) {
			matched = append(matched, t)
		}
	}
	hold := e.detect(matched, provoking, facts{args: args, request: request})
	if status < 400 && method != "GET" && method != "HEAD" && method != "OPTIONS" && method != "TRACE" {
		e.lookAtStates(list, provoking)
	}
	return hold
}

// matches tells whether a request meets a website condition, but for where; without a status, one that was answered below 400 does.
func (w *when) matches(app, method, urlPath string, status int) bool {
	if w.kind != onWebsite || w.app != app || w.method != "" && w.method != method || w.path != nil && !w.path.holds(urlPath) {
		return false
	}
	if w.status != nil {
		return w.status.holds(json.Number(sprintf("%d", status)))
	}
	return status < 400
}

// detect fires what a call meets.
func (e *Engine) detect(matched []*trig, provoking fields, c facts) Hold {
	var h Hold
	for _, t := range matched {
		busy := t.status == firing || t.status == queued
		if t.status != armed && !(t.when.repeat && busy) || !all(t.when.where, c) {
			continue
		}
		done := e.provoke(t, provoking, c)
		if t.held {
			h.fires, h.done = append(h.fires, t), append(h.done, done)
			h.timeout = max(h.timeout, t.timeout)
		}
	}
	return h
}

// maxPending bounds the calls that wait for a trigger that is firing.
const maxPending = 1000

// provoke fires a trigger, or has the call wait until it has fired. The channel is closed when both have ended.
func (e *Engine) provoke(t *trig, provoking fields, c facts) chan struct{} {
	p := provocation{c, e.clock.Elapsed()}
	if t.status == firing || t.status == queued {
		if len(t.pending) >= maxPending {
			e.emit("failed", t.id, fields{"detail": "too many calls wait for this trigger; one is left out"})
			return t.done
		}
		t.pending = append(t.pending, p)
		t.status = queued
		e.emit("detected", t.id, fields{"provoking": provoking, "queued": len(t.pending)})
		return t.done
	}
	t.status, t.detectedAt = firing, now()
	e.emit("detected", t.id, fields{"provoking": provoking})
	e.fireAsync(t, func(ctx context.Context) { e.fire(ctx, t, p) })
	return t.done
}

// fireAsync runs a fire beside what goes on.
func (e *Engine) fireAsync(t *trig, f func(context.Context)) {
	var ctx context.Context
	ctx, t.stop = context.WithCancel(e.ctx)
	done, stop := make(chan struct{}), t.stop
	t.done = done
	e.wg.Go(func() {
		defer close(done)
		defer stop()
		f(ctx)
	})
	e.host.Changed()
}

// lookAtStates has the checks of state triggers made, beside what goes on.
func (e *Engine) lookAtStates(list []*trig, provoking fields) {
	for _, t := range list {
		if t.status != armed || t.when.kind != onState || t.evaluating {
			continue
		}
		t.evaluating = true
		e.wg.Go(func() {
			ok, err := e.check(e.ctx, t.when.check, nil, "")
			e.mu.Lock()
			defer e.mu.Unlock()
			t.evaluating = false
			if err != nil {
				e.emit("eval_error", t.id, fields{"detail": short(err.Error())})
			}
			if ok && t.status == armed && !t.removed {
				e.provoke(t, provoking, facts{})
			}
		})
	}
}
