package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// cardTime is how long an agent that runs elsewhere has to show its card.
const cardTime = 5 * time.Second

// remoteMaker connects to an agent that runs elsewhere.
type remoteMaker struct{}

func (remoteMaker) Check(_ context.Context, _ []string, _ string, r AgentRequest) error {
	_, err := a2a.New(r.URL, nil)
	return err
}

func (remoteMaker) Start(ctx context.Context, a *Agent, r AgentRequest) (Runner, error) {
	c, err := a2a.New(r.URL, nil)
	if err != nil {
		return nil, err
	}
	run := &a2aRunner{agent: a, client: c}
	ctx, cancel := context.WithTimeoutCause(ctx, cardTime, fmt.Errorf("it did not show its card within %s", cardTime))
	defer cancel()
	run.card, err = c.Card(ctx)
	if errors.Is(err, a2a.ErrMalformed) {
		return nil, err
	}
	if err != nil {
		// Somebody may be there who has no card: what it can't be told shows when it is told.
		run.card = wire.AgentCard{Name: a.Name, Description: "an agent elsewhere", URL: wire.A2APath, ProtocolVersion: wire.A2AVersion}
		run.card.Raw, _ = json.Marshal(run.card) // of texts
	}
	a.URL, a.Card = c.Base(), run.card.Raw
	return run, nil
}

// storedMaker finds how a stored agent is started.
func (g *Agents) storedMaker(ctx context.Context, r AgentRequest) (Maker, error) {
	stored, err := envstore.ReadAgent(ctx, g.o.Store, r.ID, r.Version)
	if errors.Is(err, store.ErrNotFound) && r.Version == 0 {
		fix := "agent-env agent list shows those that there are"
		if near := agent.NearBuiltin(r.ID); near != "" {
			fix = "did you mean " + near + "?"
		}
		return nil, fmt.Errorf("%s: %w; %s (%w)", diag.Repr(r.ID), ErrUnknownAgent, fix, err)
	}
	if err != nil {
		return nil, err
	}
	if r.Install != nil {
		return installMaker{serverMaker{g.envs.maker, stored}}, nil
	}
	return serverMaker{g.envs.maker, stored}, nil
}

// serverMaker starts a stored agent: a box, a program that serves A2A in it, and doors to its environments and its model.
type serverMaker struct {
	maker  *maker
	stored envstore.Agent
}

// request is the agent as something to be made: agents are made as servers of environments are.
func (m serverMaker) request(r AgentRequest) EnvRequest {
	q := EnvRequest{
		Run: r.Run, Step: r.Step, Attempt: r.Attempt, Type: r.Type, Lease: r.Spec.Lease, CPU: r.Spec.CPU, MemoryMB: r.Spec.MemoryMB, DiskMB: r.Spec.DiskMB,
		Labels: r.Spec.Labels,
	}
	if least := int64(m.stored.DiskGB * 1024); q.DiskMB > 0 && q.DiskMB < least {
		q.DiskMB = least
	}
	return q
}

func (m serverMaker) Check(ctx context.Context, chain []string, isolation string, r AgentRequest) error {
	_, err := m.maker.choose(ctx, chain, isolation, m.request(r), m.stored.Part)
	return err
}

// Start makes the box, starts the program and waits for its card.
func (m serverMaker) Start(ctx context.Context, a *Agent, r AgentRequest) (Runner, error) {
	g, q, p := a.all, m.request(r), m.stored.Part
	policy := g.boxes.policy(r.Run)
	w, err := m.maker.choose(ctx, g.boxes.Chain(policy.Chain, r.Type), policy.Isolation, q, p)
	if err != nil {
		return nil, err
	}
	if w.engine != nil {
		if w.spec.Image, err = m.maker.image(ctx, w.engine, p); err != nil {
			return nil, err
		}
	}
	made, err := m.maker.made(ctx, q, p, &w)
	defer made.release()
	if err != nil {
		return nil, err
	}
	w.spec.Network, w.spec.Egress = r.Spec.Network, r.Spec.Egress
	info, err := g.boxes.Create(ctx, Request{Run: r.Run, Step: r.Step, Attempt: r.Attempt, Name: a.boxName(), Provider: w.provider, Spec: w.spec})
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "SandboxError", Err: err})
	}
	a.open.Lock()
	a.info = &info
	a.open.Unlock()
	a.Version = m.stored.Version
	box, err := a.Box(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.maker.place(ctx, p, &w, made, box); err != nil {
		return nil, step.Infra(fmt.Errorf("put its folder into the sandbox: %w", err))
	}
	c, err := commandOf(p, w.process, info.Entry)
	if err != nil {
		return nil, err
	}
	port := portOfAgent(p, w.process)
	run := &a2aRunner{agent: a, box: box, model: m.stored.Model}
	if err := run.serveModel(ctx); err != nil {
		return nil, errors.Join(err, run.Close())
	}
	c.Env = append(c.Env, m.vars(r, port, run.modelAt)...)
	run.server = newServer(a.Name, box, c)
	run.server.log = g.boxes.output(r.Run, a.boxName(), m.maker.options.Redact)
	if err := run.server.start(ctx); err != nil {
		return nil, errors.Join(err, run.Close())
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	run.transport = &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return box.Dial(ctx, "tcp", address) },
		DisableKeepAlives: false, DisableCompression: true,
	}
	if run.client, err = a2a.New("http://"+address, run.transport); err == nil {
		err = run.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, run.Close())
	}
	a.URL, a.Card = run.client.Base(), run.card.Raw
	return run, nil
}

// portOfAgent is where an agent listens: an environment's usual port is where it finds its own environment.
func portOfAgent(p envstore.Part, process bool) int {
	if process && p.Source.Process.Port != env.DefaultPort {
		return p.Source.Process.Port
	}
	return wire.DefaultA2APort
}

// dummyKey is what agents in sandboxes are given for a key: it opens nothing.
const dummyKey = "agent-env-no-key-is-needed"

// vars are the environment of an agent's program, which serves at port and finds its model at modelAt.
func (m serverMaker) vars(r AgentRequest, port int, modelAt string) []string {
	out := []string{"A2A_HOST=127.0.0.1", "A2A_PORT=" + strconv.Itoa(port)}
	if !m.stored.Bare {
		at := "http://" + modelAt
		out = append(out,
			"LITELLM_BASE_URL="+at, "LITELLM_API_KEY="+dummyKey, "OPENAI_BASE_URL="+at+"/v1", "OPENAI_API_KEY="+dummyKey,
			"ANTHROPIC_BASE_URL="+at, "ANTHROPIC_API_KEY="+dummyKey, "ANTHROPIC_AUTH_TOKEN="+dummyKey,
			"GOOGLE_GEMINI_BASE_URL="+at, "GEMINI_API_KEY="+dummyKey,
		)
	}
	for _, vars := range []map[string]string{m.stored.Vars, r.Vars} {
		for _, k := range slices.Sorted(maps.Keys(vars)) {
			out = append(out, k+"="+vars[k])
		}
	}
	return out
}

// await waits for the card of a program that was just started, or for its end.
func (r *a2aRunner) await(ctx context.Context) error {
	w := r.agent.all.o.Waits
	wait, cancel := context.WithTimeoutCause(ctx, w.Card, fmt.Errorf("it did not answer its card within %s", w.Card))
	defer cancel()
	var since time.Time // it answers what is no card
	var last error
	for pause := 5 * time.Millisecond; ; pause = min(pause*3/2, 200*time.Millisecond) {
		card, err := r.client.Card(wait)
		switch {
		case err == nil:
			r.card = card
			return nil
		case wait.Err() != nil:
		case !errors.Is(err, a2a.ErrMalformed):
			last, since = err, time.Time{}
		case since.IsZero():
			last, since = err, time.Now()
		case time.Since(since) > w.Malformed:
			return r.server.trouble(err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-r.server.dead():
			t.Stop()
			return r.server.trouble(errors.New("it ended"))
		case <-wait.Done():
			t.Stop()
			if ctx.Err() != nil {
				why := errors.New("its card is not there yet")
				if last != nil {
					why = fmt.Errorf("%w (%w)", why, last)
				}
				return &step.Halted{Err: context.Cause(ctx), State: r.server.trouble(why).Error()}
			}
			err := context.Cause(wait)
			if last != nil && !errors.Is(last, a2a.ErrUnreachable) {
				err = fmt.Errorf("%w: %w", err, last)
			}
			return r.server.trouble(err)
		}
	}
}

var (
	_ Maker = remoteMaker{}
	_ Maker = serverMaker{}
)
