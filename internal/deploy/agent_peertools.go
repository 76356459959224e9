package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"agentenv.internal/agentenv/internal/agent/loop"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// Names of the tools by which the built-in agent asks others; agents written with sdk/agent have them under the same names.
const (
	toolPeers   = "peer_list"
	toolAskPeer = "peer_send_message"
)

func peerTools(schema func(props string, required ...string) json.RawMessage) []model.Tool {
	return []model.Tool{
		{Name: toolPeers, Description: "List the agents that you can ask: their names, and what they do.", Schema: schema("")},
		{
			Name: toolAskPeer, Description: "Send another agent a message and wait for its answer. It remembers what you said to it before in this conversation.",
			Schema: schema(`"name":{"type":"string","description":"As peer_list tells it."},"prompt":{"type":"string"}`, "name", "prompt"),
		},
	}
}

func (t *agentTools) listPeers() loop.Result {
	type peer struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
	}
	list := []peer{}
	for _, p := range t.peers {
		list = append(list, peer{p.Name, p.about()})
	}
	b, _ := json.Marshal(map[string]any{"peers": list}) // of texts
	return loop.Result{Parts: []model.Part{{Text: string(b)}}}
}

// askPeer asks another agent. What that agent fails at is told to this one; a fault of the machinery is one of this prompt too.
func (t *agentTools) askPeer(ctx context.Context, name, text string) (loop.Result, error) {
	i := slices.IndexFunc(t.peers, func(p *Agent) bool { return p.Name == name })
	if i < 0 {
		return said("There is no agent %s to ask; peer_list tells which there are.", diag.Repr(name)), nil
	}
	r, err := t.agent.askPeer(ctx, t.asking, t.peers[i], []wire.Part{wire.TextPart(text)}, t.conversation)
	switch {
	case err != nil && ctx.Err() != nil:
		return loop.Result{}, context.Cause(ctx)
	case step.IsInfra(err):
		return loop.Result{}, fmt.Errorf("ask agent %s: %w", diag.Repr(name), err)
	case err != nil:
		return said("%v", err), nil
	case r.ErrorType != "":
		return said("%s failed (%s): %s", name, r.ErrorCode, r.ErrorMessage), nil
	}
	out := r.Text
	if r.Structured != nil {
		out += "\n" + string(r.Structured)
	}
	return loop.Result{Parts: []model.Part{{Text: out}}}, nil
}
