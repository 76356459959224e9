// Package agent is for writing agents: servers of the A2A protocol, version 0.3.0, over JSON-RPC, with the extensions that environments'
// callers use.
//
// An Agent is put together once from a function that answers one task, then served; who calls Handler calls Close too. A turn is one task as
// that function sees it; turns of one context (a conversation) run one at a time, in order, those of different contexts in parallel. Tasks are
// kept in memory, of the 1024 contexts used last.
//
//	a := agent.New("echo", func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
//		return agent.Text(t.Text()), nil
//	})
//	err := a.Serve(ctx)
//
// A turn that fails by the agent's own doing returns Fail. Any other error, and a panic, is a crash: its caller is told a number under which the
// server's log has it. The package authenticates nobody: who may reach an agent is decided by the network it stands in.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

// Environment variables that say where and within which limits an agent is served.
const (
	HostVariable            = "A2A_HOST" // by default every interface
	PortVariable            = "A2A_PORT" // by default wire.DefaultA2APort
	StagingMaxBytesVariable = "AGENTENV_STAGING_MAX_BYTES"
	StagingDirVariable      = "AGENTENV_STAGING_DIR"
)

// Run answers one task. When the task is cancelled ctx ends, and what is returned no longer matters.
type Run func(ctx context.Context, t *Turn) (Result, error)

// Agent is an agent before it is served.
type Agent struct {
	name, description, version string
	run                        Run
	log                        *slog.Logger
	lookup                     func(string) (string, bool)
	transfers                  transfer.Client
	inputs, outputs            []string
	streaming                  bool

	config     *configType
	servers    *servers  // nil: mcp-config isn't served; likewise below
	skills     *skillSet // never nil, as cards list skills
	peers      *peers
	triggers   *triggers
	trajectory bool
	snapshots  *snapshots
	changelog  *changelog
	staging    *staging
	probe      func(context.Context) (Attribution, error)
	declared   []wire.Extension
	routes     []route
	problems   []error

	extensions []extension
	tasks      *store
	port       atomic.Int64 // that requests come in at; 0 until the first

	mu       sync.Mutex // guards what follows
	settings map[string]json.RawMessage
}

type route struct {
	pattern string
	handler http.Handler
}

// Option changes an Agent as it is made.
type Option func(*Agent)

// WithDescription sets what the card says the agent does.
func WithDescription(s string) Option { return func(a *Agent) { a.description = s } }

// WithVersion sets the agent's own version; "1" unless set.
func WithVersion(v string) Option { return func(a *Agent) { a.version = v } }

// WithModes sets the media that the agent takes and gives: words such as text, or media types. Unless set, both are text.
func WithModes(inputs, outputs []string) Option {
	return func(a *Agent) { a.inputs, a.outputs = inputs, outputs }
}

// WithLog makes the server tell of crashes and faults. Without it, it tells nothing.
func WithLog(l *slog.Logger) Option { return func(a *Agent) { a.log = l } }

// WithLookup replaces os.LookupEnv as the source of the package's variables.
func WithLookup(f func(string) (string, bool)) Option { return func(a *Agent) { a.lookup = f } }

// WithHTTPClient replaces the client that grants are used and peers asked with. It must not follow redirects.
func WithHTTPClient(c *http.Client) Option { return func(a *Agent) { a.transfers.HTTP = c } }

// WithStreaming serves message/stream and tasks/resubscribe, for agents that call Turn.Progress.
func WithStreaming() Option { return func(a *Agent) { a.streaming = true } }

// WithSkill puts a skill that the agent always has on its card.
func WithSkill(s wire.AgentSkill) Option {
	return func(a *Agent) {
		if s.ID == "" || s.Name == "" || s.Description == "" {
			a.problem("a skill needs an id, a name and a description")
		}
		s.Tags = append([]string{}, s.Tags...)
		a.skills.own = append(a.skills.own, s)
	}
}

// WithInstall declares how the agent is installed into a machine, in the form that params hold it: a JSON object.
func WithInstall(params any) Option {
	return func(a *Agent) {
		raw, err := encode(params)
		if err != nil || raw[0] != '{' {
			a.problem("what WithInstall declares must be a JSON object")
			return
		}
		a.declared = append(a.declared, wire.Extension{URI: wire.URNInstall, Description: "How the agent is installed.", Params: raw})
	}
}

// WithExtension puts an extension on the card that this package doesn't serve; see WithRoute.
func WithExtension(x wire.Extension) Option {
	return func(a *Agent) {
		if x.URI == "" {
			a.problem("a declared extension needs a URI")
		}
		a.declared = append(a.declared, x)
	}
}

// WithRoute serves a further route. pattern is http.ServeMux's.
func WithRoute(pattern string, h http.Handler) Option {
	return func(a *Agent) { a.routes = append(a.routes, route{pattern, h}) }
}

// New starts an agent. What is wrong with how it is put together is told by Handler.
func New(name string, run Run, opts ...Option) *Agent {
	a := &Agent{
		name: name, description: name, version: "1", run: run,
		log: slog.New(slog.DiscardHandler), lookup: os.LookupEnv,
		inputs: []string{"text"}, outputs: []string{"text"},
		settings: map[string]json.RawMessage{},
		skills:   &skillSet{},
	}
	a.transfers = transfer.Client{
		HTTP: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Port: func() int { return int(a.port.Load()) },
	}
	a.tasks = newStore(a)
	a.staging = newStaging()
	a.config = baseConfig()
	for _, o := range opts {
		o(a)
	}
	if strings.TrimSpace(a.name) == "" {
		a.problem("an agent needs a name")
	}
	if strings.TrimSpace(a.description) == "" {
		a.problem("an agent needs a description")
	}
	if run == nil {
		a.problem("an agent needs a function that answers tasks")
	}
	if len(a.inputs) == 0 || len(a.outputs) == 0 {
		a.problem("an agent needs at least one mode of input and one of output")
	}
	return a
}

func (a *Agent) problem(text string) { a.problems = append(a.problems, errors.New(text)) }

// Card is the card as it is served now: name, description and skills change while an agent is served.
func (a *Agent) Card() wire.AgentCard {
	s := a.identity()
	c := wire.AgentCard{
		Name: s.Name, Description: s.Description, Version: a.version, URL: wire.A2APath,
		ProtocolVersion: wire.A2AVersion, PreferredTransport: wire.TransportJSONRPC,
		DefaultInputModes: a.inputs, DefaultOutputModes: a.outputs,
		Skills:       a.skills.card(),
		Capabilities: wire.AgentCapabilities{Streaming: a.streaming},
	}
	for _, x := range a.extensions {
		c.Capabilities.Extensions = append(c.Capabilities.Extensions, x.card)
	}
	c.Capabilities.Extensions = append(c.Capabilities.Extensions, a.declared...)
	return c
}

// resolve makes the extensions and reports everything that is wrong with how the agent was put together.
func (a *Agent) resolve() error {
	problems := slices.Clone(a.problems)
	if err := a.staging.configure(a.lookup); err != nil {
		problems = append(problems, err)
	}
	a.extensions = nil
	for _, x := range []func() (extension, bool, error){
		a.configExtension, a.serverExtension, a.skillExtension, a.trajectoryExtension, a.snapshotExtension,
		a.peerExtension, a.triggerExtension, a.probeExtension, a.stagingExtension,
	} {
		e, ok, err := x()
		if err != nil {
			problems = append(problems, err)
		} else if ok {
			a.extensions = append(a.extensions, e)
		}
	}
	seen := map[string]bool{}
	for _, x := range a.extensions {
		seen[x.card.URI] = true
	}
	for _, x := range a.declared {
		if seen[x.URI] {
			problems = append(problems, fmt.Errorf("extension %s is there twice", x.URI))
		}
		seen[x.URI] = true
	}
	return errors.Join(problems...)
}

func (a *Agent) identity() Settings {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.base(a.settings)
}

// base reads the settings that every agent has out of those that were set.
func (a *Agent) base(set map[string]json.RawMessage) Settings {
	s := Settings{TimeoutSeconds: defaultTimeout}
	for name, into := range map[string]any{"name": &s.Name, "description": &s.Description, "role": &s.Role, "timeout_seconds": &s.TimeoutSeconds} {
		if raw, ok := set[name]; ok {
			_ = json.Unmarshal(raw, into) // it was checked when it was set
		}
	}
	s.Name, s.Description = cmp.Or(s.Name, a.name), cmp.Or(s.Description, a.description)
	return s
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
