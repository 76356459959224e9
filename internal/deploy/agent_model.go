package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
)

// exchanges is the path of the record of what an agent and its models said to each other; "" where nobody keeps it.
func (g *Agents) exchanges(a *Agent) string {
	if g.o.Records == "" {
		return ""
	}
	return filepath.Join(RecordsOf(g.o.Records, a.Run), a.Instance+".model.jsonl")
}

// serveModel is the model's door: it has a model behind it during turns alone.
func (r *cliRunner) serveModel(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	p := r.proxy
	r.mu.Unlock()
	if p == nil {
		http.Error(w, "there is no turn", http.StatusServiceUnavailable)
		return
	}
	p.ServeHTTP(w, q)
}

// used is what a turn cost: by the record of the model's door, or, where its answers told nothing, by the command's own count.
func (r *cliRunner) used(own *trajectory.Usage) model.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum model.Usage
	for i, u := range r.spent {
		if i == 0 {
			sum = u
		} else {
			sum = sum.Add(u)
		}
	}
	if r.spent == nil && own != nil {
		sum = model.Usage{Input: own.Input, Cached: own.Cached, Output: own.Output}
	}
	return sum
}

// open puts the run's model behind the model's door until what it answers is called.
func (r *cliRunner) open(ctx context.Context, name string) (stop func(), err error) {
	models := r.agent.all.o.Models
	o := modelproxy.Options{Name: name, Variant: max(r.agent.Trial, 1) - 1, Record: r.record}
	if _, scripted := source.Script(name); scripted {
		m, err := models.Model(ctx, name, "")
		if err != nil {
			return nil, &step.Error{Type: "ModelError", Err: err}
		}
		o.Local = func(n string) (model.Model, bool) { return m, n == name }
	} else {
		e, err := models.Endpoint(ctx, r.agent.req.BaseURL)
		if err != nil {
			return nil, &step.Error{Type: "ModelError", Err: err}
		}
		if e.BaseURL == "" {
			return nil, &step.Error{Type: "ModelError", Err: fmt.Errorf("the model %s needs an endpoint: %w; set model.base_url and model.api_key, or name a scripted model", name, source.ErrNone)}
		}
		o.Upstream = modelproxy.UpstreamOf(e)
	}
	p, err := modelproxy.New(o)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.proxy = p
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		r.proxy = nil
		r.mu.Unlock()
		p.Close()
	}, nil
}

// record keeps an exchange before its answer is given to the agent.
func (r *cliRunner) record(x modelproxy.Exchange) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.Protocol != "" {
		r.fault = x.Fault()
	}
	if x.Usage != nil {
		r.spent = append(r.spent, *x.Usage)
		if r.told != nil {
			r.told(*x.Usage)
		}
	}
	if r.exchanges == "" {
		return nil
	}
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	b = r.agent.all.o.Redact.JSON(b)
	if err := os.MkdirAll(filepath.Dir(r.exchanges), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(r.exchanges, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}
