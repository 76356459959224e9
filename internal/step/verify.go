package step

// Verification is what a verifier leaves at metadata/verifications/<verifier_id>.
type Verification struct {
	Step    string  `json:"step,omitempty"`
	Score   float64 `json:"score"`
	Results []Row   `json:"results"`
	// Unscored is why there is no score: see Unscored. Score is 0 then and says nothing.
	Unscored string `json:"unscored,omitempty"`
}

// Unscored is what a verifier leaves in place of a Verification when nothing can be said of what the agent did: no verdict, no reward. It holds no
// score, and a run that has one is unscored.
type Unscored struct {
	Step   string `json:"step,omitempty"`
	Reason string `json:"unscored"`
	Raw    string `json:"raw,omitempty"` // what was there in place of a verdict
}

// Row is one criterion's outcome: the criterion's own fields and criterion_index, score, result, justification and, when it did not count, skipped.
type Row map[string]any

// VerificationsPath is where verifiers leave their Verification.
const VerificationsPath = "metadata/verifications"

// Sandbox is an element of deployed_sandboxes.
type Sandbox struct {
	Name      string `json:"sandbox_name"`
	ID        string `json:"sandbox_id"`
	Mode      string `json:"sandbox_mode"`
	Type      string `json:"sandbox_type"`
	Instance  string `json:"instance_id"`
	Created   string `json:"created_at_utc"`
	ExpiresAt string `json:"expires_at_utc"`
	// Tunnels are the addresses on this machine of the ports that the step exposes, by port.
	Tunnels map[string]string `json:"tunnel_urls,omitempty"`
	Policy  *NetworkPolicy    `json:"network_policy,omitempty"`
}

// NetworkPolicy is what a sandbox may reach, in a record.
type NetworkPolicy struct {
	Mode  string   `json:"mode"`
	Hosts []string `json:"allow_hosts"`
	CIDRs []string `json:"allow_cidrs"`
}

// SandboxesPath is where deploy_sandbox appends a Sandbox.
const SandboxesPath = "deployed_sandboxes"
