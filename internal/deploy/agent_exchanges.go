package deploy

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
)

// exchanges are what a prompt's agent and its model said. record is nil where the trajectory comes from elsewhere.
type exchanges struct {
	ctx    context.Context //nolint:containedctx // the prompt's
	log    *exchangeLog
	mu     sync.Mutex
	record func(trajectory.Event) error
	spent  func(model.Usage)
	usage  model.Usage
	fault  *model.Error // why the last thing that was asked was not answered; nil when it was
	n      int
	good   int          // that were answered
	lines  bytes.Buffer // what the log was given
}

// add takes an exchange: as events of the trajectory, and as a cost.
func (x *exchanges) add(e modelproxy.Exchange) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.Protocol == "" {
		return nil
	}
	x.n++
	x.fault = e.Fault()
	if e.Status == http.StatusOK && !e.Cut && x.fault == nil {
		x.good++
	}
	if e.Usage != nil {
		x.usage = x.usage.Add(*e.Usage)
		if x.spent != nil {
			x.spent(*e.Usage)
		}
	}
	line, err := x.log.add(e)
	if err != nil {
		return err
	}
	x.lines.Write(line)
	if x.record == nil {
		return nil
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

// give puts the prompt's part of the log into its reply.
func (x *exchanges) give(out *Reply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	out.Exchanges, out.ExchangesAt = bytes.Clone(x.lines.Bytes()), x.log.path
}

// unanswered is the machinery's error when the agent can't have done anything: its model was asked and gave no answer at all, for reasons that are the
// endpoint's, or the agent failed after one of these. An agent that had answers, and says that it is done, is believed.
func (x *exchanges) unanswered(out *Reply) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fault == nil || !model.Infra(x.fault) || out.ErrorType == "" && x.good > 0 {
		return nil
	}
	return step.Infra(&step.Error{Type: "ModelError", Err: fmt.Errorf("the agent's model could not be asked: %w", x.fault)})
}
