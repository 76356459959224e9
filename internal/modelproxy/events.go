package modelproxy

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
	"agentenv.internal/agentenv/internal/trajectory"
)

// Events are what an exchange adds to a trajectory: what tools answered before it, and what the model answered. What users said is left to whoever
// asked the agent. An answer that can't be read has its text whole.
func Events(ctx context.Context, x Exchange) []trajectory.Event {
	var out []trajectory.Event
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, (&url.URL{Path: x.Path}).String(), bytes.NewReader(x.Request))
	if err == nil {
		if q, err := serve.Read(r); err == nil {
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
	if res := decoded(x); res != nil {
		e.Text, e.Reasoning = res.Message.Text(), res.Message.Reasoning
		for _, c := range res.Message.Calls {
			e.Calls = append(e.Calls, trajectory.Call{ID: c.ID, Name: c.Name, Arguments: c.Args, Malformed: c.Malformed})
		}
	} else {
		e.Text = x.Response
	}
	return append(out, e)
}

func decoded(x Exchange) *model.Response {
	dialect := model.OpenAI
	switch x.Protocol {
	case serve.Chat:
	case serve.Messages:
		dialect = model.Anthropic
	default:
		return nil
	}
	media := "application/json"
	if strings.HasPrefix(x.Response, "data:") || strings.HasPrefix(x.Response, "event:") {
		media = "text/event-stream"
	}
	res, err := model.Decode(dialect, media, []byte(x.Response))
	if err != nil {
		return nil
	}
	return res
}
