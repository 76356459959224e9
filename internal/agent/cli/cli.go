// Package cli runs agents that people install as commands: claude-code, codex, gemini, opencode, openhands and pi. A command runs inside a sandbox,
// once a turn; what it writes there is read back into a reply and a trajectory.
//
// Words: a profile is what is known of one command, as data and small functions: the package it comes in, the releases that it was checked with, its
// settings, its files, its events. A turn is from one message of the user to the agent's reply; a session is the command's own name for a
// conversation, by which the next turn goes on. Native events are what the command itself writes; they are kept as they came, in the profile's format.
//
// A command is given the URLs of its tools' server and of its model inside the sandbox, and a key that is none: who it is, is decided by the doors
// behind them. It makes no sandboxes and installs nothing by itself; Package says how that is done, in a sandbox.
package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/trajectory"
)

// DummyKey is what commands are given for a model's key.
const DummyKey = "agent-env"

// Where things are in an agent's sandbox, unless Options say otherwise.
const (
	ModelURL    = "http://127.0.0.1:18766"
	StateFolder = "/var/lib/agentenv/agent" // what a command keeps: its configuration, its sessions
)

// Fields of settings, as agents' cards name them. A profile says which it takes.
const (
	FieldModel       = "model"
	FieldSystem      = "system_prompt"
	FieldAppend      = "append_system_prompt"
	FieldEffort      = "effort"
	FieldMaxTurns    = "max_turns"
	FieldIterations  = "max_iterations" // the same setting under OpenHands' name
	FieldMaxThinking = "max_thinking_tokens"
	FieldOutput      = "output_format"
	FieldAllowed     = "allowed_tools"
	FieldTools       = "tools" // the same setting under pi's name
	FieldTimeout     = "timeout_seconds"
	FieldContext     = "context_window"
	FieldMaxTokens   = "max_tokens"
	FieldProject     = "project_id"
	FieldTask        = "task_id"
)

// Settings are how an agent shall work. Zero values leave the choice to the command.
type Settings struct {
	Model string
	// SystemPrompt is added to the command's own instructions, which tell its model of its tools, but where the profile also takes
	// append_system_prompt: there it takes their place.
	SystemPrompt, AppendSystemPrompt string
	Effort                           string
	MaxTurns, MaxThinking            int
	// OutputFormat is the JSON Schema of the answer; nil: free text.
	OutputFormat             json.RawMessage
	AllowedTools             []string // of the command's own; nil: all
	ContextWindow, MaxTokens int      // of the model, in tokens
	// Timeout bounds a turn; 0 is the profile's.
	Timeout time.Duration
}

// set names the fields that say something.
func (s Settings) set() []string {
	var out []string
	add := func(yes bool, field string) {
		if yes {
			out = append(out, field)
		}
	}
	add(s.Model != "", FieldModel)
	add(s.SystemPrompt != "", FieldSystem)
	add(s.AppendSystemPrompt != "", FieldAppend)
	add(s.Effort != "", FieldEffort)
	add(s.MaxTurns > 0, FieldMaxTurns)
	add(s.MaxThinking > 0, FieldMaxThinking)
	add(len(s.OutputFormat) > 0, FieldOutput)
	add(s.AllowedTools != nil, FieldAllowed)
	add(s.ContextWindow > 0, FieldContext)
	add(s.MaxTokens > 0, FieldMaxTokens)
	return out
}

// Server is an MCP server by its URL in the sandbox. Its name is a part of its tools' names.
type Server struct{ Name, URL string }

// Skill is a folder with a SKILL.md.
type Skill struct {
	Name  string // a name for a folder
	Files []guest.PutFile
}

// Kinds of errors that an agent reports.
const (
	AgentError = "agent_error" // it tried and failed
	InfraError = "infra_error" // it could not run
)

// Fault is why a turn came to nothing.
type Fault struct {
	Type    string // AgentError or InfraError
	Code    string
	Message string
	// Passing tells that the same may well work a little later.
	Passing bool
}

// Codes of a Fault.
const (
	CodeTimeout  = "timeout"   // the turn took too long
	CodeMaxTurns = "max_turns" // the bound on the model's answers
	CodeSchema   = "schema"    // the answer is not of the wanted form
	CodeRequest  = "request"   // the model's endpoint refused what it was asked
	CodeModel    = "model"     // the model's endpoint could not answer
	CodeTools    = "tools"     // a server of tools could not be reached
	CodeRefusal  = "refusal"   // the model would not answer
	CodeCommand  = "command"   // the command itself failed
	CodeNoReply  = "no_reply"  // it ended without a reply
	CodeFlood    = "flood"     // it wrote more than is read
)

// Reply is how a turn ended.
type Reply struct {
	Text       string
	Structured json.RawMessage // of an answer with a schema
	ToolCalls  int
	// Usage is the command's own count; the model proxy's record is the one to bill by. nil: it told none.
	Usage   *trajectory.Usage
	Fault   *Fault // nil: it answered
	Session string
	Tries   int // times that the command ran, at least 1
	// Events are what happened, read from the native events. Native are those, a JSON array, in Format.
	Events []trajectory.Event
	Native json.RawMessage
	Format string
	// Notes tell what was left out: settings that the command takes no notice of, native events beyond what is kept.
	Notes []string
	// Version is the command's.
	Version string
}

// Runtime is a program that a command needs beside itself.
type Runtime struct {
	Name string // node or python3
	Min  Version
}

// Profile is what is known of one command.
type Profile struct {
	Name    string // claude-code
	Command string // what it is called where it is installed
	Package Package
	Runtime Runtime // the zero value: none
	// From is the first release whose events are read, Before the first that nobody has checked.
	From, Before Version
	Format       string // of its native events
	Fields       []string
	Model        string // the name that stands for whichever model the run has chosen
	Timeout      time.Duration
	// Protocol is what it speaks to its model, as internal/model/serve names it.
	Protocol string

	adapter adapter
}

// Takes tells whether the profile has a setting of this name.
func (p *Profile) Takes(field string) bool {
	switch field {
	case FieldMaxTurns:
		return slices.Contains(p.Fields, FieldMaxTurns) || slices.Contains(p.Fields, FieldIterations)
	case FieldAllowed:
		return slices.Contains(p.Fields, FieldAllowed) || slices.Contains(p.Fields, FieldTools)
	}
	return slices.Contains(p.Fields, field)
}

// turn is what one run of a command is made of.
type turn struct {
	Settings
	model   string // as the command is to be told
	prompt  string
	session string // "" begins one
	servers []Server
	skills  []Skill
	state   string // the folder for what it keeps
	work    string // where it works; "" is the sandbox's home
	api     string // the model's base URL
	command string // its path in the sandbox
	node    string // the runtime's path in the sandbox; "" for none
}

// run is a command to be run.
type run struct {
	argv  []string
	env   []string
	files []guest.PutFile // below turn.state
	stdin string
}

// adapter is how a profile's command is used.
type adapter interface {
	prepare(t *turn) (run, error)
	reader(t *turn) reader
}

// reader reads the native events of one run of a command, in order.
type reader interface {
	// read takes one event. keep tells whether it belongs to the record: commands repeat themselves.
	read(raw json.RawMessage) (keep bool)
	// sofar is what has happened.
	sofar() []trajectory.Event
	// end completes what the events said.
	end(out *heard)
}

// heard is what native events said.
type heard struct {
	session    string
	text       string
	structured json.RawMessage
	calls      int
	usage      *trajectory.Usage
	events     []trajectory.Event
	done       bool // the command said that the turn has ended
	fault      *Fault
}

// Profiles are all that are known.
func Profiles() []*Profile {
	return []*Profile{claudeCode(), codex(), gemini(), opencode(), openhands(), pi()}
}

// ProfileOf is the profile of a name.
func ProfileOf(name string) (*Profile, bool) {
	ps := Profiles()
	i := slices.IndexFunc(ps, func(p *Profile) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return ps[i], true
}

// modelName is what a command is told of a model: its own name where commands can bear it, else one that stands for it. Whoever serves the model knows
// which one is meant.
func (p *Profile) modelName(name string) string {
	if name == "" || strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	}) >= 0 {
		return p.Model
	}
	return name
}
