// Package agentowner keeps agents up that outlive the command that deployed them: what internal/owner holds is an agent here. It is asked by the socket, in
// one conversation or several, and by its own address of A2A.
package agentowner

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/owner"
)

// Record is what is known of a deployment.
type Record struct {
	owner.Head
	Agent    string `json:"a2a_agent_id"`
	Version  int    `json:"a2a_agent_version,omitempty"`
	Kind     string `json:"started_as,omitempty"`
	Model    string `json:"model,omitempty"`
	Sandbox  string `json:"sandbox_id,omitempty"` // its own; an agent that is a part of the program has one once it needed it
	Provider string `json:"sandbox_type,omitempty"`
}

// Of is the agent's id.
func (r *Record) Of() string { return r.Agent }

// Folder is the folder of all deployments of a state root.
type Folder struct {
	*owner.Folder[Record, *Record]
}

// Open answers the folder, which the first deployment makes.
func Open(path string) *Folder {
	return &Folder{owner.Open[Record](path, owner.Words{Noun: "agent", List: "agent-env agent list --deployed", Stop: "agent-env agent stop"})}
}

// Order is what an owner is told to deploy. It goes to the owner's standard input as JSON.
type Order struct {
	Key      string            `json:"key"`
	Agent    string            `json:"a2a_agent_id"` // empty for one elsewhere
	Version  int               `json:"a2a_agent_version"`
	Kind     string            `json:"started_as"`
	Type     string            `json:"sandbox_type"` // providers to try
	Lease    time.Duration     `json:"lease"`
	CPU      float64           `json:"cpu"`
	MemoryMB int64             `json:"memory_mb"`
	DiskMB   int64             `json:"disk_mb"`
	Vars     map[string]string `json:"env_vars"`
	Model    string            `json:"model"`
	System   string            `json:"system_prompt"`
}

// Started is the deployment that stands, with its address, which holds a secret.
type Started struct {
	Record Record          `json:"record"`
	URL    string          `json:"a2a_url"` // the card and the messages of A2A are below it
	Card   json.RawMessage `json:"a2a_card,omitempty"`
	Skills []string        `json:"skills"` // that were added
}

// Start is owner.Folder.Start. tell, which may be nil, is told of work that the deployment waits for.
func (f *Folder) Start(ctx context.Context, exe string, args []string, o Order, tell func(deploy.Work)) (s Started, err error) {
	return s, f.Folder.Start(ctx, exe, args, o.Agent, func(key string) any {
		o.Key = key
		return o
	}, func(raw json.RawMessage) {
		var w deploy.Work
		if json.Unmarshal(raw, &w) == nil && tell != nil {
			tell(w)
		}
	}, &s)
}

// Client speaks to the owner of a deployment.
type Client struct{ *owner.Client }

// Client answers one for a living deployment. Close it.
func (f *Folder) Client(r Record) *Client { return &Client{f.Folder.Client(r)} }

// Status is what the owner answers of the agent as it stands now.
func (c *Client) Status(ctx context.Context) (s Started, err error) {
	return s, c.Ask(ctx, http.MethodGet, "status", nil, &s)
}

// Question is one thing to ask an agent.
type Question struct {
	Text    string        `json:"text"`
	Context string        `json:"context_id"` // the conversation to go on with; "" begins one
	Model   string        `json:"model"`
	System  string        `json:"system_prompt"`
	Timeout time.Duration `json:"timeout"`
}

// Reply is what it answered. ErrorType is "" unless the agent failed.
type Reply struct {
	Context      string          `json:"context_id"`
	Text         string          `json:"reply"`
	Structured   json.RawMessage `json:"structured_output,omitempty"`
	Model        string          `json:"model,omitempty"`
	ToolCalls    int             `json:"tool_call_count"`
	Input        int64           `json:"input_tokens"`
	Output       int64           `json:"output_tokens"`
	USD          *float64        `json:"cost_usd,omitempty"`
	ErrorType    string          `json:"error_type,omitempty"`
	ErrorCode    string          `json:"error_code,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty"`
}

// ReplyOf is what an agent answered in a conversation, of "" where nobody can go on with it.
func ReplyOf(conversation string, r deploy.Reply) Reply {
	out := Reply{
		Context: conversation, Text: r.Text, Structured: r.Structured, Model: r.Model, ToolCalls: r.ToolCalls, Input: r.Usage.Input, Output: r.Usage.Output,
		ErrorType: r.ErrorType, ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage,
	}
	if r.Usage.Priced {
		out.USD = &r.Usage.USD
	}
	return out
}

// Prompt asks the agent and waits for its reply; when ctx ends, so does the agent's turn.
func (c *Client) Prompt(ctx context.Context, q Question) (r Reply, err error) {
	return r, c.Ask(ctx, http.MethodPost, "prompt", q, &r)
}

// Skill is one to add: a stored artifact, or files by path, SKILL.md among them.
type Skill struct {
	Artifact    string            `json:"artifact_id,omitempty"`
	Version     int               `json:"version,omitempty"`
	Name        string            `json:"name,omitempty"`
	Description string            `json:"description,omitempty"`
	Files       map[string][]byte `json:"files,omitempty"`
}

// AddSkill gives the agent a skill and answers its name.
func (c *Client) AddSkill(ctx context.Context, s Skill) (name string, err error) {
	var out struct {
		Name string `json:"name"`
	}
	err = c.Ask(ctx, http.MethodPost, "skill", s, &out)
	return out.Name, err
}
