package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/agent/mcp"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// WorkspaceRun is how a workspace's agent is served.
type WorkspaceRun struct {
	Model string // "" is the configured one
	Port  int    // on 127.0.0.1; 0 is any
	// Listener is where it is served instead, which RunWorkspace closes; nil: at Port.
	Listener net.Listener
	Type     string // providers for the sandbox that its commands run in, comma-separated; "" is the configured chain
	// Up is told, once, where the agent is and what it has.
	Up func(WorkspaceUp)
}

// WorkspaceUp is a workspace's agent that is served.
type WorkspaceUp struct {
	URL      string   `json:"a2a_url"` // whoever knows it may ask the agent
	Model    string   `json:"model,omitempty"`
	Tools    []string `json:"tools"` // of its servers
	Skills   []string `json:"skills"`
	Peers    []string `json:"delegates"`
	Warnings []string `json:"warnings"`
}

// RunWorkspace serves the agent of the workspace whose App this is (see In) until ctx ends: SOUL.md is its system prompt, the MCP servers of the
// configuration and of plugins are its tools, the plugins' skills its skills, and its delegates may be asked.
func (a *App) RunWorkspace(ctx context.Context, w workspace.Workspace, o WorkspaceRun) (err error) {
	if o.Listener != nil {
		defer func() { _ = o.Listener.Close() }() // it is closed already, unless what is below fails before
	}
	r, err := a.Workspaces()
	if err != nil {
		return err
	}
	served, err := r.Serve(w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.Unlock()) }()
	agents, err := a.getAgents(ctx)
	if err != nil {
		return err
	}
	world, err := a.getWorld(ctx)
	if err != nil {
		return err
	}
	soul, err := w.Folder().Read(folder.Soul)
	if err != nil {
		return err
	}
	up := WorkspaceUp{Tools: []string{}, Skills: []string{}, Peers: []string{}, Warnings: []string{}}
	if up.Model, err = a.agentModel(ctx, agents, o.Model); err != nil {
		return err
	}
	if up.Model != "" {
		if err := agents.Models().Check(ctx, up.Model, ""); err != nil {
			return err
		}
	}
	run := "workspace/" + w.ID + "-" + strings.ToLower(rand.Text()[:8])
	world.deploy.Open(run, deploy.Policy{})
	defer func() {
		_, derr := world.deploy.Down(context.WithoutCancel(ctx), run)
		err = errors.Join(err, derr)
	}()
	stand := &standing{app: a, w: w, up: &up}
	defer func() { err = errors.Join(err, stand.close()) }()
	if err := stand.read(ctx); err != nil {
		return err
	}
	main, err := agents.Deploy(ctx, deploy.AgentRequest{
		Run: run, Step: "run", Attempt: 1, Trial: 1, Name: w.Name, ID: agent.Loop, Type: o.Type, Skills: stand.skills,
		Settings: deploy.Settings{Name: w.Name, SystemPrompt: strings.TrimSpace(string(soul)), Model: up.Model},
	})
	if err != nil {
		return err
	}
	for _, s := range stand.servers {
		if err := main.Runner.AddMCP(ctx, s); err != nil {
			return err
		}
	}
	if err := stand.delegates(ctx, agents, main, run); err != nil {
		return err
	}
	return a.serveWorkspace(ctx, main, o, &up)
}

// serveWorkspace serves an agent at a secret path of the loopback until ctx ends.
func (a *App) serveWorkspace(ctx context.Context, main *deploy.Agent, o WorkspaceRun, up *WorkspaceUp) error {
	face, end, err := main.Serve(deploy.Settings{Model: up.Model})
	if err != nil {
		return err
	}
	l := o.Listener
	if l == nil {
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port))); err != nil {
			return fmt.Errorf("serve the agent: %w", err)
		}
	}
	secret := front.NewSecret()
	up.URL = "http://" + l.Addr().String() + front.SecretPrefix + secret
	s := &http.Server{Handler: noPages(front.Outside(map[string]http.Handler{secret: face})), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if o.Up != nil {
		o.Up(*up)
	}
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(end(ending), s.Close())
	if failed == nil {
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			failed = end
		}
	}
	return errors.Join(failed, err)
}

// noPages refuses what pages of the web ask: the agent has none of its own, and what a page can't know, its address, is no reason to answer one that does.
// A page whose own name leads here says nothing of itself, but has no name of the loopback.
func noPages(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if len(r.Header.Values("Origin")) > 0 || site != "" && site != "none" || !loopback(r.Host) {
			http.Error(w, "pages may not ask this agent", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// loopback tells whether the Host of a request is the loopback, at whatever port.
func loopback(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	at, err := netip.ParseAddr(name)
	return err == nil && at.Unmap().IsLoopback() || strings.EqualFold(name, "localhost")
}

// standing is what a workspace's agent stands on.
type standing struct {
	app     *App
	w       workspace.Workspace
	up      *WorkspaceUp
	plugins *workspace.Plugins
	deps    []*dist.Environment // packages of plugins
	opened  []mcp.Server
	servers []deploy.MCP
	skills  []deploy.Skill
}

func (s *standing) close() error {
	var errs []error
	for _, o := range s.opened {
		errs = append(errs, o.Close())
	}
	for _, d := range s.deps {
		errs = append(errs, d.Close())
	}
	if s.plugins != nil {
		errs = append(errs, s.plugins.Close())
	}
	return errors.Join(errs...)
}

func (s *standing) warn(format string, args ...any) {
	s.up.Warnings = append(s.up.Warnings, s.app.redact.String(fmt.Sprintf(format, args...)))
}

// read opens the servers of the configuration and of plugins, and reads the plugins' skills. What can't be used is told, and the rest goes on.
func (s *standing) read(ctx context.Context) error {
	var err error
	if s.plugins, err = s.app.workspacePlugins(ctx, s.w); err != nil {
		return err
	}
	servers, err := s.app.Config().MCPServers(ctx, s.app.secrets)
	if err != nil {
		return err
	}
	var open []wanted
	for _, c := range servers {
		open = append(open, wanted{c, s.w.Root})
	}
	for _, p := range s.plugins.All {
		if !p.Enabled {
			if p.Problem != "" {
				s.warn("the plugin %s is not used: %s", p.ID, p.Problem)
			}
			continue
		}
		if len(p.Manifest.Python) > 0 {
			s.warn("the plugin %s has Python code for protoAgent's process (%s), which nothing here runs", p.ID, strings.Join(p.Manifest.Python, ", "))
		}
		values, err := s.app.pluginValues(ctx, p)
		if err != nil {
			return err
		}
		deps, err := s.app.openDeps(ctx, p)
		if err != nil {
			s.warn("the plugin %s is not used: %v", p.ID, err)
			continue
		}
		s.deps = append(s.deps, deps)
		own, why := workspace.Servers(p, values)
		for _, text := range why {
			s.warn("%s", text)
		}
		for _, c := range s.app.withDeps(p, deps, own) {
			open = append(open, wanted{c, p.Dir})
		}
		for _, name := range p.Manifest.Skills {
			skill, err := readSkill(filepath.Join(p.Dir, "skills", name), name)
			if err != nil {
				s.warn("the skill %s of %s can't be used: %v", name, p.ID, err)
				continue
			}
			s.skills = append(s.skills, skill)
			s.up.Skills = append(s.up.Skills, skill.Name)
		}
	}
	s.open(ctx, open)
	return ctx.Err()
}

// wanted is a server to connect to; dir is where a program of it starts.
type wanted struct {
	config.MCPServer
	dir string
}

// open connects to servers, all at once, so that one that hangs holds up nobody, and lists them in their order.
func (s *standing) open(ctx context.Context, all []wanted) {
	type found struct {
		server mcp.Server
		tools  []json.RawMessage
		err    error
	}
	got := make([]found, len(all))
	var wg sync.WaitGroup
	for i, w := range all {
		for _, m := range []map[string]string{w.Env, w.Headers} {
			for _, v := range m {
				s.app.redact.Add(v)
			}
		}
		wg.Go(func() {
			f := &got[i]
			if f.server, f.err = s.connect(ctx, w); f.err != nil {
				return
			}
			if f.tools, f.err = f.server.Tools(ctx); f.err != nil {
				f.err = fmt.Errorf("the MCP server %s doesn't list its tools: %w", w.Name, f.err)
			}
		})
	}
	wg.Wait()
	for i, f := range got {
		if f.server != nil {
			s.opened = append(s.opened, f.server)
		}
		if f.err != nil {
			s.warn("%v", f.err)
			continue
		}
		for _, t := range f.tools {
			s.up.Tools = append(s.up.Tools, mcp.ToolName(t))
		}
		s.servers = append(s.servers, deploy.MCP{Name: all[i].Name, Server: f.server})
	}
}

func (s *standing) connect(ctx context.Context, w wanted) (mcp.Server, error) {
	switch w.Transport {
	case "stdio":
		return mcp.Start(ctx, mcp.Program{Name: w.Name, Argv: w.Command, Dir: w.dir, Env: w.Env, Lookup: s.app.opt.Env, Log: s.app.opt.Log})
	case "sse":
		return nil, fmt.Errorf("the MCP server %s speaks the older transport sse, which this program doesn't; use its streamable HTTP address", w.Name)
	default:
		return mcp.Dial(ctx, mcp.Remote{Name: w.Name, URL: w.URL, Headers: w.Headers, Log: s.app.opt.Log})
	}
}

// delegates connects the agent to those of the configuration, where the plugin that comes with the program for it is on.
func (s *standing) delegates(ctx context.Context, agents *deploy.Agents, main *deploy.Agent, run string) error {
	c := s.app.Config()
	n, err := c.GitPlugins(ctx, s.app.secrets)
	if err != nil {
		return err
	}
	if !gitplugins.TurnedOn(n)("delegates") {
		return nil
	}
	var peers []*deploy.Agent
	for name, raw := range c.Delegates().Members() {
		d, err := c.Resolve(ctx, raw, "delegates."+name, s.app.secrets)
		if err != nil {
			return err
		}
		url := d.Get("url").Text()
		if url == "" {
			s.warn("the delegate %s has no url and can't be asked", name)
			continue
		}
		p, err := agents.Deploy(ctx, deploy.AgentRequest{
			Run: run, Step: "run", Attempt: 1, Trial: 1, Name: name, URL: url,
			Settings: deploy.Settings{Name: name, Description: d.Get("description").Text()},
		})
		if err != nil {
			s.warn("the delegate %s can't be asked: %v", name, err)
			continue
		}
		peers = append(peers, p)
		s.up.Peers = append(s.up.Peers, name)
	}
	if len(peers) == 0 {
		return nil
	}
	return main.SetPeers(ctx, peers, s.up.Model)
}

// readSkill reads a skill's folder. Its files are read when they are needed.
func readSkill(dir, name string) (deploy.Skill, error) {
	b, err := os.ReadFile(filepath.Join(dir, "SKILL.md"))
	if err != nil {
		return deploy.Skill{}, err
	}
	front, faults := artifact.ReadSkill(name, b, name)
	if err := faults.Err(); err != nil {
		return deploy.Skill{}, err
	}
	out := deploy.Skill{Name: front.Name, Description: front.Description}
	err = fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil || !fi.Mode().IsRegular() {
			return err
		}
		at := filepath.Join(dir, filepath.FromSlash(p))
		out.Files = append(out.Files, guest.PutFile{Path: path.Clean(p), Mode: fi.Mode().Perm(), Size: fi.Size(), Open: func() (io.ReadCloser, error) { return os.Open(at) }})
		return nil
	})
	return out, err
}
