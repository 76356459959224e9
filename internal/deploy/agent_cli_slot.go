package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"agentenv.internal/agentenv/internal/agent/cli"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/sdk/agent"
)

// slot is what one turn at a time of an installed command goes through: a door to its model, and one to the agents that it may ask. What passes there belongs
// to that turn.
type slot struct {
	model string // the door's URL
	proxy atomic.Pointer[modelproxy.Proxy]

	tools  string                       // the URL of the tools of peers; "" for none
	server atomic.Pointer[http.Handler] // behind it
	asking atomic.Pointer[peerTurns]
	peered int // as the runner counts
}

// ServeHTTP is the model's door: it has a model behind it during turns alone.
func (w *slot) ServeHTTP(out http.ResponseWriter, q *http.Request) {
	if p := w.proxy.Load(); p != nil {
		p.ServeHTTP(out, q)
		return
	}
	http.Error(out, "there is no turn", http.StatusServiceUnavailable)
}

func (w *slot) serveTools(out http.ResponseWriter, q *http.Request) {
	h := w.server.Load()
	if h == nil {
		http.NotFound(out, q)
		return
	}
	q = q.Clone(q.Context())
	q.RemoteAddr = "127.0.0.1:0" // the door is on the loopback of the box, whatever its other end is here
	(*h).ServeHTTP(out, q)
}

// servers are those that the command gets for its turn.
func (w *slot) servers() []cli.Server {
	if w.tools == "" || w.server.Load() == nil {
		return nil
	}
	return []cli.Server{{Name: agent.PeerServer, URL: w.tools}}
}

// slot is one that no other turn goes through, as the agent's peers are now. leave gives it back.
func (r *cliRunner) slot(ctx context.Context) (*slot, error) {
	r.mu.Lock()
	var w *slot
	if n := len(r.free); n > 0 {
		w, r.free = r.free[n-1], r.free[:n-1]
	}
	peers, peered := slices.Clone(r.peers), r.peered
	r.mu.Unlock()
	if w == nil {
		w = &slot{}
		at, err := r.listen(ctx, modelPort, w)
		if err != nil {
			return nil, err
		}
		w.model = "http://" + at
	}
	if w.peered == peered {
		return w, nil
	}
	if err := r.meet(ctx, w, peers); err != nil {
		r.leave(w)
		return nil, err
	}
	w.peered = peered
	return w, nil
}

func (r *cliRunner) leave(w *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, w)
}

// meet puts the tools by which the command asks peers behind the slot's door.
func (r *cliRunner) meet(ctx context.Context, w *slot, peers []*Agent) error {
	if len(peers) == 0 {
		w.server.Store(nil)
		return nil
	}
	h, end, err := r.agent.peerServer(ctx, peers, w.asking.Load)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.ending = append(r.ending, end)
	r.mu.Unlock()
	if w.tools == "" {
		at, err := r.listen(ctx, envPort, http.HandlerFunc(w.serveTools))
		if err != nil {
			return err
		}
		w.tools = "http://" + at + agent.PeerToolsPath
	}
	w.server.Store(&h)
	return nil
}

// setPeers holds from the next turn on.
func (r *cliRunner) setPeers(_ context.Context, peers []*Agent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers = slices.Clone(peers)
	r.peered++
	return nil
}

// open puts the run's model, and the agents that may be asked, behind the slot's doors until what it answers is called.
func (r *cliRunner) open(ctx context.Context, w *slot, s Settings, x *exchanges, asked *peerTurns) (stop func(), err error) {
	p, err := r.agent.proxyFor(ctx, s, x, true)
	if err != nil {
		return nil, &step.Error{Type: "ModelError", Err: err}
	}
	w.proxy.Store(p)
	w.asking.Store(asked)
	return func() {
		w.proxy.Store(nil)
		w.asking.Store(nil)
		p.Close()
	}, nil
}

// used is what a turn cost: by the record of the model's door, or, where its answers told nothing, by the command's own count.
func used(x *exchanges, own *trajectory.Usage) model.Usage {
	sum := x.total()
	if sum == (model.Usage{}) && own != nil {
		sum = model.Usage{Input: own.Input, Cached: own.Cached, Output: own.Output}
	}
	return sum
}

// peerServer serves the tools by which an agent's model asks peers, the same that agents written with sdk/agent have; under is the prompt under way.
func (a *Agent) peerServer(ctx context.Context, peers []*Agent, under func() *peerTurns) (h http.Handler, end func(), err error) {
	faces := hosts{}
	var ends []func(context.Context) error
	end = func() {
		for _, e := range ends {
			_ = e(context.WithoutCancel(ctx))
		}
	}
	list := []map[string]any{}
	for i, p := range peers {
		face, stop, err := a.face(p, under)
		if err != nil {
			end()
			return nil, nil, err
		}
		ends = append(ends, stop)
		host := fmt.Sprintf("peer-%d", i+1)
		faces[host] = face
		list = append(list, map[string]any{"name": p.Name, "url": "http://" + host, "description": p.about()})
	}
	f := agent.New(a.Name, func(context.Context, *agent.Turn) (agent.Result, error) {
		return agent.Result{}, agent.Fail("agent.tools", "this is the server of an agent's tools")
	}, agent.WithPeers(), agent.WithDescription(a.Name), agent.WithLookup(noStaging), agent.WithHTTPClient(&http.Client{Transport: faces}))
	own, err := f.Handler()
	if err != nil {
		end()
		return nil, nil, err
	}
	ends = append(ends, f.Close)
	body, err := json.Marshal(map[string]any{"peers": list})
	if err == nil {
		_, err = exchange(ctx, inside{own}, http.MethodPost, "http://agent"+agent.PeersPath, body)
	}
	if err != nil {
		end()
		return nil, nil, errors.Join(errors.New("name its peers"), err)
	}
	mux := http.NewServeMux()
	mux.Handle(agent.PeerToolsPath, own) // and nothing by which it could name others
	return mux, end, nil
}

// hosts is the way to handlers of this process by the names of hosts.
type hosts map[string]http.Handler

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	to, ok := h[r.URL.Host]
	if !ok {
		return nil, fmt.Errorf("there is no agent %s", r.URL.Host)
	}
	if r.Body != nil {
		defer r.Body.Close()
	}
	return inside{to}.RoundTrip(r)
}

var _ peered = (*cliRunner)(nil)
