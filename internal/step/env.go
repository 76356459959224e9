package step

import "encoding/json"

// EnvsPath is where deploy_env appends an Env.
const EnvsPath = "deployed_envs"

// Env is an element of deployed_envs. It holds no secret: who may reach the environment is decided by the door that one comes through.
type Env struct {
	ID       string          `json:"env_id"`
	Version  int             `json:"env_version"`
	Type     string          `json:"env_type"`
	Provider string          `json:"env_provider_type"`
	Step     string          `json:"deploy_step_id"`
	Instance string          `json:"instance_id"`
	Card     json.RawMessage `json:"environment_card"`
	CardRead string          `json:"environment_card_read_at_utc"`
	Server   string          `json:"mcp_server_name"`
	Mode     string          `json:"gateway_mode"`
	// SandboxIDs are the boxes by "<environment_name>", or "<environment_name>-website-backend" and "-frontend".
	SandboxIDs map[string]string `json:"sandbox_ids"`
	Sandbox    string            `json:"sandbox_type"`
	Metadata   json.RawMessage   `json:"metadata"`
	Created    string            `json:"created_at_utc"`
	ExpiresAt  string            `json:"expires_at_utc"`
}

// LoadedEnvironment is an element of metadata/loaded_environment_artifacts and loaded_environment_universes: what load_artifact gave an environment.
type LoadedEnvironment struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Type    string `json:"artifact_type"`
	Env     string `json:"env_id"`
	EnvStep string `json:"env_step_id"`
	// Environments are the names that got data, Skipped those of a universe that the environment has no server for.
	Environments []string `json:"loaded_environments"`
	Skipped      []string `json:"skipped_environments,omitempty"`
}

// Where load_artifact and deploy_env leave a LoadedEnvironment.
const (
	LoadedEnvironmentsPath = "metadata/loaded_environment_artifacts"
	LoadedUniversesPath    = "metadata/loaded_environment_universes"
)

// LoadedNamesPath is where the names that have data are, by "<id>:<version>" of the artifact, for an environment's instance: step.Child of it.
const LoadedNamesPath = "metadata/loaded_environments"
