package trigger

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/sdk/wire"
)

// A2A is the Executor that asks agents by A2A, at the addresses that they were registered with.
type A2A struct {
	Transport http.RoundTripper // nil: the host's network
}

// Send implements Executor. The reply is the text of the task's last message. An agent that isn't there is not tried again: the call that provoked the
// trigger may be waiting.
func (a A2A) Send(ctx context.Context, e Errand) (string, error) {
	rt := a.Transport
	if rt == nil {
		own := &http.Transport{}
		defer own.CloseIdleConnections()
		rt = own
	}
	c, err := a2a.New(e.URL, rt)
	if err != nil {
		return "", err
	}
	t, err := c.Ask(ctx, wire.Message{
		MessageID: rand.Text(), Role: wire.RoleUser, ContextID: e.Context, Parts: []wire.Part{wire.TextPart(e.Instruction)},
	}, a2a.Wait{Tries: 1})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("the agent's task did not end in time: %w", ctx.Err())
	case err != nil:
		return "", err
	case t.Status.State != wire.TaskCompleted:
		return "", fmt.Errorf("the agent's task ended as %s", t.Status.State)
	case t.Status.Message == nil:
		return "", nil
	}
	var texts []string
	for _, p := range t.Status.Message.Parts {
		if p.Kind == wire.KindText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n"), nil
}
