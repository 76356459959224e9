package step

import (
	"encoding/json"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Where deploy steps append an Agent, and prompt_agent a PromptResponse.
const (
	AgentsPath  = "deployed_agents"
	PromptsPath = "prompt_responses"
)

// Agent is an element of deployed_agents.
type Agent struct {
	Name      string          `json:"agent_name"`
	ID        string          `json:"a2a_agent_id"`
	Version   int             `json:"a2a_agent_version,omitempty"`
	Step      string          `json:"deploy_step_id"`
	Instance  string          `json:"instance_id"`
	Role      string          `json:"role,omitempty"`
	EnvIDs    []string        `json:"env_ids"`
	SandboxID string          `json:"sandbox_id,omitempty"`
	Sandbox   string          `json:"sandbox_type,omitempty"`
	URL       string          `json:"a2a_url,omitempty"`
	Card      json.RawMessage `json:"a2a_card,omitempty"`
	Policy    *NetworkPolicy  `json:"network_policy,omitempty"`
	OnHost    bool            `json:"on_host"`                       // it runs in this program
	Container string          `json:"installed_container,omitempty"` // it was installed there
	Created   string          `json:"created_at_utc"`
	ExpiresAt string          `json:"expires_at_utc,omitempty"`
}

// Object is a piece of a run's record that lies in the store.
type Object struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// URL names an object in records.
func (o Object) URL() string { return "object:" + o.Digest }

// Trajectory is where what an agent did in one prompt is kept: as ATIF, and as the agent itself keeps it.
type Trajectory struct {
	ATIF         Object  `json:"atif"`
	Native       *Object `json:"native,omitempty"`
	NativeFormat string  `json:"native_format,omitempty"`
	// Exchanges is the record of the model's door: one request and its answer a line.
	Exchanges *Object `json:"model_exchanges,omitempty"`
}

// Usage is what a prompt took. USD is nil where nobody knows.
type Usage struct {
	Input  int64    `json:"input_tokens"`
	Output int64    `json:"output_tokens"`
	USD    *float64 `json:"cost_usd,omitempty"`
}

// AgentTriggersPath is where register_agent_triggers appends an AgentTriggers.
const AgentTriggersPath = "metadata/agent_trigger_registrations"

// AgentTriggers are the rules that an agent which plays the user was given.
type AgentTriggers struct {
	Step  string   `json:"step_id"`
	Agent string   `json:"agent_name"`
	Added []string `json:"added"`
	Envs  []string `json:"env_ids"` // whose triggers they wait for
}

// AgentSnapshotsPath is where an AgentSnapshot is appended, by snapshot_agent_state and by prompt_agent's snapshot_config; LoadedSnapshotsPath is where
// deploy_agent appends a LoadedSnapshot.
const (
	AgentSnapshotsPath  = "metadata/agent_snapshots"
	LoadedSnapshotsPath = "metadata/agent_loaded_snapshots"
)

// States of an AgentSnapshot.
const (
	SnapshotOK      = "ok"
	SnapshotPartial = "partial" // the agent's is stored, the environment's isn't
	SnapshotFailed  = "failed"
	SnapshotSkipped = "skipped"
)

// AgentSnapshot is a stored conversation of an agent with the files that it works on, or why there is none.
type AgentSnapshot struct {
	ID      string `json:"id,omitempty"`
	Version int    `json:"version,omitempty"`
	Agent   string `json:"source_agent_name"`
	Context string `json:"source_context_id"`
	Step    string `json:"capture_step_id"`
	Status  string `json:"capture_status"`
	Reason  string `json:"capture_reason,omitempty"`
	Turn    int    `json:"turn,omitempty"` // of the conversation, from 1; 0 within one
	Final   bool   `json:"is_final"`
	At      string `json:"captured_at_utc,omitempty"`
	// Env is the universe with the environment's data of that moment.
	Env        string `json:"env_artifact_id,omitempty"`
	EnvVersion int    `json:"env_artifact_version,omitempty"`
}

// LoadedSnapshot is a snapshot that a deployed agent goes on from.
type LoadedSnapshot struct {
	Agent   string `json:"agent_name"`
	Context string `json:"context_id"`
	ID      string `json:"source_artifact_id"`
	Version int    `json:"source_artifact_version"`
}

// AgentChangelogPath is where an AgentChangelog is appended, by deploy_agent when the agent begins to record what it changes, and by prompt_agent when
// there is more of it in the store; ChangelogRewindsPath is where deploy_agent appends a ChangelogRewind.
const (
	AgentChangelogPath   = "metadata/agent_changelog"
	ChangelogRewindsPath = "metadata/agent_changelog_rewinds"
)

// AgentChangelog is what an agent has changed, an increment for a tool call, as far as it is in the store.
type AgentChangelog struct {
	Agent      string   `json:"agent_name"`
	Step       string   `json:"step_id"`
	Roots      []string `json:"roots"`         // folders that the agent follows
	Mode       string   `json:"transfer_mode"` // TransferObjects
	URL        string   `json:"object_url"`    // ChangelogURL of the artifact; of the first row without a version
	ID         string   `json:"id,omitempty"`
	Version    int      `json:"version,omitempty"`
	Increments int      `json:"increments,omitempty"`
	Reason     string   `json:"reason,omitempty"` // why some are missing
}

// ChangelogRewind is what a new agent was given of a changelog.
type ChangelogRewind struct {
	Agent      string `json:"agent_name"`
	Context    string `json:"context_id,omitempty"`
	Before     *int64 `json:"up_to_tool_call_exclusive"`
	Mode       string `json:"transfer_mode"`
	URL        string `json:"object_url"`
	Increments int    `json:"increments"`
}

// TransferObjects says that the pieces of what was recorded travelled as objects: there is no other way here.
const TransferObjects = "objects"

// changelogScheme begins the addresses of changelogs, which are artifacts.
const changelogScheme = "artifact:"

// ChangelogURL is the address of a changelog; version 0 is the latest.
func ChangelogURL(id string, version int) string {
	if version == 0 {
		return changelogScheme + id
	}
	return changelogScheme + id + "@" + strconv.Itoa(version)
}

// ParseChangelogURL is the other way round. ok is false when it is no address of an artifact.
func ParseChangelogURL(url string) (id string, version int, ok bool) {
	id, ok = strings.CutPrefix(url, changelogScheme)
	if i := strings.LastIndexByte(id, '@'); ok && i > 0 {
		n, err := strconv.Atoi(id[i+1:])
		if err != nil || n < 1 {
			return "", 0, false
		}
		id, version = id[:i], n
	}
	return id, version, ok && ref.CheckID(id) == nil
}

// AgentSnapshotID is the id of what a step of a run writes of an agent when nobody has named it.
func AgentSnapshotID(run, stepID, what string) string {
	return run + "-" + ref.Slug(stepID) + "-" + what
}

// PeerTurn is what an agent asked another one during a prompt.
type PeerTurn struct {
	Agent      string      `json:"agent_name"`
	Message    string      `json:"message"`
	Reply      string      `json:"reply"`
	ErrorType  string      `json:"error_type,omitempty"`
	ErrorCode  string      `json:"error_code,omitempty"`
	Trajectory *Trajectory `json:"trajectory,omitempty"`
}

// Turn is one message and its reply, of a prompt of several.
type Turn struct {
	Message string `json:"message"`
	Reply   string `json:"reply"`
	// Parts are the message's where it is more than a text.
	Parts      json.RawMessage `json:"parts,omitempty"`
	Trajectory *Trajectory     `json:"trajectory,omitempty"`
	User       *Trajectory     `json:"user_trajectory,omitempty"` // of the user's agent that wrote the message
	Peers      []PeerTurn      `json:"peers,omitempty"`           // in the order in which they had answered
}

// PromptResponse is an element of prompt_responses. ErrorType is "" unless the agent failed.
type PromptResponse struct {
	ID           string          `json:"prompt_id"`
	Step         string          `json:"step_id"`
	Agent        string          `json:"agent_name"`
	Prompt       string          `json:"prompt_text"`
	Response     string          `json:"response"`
	Structured   json.RawMessage `json:"structured_output,omitempty"`
	Model        string          `json:"model,omitempty"` // "" where the agent takes none
	ToolCalls    int             `json:"tool_call_count"`
	Usage        Usage           `json:"usage"`
	ErrorType    string          `json:"error_type,omitempty"`
	ErrorCode    string          `json:"error_code,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty"`
	Context      string          `json:"a2a_context_id"`
	Session      string          `json:"agent_session_id,omitempty"` // the agent's own name of the task
	// Trajectory is that of the last turn; TrajectoryURL and URLs name it, and those of every turn, as other tools expect them.
	Trajectory    *Trajectory `json:"trajectory,omitempty"`
	TrajectoryURL string      `json:"agent_trajectory_object_url,omitempty"`
	URLs          []string    `json:"target_agent_per_turn_trajectory_object_urls,omitempty"`
	Turns         []Turn      `json:"turns"`
	UserAgent     string      `json:"user_agent_name,omitempty"` // that wrote the messages after the first
}

// agentMark begins the names by which Boxes that know agents open an agent's sandbox. No sandbox has a name that begins so.
const agentMark = "\x00agent "

// AgentBox is the name by which Boxes open the sandbox that an agent works in.
func AgentBox(agent string) string { return agentMark + agent }

// BoxAgent is the agent whose sandbox a name means.
func BoxAgent(name string) (agent string, ok bool) { return strings.CutPrefix(name, agentMark) }

// Target is the name, for Boxes, of the sandbox that a step means by sandbox_name or agent_name.
func Target(d doc.Node) string {
	if name := strings.TrimSpace(d.Get("sandbox_name").Text()); name != "" {
		return name
	}
	return AgentBox(strings.TrimSpace(d.Get("agent_name").Text()))
}
