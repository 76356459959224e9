package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step"
)

// Agents is what the executors need of deployed agents.
type Agents interface {
	Agent(run, name string) (*deploy.Agent, error)
	Models() *source.Models
}

// PeeringsPath is where peer_agents notes who was told of whom.
const PeeringsPath = "metadata/agent_peerings"

// PeerAgents tells agents of others that they may ask.
type PeerAgents struct{ agents Agents }

// NewPeerAgents makes the executor.
func NewPeerAgents(a Agents) *PeerAgents { return &PeerAgents{a} }

// peering is an element of PeeringsPath.
type peering struct {
	Source string   `json:"source_agent_name"`
	Peers  []string `json:"peer_agent_names"`
}

// Run finds every agent first, then tells all at once; who can't be told fails the step.
func (e *PeerAgents) Run(ctx context.Context, c *step.Call) error {
	name, err := e.agents.Models().Name(ctx, source.Agent, c.Models, "")
	if err != nil && !errors.Is(err, source.ErrNone) {
		return &step.Error{Type: "ModelError", Err: err}
	}
	var all []peering
	var from []*deploy.Agent
	var to [][]*deploy.Agent
	for _, p := range c.Doc.Get("peerings").Items() {
		x := peering{Source: p.Get("source_agent_name").Text(), Peers: []string{}}
		if slices.ContainsFunc(all, func(o peering) bool { return o.Source == x.Source }) {
			return step.Errorf("ValueError", "agent %s is there twice; name all of its peers at once", diag.Repr(x.Source))
		}
		a, err := e.agents.Agent(c.Run, x.Source)
		if err != nil {
			return &step.Error{Type: "NotFoundError", Err: err}
		}
		var peers []*deploy.Agent
		for _, n := range p.Get("peer_agent_names").Items() {
			peer, err := e.agents.Agent(c.Run, n.Text())
			if err != nil {
				return &step.Error{Type: "NotFoundError", Err: err}
			}
			peers, x.Peers = append(peers, peer), append(x.Peers, n.Text())
		}
		all, from, to = append(all, x), append(from, a), append(to, peers)
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { errs[i] = told(all[i], from[i].SetPeers(ctx, to[i], name)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	for _, x := range all {
		c.Log.Info("peers named", "agent", x.Source, "peers", strings.Join(x.Peers, ", "))
		if err := c.Out.Append(PeeringsPath, x); err != nil {
			return err
		}
	}
	return nil
}

func told(p peering, err error) error {
	switch {
	case err == nil:
		return nil
	case step.IsInfra(err):
		return err
	case errors.Is(err, deploy.ErrNotServed):
		return step.Errorf("NotServedError", "agent %s can't be told of others: %w", diag.Repr(p.Source), err)
	default:
		return step.Errorf("PeerError", "agent %s: %w", diag.Repr(p.Source), err)
	}
}
