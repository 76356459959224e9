package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/treestore"
)

// Plugin is a git plugin of a workspace.
type Plugin struct {
	ID, Source, Commit string
	Tree               string // digest of its files
	Enabled            bool   // it is on, and nothing keeps it from being used
	Problem            string // what keeps it: its files, a variable, a newer program; "" of one that is off
	Manifest           *git.Manifest
	Dir                string // its files, held by Plugins
}

// Plugins are a workspace's git plugins.
type Plugins struct {
	All  []Plugin
	held []*treestore.Held
}

// Close lets go of the plugins' files.
func (p *Plugins) Close() error {
	var errs []error
	for _, h := range p.held {
		errs = append(errs, h.Release())
	}
	p.held = nil
	return errors.Join(errs...)
}

// ReadPlugins reads the plugins of a lock and holds their files. One that can't be used stops no other. on tells what is turned on, and env is the environment.
func ReadPlugins(ctx context.Context, s *git.Store, on func(id string) bool, env func(string) (string, bool)) (*Plugins, error) {
	return readPlugins(ctx, s, func(string) bool { return true }, on, env)
}

// ReadPlugin is ReadPlugins of one id: All has that plugin, or is empty.
func ReadPlugin(ctx context.Context, s *git.Store, id string, on func(id string) bool, env func(string) (string, bool)) (*Plugins, error) {
	return readPlugins(ctx, s, func(x string) bool { return x == id }, on, env)
}

func readPlugins(ctx context.Context, s *git.Store, of, on func(id string) bool, env func(string) (string, bool)) (*Plugins, error) {
	l, err := s.Lock(ctx)
	if err != nil {
		return nil, err
	}
	out := &Plugins{}
	for _, r := range l.Plugins {
		if !of(r.ID) {
			continue
		}
		if err := out.read(ctx, s, r, on(r.ID), env); err != nil {
			return nil, errors.Join(err, out.Close())
		}
	}
	return out, nil
}

// read adds the plugin of a row.
func (p *Plugins) read(ctx context.Context, s *git.Store, r git.Row, wanted bool, env func(string) (string, bool)) error {
	x := Plugin{ID: r.ID, Source: r.SourceURL, Commit: r.ResolvedSHA, Tree: r.TreeSHA256}
	h, err := s.Tree(ctx, r.TreeSHA256)
	switch {
	case errors.Is(err, git.ErrMissing):
		x.Problem = err.Error()
	case err != nil:
		return err
	default:
		p.held = append(p.held, h)
		x.Dir = h.Path()
		var faults diag.List
		if x.Manifest, faults = git.ReadManifest(os.DirFS(x.Dir)); x.Manifest == nil {
			x.Problem = faults.Err().Error()
		} else if wanted {
			if x.Problem = forbidden(s, r.SourceURL); x.Problem == "" {
				x.Problem = unfit(s, x.Manifest, env)
			}
		}
	}
	x.Enabled = wanted && x.Problem == ""
	p.All = append(p.All, x)
	return nil
}

// unfit says why a plugin that is on can't be used here.
func unfit(s *git.Store, m *git.Manifest, env func(string) (string, bool)) string {
	var missing []string
	for _, name := range m.RequiresEnv {
		if v, ok := env(name); !ok || v == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return "missing env: " + strings.Join(missing, ", ")
	}
	return s.TooNew(m)
}

// forbidden says why the policy doesn't allow where a plugin came from; it is asked whenever plugins are read.
func forbidden(s *git.Store, source string) string {
	src, err := git.ParseSource(source)
	if err == nil {
		err = s.Policy().Allows(src)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// Servers are the MCP servers of a plugin, as the configuration spells them. values are its settings and secrets, resolved: they fill ${key}. A
// server that lacks a required value is left out, and why tells.
func Servers(p Plugin, values map[string]string) (out []config.MCPServer, why []string) {
	var l diag.List
	for _, s := range pack.Servers(p.Manifest.MCP, "mcp", &l) {
		filled := map[string]string{}
		lacks := ""
		for _, in := range s.Inputs {
			v, ok := values[in.Key]
			if !ok {
				v, ok = in.Default, in.HasDefault
			}
			if in.Required && (!ok || v == "") {
				lacks = in.Key
			}
			filled[in.Key] = v
		}
		if lacks != "" {
			why = append(why, fmt.Sprintf("the server %s of %s lacks %s: set it in [git_plugins.config.%s]", s.Name, p.ID, lacks, p.ID))
			continue
		}
		fill := func(n doc.Node) string { return pack.Fill(n.Text(), filled) }
		c := config.MCPServer{Name: s.Name, Transport: s.Transport, URL: fill(s.Template.Get("url")), Env: map[string]string{}, Headers: map[string]string{}}
		if cmd := fill(s.Template.Get("command")); cmd != "" {
			if strings.HasPrefix(cmd, "./") { // a file of the plugin
				cmd = filepath.Join(p.Dir, filepath.Clean("/"+cmd))
			}
			c.Command = []string{cmd}
			for _, a := range s.Template.Get("args").Items() {
				c.Command = append(c.Command, fill(a))
			}
		}
		for k, v := range s.Template.Get("env").Members() {
			c.Env[k] = fill(v)
		}
		for k, v := range s.Template.Get("headers").Members() {
			c.Headers[k] = fill(v)
		}
		out = append(out, c)
	}
	for _, p := range l.Of(diag.Error) {
		why = append(why, p.String())
	}
	return out, why
}
