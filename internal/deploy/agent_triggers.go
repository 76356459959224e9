package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// triggerTime is how long an agent may take over one call about its triggers.
const triggerTime = 30 * time.Second

// Decision asks the triggers of an agent that plays the user what is said next.
type Decision struct {
	Turn    int    // from 1
	Message string // that was answered to the user
	Context string // of the conversation
	// Env are the states of environments' triggers, by environment and trigger.
	Env map[string]map[string]string
}

// Decided is what they say. Nothing has fired where Fired is empty.
type Decided struct {
	Parts []wire.Part `json:"parts"`
	Done  bool        `json:"done"`
	Fired []string    `json:"fired"`
}

// RegisterTriggers gives an agent that plays the user rules of what it says, a JSON array, and answers their ids. Agents that serve A2A hold them
// themselves, by the extension, or ErrNotServed; for every other kind this process does.
func (a *Agent) RegisterTriggers(ctx context.Context, triggers json.RawMessage) ([]string, error) {
	var out struct {
		Added []string `json:"added"`
	}
	return out.Added, a.triggerCall(ctx, "register", map[string]any{"triggers": triggers}, &out)
}

// Decide asks them what the user says next.
func (a *Agent) Decide(ctx context.Context, d Decision) (Decided, error) {
	env := d.Env
	if env == nil {
		env = map[string]map[string]string{}
	}
	var out Decided
	return out, a.triggerCall(ctx, "decide", map[string]any{
		"turn": d.Turn, "solver_message": d.Message, "context_id": d.Context, "env_triggers": env,
	}, &out)
}

// TriggerLog is what has fired, as the agent tells it: a JSON array.
func (a *Agent) TriggerLog(ctx context.Context) (json.RawMessage, error) {
	var out struct {
		Log json.RawMessage `json:"firing_log"`
	}
	return out.Log, a.triggerCall(ctx, "state", nil, &out)
}

func (a *Agent) triggerCall(ctx context.Context, operation string, in map[string]any, out any) error {
	c, card, err := a.triggers()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, triggerTime, fmt.Errorf("it took more than %s", triggerTime))
	defer cancel()
	err = c.Operation(ctx, card, wire.URNTriggers, operation, in, out, false)
	switch {
	case errors.Is(err, a2a.ErrNotServed):
		return fmt.Errorf("%s %w", wire.URNTriggers, ErrNotServed)
	case errors.Is(err, a2a.ErrUnreachable):
		return step.Infra(&step.Error{Type: "AgentUnreachable", Err: err})
	}
	return err
}

// triggers is who holds the agent's triggers.
func (a *Agent) triggers() (*a2a.Client, *wire.AgentCard, error) {
	if r, ok := a.Runner.(*a2aRunner); ok {
		return r.client, &r.card, nil
	}
	a.open.Lock()
	defer a.open.Unlock()
	if a.rules == nil {
		own := agent.New("triggers", func(context.Context, *agent.Turn) (agent.Result, error) {
			return agent.Result{}, agent.Fail("triggers", "triggers are asked nothing")
		}, agent.WithTriggers(), agent.WithLookup(noStaging))
		h, err := own.Handler()
		if err != nil {
			return nil, nil, err
		}
		c, err := a2a.New("http://triggers", inside{h})
		if err != nil {
			return nil, nil, err
		}
		a.rules = &rules{c, own.Card()}
	}
	return a.rules.client, &a.rules.card, nil
}

// rules are the triggers of an agent that has none of its own. Nothing of them runs while nobody asks.
type rules struct {
	client *a2a.Client
	card   wire.AgentCard
}

// inside is the way to a handler of this process.
type inside struct{ h http.Handler }

func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &written{head: http.Header{}, status: http.StatusOK}
	i.h.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Header: w.head, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// written is an answer as a handler writes it.
type written struct {
	head   http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header         { return w.head }
func (w *written) WriteHeader(status int)      { w.status = status }
func (w *written) Write(p []byte) (int, error) { return w.body.Write(p) }
