package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"agentenv.internal/agentenv/internal/agent/loop"
	"agentenv.internal/agentenv/internal/agent/mcp"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// Runner is how one agent is spoken to, whatever it is made of. Its methods may be called from several goroutines; turns of one conversation are made one
// at a time.
type Runner interface {
	// Configure sets what holds for every prompt from now on. What the agent can't be told is a *NotTaken, and nothing is set then.
	Configure(ctx context.Context, s Settings) error
	// AddMCP gives the agent the tools of an MCP server.
	AddMCP(ctx context.Context, m MCP) error
	AddSkill(ctx context.Context, s Skill) error
	// Prompt makes one turn. An agent that fails at its task answers a Reply that says so; an error is ctx's, or a fault of the machinery.
	Prompt(ctx context.Context, p Prompt) (Reply, error)
	Close() error
}

// Settings are what an agent is told of itself and of how to work. Zero values leave the choice to the agent.
type Settings struct {
	Name, Description string
	Role              string // in which its tools are called
	SystemPrompt      string
	Model             string
	ModelParams       map[string]json.RawMessage
	Effort            string
	MaxTurns          int
	MaxThinking       int             // tokens
	OutputFormat      json.RawMessage // JSON Schema of the reply
	Harness           string
	Tools             []string // built-in tools that it gets
	Timeout           time.Duration
}

// or is s where it says something, else base.
func (s Settings) or(base Settings) Settings {
	pick := func(v, b *string) {
		if *v == "" {
			*v = *b
		}
	}
	pick(&s.Name, &base.Name)
	pick(&s.Description, &base.Description)
	pick(&s.Role, &base.Role)
	pick(&s.SystemPrompt, &base.SystemPrompt)
	pick(&s.Model, &base.Model)
	pick(&s.Effort, &base.Effort)
	pick(&s.Harness, &base.Harness)
	if s.ModelParams == nil {
		s.ModelParams = base.ModelParams
	}
	if s.MaxTurns == 0 {
		s.MaxTurns = base.MaxTurns
	}
	if s.MaxThinking == 0 {
		s.MaxThinking = base.MaxThinking
	}
	if s.OutputFormat == nil {
		s.OutputFormat = base.OutputFormat
	}
	if s.Tools == nil {
		s.Tools = base.Tools
	}
	if s.Timeout == 0 {
		s.Timeout = base.Timeout
	}
	return s
}

// NotTaken is a setting that an agent can't be told.
type NotTaken struct{ What string }

func (e *NotTaken) Error() string { return "the agent takes no " + e.What }

// MCP is an MCP server as an agent reaches it. Env is what stands behind it where that is of this run; Server is a connection that this process
// has, which agents of this process alone can use, and which whoever opened it closes.
type MCP struct {
	Name, URL string
	Headers   map[string]string
	Role      string
	Env       *Env
	Server    mcp.Server
}

// Skill is one skill: its files, SKILL.md among them, below a folder of its name.
type Skill struct {
	Name, Description string
	Files             []guest.PutFile
}

// Prompt is one message to an agent.
type Prompt struct {
	Settings Settings // for this prompt, before those of Configure
	Parts    []wire.Part
	Context  string // the conversation; one that isn't known begins
	Task     string // id of this prompt, for the agent's own records
	Poll     time.Duration
	// Record keeps what happens, as it happens.
	Record loop.Recorder
	// Spent is told of costs as they arise.
	Spent func(model.Usage)
	// Step is the step that prompts, and Replies are what people reply to it, for an agent that is a person; Hint is how they may reply beside a text.
	Step    string
	Replies <-chan step.Decision
	Hint    string
	// Queued is told once where the prompt has to wait for another one to end; nil wants to hear nothing.
	Queued func()
	// Live is told of pages of the agent's own trajectory while it works; nil wants none.
	Live func(Page) error
}

// Page is a part of an agent's own trajectory, its events from After to Next.
type Page struct {
	Format      string
	After, Next int
	Events      []json.RawMessage
}

// Reply is how a prompt ended. ErrorType is "" unless the agent failed: wire.AgentError or wire.InfraError then.
type Reply struct {
	Text         string
	Structured   json.RawMessage
	ToolCalls    int
	Usage        model.Usage
	Model        string // that answered; "" where nobody knows
	ErrorType    string
	ErrorCode    string
	ErrorMessage string
	Task         string // its id at the agent, where that has ids
	// Native is the agent's own record of the turn, as it keeps it; nil where the events are all there is.
	Native       json.RawMessage
	NativeFormat string
	// Exchanges is what it and its model said to each other during the turn, one exchange a line, without secrets: what its model's door saw, whatever
	// the agent tells. It is nil of agents that have no such door. ExchangesAt is the file that holds them, "" for none.
	Exchanges   []byte
	ExchangesAt string
	// Peers is what it asked other agents; their use of models is in Usage.
	Peers []PeerTurn
	// Left out are settings that the agent doesn't take.
	LeftOut []string
}

// ErrNotServed: the agent doesn't have what was asked of it.
var ErrNotServed = errors.New("is not served by this agent")
