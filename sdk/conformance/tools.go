package conformance

import (
	"context"

	"agentenv.internal/agentenv/sdk/wire"
)

// Tools are what the server at t.URL lists over MCP to whoever has no role, all pages of it.
func Tools(ctx context.Context, t Target) ([]wire.Tool, error) {
	t.fill()
	p := &probe{target: t}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	s, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end(ctx)
	listed, err := s.tools(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Tool, 0, len(listed))
	for _, l := range listed {
		out = append(out, wire.Tool{Name: l.Name, Description: l.Description, InputSchema: l.InputSchema})
	}
	return out, nil
}
