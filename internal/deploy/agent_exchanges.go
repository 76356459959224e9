package deploy

import (
	"context"
	"sync"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/trajectory"
)

// exchanges are what a prompt's agent and its model said.
type exchanges struct {
	ctx    context.Context //nolint:containedctx // the prompt's
	log    *exchangeLog
	mu     sync.Mutex
	record func(trajectory.Event) error
	spent  func(model.Usage)
	usage  model.Usage
	last   modelproxy.Exchange
	n      int
}

// add takes an exchange: as events of the trajectory, and as a cost.
func (x *exchanges) add(e modelproxy.Exchange) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.Protocol == "" {
		return nil
	}
	x.n++
	x.last = e
	if e.Usage != nil {
		x.usage = x.usage.Add(*e.Usage)
		if x.spent != nil {
			x.spent(*e.Usage)
		}
	}
	if err := x.log.add(e); err != nil {
		return err
	}
	for _, ev := range modelproxy.Events(x.ctx, e, x.log.redact) {
		if err := x.record(ev); err != nil {
			return err
		}
	}
	return nil
}

// take books what was used beside the exchanges of the agent's own model.
func (x *exchanges) take(u model.Usage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.usage = x.usage.Add(u)
	if x.spent != nil {
		x.spent(u)
	}
}

func (x *exchanges) total() model.Usage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.usage
}

func (x *exchanges) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.n
}

// fault is why the last thing that was asked of the agent's model was not answered; nil when it was.
func (x *exchanges) fault() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.last.Fault(); e != nil {
		return e
	}
	return nil
}
