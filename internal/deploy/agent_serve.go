package deploy

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// Serve is the agent as callers outside of the run see it, whatever it is made of: it serves A2A, its card and its answers, and nothing by which it could be
// changed. s is what holds for every prompt. end waits for what is being answered, which it cancels.
func (a *Agent) Serve(s Settings) (h http.Handler, end func(context.Context) error, err error) {
	return newFace(a, func(ctx context.Context, t *agent.Turn) (Reply, error) {
		return a.Ask(ctx, Prompt{Settings: s, Parts: t.Message.Parts, Context: t.ContextID})
	})
}

// Ask makes one turn that no run records. Zero members of p are chosen.
func (a *Agent) Ask(ctx context.Context, p Prompt) (Reply, error) {
	record, err := live.Open(live.Options{Redact: a.all.o.Redact})
	if err != nil {
		return Reply{}, err
	}
	defer record.Close()
	p.Record, p.Context, p.Task = record, cmp.Or(p.Context, rand.Text()), cmp.Or(p.Task, rand.Text())
	if p.Spent == nil {
		p.Spent = func(model.Usage) {}
	}
	return a.Runner.Prompt(ctx, p)
}

// newFace serves A2A as an agent whose turns ask makes.
func newFace(a *Agent, ask func(ctx context.Context, t *agent.Turn) (Reply, error)) (h http.Handler, end func(context.Context) error, err error) {
	f := agent.New(a.Name, func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		r, err := ask(ctx, t)
		switch {
		case err != nil && ctx.Err() == nil && step.IsInfra(err):
			return agent.Result{}, agent.Unable("agent.unavailable", "agent %s can't be asked now", a.Name)
		case err != nil:
			return agent.Result{}, agent.Fail("agent.failed", "%v", err)
		case r.ErrorType == wire.InfraError:
			return agent.Result{}, agent.Unable(r.ErrorCode, "%s", r.ErrorMessage)
		case r.ErrorType != "":
			return agent.Result{}, agent.Fail(r.ErrorCode, "%s", r.ErrorMessage)
		}
		out := agent.Text(r.Text)
		if r.Structured != nil {
			out.Structured = r.Structured
		}
		n := int64(r.ToolCalls)
		out.Usage = &wire.AgentUsage{ToolCallCount: &n, InputTokens: &r.Usage.Input, OutputTokens: &r.Usage.Output}
		if r.Usage.Priced {
			out.Usage.CostUSD = &r.Usage.USD
		}
		return out, nil
	}, agent.WithDescription(cmp.Or(a.about(), a.Name)), agent.WithLookup(noStaging))
	own, err := f.Handler()
	if err != nil {
		return nil, nil, err
	}
	card := f.Card()
	card.Capabilities.Extensions = nil // none is served
	text, err := json.Marshal(card)
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	for _, path := range []string{wire.AgentCardPath, wire.AgentCardPathNew} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text) // who asked may be gone
		})
	}
	mux.Handle(wire.A2APath, own)
	mux.Handle(wire.A2AHealthPath, own)
	return mux, f.Close, nil
}

// noStaging is the environment of agents of this process: nothing goes through their staging.
func noStaging(name string) (string, bool) { return "0", name == agent.StagingMaxBytesVariable }
