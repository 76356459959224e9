// Package envowner keeps environments up that outlive the command that deployed them: what internal/owner holds is an environment with its gateway here.
package envowner

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/owner"
)

// Record is what is known of a deployment.
type Record struct {
	owner.Head
	Env     string `json:"env_id"`
	Version int    `json:"env_version"`
	Type    string `json:"env_type"`
	Server  string `json:"mcp_server_name,omitempty"`
	Mode    string `json:"gateway_mode"`
	Boxes   []Box  `json:"sandboxes,omitempty"`
}

// Of is the environment's id.
func (r *Record) Of() string { return r.Env }

// Box is the sandbox of one server.
type Box struct {
	Name     string `json:"name"` // environment_name
	ID       string `json:"sandbox_id"`
	Provider string `json:"provider"`
}

// Folder is the folder of all deployments of a state root.
type Folder struct {
	*owner.Folder[Record, *Record]
}

// Open answers the folder, which the first deployment makes.
func Open(path string) *Folder {
	return &Folder{owner.Open[Record](path, owner.Words{Noun: "environment", List: "agent-env env list --deployed", Stop: "agent-env env stop"})}
}

// Order is what an owner is told to deploy. It goes to the owner's standard input as JSON.
type Order struct {
	Key        string        `json:"key"`
	Env        string        `json:"env_id"`
	Version    int           `json:"env_version"`
	Type       string        `json:"sandbox_type"` // providers to try
	Lease      time.Duration `json:"lease"`
	CPU        float64       `json:"cpu"`
	MemoryMB   int64         `json:"memory_mb"`
	DiskMB     int64         `json:"disk_mb"`
	Consistent bool          `json:"consistent"`
	Roles      []string      `json:"roles"` // of agents that get a URL of their own
}

// Started is the deployment that stands, with its URLs, which hold secrets.
type Started struct {
	Record   Record            `json:"record"`
	URL      string            `json:"url"`                  // the owner's door; its MCP endpoint is URL + "/mcp"
	AgentURL map[string]string `json:"agent_urls,omitempty"` // by role
}

// Start is owner.Folder.Start. tell, which may be nil, is told of work that the deployment waits for.
func (f *Folder) Start(ctx context.Context, exe string, args []string, o Order, tell func(deploy.Work)) (s Started, err error) {
	return s, f.Folder.Start(ctx, exe, args, o.Env, func(key string) any {
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

// Status is what the owner answered when it had started, URLs included.
func (c *Client) Status(ctx context.Context) (s Started, err error) {
	return s, c.Ask(ctx, http.MethodGet, "status", nil, &s)
}

// Load gives the environments stored data: deploy.Env.Load. version 0 is the latest.
func (c *Client) Load(ctx context.Context, artifact string, version int) (l deploy.Loaded, err error) {
	return l, c.Ask(ctx, http.MethodPost, "load", loadRequest{artifact, version}, &l)
}

// Reset empties the environments of these names, or all.
func (c *Client) Reset(ctx context.Context, names ...string) error {
	return c.Ask(ctx, http.MethodPost, "reset", resetRequest{names}, nil)
}

// Snapshot stores the data as the next version of a universe.
func (c *Client) Snapshot(ctx context.Context, id string) (p envstore.Pin, err error) {
	return p, c.Ask(ctx, http.MethodPost, "snapshot", snapshotRequest{id}, &p)
}

// Call calls a tool and answers the MCP result. role "" is the owner's.
func (c *Client) Call(ctx context.Context, tool string, arguments json.RawMessage, role string) (result json.RawMessage, err error) {
	return result, c.Ask(ctx, http.MethodPost, "call", callRequest{tool, arguments, role}, &result)
}
