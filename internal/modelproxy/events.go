package modelproxy

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/trajectory"
)

// Events are what an exchange adds to a trajectory: what tools answered before it, and what the model answered. What users said is left to whoever
// asked the agent. An answer that can't be read has its text whole, without
// the secrets that lie across its pieces.
func Events(ctx context.Context, x Exchange, r *redact.Redactor) []trajectory.Event {
	var out []trajectory.Event
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, (&url.URL{Path: x.Path}).String(), bytes.NewReader(x.Request))
	if err == nil {
		if q, err := serve.Read(req); err == nil {
			for i := range q.Request.Messages {
				if m := &q.Request.Messages[i]; m.Role == model.ToolRole {
					out = append(out, trajectory.Event{At: x.At, Kind: trajectory.Returned, Call: m.CallID, Text: m.Text(), Error: m.Error})
				}
			}
		}
	}
	if x.Status != http.StatusOK {
		return out
	}
	e := trajectory.Event{At: x.At, Kind: trajectory.Answered, Model: x.Model, Tries: 1, Seconds: x.Seconds}
	if u := x.Usage; u != nil {
		e.Usage = &trajectory.Usage{Input: u.Input, Cached: u.Cached, Output: u.Output}
		if u.Priced {
			e.Usage.USD = &u.USD
		}
	}
	if m := decoded(&x); m != nil {
		e.Text, e.Reasoning = m.Text(), m.Reasoning
		for _, c := range m.Calls {
			e.Calls = append(e.Calls, trajectory.Call{ID: c.ID, Name: c.Name, Arguments: c.Args, Malformed: c.Malformed})
		}
	} else {
		e.Text = clean(x.Response, r)
	}
	return append(out, e)
}
