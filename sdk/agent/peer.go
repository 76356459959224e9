package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/wire"
)

// Paths of an agent that has peers: where it is told of them, and where its own model finds the tools by which it asks them.
const (
	PeersPath     = "/ext/peer-agents"
	PeerToolsPath = PeersPath + "/mcp"
)

const maxPeerTasks = 1024 // that are remembered; the oldest that ended are forgotten first

// Peer is another agent that this one may ask.
type Peer struct {
	Name        string
	URL         string // base
	Description string // "" when its caller gave none
	Card        json.RawMessage
}

// peers are the agents that may be asked, and the tasks that were.
type peers struct {
	mu    sync.Mutex
	list  []Peer
	tasks []*peerTask
}

type peerTask struct {
	id, context, address, state string
}

// WithPeers lets callers name other agents. The agent's model asks them by the tools of the MCP server PeerServer, which this process serves to
// itself on the loopback; turns find it in Servers.
func WithPeers() Option { return func(a *Agent) { a.peers = &peers{} } }

func (a *Agent) peerExtension() (extension, bool, error) {
	if a.peers == nil {
		return extension{}, false, nil
	}
	return newExtension(wire.URNPeerAgents, "Names other agents that the agent may ask.", PeersPath,
		operation{name: "set", verb: http.MethodPost, path: PeersPath, request: `{"required":["peers"]}`, response: `{"required":["status","peers"]}`, serve: a.setPeers},
		operation{name: "list", verb: http.MethodGet, path: PeersPath, response: `{"required":["peers"]}`, serve: a.listPeers})
}

// peerServer is the agent's own MCP server; ok is false while its address isn't known.
func (a *Agent) peerServer() (s Server, ok bool) {
	port := a.port.Load()
	if a.peers == nil || port == 0 {
		return s, false
	}
	return Server{Name: PeerServer, URL: fmt.Sprintf("http://127.0.0.1:%d%s", port, PeerToolsPath)}, true
}

func decodePeers(body []byte) ([]Peer, error) {
	f, err := readFields(body, "peers")
	if err != nil {
		return nil, err
	}
	var out []Peer
	for i, raw := range f.list("peers", true) {
		p, err := decodePeer(raw)
		if err == nil && slices.ContainsFunc(out, func(x Peer) bool { return x.Name == p.Name }) {
			err = errors.New("its name is there twice")
		}
		if err != nil {
			f.fail(fmt.Sprintf("peers[%d]", i), "%v", err)
		}
		out = append(out, p)
	}
	return out, f.err()
}

func decodePeer(raw []byte) (Peer, error) {
	f, err := readFields(raw, "name", "url", "card", "description")
	if err != nil {
		return Peer{}, err
	}
	p := Peer{Name: f.text("name", true), URL: strings.TrimRight(f.text("url", true), "/")}
	if u, err := url.Parse(p.URL); p.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		f.fail("url", "want an address of http or https")
	}
	p.Description = member(f, "description", false, func(b []byte) (string, error) { return decodeText(b, 0, 1<<20) })
	if f.has("card") {
		if _, err := wire.ParseObject(f.values["card"]); err != nil {
			f.fail("card", "%v", err)
		}
		p.Card = f.values["card"]
	}
	return p, f.err()
}

func (a *Agent) setPeers(_ context.Context, body []byte) (any, error) {
	list, err := decodePeers(body)
	if err != nil {
		return nil, err
	}
	a.peers.mu.Lock()
	defer a.peers.mu.Unlock()
	a.peers.list = list
	return map[string]any{"status": "updated", "peers": len(list)}, nil
}

func (a *Agent) listPeers(context.Context, []byte) (any, error) {
	type shown struct {
		Name        string `json:"name"`
		URL         string `json:"url"`
		Description string `json:"description,omitempty"`
	}
	out := []shown{}
	for _, p := range a.peers.all() {
		out = append(out, shown{p.Name, p.URL, p.Description})
	}
	return map[string]any{"peers": out}, nil
}

func (p *peers) all() []Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}

func (p *peers) find(name string) (Peer, error) {
	var names []string
	for _, x := range p.all() {
		if x.Name == name {
			return x, nil
		}
		names = append(names, x.Name)
	}
	if len(names) == 0 {
		return Peer{}, fmt.Errorf("there is no peer %q: there are none at all", name)
	}
	slices.Sort(names)
	return Peer{}, fmt.Errorf("there is no peer %q: there are %s", name, strings.Join(names, ", "))
}

// address is where a peer takes calls: its card's path below its base, unless the base ends in it.
func (p *Peer) address() string {
	path := wire.A2APath
	if c, err := wire.ParseAgentCard(p.Card); err == nil && c.URL != "" {
		if u, err := url.Parse(c.URL); err == nil && u.Path != "" {
			path = "/" + strings.TrimLeft(u.Path, "/")
		}
	}
	if strings.HasSuffix(p.URL, path) {
		return p.URL
	}
	return p.URL + path
}

// keep remembers a task, and forgets one when there are too many.
func (p *peers) keep(t *peerTask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks = append(p.tasks, t); len(p.tasks) > maxPeerTasks {
		i := max(slices.IndexFunc(p.tasks, func(x *peerTask) bool { return wire.TaskEnded(x.state) }), 0)
		p.tasks = slices.Delete(p.tasks, i, i+1)
	}
}

func (p *peers) seen(t *peerTask, state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.state = state
}

func (p *peers) task(id string) (*peerTask, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		if t.id == id {
			return t, nil
		}
	}
	return nil, fmt.Errorf("there is no task %q: start one with peer_send_message or peer_start_task", id)
}
