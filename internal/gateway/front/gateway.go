// Package front is one MCP endpoint, one card and one set of routes in front of a deployment's environments.
//
// A child is an environment's server, or a website's backend, behind the gateway. A door is the handler that a principal comes through: who calls is
// decided there, never by what a request says. The gateway starts no process and opens no port; children are brought back by their Restart.
package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/gateway/calllog"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/clock"
	"agentenv.internal/agentenv/internal/gateway/tools"
	"agentenv.internal/agentenv/internal/gateway/trigger"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/sdk/wire"
)

// Child is an environment behind the gateway.
type Child struct {
	Name      string            // of the environment; its key is "mcp-<Name>", of a website's backend "<Name>"
	URL       string            // base, e.g. http://127.0.0.1:18765
	MCP       string            // its MCP endpoint, whole; "": what its card says
	Transport http.RoundTripper // dials into the child's sandbox; nil: the host's network
	Website   bool              // a website's backend, which has no tools
	Frontend  string            // URL of the website's pages, for /website/<Name>; "" for none
	// FrontendTransport dials to Frontend; nil: Transport.
	FrontendTransport http.RoundTripper
	// Restart brings a dead child back; nil: nobody does. One call at a time per child, spaced out.
	Restart func(ctx context.Context) error
}

// Key is the child's name in /svc.
func (c Child) Key() string {
	if c.Website {
		return c.Name
	}
	return "mcp-" + c.Name
}

// Changes reads the log of changes that a database of the environments keeps.
type Changes interface {
	Last(ctx context.Context) (int64, error)                                      // the id of the last change; 0 for none
	After(ctx context.Context, after int64, limit int) ([]json.RawMessage, error) // rows, objects with "id", oldest first
}

// Options say what the gateway is in front of.
type Options struct {
	Name       string // of the MCP server and of the card
	Version    string // of this program, told to MCP clients
	Children   []Child
	Consistent bool // one tool call at a time, so that windows of changes are exact
	Log        *slog.Logger
	CallLog    string // path of the log of calls; "": none is kept
	StateFile  string // path of what outlives the gateway: rules, clock, triggers; "": nothing does
	Redact     *redact.Redactor
	Changes    Changes // nil: no changes are kept
	// Spill takes what is too large for an agent to read, and gives a handle; nil: never spilled.
	Spill func(ctx context.Context, r io.Reader, media string) (handle string, err error)
	// Kept opens what Spill has taken, by its handle, and tells its size; nil: nobody can read it here.
	Kept        func(ctx context.Context, handle string) (io.ReadSeekCloser, int64, error)
	SpillAbove  int64            // bytes of a result; 0: DefaultSpill
	Executor    trigger.Executor // carries out what triggers ask of agents; nil: trigger.A2A over the host's network
	GetTimeURL  string           // where children are told to read the clock
	MaxSessions int              // 0: DefaultSessions
	IdleSession time.Duration    // 0: DefaultIdle
	Now         func() time.Time // nil: time.Now
}

const (
	DefaultSpill    = 256 << 10
	DefaultSessions = 10000
	DefaultIdle     = 30 * time.Minute
	// cardTimeout bounds the fetch of one child's card.
	cardTimeout = 5 * time.Second
)

// Gateway is one gateway. Close ends it.
type Gateway struct {
	o        Options
	log      *slog.Logger
	rules    access.Rules
	clock    *clock.Clock
	calls    *calllog.Log
	triggers *trigger.Engine
	dirty    chan struct{} // the state is to be kept
	children []*backing
	sessions *sessions
	serial   chan struct{}   // holds one token when calls go one at a time; nil when they don't
	ctx      context.Context //nolint:containedctx // the gateway's life: what outlives a request ends with it
	stop     context.CancelFunc
	wg       sync.WaitGroup

	set     atomic.Pointer[tools.Set]
	lists   listCache
	windows windows
	saving  sync.Mutex
	mu      sync.Mutex // held while the table of tools is made
	names   *tools.Names
	setGen  atomic.Uint64
	own     atomic.Pointer[ownTools]
	kept    kept
}

// backing is a child and the connection to it.
type backing struct {
	Child
	mcp *child.Child // nil of a website's backend
	rt  http.RoundTripper
}

// New makes a gateway and begins to connect its children; it doesn't wait for them. ctx bounds its life, which Close ends.
func New(ctx context.Context, o Options) (*Gateway, error) {
	if err := check(&o); err != nil {
		return nil, err
	}
	g := &Gateway{o: o, log: o.Log, clock: clock.New(o.Now), sessions: newSessions(o.MaxSessions, o.IdleSession, o.Now), dirty: make(chan struct{}, 1)}
	if o.Consistent {
		g.serial = make(chan struct{}, 1)
	}
	var err error
	g.calls, err = calllog.Open(ctx, calllog.Options{Path: o.CallLog, Redact: o.Redact, Now: o.Now, Clock: g.virtual})
	if err != nil {
		return nil, err
	}
	g.ctx, g.stop = context.WithCancel(ctx)
	for _, c := range o.Children {
		g.children = append(g.children, g.back(c))
	}
	g.triggers = trigger.New(g.ctx, triggerHost{g}, o.Executor, g.clock, o.Log)
	if err := g.load(); err != nil {
		g.stop()
		return nil, errors.Join(err, g.calls.Close())
	}
	g.rebuild()
	g.triggers.Start()
	for _, b := range g.children {
		if b.mcp != nil {
			b.mcp.Start(g.ctx)
		}
	}
	g.wg.Go(func() { g.sessions.expire(g.ctx) })
	g.wg.Go(g.keeper)
	return g, nil
}

func check(o *Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Executor == nil {
		o.Executor = trigger.A2A{}
	}
	if o.Name == "" {
		o.Name = "env"
	}
	if o.SpillAbove == 0 {
		o.SpillAbove = DefaultSpill
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = DefaultSessions
	}
	if o.IdleSession == 0 {
		o.IdleSession = DefaultIdle
	}
	seen := map[string]bool{}
	for _, c := range o.Children {
		switch {
		case c.Name == "" || env.Unroutable(c.Name):
			return fmt.Errorf("%q can't be the name of an environment behind a gateway", c.Name)
		case seen[c.Key()]:
			return fmt.Errorf("two environments behind the gateway are named %q", c.Name)
		}
		seen[c.Key()] = true
	}
	return nil
}

func (g *Gateway) back(c Child) *backing {
	b := &backing{Child: c, rt: c.Transport}
	b.URL = strings.TrimSuffix(b.URL, "/")
	if c.Website {
		if b.rt == nil {
			b.rt = child.Transport(nil)
		}
		return b
	}
	b.mcp = child.New(g.childOptions(b))
	b.rt = b.mcp.RoundTripper()
	return b
}

// childOptions are those of a connection to a child.
func (g *Gateway) childOptions(b *backing) child.Options {
	c := b.Child
	return child.Options{
		Name: c.Name, URL: b.URL, MCP: c.MCP, Transport: c.Transport, Restart: c.Restart, Log: g.log, Changed: g.rebuild,
		Endpoint: func(ctx context.Context) string {
			card, err := g.fetchCard(ctx, b)
			if err != nil {
				return ""
			}
			return b.URL + "/" + strings.TrimPrefix(card.MCP(), "/")
		},
	}
}

// Close ends sessions and connections, and syncs the log. Children go on living.
func (g *Gateway) Close() error {
	g.sessions.closeAll()
	g.stop()
	g.triggers.Close()
	var wg sync.WaitGroup
	for _, b := range g.children {
		if b.mcp != nil {
			wg.Go(b.mcp.Close)
		} else if t, ok := b.rt.(*http.Transport); ok && b.Transport == nil {
			t.CloseIdleConnections()
		}
	}
	wg.Wait()
	g.wg.Wait()
	return errors.Join(g.save(), g.calls.Close())
}

// virtual is the time that events are stamped with.
func (g *Gateway) virtual() (string, bool) {
	t, ok := g.clock.Now()
	if !ok {
		return "", false
	}
	return clock.Format(t), true
}

// rebuild makes the table of tools anew from what the children listed last, and tells sessions that listen.
func (g *Gateway) rebuild() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var sources []tools.Source
	all := true
	for _, b := range g.children {
		if b.mcp == nil {
			continue
		}
		all = all && b.mcp.Status().Listed
		sources = append(sources, tools.Source{Server: b.Name, Entries: b.mcp.Tools()})
	}
	own := g.makeOwn()
	set := tools.Build(sources, own.reserved, g.names)
	if all { // names are settled once every server has been heard
		if g.names == nil {
			g.names = new(tools.Names)
		}
		g.names.Remember(set)
	}
	for _, a := range set.Aside {
		g.log.Warn("a tool is not served", "server", a.Server, "tool", a.Tool, "why", a.Why)
	}
	own.hideTaken(set)
	g.own.Store(own)
	changed := !sameTools(g.set.Load(), set)
	g.set.Store(set)
	g.setGen.Add(1)
	if changed {
		g.sessions.listChanged()
	}
}

func sameTools(a, b *tools.Set) bool {
	if a == nil || len(a.Tools) != len(b.Tools) {
		return a == nil && len(b.Tools) == 0
	}
	for i := range a.Tools {
		if string(a.Tools[i].Entry) != string(b.Tools[i].Entry) {
			return false
		}
	}
	return true
}

const (
	readyPause    = 5 * time.Millisecond
	maxReadyPause = 200 * time.Millisecond
)

// Ready waits until every child has answered its own card, and its tools are known. The error tells, of each child that has not, its last state; it is a
// *CardError, at once, when what a child answers can never be a card.
func (g *Gateway) Ready(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(g.children))
	var wg sync.WaitGroup
	for i, b := range g.children {
		wg.Go(func() {
			errs[i] = g.ready(ctx, b)
			if errors.As(errs[i], new(*CardError)) {
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	if bad, ok := errors.AsType[*CardError](context.Cause(ctx)); ok {
		return bad
	}
	return errors.Join(errs...)
}

func (g *Gateway) ready(ctx context.Context, b *backing) error {
	var last error // before the time was up
	for pause := readyPause; ; pause = min(pause*3/2, maxReadyPause) {
		_, err := g.fetchCard(ctx, b)
		if err == nil && b.mcp != nil {
			if s := b.mcp.Status(); !s.Up {
				err = fmt.Errorf("its MCP endpoint: %w", s.Err)
			}
		}
		if err == nil || b.Website && errors.Is(err, errNoCard) {
			return nil
		}
		if bad, ok := errors.AsType[*CardError](err); ok {
			return bad
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("the server of environment %q is not ready: %w", b.Name, last)
		}
	}
}

// Calls reads the log of calls as it is now; the caller closes it. It is nil when no log is kept.
func (g *Gateway) Calls() (io.ReadCloser, error) {
	r, _, err := g.calls.Reader()
	return r, err
}

// Changes are the rows of the log of changes after an id, at most so many, each with who may have made it; ErrNoChanges where none is kept.
func (g *Gateway) Changes(ctx context.Context, after int64, limit int) ([]json.RawMessage, error) {
	if g.o.Changes == nil {
		return nil, ErrNoChanges
	}
	rows, err := g.o.Changes.After(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	return g.windows.attribute(rows), nil
}

// ErrNoChanges: no database keeps a log of changes.
var ErrNoChanges = errors.New("the environment keeps no log of changes")

// SetAccess writes a rule, as access.Rules.Set does.
func (g *Gateway) SetAccess(role string, names []string, allow bool) {
	g.rules.Set(role, names, allow)
	g.sessions.listChanged()
	g.keep()
}

// Access are the rules now.
func (g *Gateway) Access() map[string]access.RoleRules { return g.rules.State() }

// ErrTimeTaken tells that a child serves get_time, so that the clock can't be set.
var ErrTimeTaken = errors.New("an environment's server has a tool get_time of its own")

// SetTime arms the clock.
func (g *Gateway) SetTime(virtual time.Time, rate float64) (clock.State, error) {
	if t := g.set.Load().Get(getTime); t != nil {
		return clock.State{}, fmt.Errorf("%w: %s", ErrTimeTaken, t.Server)
	}
	s, err := g.clock.Set(virtual, rate)
	if err != nil {
		return s, err
	}
	g.timeChanged()
	return s, nil
}

// ClearTime disarms the clock.
func (g *Gateway) ClearTime() {
	g.clock.Clear()
	g.timeChanged()
}

func (g *Gateway) timeChanged() {
	g.rebuild()
	g.triggers.Kick()
	g.keep()
}

// find is the child of an environment; "" is the only one.
func (g *Gateway) find(env string) (*backing, error) {
	if env == "" {
		if len(g.children) != 1 {
			return nil, fmt.Errorf("the gateway has %d environments behind it: name one", len(g.children))
		}
		return g.children[0], nil
	}
	for _, b := range g.children {
		if b.Name == env {
			return b, nil
		}
	}
	return nil, fmt.Errorf("the gateway has no environment %q behind it", env)
}

// Data calls the data plane of one environment, "" being the only one: wire.Reset, wire.Add or wire.Get. The error is a *wire.Error when the
// environment refused. ctx bounds the call.
func (g *Gateway) Data(ctx context.Context, env, method string, params json.RawMessage) (json.RawMessage, error) {
	return g.DataAt(ctx, env, "", method, params)
}

// DataAt is Data for an environment behind that one: its child whose card says that its data plane is at path; "" is that one itself.
func (g *Gateway) DataAt(ctx context.Context, env, path, method string, params json.RawMessage) (json.RawMessage, error) {
	b, err := g.find(env)
	if err != nil {
		return nil, err
	}
	return g.dataCall(ctx, b, path, wire.Request{ID: json.RawMessage("1"), Method: method, Params: params})
}
