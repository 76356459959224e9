package env

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"agentenv.internal/agentenv/sdk/wire"
)

const everything = "*"

// access decides which role sees and calls which tool. A role's own rules come first, then those of every role; in each, a rule that names
// the tool wins over one for all tools, and a tool that is hidden by default heeds only rules that name it.
type access struct {
	mu    sync.RWMutex
	rules map[string]map[string]bool // role, tool: disabled
}

func newAccess() *access { return &access{rules: map[string]map[string]bool{}} }

func (a *access) disabled(role, tool string, hidden bool) bool {
	if a == nil {
		return false
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, r := range []string{cmp.Or(role, wire.DefaultRole), everything} {
		rules := a.rules[r]
		if d, ok := rules[tool]; ok {
			return d
		}
		if d, ok := rules[everything]; ok && !hidden {
			return d
		}
	}
	return hidden
}

func (a *access) set(role, tool string, disabled bool) {
	switch {
	case role == everything && tool == everything:
		clear(a.rules)
		a.rules[everything] = map[string]bool{everything: disabled}
	case role == everything:
		if a.rules[everything] == nil {
			a.rules[everything] = map[string]bool{}
		}
		for _, rules := range a.rules {
			rules[tool] = disabled
		}
	case tool == everything:
		a.rules[role] = map[string]bool{everything: disabled}
	default:
		if a.rules[role] == nil {
			a.rules[role] = map[string]bool{}
		}
		a.rules[role][tool] = disabled
	}
}

// change applies the body of a call of enable-tool or disable-tool and answers the role's own rules.
func (a *access) change(body []byte, disable bool) (any, error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, invalid("the body must be a JSON object")
	}
	var role string
	if json.Unmarshal(in["role"], &role) != nil || role == "" {
		return nil, invalid("role must be a text that isn't empty")
	}
	var tools []string
	var one string
	switch {
	case json.Unmarshal(in["tools"], &one) == nil && one == everything:
		tools = []string{everything}
	case json.Unmarshal(in["tools"], &tools) != nil || tools == nil:
		return nil, invalid(`tools must be a list of names, or "*"`)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range tools {
		a.set(role, t, disable)
	}
	out := struct {
		Role     string   `json:"role"`
		Disabled []string `json:"disabled"`
		Allowed  []string `json:"allowed"`
	}{role, []string{}, []string{}}
	for tool, off := range a.rules[role] {
		if off {
			out.Disabled = append(out.Disabled, tool)
		} else {
			out.Allowed = append(out.Allowed, tool)
		}
	}
	slices.Sort(out.Disabled)
	slices.Sort(out.Allowed)
	return out, nil
}

const accessRequest = `{"type":"object","properties":{"role":{"type":"string"},"tools":{"anyOf":[{"type":"array","items":{"type":"string"}},{"const":"*"}]}},"required":["role","tools"]}`

func accessExtensions() []wire.Extension {
	required := false
	one := func(uri, name, path, description string) wire.Extension {
		p, err := encode(wire.Params{Endpoint: path, Methods: []wire.Method{{Name: name, Verb: http.MethodPost, Request: json.RawMessage(accessRequest)}}})
		if err != nil {
			panic(err) // constants that don't encode
		}
		return wire.Extension{URI: uri, Description: description, Params: p, Required: &required}
	}
	return []wire.Extension{
		one(wire.URNDisableTool, "disable", wire.DisableToolPath, "Hides tools from a role."),
		one(wire.URNEnableTool, "enable", wire.EnableToolPath, "Shows tools to a role."),
	}
}
