package plugin

import "encoding/json"

// Version is the version of the protocol that this package speaks.
const Version = 1

// Groups of types.
const (
	GroupSteps     = "agent_env.task_steps"
	GroupEnvs      = "agent_env.envs"
	GroupArtifacts = "agent_env.artifacts"
	GroupProviders = "agent_env.sandbox_providers"
	GroupCommands  = "agent_env.cli_plugins"
	GroupBundles   = "agent_env.bundles"
	// GroupExec is the group of entry points that name a program which speaks this protocol.
	GroupExec = "agent_env.exec"
)

// Codes of errors beyond those of package rpc.
const (
	CodeVersion = -32001 // no common version
	CodeFailed  = -32010 // the work failed: see Failure
	CodeRefused = -32011 // a host call was refused
)

// Variable says where a plugin finds its messages: "stdio", or "fd:3".
const Variable = "AGENTENV_PLUGIN"

// Entry is what declares a type: an entry point of a distribution.
type Entry struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Named is somebody with a version.
type Named struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Initialize is the first request, and Initialized its answer.
type (
	Initialize struct {
		Versions     []int  `json:"protocol_versions"`
		Host         Named  `json:"host"`
		Distribution *Named `json:"distribution"`
		TempDir      string `json:"temp_dir"`
	}
	Initialized struct {
		Version int   `json:"protocol_version"`
		Plugin  Named `json:"plugin"`
	}
)

// Load asks for entries of distributions to be imported; the answer says of each what became of it, in the same order.
type (
	Load struct {
		Entries []Entry `json:"entries"`
	}
	Loads struct {
		Loaded []Loaded `json:"loaded"`
	}
	Loaded struct {
		Entry
		Status string `json:"status"` // active, failed
		Code   string `json:"code,omitempty"`
		Reason string `json:"reason,omitempty"`
		Type   *Type  `json:"type,omitempty"`
	}
)

// Statuses and codes of Loaded.
const (
	Active        = "active"
	Failed        = "failed"
	LoadFailed    = "load-failed"
	InvalidPlugin = "invalid-plugin"
)

// Problem is what is wrong with a document. Where is the field, without the document.
type Problem struct {
	Where    string `json:"where,omitempty"`
	Summary  string `json:"summary"`
	Fix      string `json:"fix,omitempty"`
	Severity string `json:"severity,omitempty"` // "error" (the default), "warning"
}

// Check is the parameter of step/check and step/preflight; Problems is the answer of all checks.
type (
	Check struct {
		Entry Entry           `json:"entry"`
		Step  json.RawMessage `json:"step"`
	}
	Problems struct {
		Problems []Problem `json:"problems"`
	}
)

// Execute is the parameter of step/execute; Diffs is its answer.
type (
	Execute struct {
		Call    string            `json:"call"`
		Entry   Entry             `json:"entry"`
		Run     string            `json:"run"`
		Attempt int               `json:"attempt"`
		Trial   int               `json:"trial"`
		Step    json.RawMessage   `json:"step"`
		Context json.RawMessage   `json:"context"`
		Seed    map[string]string `json:"seed,omitempty"`
		Models  map[string]string `json:"models,omitempty"`
		Agent   string            `json:"agent,omitempty"`
	}
	Diffs struct {
		Diff []Op `json:"diff"`
	}
)

// Op is one change of the context document: "set", "append" or "unset" at a path.
type Op struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// What an Op does.
const (
	OpSet    = "set"
	OpAppend = "append"
	OpUnset  = "unset"
)

// MaxOps is how many changes a diff may have.
const MaxOps = 10_000

// Failure is the data of an error of CodeFailed.
type Failure struct {
	Type  string `json:"type,omitempty"`
	Infra bool   `json:"infra,omitempty"`
	Keep  bool   `json:"keep,omitempty"`
	Diff  []Op   `json:"diff,omitempty"`
}

// RunCommand is the parameter of command/run; Exit is its answer.
type (
	RunCommand struct {
		Call  string   `json:"call"`
		Entry Entry    `json:"entry"`
		Args  []string `json:"args"`
	}
	Exit struct {
		Code int `json:"exit_code"`
	}
)

// Line is the parameter of the notification log, Spend of spend.
type (
	Line struct {
		Call    string         `json:"call,omitempty"`
		Level   string         `json:"level"`
		Message string         `json:"message"`
		Fields  map[string]any `json:"fields,omitempty"`
	}
	Spend struct {
		Call         string  `json:"call"`
		USD          float64 `json:"usd"`
		InputTokens  int64   `json:"input_tokens"`
		OutputTokens int64   `json:"output_tokens"`
	}
)

// Methods of plugins.
const (
	MethodInitialize = "initialize"
	MethodTypes      = "types/list"
	MethodLoad       = "load"
	MethodCheck      = "step/check"
	MethodPreflight  = "step/preflight"
	MethodExecute    = "step/execute"
	MethodCommand    = "command/run"
	NotifyLog        = "log"
	NotifySpend      = "spend"
)
