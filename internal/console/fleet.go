package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/fleet"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/workspace"
)

func (s *Server) fleetRoutes() []route {
	return []route{
		{pattern: "GET /api/fleet", limit: quick, do: s.fleet},
		{pattern: "POST /api/fleet", limit: fetch, changes: true, do: s.create},
		{pattern: "POST /api/fleet/{name}/start", limit: asks, changes: true, do: s.startAgent},
		{pattern: "POST /api/fleet/{name}/stop", limit: asks, do: s.stopAgent}, // also while others hold all turns
		{pattern: "DELETE /api/fleet/{name}", limit: asks, changes: true, do: s.removeWorkspace},
	}
}

// agentView is a workspace, and how its agent is that this console serves. Others may serve it too (agent-env workspace run).
type agentView struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Root    string    `json:"root"`
	Bundle  string    `json:"bundle"` // the id of the plugin bundle that it was made from; "" of none
	Created time.Time `json:"created_at"`
	Tools   []string  `json:"requires_tools"`
	Problem *string   `json:"error"` // why it can't be used

	Running  bool     `json:"running"`
	URL      *string  `json:"a2a_url"` // of one that runs: whoever knows it may ask the agent
	Port     *int     `json:"port"`
	Model    string   `json:"model"`
	Has      []string `json:"tools"` // of its servers
	Skills   []string `json:"skills"`
	Warnings []string `json:"agent_warnings"`
	Fault    *string  `json:"start_error"` // why it doesn't run that was started
}

func (s *Server) viewAgent(w workspace.Workspace) agentView {
	out := agentView{ID: w.ID, Name: w.Name, Root: w.Root, Bundle: w.Bundle, Created: w.Created, Tools: some(w.RequiresTools)}
	st := s.o.Agents.Look(w.Root)
	out.Running, out.Model, out.Has, out.Skills, out.Warnings = st.Running, st.Model, some(st.Tools), some(st.Skills), some(st.Warnings)
	if st.Running {
		out.URL, out.Port = new(st.URL), new(st.Port)
	}
	if st.Fault != "" {
		out.Fault = new(st.Fault)
	}
	if w.Problem != "" {
		out.Problem = new(w.Problem)
	}
	return out
}

func (s *Server) fleet(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	if s.o.Workspaces == nil {
		return nil, &Failure{http.StatusNotImplemented, "workspaces", "this console lists no workspaces; agent-env workspace list does", nil}
	}
	all, err := s.o.Workspaces(ctx)
	if err != nil {
		return nil, err
	}
	root, err := c.plugins.Root()
	if err != nil {
		return nil, err
	}
	out := struct {
		Agents []agentView `json:"agents"`
		Folder string      `json:"folder"` // in which new ones are made
	}{[]agentView{}, filepath.Dir(root)}
	for _, w := range all {
		out.Agents = append(out.Agents, s.viewAgent(w))
	}
	return out, nil
}

// order is what a request has made.
type order struct {
	workspace.Order
	said  gitplugins.Activation // to what its bundle asks
	start bool                  // its agent, then
	port  int                   // of that; 0 is any
}

// order reads what workspace is to be made: beside the console's own, unless dir says where; and whether its agent is started then, at which port.
func (c *call) order() (order, error) {
	b := c.body
	o := order{Order: workspace.Order{Name: b.text("name"), Bundle: b.text("bundle"), Ref: b.text("ref"), Soul: b.text("soul"), Root: b.text("dir"), RequiresTools: b.list("requires_tools")}}
	o.said = b.activation()
	inherit := b.flag("inherit_config")
	o.start = b.get("start").IsNull() || b.flag("start")
	if o.port = b.port(); o.port != 0 && !o.start {
		b.fault("port", "is of an agent that is started; leave it out")
	}
	b.required("name")
	if err := b.done(); err != nil {
		return o, err
	}
	if o.Bundle == "" && (o.Ref != "" || len(o.said.Typed) > 0 || len(o.said.Secrets) > 0) {
		return o, badRequest("ref, inputs, config_inputs and secrets are of a bundle; name it in bundle")
	}
	root, err := c.plugins.Root()
	if err != nil {
		return o, err
	}
	switch {
	case o.Root == "":
		if err := workspace.CheckName(o.Name); err != nil { // it becomes a folder's
			return o, err
		}
		o.Root = filepath.Join(filepath.Dir(root), o.Name)
	case !filepath.IsAbs(o.Root):
		return o, badRequest("dir has to be an absolute path, not %s", diag.Repr(o.Root))
	default:
		o.Root = filepath.Clean(o.Root)
	}
	if inherit {
		o.From = root
	}
	return o, nil
}

func (s *Server) create(ctx context.Context, c *call) (any, error) {
	if s.o.Create == nil {
		return nil, &Failure{http.StatusNotImplemented, "workspaces", "this console makes no workspaces; agent-env workspace create does", nil}
	}
	o, err := c.order()
	if err != nil {
		return nil, err
	}
	var l *net.TCPListener
	if o.start { // before anything is made
		if l, err = s.o.Agents.Listen(ctx, o.port); err != nil {
			return nil, err
		}
	}
	w, err := c.plugins.Gated().CreateWorkspace(ctx, s.o.Create, o.Order, o.said) // its plugins are on at once, also where this console only fetches
	if err != nil {
		if o.start {
			_ = l.Close()
		}
		return nil, s.looked.explain(err, o.Bundle, o.Ref)
	}
	if o.start { // where that fails, what was answered stays: the answer tells why, and it can be started again
		if _, err := s.o.Agents.Start(ctx, w.Root, l); err != nil {
			s.o.Log.Info("an agent can't be started", "workspace", w.Name, "error", err)
		}
	}
	type installed struct {
		Bundle  string   `json:"bundle"`
		Plugins []string `json:"plugins"`
	}
	out := struct {
		OK        bool       `json:"ok"`
		Agent     agentView  `json:"agent"`
		Installed *installed `json:"installed"` // null without a bundle
		Enabled   []string   `json:"enabled"`
		Servers   []string   `json:"mcp_seeded"`
		Off       []string   `json:"mcp_off"`
		Written   []string   `json:"config_written"`
		Warnings  []string   `json:"warnings"`
	}{true, s.viewAgent(w.Workspace), nil, []string{}, []string{}, []string{}, []string{}, some(w.Warnings)}
	if d := w.Seeded; d != nil {
		out.Installed = &installed{w.Bundle, some(w.Plugins)}
		out.Enabled, out.Servers, out.Off, out.Written = some(d.Enabled), some(d.Servers), some(d.Off), some(d.Written)
	}
	return out, nil
}

// workspaceOf is the workspace that a route's path names.
func (s *Server) workspaceOf(ctx context.Context, c *call) (workspace.Workspace, error) {
	if s.o.Workspaces == nil {
		return workspace.Workspace{}, &Failure{http.StatusNotImplemented, "workspaces", "this console lists no workspaces; agent-env workspace list does", nil}
	}
	all, err := s.o.Workspaces(ctx)
	if err != nil {
		return workspace.Workspace{}, err
	}
	for _, w := range all {
		if w.Name == c.PathValue("name") {
			return w, nil
		}
	}
	return workspace.Workspace{}, &Failure{http.StatusNotFound, "absent", "there is no workspace " + diag.Repr(c.PathValue("name")), nil}
}

// oneAgent is what routes of one agent answer.
type oneAgent struct {
	OK    bool      `json:"ok"`
	Agent agentView `json:"agent"`
}

func (s *Server) startAgent(ctx context.Context, c *call) (any, error) {
	port := c.body.port()
	if err := c.body.done(); err != nil {
		return nil, err
	}
	w, err := s.workspaceOf(ctx, c)
	if err != nil {
		return nil, err
	}
	if w.Problem != "" {
		return nil, badRequest("the workspace %s can't be used: %s", w.Name, w.Problem)
	}
	l, err := s.o.Agents.Listen(ctx, port)
	if err != nil {
		return nil, err
	}
	if _, err := s.o.Agents.Start(ctx, w.Root, l); errors.Is(err, fleet.ErrRunning) {
		return nil, &Failure{http.StatusConflict, "running", err.Error(), err}
	} else if err != nil {
		return nil, err
	}
	return oneAgent{true, s.viewAgent(w)}, nil
}

func (s *Server) stopAgent(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	w, err := s.workspaceOf(ctx, c)
	if err != nil {
		return nil, err
	}
	s.o.Agents.Stop(w.Root)
	return oneAgent{true, s.viewAgent(w)}, nil
}

// removeWorkspace stops a workspace's agent and removes it.
func (s *Server) removeWorkspace(ctx context.Context, c *call) (any, error) {
	purge, err := c.purge()
	if err == nil {
		err = c.body.done()
	}
	if err != nil {
		return nil, err
	}
	w, err := s.workspaceOf(ctx, c)
	if err != nil {
		return nil, err
	}
	own, err := c.plugins.Root()
	if err != nil {
		return nil, err
	}
	if workspace.Below(own, w.Root) && (purge || workspace.Below(w.Root, own)) {
		return nil, badRequest("the console is served in the folder of the workspace %s, which can't be removed here", w.Name)
	}
	s.o.Agents.Stop(w.Root)
	if err := s.o.Remove(ctx, w.Name, purge); err != nil {
		return nil, err
	}
	return struct {
		OK     bool   `json:"ok"`
		Name   string `json:"name"`
		Purged bool   `json:"purged"`
	}{true, w.Name, purge}, nil
}

// port is a number of a port; 0 when it is absent or null.
func (b *body) port() int {
	n := b.get("port")
	v, ok := n.Int()
	if !n.IsNull() && (!ok || v < 1 || v > 65535) {
		b.fault("port", "has to be a whole number from 1 to 65535")
	}
	return int(v)
}
