package front

import (
	"net/http"
	"strings"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/proxy"
	"agentenv.internal/agentenv/sdk/wire"
)

// Door is the handler that a principal comes through. An agent's door has the MCP endpoint, the card, /step, the websites and the time; what controls the
// environment is the owner's alone.
func (g *Gateway) Door(p access.Principal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, p) })
}

// route is one path of a door.
type route struct {
	path   string
	verb   string // "" is any
	anyone bool   // not the owner alone
	serve  func(g *Gateway, w http.ResponseWriter, r *http.Request, p access.Principal)
}

// routes are the paths; MCP, which is most of what comes, is looked at before them, and those with a rest after them.
var routes = []route{
	{wire.CardPath, http.MethodGet, true, (*Gateway).serveCard},
	{"/step", http.MethodPost, true, (*Gateway).serveStep},
	{"/clock/time", http.MethodGet, true, (*Gateway).serveTime},
	{wire.DataPath, http.MethodPost, false, (*Gateway).serveData},
	{"/state", http.MethodGet, false, (*Gateway).serveState},
	{wire.DisableToolPath, http.MethodPost, false, (*Gateway).serveDisable},
	{wire.EnableToolPath, http.MethodPost, false, (*Gateway).serveEnable},
	{"/clock/set-time", http.MethodPut, false, (*Gateway).serveSetTime},
	{"/clock/clear", http.MethodPost, false, (*Gateway).serveClearTime},
	{"/clock/state", http.MethodGet, false, (*Gateway).serveClock},
	{"/triggers/register", http.MethodPost, false, (*Gateway).serveRegister},
	{"/triggers/remove", http.MethodPost, false, (*Gateway).serveRemove},
	{"/triggers/clear", http.MethodPost, false, (*Gateway).serveClear},
	{"/triggers/state", http.MethodGet, false, (*Gateway).serveTriggers},
	{"/trajectory", http.MethodGet, false, (*Gateway).serveLog},
	{"/changes", http.MethodGet, false, (*Gateway).serveChanges},
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, p access.Principal) {
	path := r.URL.Path
	if path == wire.MCPPath || path == wire.MCPPath+"/" {
		g.mcp(w, r, p)
		return
	}
	for i := range routes {
		rt := &routes[i]
		if path != rt.path {
			continue
		}
		switch {
		case !rt.anyone && !p.Owner:
			forbidden(w)
		case rt.verb != "" && r.Method != rt.verb && (rt.verb != http.MethodGet || r.Method != http.MethodHead):
			w.Header().Set("Allow", rt.verb)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		default:
			rt.serve(g, w, r, p)
		}
		return
	}
	raw := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(raw, "/svc/"); ok {
		if !p.Owner {
			forbidden(w)
			return
		}
		g.serveService(w, r, rest, p)
		return
	}
	if handle, ok := strings.CutPrefix(raw, resultsPath); ok {
		g.serveResult(w, r, handle, p)
		return
	}
	if rest, ok := strings.CutPrefix(raw, "/website/"); ok {
		g.serveWebsite(w, r, rest, p)
		return
	}
	proxy.Error(w, http.StatusNotFound, "Not Found")
}

func forbidden(w http.ResponseWriter) {
	proxy.Error(w, http.StatusForbidden, "only the owner of the environment may do this")
}

// cutKey splits what follows a prefix into the key and the rest, still escaped.
func cutKey(w http.ResponseWriter, rest string) (key, path string, ok bool) {
	key, path, _ = strings.Cut(rest, "/")
	if strings.Contains(strings.ToLower(key), "%2f") {
		proxy.Error(w, http.StatusBadRequest, "an escaped slash can't be part of a service's name")
		return "", "", false
	}
	return key, path, true
}

func (g *Gateway) serveService(w http.ResponseWriter, r *http.Request, rest string, p access.Principal) {
	key, path, ok := cutKey(w, rest)
	if !ok {
		return
	}
	for _, b := range g.children {
		if b.Key() == key {
			g.forward(w, r, proxy.Target{Base: b.URL, Transport: b.rt, MCP: b.mcp != nil, Log: g.log}, path, p, "svc", key, nil)
			return
		}
	}
	proxy.Error(w, http.StatusNotFound, "Unknown service: "+key)
}

func (g *Gateway) serveWebsite(w http.ResponseWriter, r *http.Request, rest string, p access.Principal) {
	name, path, ok := cutKey(w, rest)
	if !ok {
		return
	}
	for _, b := range g.websites() {
		if b.Name == name {
			rt := b.FrontendTransport
			if rt == nil {
				rt = b.rt
			}
			g.website(w, r, proxy.Target{Base: b.Frontend, Transport: rt, Log: g.log}, path, p, name)
			return
		}
	}
	proxy.Error(w, http.StatusNotFound, "Unknown service: "+name)
}

// forward passes a request on, and has it on record when it changed something.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, t proxy.Target, path string, p access.Principal, kind, service string, answered func(status int)) {
	role := role(r, p)
	if safe(r.Method) {
		proxy.Forward(w, r, t, path, role, answered)
		return
	}
	before := g.lastChange(r.Context())
	causes := g.causes(role)
	status := 0
	proxy.Forward(w, r, t, path, role, func(s int) {
		if status = s; answered != nil {
			answered(s)
		}
	})
	g.recordRequest(r, kind, service, path, role, before, causes, status)
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
