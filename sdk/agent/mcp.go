package agent

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/wire"
)

const serverPath = "/ext/mcp-config"

// PeerServer is the name of the MCP server by which the agent reaches its peers.
const PeerServer = "peer_agents"

// Server is an MCP server that the agent may use. Headers go with every request to it, and may be secret.
type Server struct {
	Name    string
	URL     string
	Headers map[string]string
}

// servers are those that were added.
type servers struct {
	mu   sync.Mutex
	list []Server
}

// WithMCP lets callers add MCP servers, which turns find in Servers.
func WithMCP() Option { return func(a *Agent) { a.servers = &servers{} } }

func (a *Agent) serverExtension() (extension, bool, error) {
	if a.servers == nil {
		return extension{}, false, nil
	}
	return newExtension(wire.URNMCPConfig, "Adds MCP servers whose tools the agent may use.", serverPath,
		operation{name: "add", verb: http.MethodPost, path: serverPath, request: `{"required":["url"],"optional":["headers","name"]}`, serve: a.addServer},
		operation{name: "list", verb: http.MethodGet, path: serverPath, response: `{"required":["mcp_servers"]}`, serve: a.listServers})
}

func decodeServer(body []byte) (Server, error) {
	f, err := readFields(body, "url", "headers", "name")
	if err != nil {
		return Server{}, err
	}
	s := Server{Name: strings.TrimSpace(f.text("name", false)), URL: strings.TrimSpace(f.text("url", true)), Headers: f.texts("headers")}
	if u, err := url.Parse(s.URL); s.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		f.fail("url", "want an address of http or https")
	}
	return s, f.err()
}

func (a *Agent) addServer(_ context.Context, body []byte) (any, error) {
	s, err := decodeServer(body)
	if err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = "mcp_" + newID(4)
	}
	if err := a.servers.add(s); err != nil {
		return nil, err
	}
	return map[string]string{"status": "added", "name": s.Name, "url": s.URL}, nil
}

func (l *servers) add(s Server) error {
	if s.Name == PeerServer {
		return Refuse(http.StatusConflict, "the name %s is that of the agent's own server of peers", PeerServer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.list {
		switch {
		case x.URL == s.URL:
			return Refuse(http.StatusConflict, "the url is that of the server %q, which is there already", x.Name)
		case x.Name == s.Name:
			return Refuse(http.StatusConflict, "a server named %q is there already", s.Name)
		}
	}
	l.list = append(l.list, s)
	return nil
}

func (a *Agent) listServers(context.Context, []byte) (any, error) {
	type shown struct {
		URL        string `json:"url"`
		HasHeaders bool   `json:"has_headers"`
	}
	out := map[string]shown{}
	for _, s := range a.serverList() {
		out[s.Name] = shown{s.URL, len(s.Headers) > 0}
	}
	return map[string]any{"mcp_servers": out}, nil
}

// serverList are the servers that were added, and the agent's own of peers.
func (a *Agent) serverList() []Server {
	var out []Server
	if a.servers != nil {
		a.servers.mu.Lock()
		out = slices.Clone(a.servers.list)
		a.servers.mu.Unlock()
	}
	if s, ok := a.peerServer(); ok {
		out = append(out, s)
	}
	return out
}
