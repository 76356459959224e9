// Package access says who calls an environment, for the rules of sdk/access, which say what they may use.
//
// A principal is who came through a door. The package decides nothing else; it knows no HTTP and no server.
package access

import "agentenv.internal/agentenv/sdk/access"

// The words of the rules, for those who speak of principals and rules together.
const (
	Any         = access.Any
	DefaultRole = access.DefaultRole
)

// Rules say which role may use which tool; RoleRules are those written for one role.
type (
	Rules     = access.Rules
	RoleRules = access.RoleRules
)

// RoleName is the role that rules know: trimmed, DefaultRole when blank.
func RoleName(role string) string { return access.RoleName(role) }

// Principal is who calls, as their door decided it.
type Principal struct {
	Owner      bool   // may control the environment, and name the role to act in
	Role       string // of an agent; "" is DefaultRole
	Deployment string // the deployment whose agent this is, for records
}
