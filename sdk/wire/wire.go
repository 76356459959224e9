// Package wire holds the words that environments, their gateway and their callers speak: cards, the JSON-RPC data plane and its parts,
// extensions, grants of object transfers, coded failures, and the names of routes, headers and URNs.
//
// It only reads and writes; it opens no connection and keeps no state. Readers are strict about what a message means (types, duplicate members,
// closed objects of grants) and tolerant where peers differ: absent and null are the same, unknown members of a card are kept and written again.
// Everything decodes through encoding/json and is safe for bytes of strangers.
package wire

// ProtocolVersion is what cards of this protocol carry.
const ProtocolVersion = "1.0"

// Transport names of a card.
const (
	TransportJSONRPC = "JSONRPC"
	TransportMCP     = "mcp"
)

// Routes of an environment server, relative to where it is reached.
const (
	CardPath        = "/.well-known/agent-env.json"
	DataPath        = "/agentenv"
	ExtensionPath   = "/agentenv/ext/" // followed by a handler's name, or a URN's slug and an operation
	MCPPath         = "/mcp"           // of a card that declares none
	DisableToolPath = "/tools/disable"
	EnableToolPath  = "/tools/enable"
)

// Environment variables that a server is told where and as what to serve by, and what they default to.
const (
	HostVariable = "MCP_HOST"
	PortVariable = "MCP_PORT"
	NameVariable = "ENVIRONMENT_NAME"

	DefaultHost = "0.0.0.0"
	DefaultPort = 18765
)

// Methods of the data plane, in the order in which cards list them.
const (
	Reset = "data/reset"
	Add   = "data/add"
	Get   = "data/get"
)

// Operations is every method of the data plane, in the order of cards.
func Operations() []string { return []string{Reset, Add, Get} }

// Headers and keys of an MCP request's _meta that say who calls.
const (
	RoleHeader    = "AgentEnv-Role"
	SessionHeader = "Mcp-Session-Id"
	// ContextHeader may be sent with what an agent asks its model for: the contextId of the message that it works on, by which prompts that are made side by
	// side have costs and records of their own. It goes no further than the agent's door.
	ContextHeader = "AgentEnv-Context"

	// RoleMeta tells, by its presence alone, that a gateway forwarded the call: headers then say nothing about the caller.
	RoleMeta    = "agentenv.io/role"
	SessionMeta = "agentenv.io/session"
	// MetaPrefix is the name space that gateways own; what a client sends in it is dropped.
	MetaPrefix = "agentenv.io/"
	// HiddenMeta marks, in a tool's _meta, one that nobody sees until a rule names it.
	HiddenMeta = "agentenv.io/hiddenByDefault"

	// DefaultRole is the spelling of "no role".
	DefaultRole = "default"
)

// URNs of extensions.
const (
	URNPrefix = "urn:agentenv:"

	URNIntake           = URNPrefix + "intake/v1"
	URNDataObjects      = URNPrefix + "data-objects/v1"
	URNDisableTool      = URNPrefix + "disable-tool/v1"
	URNEnableTool       = URNPrefix + "enable-tool/v1"
	URNClock            = URNPrefix + "clock/v1"
	URNTriggers         = URNPrefix + "triggers/v1"
	URNTrajectory       = URNPrefix + "trajectory/v1"
	URNStep             = URNPrefix + "step/v1"
	URNState            = URNPrefix + "state/v1"
	URNChanges          = URNPrefix + "changes/v1"
	URNInterfaces       = URNPrefix + "get-interfaces/v1"
	URNSetErrors        = URNPrefix + "set-errors/v1"
	URNAddS3Credentials = URNPrefix + "add-s3-credentials/v1"
	URNSkill            = URNPrefix + "skill/v1"
	URNComputer         = URNPrefix + "computer/v1"
	URNComputerReady    = URNPrefix + "computer-ready/v1"
	URNComputerDisplay  = URNPrefix + "computer-display/v1"
	URNComputerSpaces   = URNPrefix + "computer-spaces/v1"
	URNComputerPointer  = URNPrefix + "computer-pointer/v1"
	URNComputerKeyboard = URNPrefix + "computer-keyboard/v1"
	URNComputerExec     = URNPrefix + "computer-exec/v1"
	URNComputerApp      = URNPrefix + "computer-app/v1"
	URNAgentConfig      = URNPrefix + "agent-config/v1"
	URNMCPConfig        = URNPrefix + "mcp-config/v1"
	URNSkillConfig      = URNPrefix + "skill-config/v1"
	URNSnapshot         = URNPrefix + "snapshot/v1"
	URNPeerAgents       = URNPrefix + "peer-agents/v1"
	URNAttributionProbe = URNPrefix + "attribution-probe/v1"
	URNProxy            = URNPrefix + "proxy/v1"
	URNInstall          = URNPrefix + "install/v1"
	URNStaging          = URNPrefix + "staging/v1"
	URNToolDeclaration  = URNPrefix + "tools/v1"
)
