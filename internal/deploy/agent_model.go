package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/redact"
)

// exchanges is the path of the record of what an agent and its models said to each other; "" where nobody keeps it.
func (g *Agents) exchanges(a *Agent) string {
	if g.o.Records == "" {
		return ""
	}
	return filepath.Join(RecordsOf(g.o.Records, a.Run), a.Instance+".model.jsonl")
}

// proxyFor stands between the agent and its model for one prompt; settings name the model. needed says that the agent does nothing without one, so that a
// model that nobody answers for is an error now, and not when it is asked.
func (a *Agent) proxyFor(ctx context.Context, s Settings, x *exchanges, needed bool) (*modelproxy.Proxy, error) {
	models := a.all.o.Models
	o := modelproxy.Options{Name: s.Model, Variant: max(a.Trial, 1) - 1, Record: x.add}
	endpoint, err := models.Endpoint(ctx, a.req.BaseURL)
	if err != nil {
		return nil, err
	}
	o.Upstream = modelproxy.UpstreamOf(endpoint)
	_, scripted := source.Script(s.Model)
	if needed && !scripted && endpoint.BaseURL == "" {
		return nil, source.NoEndpoint(s.Model)
	}
	if scripted {
		m, err := models.Model(ctx, s.Model, "")
		if err != nil {
			return nil, err
		}
		o.Local = func(name string) (model.Model, bool) { return m, name == s.Model }
	}
	return modelproxy.New(o)
}

// exchangeLog is the record of what an agent and its models said to each other: a file that outlives the process, one exchange a line without
// secrets. The zero value keeps no file.
type exchangeLog struct {
	path   string
	redact *redact.Redactor

	mu sync.Mutex
}

// exchangeLog makes the log of an agent.
func (g *Agents) exchangeLog(a *Agent) *exchangeLog {
	return &exchangeLog{path: g.exchanges(a), redact: g.o.Redact}
}

// add keeps an exchange before its answer is given to the agent, and answers its line.
func (l *exchangeLog) add(x modelproxy.Exchange) ([]byte, error) {
	b, err := modelproxy.Line(x, l.redact)
	if err != nil || l.path == "" {
		return b, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(b)
	return b, errors.Join(err, f.Close())
}
