// Package access says who calls an environment, for the rules of sdk/access, which say what they may use.
//
// A principal is who came through a door. The package decides nothing else; it knows no HTTP and no server.
package access

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentenv.internal/agentenv/sdk/access"
)

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

// maxRole is how many bytes the name of a role may have.
const maxRole = 200

// CheckRole tells why no agent can be given a role of this name: it would be nobody's, everybody's, or could not be shown on one line.
func CheckRole(role string) error {
	switch name := strings.TrimSpace(role); {
	case name == "":
		return errors.New("the name of a role can't be empty")
	case name == Any:
		return errors.New("the name of a role can't be *, which stands for every role")
	case len(name) > maxRole:
		return fmt.Errorf("the name of a role has at most %d bytes", maxRole)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the name of a role holds printable characters alone, unlike %q", role)
	}
	return nil
}
