package hostcalls

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/host"
)

// connectAgent answers how this machine reaches an agent of the run that speaks A2A: through a door, valid until the call ends, where it runs in a sandbox.
func (c *Calls) connectAgent(ctx context.Context, by *host.Caller, in struct {
	Agent string `json:"agent_name"`
},
) (any, error) {
	if by.Run == "" {
		return nil, host.Refuse("this call belongs to no run, and so has no agents")
	}
	agents, err := c.Agents(ctx)
	if err != nil {
		return nil, err
	}
	a, err := agents.Agent(by.Run, in.Agent)
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	client, _, ok := a.A2A()
	if !ok {
		return nil, host.Refuse("the agent %s doesn't speak A2A: it has no address", diag.Repr(in.Agent))
	}
	at := client.Base()
	if a.HasBox() {
		base, err := url.Parse(at)
		if err != nil {
			return nil, err
		}
		door, shut, err := c.doors.open(ctx, agentDoor(client, base))
		if err != nil {
			return nil, err
		}
		by.Defer(shut)
		at = door
	}
	return map[string]any{"a2a_url": at, "headers": map[string]string{}}, nil
}

// agentDoor hands requests on to an agent, the way the program itself reaches it.
func agentDoor(client *a2a.Client, base *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Transport: client.Transport(), FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Host = base.Host
			r.Out.URL.Path = base.Path + "/" + strings.TrimPrefix(r.In.URL.Path, "/")
			r.Out.URL.RawPath = ""
		},
	}
}
