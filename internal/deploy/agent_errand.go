package deploy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gateway/trigger"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/wire"
)

// Errands say how an agent carries out what triggers of environments ask of it.
type Errands struct {
	Model string            // "" leaves it to the agent
	Spent func(model.Usage) // is told of costs as they arise, until the run ends; it may be nil
}

// errandScheme begins the addresses by which environments of a run know its agents. They are asked in this process, whatever they are made of.
const errandScheme = "agent:"

// TakesErrands has the agent carry out instructions that triggers of its run's environments send to the address that it answers.
func (a *Agent) TakesErrands(o Errands) (address string) {
	a.errands.Store(&o)
	return errandScheme + url.PathEscape(a.Name)
}

// errands carries out what triggers of a run's environments ask: an agent of the run by its name, others at their addresses.
type errands struct {
	envs *Envs
	env  *Env // whose triggers they are
}

// Send implements trigger.Executor.
func (x errands) Send(ctx context.Context, e trigger.Errand) (string, error) {
	name, ok := strings.CutPrefix(e.URL, errandScheme)
	if !ok {
		return trigger.A2A{}.Send(ctx, e)
	}
	name, err := url.PathUnescape(name)
	all := x.envs.agents.Load()
	if err != nil || all == nil {
		return "", fmt.Errorf("agent %s %w", diag.Repr(name), ErrNoAgent)
	}
	a, err := all.Agent(x.env.Run, name)
	if err != nil {
		return "", err
	}
	o := a.errands.Load()
	if o == nil {
		return "", fmt.Errorf("agent %s takes no errands", diag.Repr(name))
	}
	r, err := x.ask(ctx, a, o, e)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("agent %s was not done in time: %w", diag.Repr(name), context.Cause(ctx))
	case err != nil:
		return "", fmt.Errorf("agent %s: %w", diag.Repr(name), err)
	case r.ErrorType != "":
		return "", errors.New("agent " + diag.Repr(name) + " failed: " + strings.Trim(r.ErrorCode+": "+r.ErrorMessage, ": "))
	}
	return r.Text, nil
}

// ask has an agent carry out an errand. What it did is a piece of the environment's work in the run's record, however it ended.
func (x errands) ask(ctx context.Context, a *Agent, o *Errands, e trigger.Errand) (Reply, error) {
	record, err := live.Open(live.Options{Redact: a.all.o.Redact})
	if err != nil {
		return Reply{}, err
	}
	defer record.Close()
	p := Prompt{
		Settings: Settings{Model: o.Model}, Parts: []wire.Part{wire.TextPart(e.Instruction)}, Context: a.Instance + "-" + e.Context, Task: rand.Text(),
		Spent: o.Spent, Record: record,
	}
	if p.Spent == nil {
		p.Spent = func(model.Usage) {}
	}
	r, err := a.Runner.Prompt(ctx, p)
	if x.envs.maker.options.Records == nil {
		return r, err
	}
	b, kerr := json.Marshal(trajectory.Fold(trajectory.AgentInfo{Name: path.Base(a.ID), Version: cmp.Or(a.Release(), "unknown"), ModelName: r.Model}, p.Context, record.Events()))
	if kerr == nil {
		_, kerr = x.envs.keep(context.WithoutCancel(ctx), x.env, PieceErrand, bytes.NewReader(b))
	}
	if kerr != nil {
		x.envs.log.Warn("what an agent did for a trigger can't be kept", "agent", a.Name, "error", kerr)
	}
	return r, err
}

var _ trigger.Executor = errands{}
