package deploy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// PeerTurn is what an agent asked another one during a prompt, and what came of it.
type PeerTurn struct {
	Agent   *Agent // that was asked
	Message string
	Context string
	Reply   Reply
	Events  []trajectory.Event
}

// peered is a Runner whose agent can ask others.
type peered interface {
	// setPeers replaces the agents that it may ask. ErrNotServed.
	setPeers(ctx context.Context, peers []*Agent) error
}

// SetPeers names the agents of the run that this one may ask, in place of those it had. They answer with modelName where they need a model and have been
// given none; "" is none. ErrNotServed when the agent can't be told.
func (a *Agent) SetPeers(ctx context.Context, peers []*Agent, modelName string) error {
	r, ok := a.Runner.(peered)
	if !ok {
		return fmt.Errorf("%s %w", wire.URNPeerAgents, ErrNotServed)
	}
	a.peers.set(peers, modelName)
	return r.setPeers(ctx, peers)
}

// peering is whom an agent may ask.
type peering struct {
	mu    sync.Mutex
	peers []*Agent
	model string
}

func (p *peering) set(peers []*Agent, modelName string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers, p.model = slices.Clone(peers), modelName
}

func (p *peering) all() ([]*Agent, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.peers), p.model
}

// peerTurns is one prompt of an agent as far as it asks others: that ends with the prompt, and is a part of its cost and of its record.
type peerTurns struct {
	turn  context.Context //nolint:containedctx // the prompt's
	spent func(model.Usage)

	mu   sync.Mutex
	done []PeerTurn
}

func (k *peerTurns) turns() []PeerTurn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.done)
}

// errNoTurn: an agent asks another one while nobody has asked it anything.
var errNoTurn = errors.New("there is no prompt under way, so no other agent can be asked")

// askPeer has another agent answer a message in a conversation of its own with this one; k is the prompt under way, nil for none.
func (a *Agent) askPeer(ctx context.Context, k *peerTurns, peer *Agent, parts []wire.Part, conversation string) (Reply, error) {
	if k == nil {
		return Reply{}, errNoTurn
	}
	leave, err := a.all.wait(a, peer)
	if err != nil {
		return Reply{}, err
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.turn, func() { cancel(context.Cause(k.turn)) })()
	record, err := live.Open(live.Options{Redact: a.all.o.Redact})
	if err != nil {
		return Reply{}, err
	}
	defer record.Close()
	_, name := a.peers.all()
	said := PeerTurn{Agent: peer, Context: a.Instance + "-" + conversation}
	for _, part := range parts {
		said.Message += part.Text
	}
	said.Reply, err = peer.Runner.Prompt(ctx, Prompt{
		Settings: Settings{Model: name}, Parts: parts, Context: said.Context, Task: rand.Text(), Record: record, Spent: k.spent,
	})
	said.Events = record.Events()
	k.mu.Lock()
	k.done = append(k.done, said)
	k.mu.Unlock()
	return said.Reply, err
}

// waits are which agents wait for which others.
type waits struct {
	mu sync.Mutex
	on map[*Agent][]*Agent
}

// wait notes that an agent waits for another one. Two that would wait for each other, by others too, are refused: neither would ever answer.
func (g *Agents) wait(from, to *Agent) (leave func(), err error) {
	w := &g.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reach(to, from, map[*Agent]bool{}) {
		return nil, fmt.Errorf("agent %s is waiting for your answer itself", diag.Repr(to.Name))
	}
	if w.on == nil {
		w.on = map[*Agent][]*Agent{}
	}
	w.on[from] = append(w.on[from], to)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.Index(w.on[from], to)
		if w.on[from] = slices.Delete(w.on[from], i, i+1); len(w.on[from]) == 0 {
			delete(w.on, from)
		}
	}, nil
}

func (w *waits) reach(from, to *Agent, seen map[*Agent]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	return slices.ContainsFunc(w.on[from], func(next *Agent) bool { return !seen[next] && w.reach(next, to, seen) })
}

// setPeers tells an agent that serves A2A of others. One in a sandbox finds each at a door of its own there; one elsewhere can be told of others elsewhere.
func (r *a2aRunner) setPeers(ctx context.Context, peers []*Agent) error {
	if _, ok := r.card.AgentOperation(wire.URNPeerAgents, "set"); !ok {
		return fmt.Errorf("%s %w", wire.URNPeerAgents, ErrNotServed)
	}
	list := []map[string]any{}
	for _, p := range peers {
		at, err := r.peerAddress(ctx, p)
		if err != nil {
			return err
		}
		x := map[string]any{"name": p.Name, "url": at}
		if about := p.about(); about != "" {
			x["description"] = about
		}
		list = append(list, x)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, peerTime, fmt.Errorf("it did not take its peers within %s", peerTime))
	defer cancel()
	return r.fault(ctx, r.client.Operation(ctx, &r.card, wire.URNPeerAgents, "set", map[string]any{"peers": list}, nil, false))
}

// peerTime is how long an agent has to take its peers.
const peerTime = 30 * time.Second

// about is what an agent says of itself.
func (a *Agent) about() string {
	if a.req.Settings.Description != "" {
		return a.req.Settings.Description
	}
	card, err := wire.ParseAgentCard(a.Card)
	if err != nil {
		return ""
	}
	return card.Description
}

// peerAddress is where an agent finds a peer.
func (r *a2aRunner) peerAddress(ctx context.Context, p *Agent) (string, error) {
	if r.box == nil {
		if p.req.URL == "" {
			return "", fmt.Errorf("an agent that runs elsewhere can't reach agent %s, which runs here", diag.Repr(p.Name))
		}
		return p.URL, nil
	}
	r.mu.Lock()
	at, ok := r.peerDoors[p]
	r.mu.Unlock()
	if ok {
		return at, nil
	}
	h, end, err := r.agent.face(p, r.asked.peersOf)
	if err != nil {
		return "", err
	}
	address, err := r.listen(ctx, envPort, h)
	if err != nil {
		return "", errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = append(r.ending, func() { _ = end(context.WithoutCancel(ctx)) })
	if r.peerDoors == nil {
		r.peerDoors = map[*Agent]string{}
	}
	r.peerDoors[p] = "http://" + address
	return r.peerDoors[p], nil
}

// face is a peer as this agent sees it; under is the prompt under way.
func (a *Agent) face(peer *Agent, under func() *peerTurns) (h http.Handler, end func(context.Context) error, err error) {
	return newFace(peer, func(ctx context.Context, t *agent.Turn) (Reply, error) {
		return a.askPeer(ctx, under(), peer, t.Message.Parts, t.ContextID)
	})
}
