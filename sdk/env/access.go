package env

import (
	"encoding/json"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/sdk/access"
	"agentenv.internal/agentenv/sdk/wire"
)

// allowed tells whether a role sees and calls a tool: without rules of its own, a server hides nothing.
func (e *Env) allowed(role, tool string, hidden bool) bool {
	return e.access == nil || e.access.Allowed(role, tool, hidden)
}

// Sees tells whether the caller of a request, as its header names it, may use a tool: for further routes, see Handle, that show what a tool does.
func (e *Env) Sees(r *http.Request, tool string) bool {
	hidden := false
	for _, t := range e.tools {
		if t.name == tool {
			hidden = t.hidden
		}
	}
	return e.allowed(roleOf(r.Header.Get(wire.RoleHeader)), tool, hidden)
}

// changeAccess applies the body of a call of enable-tool or disable-tool and answers the role's own rules.
func changeAccess(rules *access.Rules, body []byte, allow bool) (any, error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, invalid("the body must be a JSON object")
	}
	var role string
	if json.Unmarshal(in["role"], &role) != nil || strings.TrimSpace(role) == "" {
		return nil, invalid("role must be a text that isn't empty")
	}
	var tools []string
	var one string
	switch {
	case json.Unmarshal(in["tools"], &one) == nil && one == access.Any:
		tools = []string{access.Any}
	case json.Unmarshal(in["tools"], &tools) != nil || tools == nil:
		return nil, invalid(`tools must be a list of names, or "*"`)
	}
	rules.Set(role, tools, allow)
	return struct {
		Role string `json:"role"`
		access.RoleRules
	}{role, rules.Of(role)}, nil
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
