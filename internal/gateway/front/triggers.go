package front

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/calllog"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/proxy"
	"agentenv.internal/agentenv/internal/gateway/trigger"
	"agentenv.internal/agentenv/internal/rawjson"
)

// triggerHost is the environment as triggers see it.
type triggerHost struct{ g *Gateway }

// Call calls a tool past the rules of roles and the log of calls; what it does is on record as the trigger's.
func (h triggerHost) Call(ctx context.Context, tool string, args json.RawMessage, role string) (json.RawMessage, error) {
	g := h.g
	if own := g.own.Load().get(tool); own != nil {
		return own.call(ctx, access.RoleName(role), args), nil
	}
	t := g.set.Load().Get(tool)
	if t == nil {
		return nil, ErrUnknownTool
	}
	out, err := g.callChild(ctx, caller{role: access.RoleName(role)}, t, args, nil)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if !out.rpcErr.None() {
		return nil, errors.New(message(out.rpcErr))
	}
	return all(out.result)
}

func (h triggerHost) Tool(name string) (known, readOnly, all bool) {
	t := h.g.set.Load().Get(name)
	own := h.g.own.Load().get(name)
	all = true
	for _, b := range h.g.children {
		all = all && (b.mcp == nil || b.mcp.Status().Listed)
	}
	return t != nil || own != nil, own != nil || t != nil && t.ReadOnly, all
}

func (h triggerHost) Websites() []string {
	out := []string{}
	for _, b := range h.g.websites() {
		out = append(out, b.Name)
	}
	return out
}

func (h triggerHost) SetAccess(role string, tools []string, allow bool) {
	for _, t := range tools {
		h.g.SetAccess(role, []string{t}, allow)
	}
}

func (h triggerHost) Record(kind string, members []byte) {
	id, err := h.g.calls.Append(calllog.Event{Type: kind, Members: members})
	if err != nil {
		h.g.log.Error("what a trigger did can't be recorded", "error", err)
		return
	}
	if kind == "internal_tool_call" {
		h.g.observeAction(id, members)
	}
}

func (h triggerHost) LastChange(ctx context.Context) string { return h.g.lastChange(ctx) }

func (h triggerHost) Changed() { h.g.keepSoon() }

// RegisterTriggers, RemoveTriggers and ClearTriggers do what the routes below /triggers do; body is the request's JSON.
func (g *Gateway) RegisterTriggers(body json.RawMessage) (trigger.Registered, error) {
	return g.triggers.Register(body)
}

// RemoveTriggers takes {"ids":[…]}.
func (g *Gateway) RemoveTriggers(body json.RawMessage) (trigger.Removed, error) {
	return g.triggers.Remove(body)
}

// ClearTriggers forgets triggers, watchers and executors.
func (g *Gateway) ClearTriggers() { g.triggers.Clear() }

// TriggerState is what /triggers/state tells.
func (g *Gateway) TriggerState() map[string]any { return g.triggers.State() }

func (g *Gateway) serveRegister(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	g.triggerRoute(w, r, func(b []byte) (any, error) { return g.triggers.Register(b) })
}

func (g *Gateway) serveRemove(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	g.triggerRoute(w, r, func(b []byte) (any, error) { return g.triggers.Remove(b) })
}

func (g *Gateway) serveClear(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	g.triggerRoute(w, r, func([]byte) (any, error) {
		g.triggers.Clear()
		return map[string]any{"ok": true}, nil
	})
}

func (g *Gateway) serveTriggers(w http.ResponseWriter, _ *http.Request, _ access.Principal) {
	answer(w, http.StatusOK, g.triggers.State())
}

func (g *Gateway) triggerRoute(w http.ResponseWriter, r *http.Request, do func([]byte) (any, error)) {
	b, ok := body(w, r, maxControl)
	if !ok {
		return
	}
	out, err := do(b)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	answer(w, http.StatusOK, out)
}

// causes are the trigger fires that a role's calls are made for, as JSON; nil for none.
func (g *Gateway) causes(role string) []byte { return g.triggers.CausedBy(role) }

// maxWatched is the largest result that triggers look at.
const maxWatched = 16 << 20

// called lets triggers see a call that was answered, and waits as long as their barriers say.
func (g *Gateway) called(ctx context.Context, role, tool string, args []byte, out *outcome) {
	if !out.rpcErr.None() || !g.triggers.Watches(role) {
		return
	}
	if args == nil {
		args = []byte("{}")
	}
	g.hold(ctx, g.triggers.ToolCall(role, tool, args, watched(out.result)))
}

// watched is a result in memory; of one that is too large an empty one.
func watched(v child.Value) []byte {
	if mem := v.Memory(); mem != nil {
		return mem
	}
	if v.Len() <= maxWatched {
		if b, err := all(v); err == nil {
			return b
		}
	}
	return []byte("{}")
}

func (g *Gateway) hold(ctx context.Context, h trigger.Hold) {
	late, after := h.Wait(ctx)
	if late == nil {
		return
	}
	ids, err := json.Marshal(late)
	if err != nil {
		return
	}
	m := append([]byte(`"source":"trigger_engine","at":"provoking_call","trigger_ids":`), ids...)
	seconds, err := json.Marshal(after.Seconds())
	if err != nil {
		return
	}
	triggerHost{g}.Record("trigger_barrier_timeout", append(append(m, `,"timeout_s":`...), seconds...))
}

// maxFields bounds what triggers are told of a website request's body.
const maxFields = 1 << 20

// websiteFields are the fields of a request, read without taking its body from whoever comes next: query, then form or JSON object, which wins.
func websiteFields(r *http.Request) map[string]any {
	out := map[string]any{}
	merge := func(v url.Values) {
		for k, list := range v {
			if len(list) == 1 {
				out[k] = list[0]
				continue
			}
			many := make([]any, len(list))
			for i, s := range list {
				many[i] = s
			}
			out[k] = many
		}
	}
	merge(r.URL.Query())
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	form := kind == "application/x-www-form-urlencoded"
	if r.Body == nil || !form && kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return out
	}
	head, err := io.ReadAll(io.LimitReader(r.Body, maxFields+1))
	r.Body = readCloser{io.MultiReader(strings.NewReader(string(head)), r.Body), r.Body}
	if err != nil || len(head) > maxFields {
		return out
	}
	if form {
		if v, err := url.ParseQuery(string(head)); err == nil {
			merge(v)
		}
		return out
	}
	if json.Valid(head) {
		d := json.NewDecoder(strings.NewReader(string(head)))
		d.UseNumber()
		var obj map[string]any
		if d.Decode(&obj) == nil {
			maps.Copy(out, obj)
		}
	}
	return out
}

type readCloser struct {
	io.Reader
	io.Closer
}

// website passes a request on and lets triggers see it once it is answered, before the client is.
func (g *Gateway) website(w http.ResponseWriter, r *http.Request, t proxy.Target, path string, p access.Principal, name string) {
	role := role(r, p)
	if !g.triggers.WatchesWebsites(role) {
		g.forward(w, r, t, path, p, "website", name, nil)
		return
	}
	given := websiteFields(r)
	g.forward(w, r, t, path, p, "website", name, func(status int) {
		g.hold(r.Context(), g.triggers.WebsiteRequest(role, name, r.Method, "/"+path, status, given))
	})
}

// observeAction remembers when a trigger's action could write.
func (g *Gateway) observeAction(id string, members []byte) {
	if g.o.Changes == nil {
		return
	}
	obj := append(append([]byte{'{'}, members...), '}')
	actor := []byte(`{"kind":"trigger_action","event_id":"` + id + `"`)
	for _, pair := range [][2]string{{"trigger_id", "trigger_id"}, {"action_index", "action_index"}, {"tool", "tool"}, {"as", "role"}} {
		if v := rawjson.Get(obj, pair[0]); v != nil {
			actor = append(append(append(actor, `,"`+pair[1]+`":`...), v...), []byte(nil)...)
		}
	}
	g.windows.add(string(rawjson.Get(obj, "changelog_id_before")), string(rawjson.Get(obj, "changelog_id_after")), append(actor, '}'))
}

// saveSoon is how long changes of the state may wait to be kept together.
const saveSoon = 20 * time.Millisecond

// keepSoon has the state kept by the goroutine that does so.
func (g *Gateway) keepSoon() {
	select {
	case g.dirty <- struct{}{}:
	default:
	}
}

// keeper keeps the state whenever triggers have changed it.
func (g *Gateway) keeper() {
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.dirty:
		}
		timer := time.NewTimer(saveSoon)
		select {
		case <-timer.C:
		case <-g.ctx.Done():
		}
		timer.Stop()
		g.keep()
	}
}
