package front

import (
	"encoding/json"

	"agentenv.internal/agentenv/sdk/wire"
)

// offer is one of the gateway's own extensions, as its card tells of it.
type offer struct {
	uri, text, params string
	agents            string // params as an agent's card has them; "" leaves the extension out
}

const (
	rulesRequest = `{"type":"object","properties":{"role":{"type":"string"},"tools":{"anyOf":[{"type":"array","items":{"type":"string"}},{"const":"*"}]}},"required":["role","tools"]}`
	stepParams   = `{"endpoint":"/step","methods":{"step":{"method":"POST","endpoint":"/step","request":{"type":"object","properties":{"action":{"enum":["list_tools","call_tool"]},` +
		`"tool_name":{"type":"string","minLength":1},"arguments":{"type":"object"}},"required":["action"],"if":{"properties":{"action":{"const":"call_tool"}}},"then":{"required":["tool_name"]}}}}}`
	noRequest = `{"type":"object","properties":{}}`
)

var offers = []offer{
	{wire.URNDisableTool, "Takes tools from a role.", `{"endpoint":"/tools/disable","methods":{"disable":{"method":"POST","request":` + rulesRequest + `}}}`, ""},
	{wire.URNEnableTool, "Gives tools to a role.", `{"endpoint":"/tools/enable","methods":{"enable":{"method":"POST","request":` + rulesRequest + `}}}`, ""},
	{
		wire.URNTriggers, "Registers, removes and clears triggers, and tells their state and what they did.",
		`{"endpoint":"/triggers/register","features":["named_executors","provoking_roles","action_delay","executor_hours","unless","website","executor_hours_time_zone"],"methods":{` +
			`"register":{"method":"POST","endpoint":"/triggers/register","request":{"type":"object","properties":{"watch_roles":{"type":"array","items":{"type":"string"}},` +
			`"executor":{"type":"object"},"executors":{"type":"object"},"triggers":{"type":"array"}},"required":["triggers"]}},` +
			`"remove":{"method":"POST","endpoint":"/triggers/remove","request":{"type":"object","properties":{"ids":{"type":"array","items":{"type":"string"}}},"required":["ids"]}},` +
			`"clear":{"method":"POST","endpoint":"/triggers/clear","request":` + noRequest + `},"state":{"method":"GET","endpoint":"/triggers/state","request":` + noRequest + `}}}`, "",
	},
	{
		wire.URNClock, "The environment's virtual time: reads it, sets it, clears it.",
		`{"endpoint":"/clock/time","methods":{"get_time":{"method":"GET","endpoint":"/clock/time"},"set_time":{"method":"PUT","endpoint":"/clock/set-time","request":{"type":"object",` +
			`"properties":{"virtual_time":{"type":"string"},"virtual_seconds_per_real_second":{"type":"number"}},"required":["virtual_time"]}},` +
			`"clear":{"method":"POST","endpoint":"/clock/clear","request":` + noRequest + `},"state":{"method":"GET","endpoint":"/clock/state","request":` + noRequest + `}}}`,
		`{"endpoint":"/clock/time","methods":{"get_time":{"method":"GET","endpoint":"/clock/time"}}}`,
	},
	{
		wire.URNTrajectory, "The record of tool calls, results, fired triggers and requests that wrote, as JSON lines.",
		`{"endpoint":"/trajectory","methods":{"get":{"method":"GET","endpoint":"/trajectory"}}}`, "",
	},
	{wire.URNStep, "Lists or calls tools without MCP.", stepParams, stepParams},
	{
		wire.URNState, "The servers and their tools, names that clash, tools set aside, and the rules of roles.",
		`{"endpoint":"/state","methods":{"get":{"method":"GET","endpoint":"/state"}}}`, "",
	},
	{
		wire.URNChanges, "What changed in the environments' database after an id, and who may have done it.",
		`{"endpoint":"/changes","methods":{"get":{"method":"GET","endpoint":"/changes","request":{"type":"object","properties":{"after_id":{"type":"integer","minimum":0},` +
			`"limit":{"type":"integer","minimum":1,"maximum":10000}}}}}}`, "",
	},
}

// extensions are the gateway's own for the card of a door.
func extensions(owner bool) []wire.Extension {
	out := []wire.Extension{}
	for _, o := range offers {
		params := o.params
		if !owner {
			params = o.agents
		}
		if params == "" {
			continue
		}
		required := false
		out = append(out, wire.Extension{URI: o.uri, Description: o.text, Params: json.RawMessage(params), Required: &required})
	}
	return out
}
