package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/calllog"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/clock"
	"agentenv.internal/agentenv/internal/gateway/proxy"
	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/sdk/wire"
)

// maxControl bounds the body of what isn't a tool call or data.
const maxControl = 16 << 20

// body reads a request's body; false when it was refused.
func body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, bool) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		proxy.Error(w, status, "the body can't be read: "+err.Error())
		return nil, false
	}
	return b, true
}

// object reads a body that must be a JSON object, and the given members of it.
func object(w http.ResponseWriter, r *http.Request, limit int64, names ...string) ([][]byte, bool) {
	b, ok := body(w, r, limit)
	if !ok {
		return nil, false
	}
	values := make([][]byte, len(names))
	if err := rawjson.Pick(b, names, values); err != nil {
		proxy.Error(w, http.StatusBadRequest, "the body must be a JSON object: "+err.Error())
		return nil, false
	}
	return values, true
}

func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		proxy.Error(w, http.StatusInternalServerError, "the answer can't be written")
		return
	}
	writeJSON(w, status, b)
}

func (g *Gateway) serveCard(w http.ResponseWriter, r *http.Request, p access.Principal) {
	card, err := g.card(r.Context(), p, role(r, p))
	if err != nil {
		g.log.Error("the card can't be made", "error", err)
		proxy.Error(w, http.StatusInternalServerError, "the card can't be made")
		return
	}
	answer(w, http.StatusOK, card)
}

// serveStep lists or calls tools without MCP.
func (g *Gateway) serveStep(w http.ResponseWriter, r *http.Request, p access.Principal) {
	v, ok := object(w, r, maxMessage, "action", "tool_name", "arguments")
	if !ok {
		return
	}
	role := role(r, p)
	switch action, _ := rawjson.Text(v[0]); action {
	case "list_tools":
		writeJSON(w, http.StatusOK, g.list(role).step)
	case "call_tool":
		g.stepCall(w, r, role, v[1], v[2])
	default:
		proxy.Error(w, http.StatusBadRequest, "Invalid action: it must be 'list_tools' or 'call_tool'")
	}
}

func (g *Gateway) stepCall(w http.ResponseWriter, r *http.Request, role string, name, args []byte) {
	tool, _ := rawjson.Text(name)
	if tool == "" {
		proxy.Error(w, http.StatusBadRequest, "Missing or invalid 'tool_name' field")
		return
	}
	if args == nil {
		args = []byte("{}")
	}
	if rawjson.Kind(args) != '{' {
		proxy.Error(w, http.StatusBadRequest, "'arguments' must be a JSON object")
		return
	}
	out, err := g.call(r.Context(), caller{role: role, step: true}, tool, args, nil)
	switch {
	case errors.Is(err, ErrUnknownTool):
		proxy.Error(w, http.StatusNotFound, "Unknown tool: "+tool)
		return
	case errors.Is(err, ErrDisabled):
		proxy.Error(w, http.StatusForbidden, "Tool '"+tool+"' is disabled for role '"+role+"'")
		return
	case errors.Is(err, child.ErrTimeout):
		proxy.Error(w, http.StatusGatewayTimeout, "Tool '"+tool+"' timed out: "+err.Error())
		return
	case err != nil:
		proxy.Error(w, http.StatusInternalServerError, "Tool execution failed: "+err.Error())
		return
	}
	defer out.Close()
	if !out.rpcErr.None() {
		proxy.Error(w, http.StatusInternalServerError, "Tool execution failed: "+message(out.rpcErr))
		return
	}
	g.writeStep(w, out)
}

// writeStep writes a result with the id of the last change as one more member, first.
func (g *Gateway) writeStep(w http.ResponseWriter, out *outcome) {
	var head [64]byte
	n, err := out.result.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) || rawjson.Kind(head[:n]) != '{' {
		proxy.Error(w, http.StatusInternalServerError, "Tool execution failed: the result is no object")
		return
	}
	from := int64(0)
	for head[from] != '{' {
		from++
	}
	first := `{"changelog_id":` + out.changes
	if int(from)+1 >= n || rawjson.Kind(head[from+1:n]) != '}' {
		first += ","
	}
	rest := io.NewSectionReader(out.result, from+1, out.result.Len()-from-1)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.FormatInt(int64(len(first))+rest.Size(), 10))
	w.WriteHeader(http.StatusOK)
	if _, err := io.WriteString(w, first); err == nil {
		if _, err = io.Copy(w, rest); err == nil {
			_ = http.NewResponseController(w).Flush() // a writer that can't flush sends at its own time
		}
	}
}

// serverState is how a child is, on /state.
type serverState struct {
	Name       string `json:"name"`
	Up         bool   `json:"up"`
	Generation uint64 `json:"generation"`
	Error      string `json:"error,omitempty"`
	Card       string `json:"card_error,omitempty"` // why its card is left out
}

func (g *Gateway) serveState(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	type server struct {
		Name  string            `json:"name"`
		Tools []json.RawMessage `json:"tools"`
	}
	set := g.set.Load()
	servers, states := []server{}, []serverState{}
	_, cardErrs := g.cards(r.Context())
	for i, b := range g.children {
		if b.mcp == nil {
			continue
		}
		s := server{b.Name, []json.RawMessage{}}
		for _, t := range set.Tools {
			if t.Server == b.Name {
				s.Tools = append(s.Tools, t.Step)
			}
		}
		servers = append(servers, s)
		status := b.mcp.Status()
		state := serverState{Name: b.Name, Up: status.Up, Generation: status.Generation}
		if status.Err != nil {
			state.Error = status.Err.Error()
		}
		if cardErrs[i] != nil {
			state.Card = cardErrs[i].Error()
		}
		states = append(states, state)
	}
	if own := g.own.Load().tools; len(own) > 0 {
		s := server{Name: "gateway"}
		for _, t := range own {
			s.Tools = append(s.Tools, t.step)
		}
		servers = append(servers, s)
	}
	aside := set.Aside
	answer(w, http.StatusOK, map[string]any{
		"mcp_servers": servers, "changelog_id": json.RawMessage(g.lastChange(r.Context())), "roles": g.rules.State(),
		"tool_name_clashes": set.Clashes, "tools_set_aside": append(aside[:0:0], aside...), "servers": states, "sessions": g.sessions.count(),
	})
}

func (g *Gateway) serveDisable(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	g.serveRule(w, r, false)
}

func (g *Gateway) serveEnable(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	g.serveRule(w, r, true)
}

func (g *Gateway) serveRule(w http.ResponseWriter, r *http.Request, allow bool) {
	v, ok := object(w, r, maxControl, "role", "tools")
	if !ok {
		return
	}
	role, _ := rawjson.Text(v[0])
	if role == "" {
		proxy.Error(w, http.StatusBadRequest, "'role' must be a non-empty text")
		return
	}
	var names []string
	if all, isText := rawjson.Text(v[1]); isText && all == access.Any {
		names = []string{access.Any}
	} else if rawjson.Kind(v[1]) != '[' || json.Unmarshal(v[1], &names) != nil {
		proxy.Error(w, http.StatusBadRequest, "'tools' must be a list of names, or \"*\"")
		return
	}
	g.SetAccess(role, names, allow)
	rules := g.rules.Of(role)
	answer(w, http.StatusOK, map[string]any{"role": role, "disabled": rules.Disabled, "allowed": rules.Allowed})
}

// refuse answers as clock and triggers do.
func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]any{"ok": false, "error": text})
}

func (g *Gateway) serveSetTime(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	b, ok := body(w, r, maxControl)
	if !ok {
		return
	}
	v := make([][]byte, 2)
	if err := rawjson.Pick(b, []string{"virtual_time", "virtual_seconds_per_real_second"}, v); err != nil {
		refuse(w, http.StatusBadRequest, "the body must be a JSON object: "+err.Error())
		return
	}
	text, isText := rawjson.Text(v[0])
	if !isText {
		refuse(w, http.StatusBadRequest, "virtual_time must be an RFC 3339 text")
		return
	}
	t, err := clock.ParseTime(text)
	rate := 1.0
	if err == nil && !rawjson.IsNull(v[1]) {
		if err = json.Unmarshal(v[1], &rate); err != nil {
			err = errors.New("virtual_seconds_per_real_second must be a number")
		}
	}
	if err == nil {
		_, err = g.SetTime(t, rate)
	}
	switch {
	case errors.Is(err, ErrTimeTaken):
		refuse(w, http.StatusConflict, err.Error())
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
	default:
		answer(w, http.StatusOK, g.clockState(false))
	}
}

func (g *Gateway) clockState(url bool) map[string]any {
	s := g.clock.State()
	if !s.Armed {
		return map[string]any{"armed": false}
	}
	out := map[string]any{"armed": true, "t0": clock.Format(s.T0), "virtual_seconds_per_real_second": json.Number(strconv.FormatFloat(s.Rate, 'f', -1, 64)), "virtual_time": clock.Format(s.Now)}
	if url && g.o.GetTimeURL != "" {
		out["env_get_time_url"] = g.o.GetTimeURL
	}
	return out
}

func (g *Gateway) serveClearTime(w http.ResponseWriter, _ *http.Request, _ access.Principal) {
	g.ClearTime()
	answer(w, http.StatusOK, map[string]any{"ok": true, "armed": false})
}

func (g *Gateway) serveClock(w http.ResponseWriter, _ *http.Request, _ access.Principal) {
	answer(w, http.StatusOK, g.clockState(true))
}

func (g *Gateway) serveTime(w http.ResponseWriter, _ *http.Request, _ access.Principal) {
	now, armed := g.virtual()
	if !armed {
		refuse(w, http.StatusNotFound, "clock not armed")
		return
	}
	answer(w, http.StatusOK, map[string]any{"virtual_time": now})
}

// serveData passes a request on to the only environment, when there is one alone.
func (g *Gateway) serveData(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	b, ok := body(w, r, maxData)
	if !ok {
		return
	}
	req, rpcErr := wire.DecodeRequest(b)
	if rpcErr == nil && req.Method != wire.Reset && req.Method != wire.Add && req.Method != wire.Get {
		rpcErr = &wire.Error{Code: wire.CodeMethod, Message: "Method not found: " + req.Method}
	}
	if rpcErr == nil && len(g.children) != 1 {
		rpcErr = &wire.Error{Code: wire.CodeHandler, Message: fmt.Sprintf("env-level %s requires exactly one backing server, found %d", req.Method, len(g.children))}
	}
	if rpcErr != nil {
		answer(w, http.StatusOK, wire.Response{ID: req.ID, Error: rpcErr})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), dataTimeout)
	defer cancel()
	raw, err := g.postData(ctx, g.children[0], "", b)
	if err != nil {
		answer(w, http.StatusOK, wire.Response{ID: req.ID, Error: &wire.Error{Code: wire.CodeHandler, Message: err.Error()}})
		return
	}
	writeJSON(w, http.StatusOK, raw)
}

// serveLog streams the log of calls as it is now.
func (g *Gateway) serveLog(w http.ResponseWriter, _ *http.Request, _ access.Principal) {
	r, size, err := g.calls.Reader()
	if err != nil {
		g.log.Error("the call log can't be read", "error", err)
		proxy.Error(w, http.StatusInternalServerError, "the call log can't be read")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/jsonl")
	h.Set("X-Trajectory-Total-Bytes", strconv.FormatInt(size, 10))
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	if r != nil {
		defer r.Close()
		_, _ = io.Copy(w, r) // to a client that may have gone
	}
}

const (
	changesPage    = 1000
	maxChangesPage = 10000
)

func (g *Gateway) serveChanges(w http.ResponseWriter, r *http.Request, _ access.Principal) {
	q := r.URL.Query()
	after, err := number(q.Get("after_id"), 0)
	limit, err2 := number(q.Get("limit"), changesPage)
	switch {
	case err != nil || err2 != nil || after < 0 || limit < 1 || limit > maxChangesPage:
		refuse(w, http.StatusBadRequest, fmt.Sprintf("after_id is a number from 0, limit one from 1 to %d", maxChangesPage))
		return
	case g.o.Changes == nil:
		refuse(w, http.StatusNotFound, "this env keeps no changelog")
		return
	}
	rows, err := g.o.Changes.After(r.Context(), after, int(limit)+1)
	if err != nil {
		g.log.Error("the changes can't be read", "error", err)
		refuse(w, http.StatusServiceUnavailable, "the changelog can't be read")
		return
	}
	more := len(rows) > int(limit)
	answer(w, http.StatusOK, map[string]any{"changes": g.windows.attribute(rows[:min(len(rows), int(limit))]), "has_more": more})
}

func number(s string, missing int64) (int64, error) {
	if s == "" {
		return missing, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

// recordRequest has a request that changed something on record.
func (g *Gateway) recordRequest(r *http.Request, kind, service, path, role, before string, causes []byte, status int) {
	after := g.lastChange(context.WithoutCancel(r.Context()))
	if after == "null" || after == before || after == "0" {
		return
	}
	b := rawjson.AppendString([]byte(`"route":`), kind)
	b = rawjson.AppendString(append(b, `,"service":`...), service)
	b = rawjson.AppendString(append(b, `,"method":`...), r.Method)
	b = rawjson.AppendString(append(b, `,"path":`...), "/"+path)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(status), 10)
	b = rawjson.AppendString(append(b, `,"role":`...), role)
	if causes != nil {
		b = append(append(b, `,"caused_by":`...), causes...)
	}
	b = append(b, `,"changelog_id_before":`+before+`,"changelog_id_after":`+after...)
	if _, err := g.calls.Append(calllog.Event{Type: "http_request", Members: b}); err != nil {
		g.log.Error("a request that changed something can't be recorded", "error", err)
	}
}
