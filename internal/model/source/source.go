// Package source finds the models that names stand for: "scripted:ID" is the script in the stored file ID, every other name a model of the
// configured endpoint.
//
// It also knows which name wins: what people chose for the run, then what the configuration says of the role, then what the task says, then the
// configuration's default.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/store"
)

// Roles of models in a run.
const (
	Agent = "agent"
	User  = "user" // a simulated one
	Judge = "judge"
)

// ErrNone: no endpoint is configured, or nothing names a model.
var ErrNone = errors.New("no model is configured")

// Store is what scripts are read from.
type Store interface {
	store.Docs
	store.Objects
}

// Settings are what the configuration says.
type Settings struct {
	Endpoint model.Endpoint // without a BaseURL there is none
	Default  string
	Roles    map[string]string // names of models by role
	Patience time.Duration     // over all tries of one answer; 0 leaves it to New's
}

// Models finds models. All that ask it share one client per endpoint, and with it that endpoint's limits. It may be used from several goroutines.
type Models struct {
	store    Store
	settings func(context.Context) (Settings, error)
	patience model.Patience
	log      *slog.Logger

	mu      sync.Mutex
	clients map[string]*model.Client // by base URL
	outages map[string]*model.Outage // the same
}

// New makes Models. settings is asked each time that something depends on it; log is told of endpoints that nobody reaches. The caller closes it.
func New(s Store, settings func(context.Context) (Settings, error), p model.Patience, log *slog.Logger) *Models {
	return &Models{store: s, settings: settings, patience: p, log: log, clients: map[string]*model.Client{}, outages: map[string]*model.Outage{}}
}

// Name is the model of a role: chosen holds what people chose for the run, by role, and own is what the task says; the configuration's word for the
// role stands between them. ErrNone.
func (m *Models) Name(ctx context.Context, role string, chosen map[string]string, own string) (string, error) {
	if n := chosen[role]; n != "" {
		return n, nil
	}
	c, err := m.settings(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range []string{c.Roles[role], own, c.Default} {
		if n != "" {
			return n, nil
		}
	}
	return "", fmt.Errorf("nothing names a model for the %s: %w; name one with --model, or set model.default in .agentenv/config.toml", role, ErrNone)
}

// Script is the id of the file that a scripted model's name names.
func Script(name string) (id string, ok bool) { return strings.CutPrefix(name, model.ScriptedPrefix) }

// NoEndpoint is the ErrNone of a model that isn't a script while no endpoint is configured; name is "" where the agent has a model of its own in mind.
func NoEndpoint(name string) error {
	what := "the model " + name
	if name == "" {
		what = "the agent's model"
	}
	return fmt.Errorf("%s needs an endpoint: %w; set LITELLM_BASE_URL and LITELLM_API_KEY, or model.base_url and model.api_key in .agentenv/config.toml, or name a scripted model", what, ErrNone)
}

// Model is the model of a name. baseURL is another endpoint than the configured one, which gets no key; "" is the configured one. An error is ErrNone,
// store.ErrNotFound, or says what is wrong with a script or an endpoint.
func (m *Models) Model(ctx context.Context, name, baseURL string) (model.Model, error) {
	if id, ok := Script(name); ok {
		s, err := m.scripted(ctx, id)
		if err != nil {
			return nil, err
		}
		return labelled{s, name}, nil
	}
	c, err := m.settings(ctx)
	if err != nil {
		return nil, err
	}
	e := m.endpoint(c, baseURL)
	if e.BaseURL == "" {
		return nil, NoEndpoint(name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if cl := m.clients[e.BaseURL]; cl != nil {
		return cl, nil
	}
	p := m.patience
	if c.Patience > 0 {
		p.Total = c.Patience
	}
	cl, err := model.New(e, p)
	if err != nil {
		return nil, err
	}
	m.clients[e.BaseURL] = cl
	return cl, nil
}

// outage is what all that ask an endpoint know of it. m.mu is held.
func (m *Models) outage(baseURL string, patience time.Duration) *model.Outage {
	o := m.outages[baseURL]
	if o == nil {
		o = &model.Outage{Tell: func(why error, wait time.Duration) { m.tell(baseURL, why, wait) }}
		if patience > 0 {
			o.Wait = min(patience, model.DefaultOutage)
		}
		m.outages[baseURL] = o
	}
	return o
}

// tell says that an endpoint isn't reached, or is again. Only its host is named: an address may hold a key.
func (m *Models) tell(baseURL string, why error, wait time.Duration) {
	at := "the model endpoint"
	if u, err := url.Parse(baseURL); err == nil && u.Host != "" {
		at += " " + u.Scheme + "://" + u.Host
	}
	if why == nil {
		m.log.Warn(at + " is reached again")
		return
	}
	m.log.Warn(at+" can't be reached", "error", fmt.Errorf("%w; it is tried again for up to %s; see that model.base_url is right and the endpoint is up", why, wait))
}

// labelled says in a scripted model's answers which script it plays.
type labelled struct {
	model.Model
	name string
}

func (l labelled) Generate(ctx context.Context, r *model.Request) (*model.Response, error) {
	res, err := l.Model.Generate(ctx, r)
	if err == nil {
		res.Model = l.name
	}
	return res, err
}

// Endpoint is the endpoint at an address, with its key if it is the configured one ("" is that): for who stands between it and agents, and nobody else.
// It has no BaseURL where there is none.
func (m *Models) Endpoint(ctx context.Context, baseURL string) (model.Endpoint, error) {
	c, err := m.settings(ctx)
	if err != nil {
		return model.Endpoint{}, err
	}
	return m.endpoint(c, baseURL), nil
}

func (m *Models) endpoint(c Settings, baseURL string) model.Endpoint {
	e := c.Endpoint
	if baseURL != "" && baseURL != e.BaseURL {
		e = model.Endpoint{BaseURL: baseURL, Params: e.Params, Prices: e.Prices, Named: true}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Outage = m.outage(e.BaseURL, c.Patience)
	return e
}

// Check tells whether there could be a model of the name, without reading a script. ErrNone.
func (m *Models) Check(ctx context.Context, name, baseURL string) error {
	if _, ok := Script(name); ok {
		return nil
	}
	_, err := m.Model(ctx, name, baseURL)
	return err
}

// maxScript bounds a script.
const maxScript = 16 << 20

func (m *Models) scripted(ctx context.Context, id string) (model.Model, error) {
	d, err := m.store.Get(ctx, store.Artifact, id, 0)
	if err != nil {
		return nil, fmt.Errorf("the script %s: %w", id, err)
	}
	if d.Type != artifact.File {
		return nil, fmt.Errorf("the script %s is of type %s; a script is one file", id, d.Type)
	}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return nil, fmt.Errorf("the script %s: %w", id, err)
	}
	r, _, err := store.OpenVerified(ctx, m.store, files[0].Digest)
	if err != nil {
		return nil, fmt.Errorf("the script %s: %w", id, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxScript+1))
	if err != nil {
		return nil, fmt.Errorf("the script %s: %w", id, err)
	}
	if len(b) > maxScript {
		return nil, fmt.Errorf("the script %s is larger than %d MiB", id, maxScript>>20)
	}
	s, err := model.ParseScript(b)
	if err != nil {
		return nil, fmt.Errorf("the script %s: %w", id, err)
	}
	return model.NewScripted(s), nil
}

// Close drops the endpoints' idle connections.
func (m *Models) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.clients {
		c.Close()
	}
	clear(m.clients)
}
