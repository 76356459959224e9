// Package access says which role may see and call which tool.
//
// A role is the name that rules are written for; the role "default" is that of callers without one, and "*" stands for every role or every tool.
// The package decides; it knows no HTTP and no server. Environment servers and gateways in front of them decide by the same rules.
package access

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Any stands for every role, or for every tool.
const Any = "*"

// DefaultRole is the role of callers that have none.
const DefaultRole = "default"

// RoleName is the role that rules know: trimmed, DefaultRole when blank.
func RoleName(role string) string {
	if role = strings.TrimSpace(role); role == "" {
		return DefaultRole
	}
	return role
}

// Rules say which role may use which tool. The zero value allows everything that is not hidden. Its methods may be called from several goroutines.
type Rules struct {
	mu    sync.RWMutex
	roles map[string]map[string]bool // role -> tool or Any -> allowed
	gen   uint64
}

// RoleRules are the rules written for one role, each list sorted.
type RoleRules struct {
	Disabled []string `json:"disabled"`
	Allowed  []string `json:"allowed"`
}

// Set writes one rule for a role ("" is DefaultRole, Any every role) and the given tools; Any alone stands for all tools.
//
// (Any, Any) drops every rule and leaves the one. (Any, tools) writes the rule for every role that has rules and for Any. (role, Any) replaces the
// role's rules. (role, tools) adds to them.
func (r *Rules) Set(role string, tools []string, allow bool) {
	role = RoleName(role)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gen++
	if r.roles == nil {
		r.roles = map[string]map[string]bool{}
	}
	all := slices.Contains(tools, Any)
	switch {
	case role == Any && all:
		r.roles = map[string]map[string]bool{Any: {Any: allow}}
		return
	case all:
		r.roles[role] = map[string]bool{Any: allow}
		return
	}
	if r.roles[role] == nil {
		r.roles[role] = map[string]bool{}
	}
	for name, rules := range r.roles {
		if name != role && role != Any {
			continue
		}
		for _, t := range tools {
			rules[t] = allow
		}
	}
}

// Allowed tells whether a role may see and call a tool. The role's own rules come before those of Any; in each, a rule that names the tool comes
// before one for Any. A tool that is hidden by default needs a rule that names it.
func (r *Rules) Allowed(role, tool string, hidden bool) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, name := range [...]string{RoleName(role), Any} {
		rules := r.roles[name]
		if allow, ok := rules[tool]; ok {
			return allow
		}
		if allow, ok := rules[Any]; ok && !hidden {
			return allow
		}
	}
	return !hidden
}

// Of are the rules written for one role.
func (r *Rules) Of(role string) RoleRules {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return lists(r.roles[RoleName(role)])
}

// State are the rules of every role that has some.
func (r *Rules) State() map[string]RoleRules {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make(map[string]RoleRules, len(r.roles))
	for role, rules := range r.roles {
		out[role] = lists(rules)
	}
	return out
}

// Restore replaces all rules by those of an earlier State.
func (r *Rules) Restore(state map[string]RoleRules) {
	roles := make(map[string]map[string]bool, len(state))
	for role, s := range state {
		rules := make(map[string]bool, len(s.Disabled)+len(s.Allowed))
		for _, t := range s.Disabled {
			rules[t] = false
		}
		for _, t := range s.Allowed {
			rules[t] = true
		}
		roles[role] = rules
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roles = roles
	r.gen++
}

// Generation changes whenever a rule does, so that what was derived from rules can be kept until then.
func (r *Rules) Generation() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.gen
}

func lists(rules map[string]bool) RoleRules {
	out := RoleRules{Disabled: []string{}, Allowed: []string{}}
	for _, tool := range slices.Sorted(maps.Keys(rules)) {
		if rules[tool] {
			out.Allowed = append(out.Allowed, tool)
		} else {
			out.Disabled = append(out.Disabled, tool)
		}
	}
	return out
}
