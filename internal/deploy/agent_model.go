package deploy

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/redact"
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
			return nil, &step.Error{Type: "ModelError", Err: source.NoEndpoint(name)}
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
	return r.exchanges.add(x)
}

// exchangeLog is the record of what an agent and its models said to each other: a file that outlives the process, one exchange a line without
// secrets, and of each turn the lines that are its own. The zero value keeps no file.
type exchangeLog struct {
	path   string
	redact *redact.Redactor

	mu   sync.Mutex
	turn bytes.Buffer
}

// exchangeLog makes the log of an agent.
func (g *Agents) exchangeLog(a *Agent) *exchangeLog {
	return &exchangeLog{path: g.exchanges(a), redact: g.o.Redact}
}

// add keeps an exchange before its answer is given to the agent.
func (l *exchangeLog) add(x modelproxy.Exchange) error {
	b, err := modelproxy.Line(x, l.redact)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn.Write(b)
	if l.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// take gives the turn's lines to a reply, and begins another turn.
func (l *exchangeLog) take(out *Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out.Exchanges, out.ExchangesAt = bytes.Clone(l.turn.Bytes()), l.path
	l.turn.Reset()
}
