package model

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// What references may unfold to: what lies deeper, or comes after so many schemas, takes any value.
const (
	maxDepth   = 12
	maxSchemas = 4096
)

// Lower makes a tool's schema one that a model's endpoint takes: an object at its top without combinations, references replaced by what
// they name, and for Gemini none of the words that it refuses. It may come to allow more than before, never less: the tool's own server
// checks. A schema that is none becomes that of any object.
func Lower(schema json.RawMessage, model string) json.RawMessage {
	var top map[string]any
	if json.Unmarshal(schema, &top) != nil {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	gemini := strings.Contains(strings.ToLower(model), "gemini")
	_, combined := first(top, "anyOf", "oneOf", "allOf")
	_, props := top["properties"].(map[string]any)
	if !gemini && !combined && props && top["type"] == "object" && !strings.Contains(string(schema), `"$ref"`) {
		return schema
	}
	l := lowering{top: top, gemini: gemini, left: maxSchemas}
	out, _ := l.schema(top, 0).(map[string]any)
	out = flat(out)
	out["type"] = "object"
	if _, ok := out["properties"].(map[string]any); !ok {
		out["properties"] = map[string]any{}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return b
}

func first(m map[string]any, names ...string) (string, bool) {
	for _, n := range names {
		if _, ok := m[n]; ok {
			return n, true
		}
	}
	return "", false
}

type lowering struct {
	top    map[string]any
	gemini bool
	left   int
}

// schema lowers one schema, which may be a bool.
func (l *lowering) schema(v any, depth int) any {
	m, ok := v.(map[string]any)
	if l.left--; !ok || depth > maxDepth || l.left < 0 {
		return map[string]any{}
	}
	if r, ok := m["$ref"].(string); ok {
		to := l.find(r)
		if to == nil {
			return map[string]any{}
		}
		beside := maps.Clone(m)
		delete(beside, "$ref")
		if low, ok := l.schema(to, depth+1).(map[string]any); ok {
			maps.Copy(low, beside)
			return low
		}
		return map[string]any{}
	}
	out := map[string]any{}
	for k, v := range m {
		switch k {
		case "$schema", "$id", "$defs", "definitions", "$comment", "$anchor":
		case "properties", "patternProperties":
			ps := map[string]any{}
			if of, ok := v.(map[string]any); ok {
				for name, p := range of {
					ps[name] = l.schema(p, depth+1)
				}
			}
			out[k] = ps
		case "items", "additionalProperties", "not", "contains":
			if _, isBool := v.(bool); isBool {
				out[k] = v
			} else {
				out[k] = l.schema(v, depth+1)
			}
		case "anyOf", "oneOf", "allOf", "prefixItems":
			var list []any
			if of, ok := v.([]any); ok {
				for _, e := range of {
					list = append(list, l.schema(e, depth+1))
				}
			}
			out[k] = list
		default:
			out[k] = v
		}
	}
	if l.gemini {
		lowerGemini(out)
	}
	return out
}

// find follows a reference inside the document.
func (l *lowering) find(r string) any {
	path, ok := strings.CutPrefix(r, "#")
	if !ok {
		return nil
	}
	var at any = l.top
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}

// lowerGemini takes out what its API answers 400 to.
func lowerGemini(m map[string]any) {
	if c, ok := m["const"]; ok {
		m["enum"] = []any{c}
	}
	if ts, ok := m["type"].([]any); ok {
		var kept []any
		for _, t := range ts {
			if t == "null" {
				m["nullable"] = true
			} else {
				kept = append(kept, t)
			}
		}
		delete(m, "type")
		if len(kept) == 1 {
			m["type"] = kept[0]
		} else if len(kept) > 1 {
			var any []any
			for _, t := range kept {
				any = append(any, map[string]interface{}{"type": t})
			}
			m["anyOf"] = any
		}
	}
	if one, ok := m["oneOf"]; ok {
		m["anyOf"] = one
	}
	if f, ok := m["format"].(string); ok && f != "enum" && f != "date-time" {
		delete(m, "format")
	}
	for _, k := range []string{
		"const", "oneOf", "not", "additionalProperties", "patternProperties", "unevaluatedProperties", "exclusiveMinimum",
		"exclusiveMaximum", "multipleOf", "prefixItems", "contains", "examples", "readOnly", "writeOnly", "deprecated", "title", "default",
	} {
		delete(m, k)
	}
}

// flat takes combinations off the top: all that any branch may hold, and what every one demands.
func flat(m map[string]any) map[string]any {
	if m == nil {
		m = map[string]any{}
	}
	name, ok := first(m, "allOf", "anyOf", "oneOf")
	if !ok {
		return m
	}
	branches, _ := m[name].([]any)
	delete(m, name)
	props, _ := m["properties"].(map[string]any)
	props = maps.Clone(props)
	if props == nil {
		props = map[string]any{}
	}
	required, _ := m["required"].([]any)
	var common []any
	for i, b := range branches {
		of, _ := b.(map[string]any)
		of = flat(of)
		ps, _ := of["properties"].(map[string]any)
		for k, v := range ps {
			if old, clash := props[k]; clash && !equal(old, v) {
				v = map[string]any{}
			}
			props[k] = v
		}
		req, _ := of["required"].([]any)
		switch {
		case name == "allOf", i == 0:
			common = append(common, req...)
		default:
			common = slices.DeleteFunc(common, func(e any) bool { return !slices.Contains(req, e) })
		}
	}
	for _, r := range common {
		if _, isText := r.(string); isText && !slices.Contains(required, r) {
			required = append(required, r)
		}
	}
	m["properties"] = props
	if len(required) > 0 {
		m["required"] = required
	}
	delete(m, "additionalProperties")
	return flat(m)
}

func equal(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
