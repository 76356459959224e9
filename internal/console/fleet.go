package console

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/workspace"
)

func (s *Server) fleetRoutes() []route {
	return []route{
		{pattern: "GET /api/fleet", limit: quick, do: s.fleet},
		{pattern: "POST /api/fleet", limit: fetch, changes: true, do: s.create},
	}
}

// agentView is a workspace, whose agent `agent-env workspace run` serves.
type agentView struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Root    string    `json:"root"`
	Bundle  string    `json:"bundle"` // the id of the plugin bundle that it was made from; "" of none
	Created time.Time `json:"created_at"`
	Tools   []string  `json:"requires_tools"`
	Problem *string   `json:"error"` // why it can't be used
}

func viewAgent(w workspace.Workspace) agentView {
	out := agentView{ID: w.ID, Name: w.Name, Root: w.Root, Bundle: w.Bundle, Created: w.Created, Tools: some(w.RequiresTools)}
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
		out.Agents = append(out.Agents, viewAgent(w))
	}
	return out, nil
}

// order reads what workspace is to be made: beside the console's own, unless dir says where.
func (s *Server) order(c *call) (o workspace.Order, a gitplugins.Activation, err error) {
	b := c.body
	o = workspace.Order{Name: b.text("name"), Bundle: b.text("bundle"), Ref: b.text("ref"), Soul: b.text("soul"), Root: b.text("dir"), RequiresTools: b.list("requires_tools")}
	a = b.activation()
	inherit := b.flag("inherit_config")
	if b.flag("start") || !b.get("port").IsNull() {
		b.fault("start", "and port are not for this console, which starts no agent: leave them out, and serve it with agent-env workspace run NAME")
	}
	b.required("name")
	if err := b.done(); err != nil {
		return o, a, err
	}
	if o.Bundle == "" && (o.Ref != "" || len(a.Typed) > 0 || len(a.Secrets) > 0) {
		return o, a, badRequest("ref, inputs, config_inputs and secrets are of a bundle; name it in bundle")
	}
	root, err := c.plugins.Root()
	if err != nil {
		return o, a, err
	}
	switch {
	case o.Root == "":
		if err := workspace.CheckName(o.Name); err != nil { // it becomes a folder's
			return o, a, err
		}
		o.Root = filepath.Join(filepath.Dir(root), o.Name)
	case !filepath.IsAbs(o.Root):
		return o, a, badRequest("dir has to be an absolute path, not %s", diag.Repr(o.Root))
	default:
		o.Root = filepath.Clean(o.Root)
	}
	if inherit {
		o.From = root
	}
	return o, a, nil
}

func (s *Server) create(ctx context.Context, c *call) (any, error) {
	if s.o.Create == nil {
		return nil, &Failure{http.StatusNotImplemented, "workspaces", "this console makes no workspaces; agent-env workspace create does", nil}
	}
	o, a, err := s.order(c)
	if err != nil {
		return nil, err
	}
	w, err := c.plugins.Gated().CreateWorkspace(ctx, s.o.Create, o, a) // its plugins are on at once, also where this console only fetches
	if err != nil {
		return nil, s.looked.explain(err, o.Bundle, o.Ref)
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
	}{true, viewAgent(w.Workspace), nil, []string{}, []string{}, []string{}, []string{}, some(w.Warnings)}
	if d := w.Seeded; d != nil {
		out.Installed = &installed{w.Bundle, some(w.Plugins)}
		out.Enabled, out.Servers, out.Off, out.Written = some(d.Enabled), some(d.Servers), some(d.Off), some(d.Written)
	}
	return out, nil
}
