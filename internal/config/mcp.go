package config

import (
	"context"
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// MCPServer is a server whose tools a workspace's agent has.
type MCPServer struct {
	Name      string
	Transport string // "stdio", "http", "streamable_http" or "sse"
	Command   []string
	Env       map[string]string
	URL       string
	Headers   map[string]string
}

// MCPServers reads [[mcp.servers]]: those that are on, in the order of the file. What can't be resolved of one that is off is not asked for.
func (c *Config) MCPServers(ctx context.Context, secrets Secrets) ([]MCPServer, error) {
	if on, set := c.value("mcp", "enabled").Bool(); set && !on {
		return nil, nil
	}
	var out []MCPServer
	for _, raw := range c.value("mcp", "servers").Items() {
		if on, set := raw.Get("enabled").Bool(); set && !on {
			continue
		}
		n, err := c.Resolve(ctx, raw, "mcp.servers "+raw.Get("name").Text(), secrets)
		if err != nil {
			return nil, err
		}
		s := MCPServer{
			Name: n.Get("name").Text(), Transport: n.Get("transport").Text(), URL: n.Get("url").Text(),
			Env: stringMap(n.Get("env")), Headers: stringMap(n.Get("headers")),
		}
		if cmd := n.Get("command").Text(); cmd != "" {
			s.Command = append([]string{cmd}, stringList(n.Get("args"))...)
		}
		if s.Transport == "" {
			s.Transport = "http"
			if len(s.Command) > 0 {
				s.Transport = "stdio"
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// EnvGrants are variables of the environment that plugin bundles may read while a workspace is made from them.
func (c *Config) EnvGrants() []string { return stringList(c.value("git_plugins", "env_grants")) }

// checkServer refuses a server that nobody could reach.
func checkServer(n doc.Node, l *diag.List) {
	hasCommand, hasURL := n.Get("command").Exists(), n.Get("url").Exists()
	stdio := n.Get("transport").Text() == "stdio"
	switch {
	case hasCommand == hasURL:
		l.Add(diag.Problem{Pos: n.Pos(), Code: "config.mcp", Summary: "the server needs a command or a url, and not both", Fix: "remove one, or write the one that is missing"})
	case n.Get("transport").Exists() && stdio != hasCommand:
		l.Add(diag.Problem{Pos: n.Pos(), Code: "config.mcp", Summary: "the transport doesn't fit: stdio is of commands, the others are of URLs", Fix: "leave transport out"})
	}
}

// checkServers refuses two servers of one name.
func checkServers(n doc.Node, l *diag.List) {
	var names []string
	for _, s := range n.Items() {
		name := s.Get("name").Text()
		if slices.Contains(names, name) {
			l.Add(diag.Problem{Pos: s.Pos(), Code: "config.mcp", Summary: "the server " + diag.Repr(name) + " is there twice", Fix: "give each a name of its own"})
		}
		names = append(names, name)
	}
}

// ServerInfo is a server as it is listed, without what may be secret.
type ServerInfo struct {
	Name, Where string
	Enabled     bool
}

// Servers are all servers of [[mcp.servers]] as they are written; where one is is its URL, or its program without arguments.
func (c *Config) Servers() []ServerInfo {
	all, set := c.value("mcp", "enabled").Bool()
	var out []ServerInfo
	for _, n := range c.value("mcp", "servers").Items() {
		i := ServerInfo{Name: n.Get("name").Text(), Where: n.Get("url").Text(), Enabled: !set || all}
		if i.Where == "" {
			i.Where = n.Get("command").Text()
		}
		if on, set := n.Get("enabled").Bool(); set && !on {
			i.Enabled = false
		}
		out = append(out, i)
	}
	return out
}
