package app

import (
	"context"
	"errors"
	"strings"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// In is the program as it is in a workspace's folder, whatever AGENT_ENV_CONFIG says. The caller closes it.
func (a *App) In(root string) *App {
	o := a.opt
	o.Dir = root
	o.Env = func(name string) (string, bool) {
		if name == "AGENT_ENV_CONFIG" {
			return "", false
		}
		return a.opt.Env(name)
	}
	return New(o)
}

// WorkspaceView is a workspace as people are shown it.
type WorkspaceView struct {
	workspace.Workspace
	Root      string            `json:"root"`
	Plugins   []WorkspacePlugin `json:"plugins"`
	Servers   []WorkspaceServer `json:"mcp_servers"`
	Delegates []string          `json:"delegates"`
	Projects  []config.Project  `json:"projects"`
	Secrets   []string          `json:"secrets"` // keys
}

// WorkspacePlugin is a git plugin of it.
type WorkspacePlugin struct {
	ID      string `json:"id"`
	Source  string `json:"source_url"`
	Commit  string `json:"resolved_sha"`
	Enabled bool   `json:"enabled"`
	Problem string `json:"problem,omitempty"`
}

// WorkspaceServer is an MCP server of its configuration.
type WorkspaceServer struct {
	Name    string `json:"name"`
	Where   string `json:"where"` // its URL or its program; never a secret
	Enabled bool   `json:"enabled"`
}

// ShowWorkspace reads what a workspace holds.
func (a *App) ShowWorkspace(ctx context.Context, w workspace.Workspace) (_ WorkspaceView, err error) {
	in := a.In(w.Root)
	defer func() { err = errors.Join(err, in.Close(ctx)) }()
	if err := in.ConfigProblems().Err(); err != nil {
		return WorkspaceView{}, err
	}
	v := WorkspaceView{Workspace: w, Root: w.Root, Plugins: []WorkspacePlugin{}, Servers: []WorkspaceServer{}, Delegates: []string{}, Projects: []config.Project{}, Secrets: []string{}}
	plugins, err := in.workspacePlugins(ctx, w)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, plugins.Close()) }()
	for _, p := range plugins.All {
		v.Plugins = append(v.Plugins, WorkspacePlugin{p.ID, p.Source, p.Commit, p.Enabled, p.Problem})
	}
	c := in.Config()
	for _, s := range c.Servers() {
		v.Servers = append(v.Servers, WorkspaceServer(s))
	}
	for name := range c.Delegates().Members() {
		v.Delegates = append(v.Delegates, name)
	}
	v.Projects = append(v.Projects, c.Projects()...)
	if b, err := w.Folder().Read(folder.Secrets); err == nil {
		t, _ := doc.ParseTOML(folder.Secrets, b)
		v.Secrets = secretKeys(v.Secrets, t.Root(), "")
	}
	return v, nil
}

func secretKeys(out []string, n doc.Node, at string) []string {
	for name, v := range n.Members() {
		if v.Kind() == doc.Object {
			out = secretKeys(out, v, at+name+".")
		} else {
			out = append(out, at+name)
		}
	}
	return out
}

// workspacePlugins are the git plugins of a workspace, whose App this is; the caller closes them.
func (a *App) workspacePlugins(ctx context.Context, w workspace.Workspace) (*workspace.Plugins, error) {
	n, err := a.Config().GitPlugins(ctx, a.secrets)
	if err != nil {
		return nil, err
	}
	policy, err := a.GitPolicy(ctx)
	if err != nil {
		return nil, err
	}
	return workspace.ReadPlugins(ctx, a.gitStore(w.Folder(), policy), gitplugins.TurnedOn(n), a.opt.Env)
}

// pluginValues are a plugin's settings and secrets as texts by key, for what its servers ask for.
func (a *App) pluginValues(ctx context.Context, p workspace.Plugin) (map[string]string, error) {
	out := map[string]string{}
	for k, v := range p.Manifest.Config.Members() {
		out[k] = v.Text()
	}
	n, err := a.Config().GitPlugin(ctx, "config", p.ID, a.secrets)
	if err != nil {
		return nil, err
	}
	for k, v := range n.Members() {
		if v.Kind() != doc.Object && v.Kind() != doc.Array {
			out[k] = string(doc.JSON(v))
			if s, ok := v.Str(); ok {
				out[k] = s
			}
		}
	}
	for _, key := range p.Manifest.Secrets {
		v, found, err := a.secrets(ctx, strings.Join([]string{"plugins", p.ID, key}, "."))
		if err != nil {
			return nil, err
		}
		if found {
			a.redact.Add(v)
			out[key] = v
		}
	}
	return out, nil
}
