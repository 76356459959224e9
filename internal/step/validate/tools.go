package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/wire"
)

// CheckTools reads the schema of every tool of every server: a tool and each of its arguments say what they are for, and what they take.
func CheckTools(ctx context.Context, v *deploy.Env) ([]step.Row, error) {
	var out []step.Row
	for _, name := range withTools(v) {
		tools, err := toolsOf(ctx, v, name)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		switch {
		case err != nil:
			out = append(out, outcome(name, "the server lists its tools", err.Error()))
		case len(tools) == 0:
			out = append(out, skipped(name, "the tools of the server", "it has none"))
		}
		for _, t := range tools {
			row := outcome(name, "schema of "+t.Name, strings.Join(schemaFaults(t), "; "))
			row["tool_name"] = t.Name
			out = append(out, row)
		}
	}
	return out, nil
}

// withTools are the servers that agents call tools of: websites have none.
func withTools(v *deploy.Env) []string {
	var out []string
	for _, s := range v.Servers {
		if !s.Website {
			out = append(out, s.Name)
		}
	}
	return out
}

func toolsOf(ctx context.Context, v *deploy.Env, name string) ([]wire.Tool, error) {
	t, done := target(v, name)
	defer done()
	return conformance.Tools(ctx, t)
}

// schemaFaults is what is wrong with a tool, sorted by where.
func schemaFaults(t wire.Tool) []string {
	var f faults
	if strings.TrimSpace(t.Description) == "" {
		f.add("", "it has no description")
	}
	var root map[string]json.RawMessage
	if json.Unmarshal(t.InputSchema, &root) != nil || root == nil {
		f.add("", "its input schema is no object")
		return f
	}
	f.schema("", root, 0)
	if string(root["type"]) != `"object"` {
		f.add("", `its input schema is not of type "object"`)
	}
	return f
}

type faults []string

func (f *faults) add(at, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at != "" {
		text = at + ": " + text
	}
	*f = append(*f, text)
}

// maxDepth bounds schemas within schemas.
const maxDepth = 20

// typed are the keywords that say what a value is where no type does.
var typed = []string{"$ref", "anyOf", "oneOf", "allOf", "enum", "const"}

// schema checks one schema and those within it. at is where it is: "filter.tags[]"; "" is a tool's whole input.
func (f *faults) schema(at string, members map[string]json.RawMessage, depth int) {
	if depth > maxDepth {
		f.add(at, "it is nested more than %d deep", maxDepth)
		return
	}
	types := typesOf(members["type"])
	if types == nil && !slices.ContainsFunc(typed, func(k string) bool { return members[k] != nil }) && at != "" {
		f.add(at, "it has no type")
	}
	if e, has := members["enum"]; has {
		f.enum(at, e, types)
	}
	if slices.Contains(types, "array") {
		if items, has := members["items"]; !has {
			f.add(at, "it is an array without items")
		} else if string(items) != "true" {
			f.child(at+"[]", items, depth)
		}
	}
	if slices.Contains(types, "object") || members["properties"] != nil {
		f.object(at, members, depth)
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		var list []json.RawMessage
		if members[k] != nil && json.Unmarshal(members[k], &list) != nil {
			f.add(at, "its %s is no list", k)
		}
		for _, s := range list {
			f.child(at, s, depth)
		}
	}
}

// child checks a schema within another.
func (f *faults) child(at string, raw json.RawMessage, depth int) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		f.add(at, "its schema is no object")
		return
	}
	f.schema(at, members, depth+1)
}

func (f *faults) object(at string, members map[string]json.RawMessage, depth int) {
	var props map[string]json.RawMessage
	switch raw, has := members["properties"]; {
	case !has:
		if at != "" && members["additionalProperties"] == nil && members["patternProperties"] == nil {
			f.add(at, "it is an object and says neither properties nor additionalProperties")
		}
	case json.Unmarshal(raw, &props) != nil || props == nil:
		f.add(at, "its properties are no object")
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		f.child(strings.TrimPrefix(at+"."+diag.Clean(name), "."), props[name], depth)
	}
	var required []string
	if raw, has := members["required"]; has && json.Unmarshal(raw, &required) != nil {
		f.add(at, "required is no list of names")
	}
	for _, name := range required {
		if _, has := props[name]; !has {
			f.add(at, "required names %s, which is none of the properties", diag.Repr(name))
		}
	}
}

func (f *faults) enum(at string, raw json.RawMessage, types []string) {
	var values []any
	if json.Unmarshal(raw, &values) != nil || len(values) == 0 {
		f.add(at, "its enum holds no values")
		return
	}
	for _, v := range values {
		if types != nil && !slices.ContainsFunc(types, func(t string) bool { return isOf(v, t) }) {
			f.add(at, "its enum holds %s, which is not of type %s", show(v), strings.Join(types, " or "))
		}
	}
}

// typesOf are the types that a schema's type names; nil for none.
func typesOf(raw json.RawMessage) []string {
	var one string
	var list []string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	_ = json.Unmarshal(raw, &list)
	return list
}

func isOf(v any, typ string) bool {
	switch v := v.(type) {
	case nil:
		return typ == "null"
	case bool:
		return typ == "boolean"
	case string:
		return typ == "string"
	case float64:
		return typ == "number" || typ == "integer" && v == float64(int64(v))
	case []any:
		return typ == "array"
	default:
		return typ == "object"
	}
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return diag.Clean(string(b))
}
