// Package env is for writing environment servers: tools that agents call over MCP, a data plane that seeds, resets and exports what the
// environment holds, extensions, and the card that tells of all this.
//
// An Env is put together once, then served; who calls Handler calls Close too. What it holds is its author's: handlers run at the same time as each other and lock what they
// share. A tool or extension that fails in a way that its caller can act on returns Fail; any other error is shown by its text, and a panic
// only by a number that stands in the log.
//
//	e := env.New("notes")
//	env.AddTool(e, "notes_add", "Add a note.", s.add)
//	e.OnReset(s.reset)
//	err := e.Serve(ctx)
//
// The package doesn't authenticate anyone: who may reach a server is decided by the network it stands in, and who calls is told by the gateway.
package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/access"
	"agentenv.internal/agentenv/sdk/wire"
)

// Limits of what a server reads, in bytes.
const (
	DefaultMaxData    = 1 << 30  // a call of the data plane
	DefaultMaxMessage = 64 << 20 // an MCP message, the body of an extension's call
	DefaultMaxSeed    = 1 << 30  // a seed that is fetched
)

// Env is an environment before it is served. Its methods and AddTool, AddExtension may be called until Handler or Serve is.
type Env struct {
	name       string
	version    string
	log        *slog.Logger
	lookup     func(string) (string, bool)
	client     *http.Client
	access     *access.Rules // nil: every tool is everybody's
	now        *clock
	maxData    int64
	maxMessage int64
	maxSeed    int64
	idle       time.Duration

	tools      []*tool
	extensions []*extension
	declared   []wire.Extension
	routes     []route
	reset      func(context.Context) error
	add        func(context.Context, []*Input) error
	get        func(context.Context, *Namespace) ([]wire.Part, error)
	namespaces bool
	children   func(context.Context) []wire.Card
	wrap       func(http.Handler) http.Handler
	problems   []error

	mu    sync.RWMutex // guards the description of tools once served, and what follows
	card  wire.Card
	mcp   *mcp.Server
	calls map[*Call]context.CancelFunc // of tools, under way
	posts int                          // MCP messages being answered
	quiet chan struct{}                // closed when posts is 0; nil when nobody waits for it
}

type route struct {
	pattern string
	handler http.Handler
}

// Option changes an Env as it is made.
type Option func(*Env)

// WithVersion sets the version that MCP clients are told.
func WithVersion(v string) Option { return func(e *Env) { e.version = v } }

// WithLog makes the server tell of panics and faults. Without it, it tells nothing.
func WithLog(l *slog.Logger) Option { return func(e *Env) { e.log = l } }

// WithLookup replaces os.LookupEnv as the source of MCP_HOST, MCP_PORT and ENVIRONMENT_NAME.
func WithLookup(f func(string) (string, bool)) Option { return func(e *Env) { e.lookup = f } }

// WithHTTPClient replaces the client that seeds are fetched and exports uploaded with. It must not follow redirects to where a grant doesn't lead.
func WithHTTPClient(c *http.Client) Option { return func(e *Env) { e.client = c } }

// WithToolAccess makes the server decide itself who sees and calls which tool, and serve the rules' routes. It is for environments that agents
// reach with no gateway in front: behind one, hidden tools would be hidden from the gateway too.
func WithToolAccess() Option { return func(e *Env) { e.access = &access.Rules{} } }

// WithLimits sets how many bytes a call of the data plane, a message and a fetched seed may have; 0 keeps a default.
func WithLimits(data, message, seed int64) Option {
	return func(e *Env) {
		for _, l := range []struct {
			to    *int64
			value int64
		}{{&e.maxData, data}, {&e.maxMessage, message}, {&e.maxSeed, seed}} {
			if l.value > 0 {
				*l.to = l.value
			}
		}
	}
}

// WithSessionTimeout ends MCP sessions that nothing was asked in for d (24 hours unless set).
func WithSessionTimeout(d time.Duration) Option { return func(e *Env) { e.idle = d } }

// New starts an environment. ENVIRONMENT_NAME, when set, wins over name.
func New(name string, opts ...Option) *Env {
	e := &Env{
		calls: map[*Call]context.CancelFunc{},
		name:  name, version: "1", log: slog.New(slog.DiscardHandler), lookup: os.LookupEnv, idle: 24 * time.Hour,
		maxData: DefaultMaxData, maxMessage: DefaultMaxMessage, maxSeed: DefaultMaxSeed,
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	for _, o := range opts {
		o(e)
	}
	if n, ok := e.lookup(wire.NameVariable); ok && n != "" {
		e.name = n
	}
	if e.name == "" {
		e.problem("an environment needs a name")
	}
	return e
}

// Name is what the card says.
func (e *Env) Name() string { return e.name }

func (e *Env) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Errorf(format, args...))
}

// OnReset sets what brings the environment back to its beginning. Without it, data/reset isn't served.
func (e *Env) OnReset(f func(ctx context.Context) error) { e.reset = f }

// OnAdd sets what loads seeds. inputs is never empty. Without it, data/add isn't served.
func (e *Env) OnAdd(f func(ctx context.Context, inputs []*Input) error) { e.add = f }

// OnGet sets what exports the environment's data. Without it or OnExport, data/get isn't served.
func (e *Env) OnGet(f func(ctx context.Context) ([]wire.Part, error)) {
	e.get, e.namespaces = func(ctx context.Context, _ *Namespace) ([]wire.Part, error) { return f(ctx) }, false
}

// OnExport is OnGet for data that may be large: with a namespace that is not nil, f may upload and answer with the part that Upload made, or
// answer as ever. The card tells callers that they may send one.
func (e *Env) OnExport(f func(ctx context.Context, to *Namespace) ([]wire.Part, error)) {
	e.get, e.namespaces = f, true
}

// Handle serves further routes beside those of the protocol, e.g. the page of a website or interface manifests. pattern is http.ServeMux's.
func (e *Env) Handle(pattern string, h http.Handler) { e.routes = append(e.routes, route{pattern, h}) }

// OnChildren makes the environment a composed one: f tells the cards that its card lists, each time that is asked for. A list that is nil is
// served as null.
func (e *Env) OnChildren(f func(ctx context.Context) []wire.Card) { e.children = f }

// Wrap puts a handler before all routes. It sees requests as they came: a ServeMux, as the routes are, cleans paths and redirects to them.
func (e *Env) Wrap(f func(next http.Handler) http.Handler) { e.wrap = f }

// Declare puts an extension on the card that this package doesn't serve.
func (e *Env) Declare(x wire.Extension) {
	if x.URI == "" {
		e.problem("a declared extension needs a URI")
	}
	e.declared = append(e.declared, x)
}

// Card is the card as it is served, after Handler or Serve was called.
func (e *Env) Card() wire.Card {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.card
}

// resolve fills names in and reports everything that is wrong with how the environment was put together.
func (e *Env) resolve() error {
	problems := append([]error(nil), e.problems...)
	seen := map[string]bool{}
	for _, t := range e.tools {
		t.name = strings.ReplaceAll(t.name, "{environment_name}", e.name)
		switch {
		case strings.ContainsAny(t.name, "{}"):
			problems = append(problems, fmt.Errorf("tool %s: its name may hold {environment_name} and no other braces", t.name))
		case t.name == "":
			problems = append(problems, errors.New("a tool needs a name"))
		case seen[t.name]:
			problems = append(problems, fmt.Errorf("tool %s is there twice", t.name))
		}
		seen[t.name] = true
	}
	paths := map[string]bool{}
	for _, x := range e.extensions {
		key := x.verb + " " + x.path
		if paths[key] {
			problems = append(problems, fmt.Errorf("extension %s: %s is served twice", x.uri, key))
		}
		paths[key] = true
	}
	return errors.Join(problems...)
}

// makeCard is the card of what was put together.
func (e *Env) makeCard() (wire.Card, error) {
	c := wire.Card{
		Name: e.name, ProtocolVersion: wire.ProtocolVersion, URL: wire.DataPath, PreferredTransport: wire.TransportJSONRPC,
		Interfaces: []wire.Interface{{URL: wire.MCPPath, Transport: wire.TransportMCP}},
	}
	exts, err := advertise(e.extensions)
	if err != nil {
		return c, err
	}
	own := map[string]bool{}
	for _, x := range e.declared {
		own[x.URI] = true
	}
	for _, x := range exts { // what an author declares beats what is derived
		if !own[x.URI] {
			c.Capabilities.Extensions = append(c.Capabilities.Extensions, x)
		}
	}
	c.Capabilities.Extensions = append(c.Capabilities.Extensions, e.declared...)
	if e.access != nil {
		c.Capabilities.Extensions = append(c.Capabilities.Extensions, accessExtensions()...)
	}
	if e.get != nil && e.namespaces {
		c.Capabilities.Extensions = append(c.Capabilities.Extensions, wire.Extension{URI: wire.URNDataObjects, Description: "Uploads an export to where the caller grants it."})
	}
	for _, t := range e.tools {
		c.Capabilities.Tools = append(c.Capabilities.Tools, wire.Tool{Name: t.name, Description: t.description, InputSchema: t.card})
	}
	c.Capabilities.Operations = []string{}
	for _, m := range wire.Operations() {
		if e.serves(m) {
			c.Capabilities.Operations = append(c.Capabilities.Operations, m)
		}
	}
	return c, nil
}

func (e *Env) serves(method string) bool {
	switch method {
	case wire.Reset:
		return e.reset != nil
	case wire.Add:
		return e.add != nil
	case wire.Get:
		return e.get != nil
	}
	return false
}

// encode is json.Marshal that leaves <, > and & as they are.
func encode(v any) (json.RawMessage, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n")), nil
}
