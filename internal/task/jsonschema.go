package task

import (
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// JSONSchema is the JSON Schema (2020-12) of a task document, for editors. It holds what the kinds' tables hold, not their rules across fields.
func JSONSchema(kinds *catalog.Set[*step.Kind]) doc.Node {
	defs := map[string]any{}
	var variants []any
	for _, name := range kinds.Names() {
		e, _ := kinds.Get(name)
		s := object(e.Value.Schema())
		s["description"] = e.Value.Doc
		s["properties"].(map[string]any)["type"] = map[string]any{"const": name}
		defs[name] = s
		variants = append(variants, map[string]any{
			"if":   map[string]any{"properties": map[string]any{"type": map[string]any{"const": name}}},
			"then": map[string]any{"$ref": "#/$defs/" + name},
		})
	}
	names := make([]any, 0, len(defs))
	for _, n := range kinds.Names() {
		names = append(names, n)
	}
	return doc.Build(map[string]any{
		"$schema":  "https://json-schema.org/draft/2020-12/schema",
		"title":    "AgentEnv task",
		"type":     "array",
		"minItems": 1,
		"maxItems": MaxSteps,
		"items": map[string]any{
			"type":       "object",
			"required":   []any{"id", "type"},
			"properties": map[string]any{"type": map[string]any{"enum": names}},
			"allOf":      variants,
		},
		"$defs": defs,
	})
}

func object(s *doc.Schema) map[string]any {
	props := map[string]any{}
	required := []any{}
	for _, f := range s.Fields {
		p := schemaOf(f.Type)
		p["description"] = f.Doc
		if f.Default != nil {
			p["default"] = f.Default
		}
		props[f.Name] = p
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return map[string]any{"type": "object", "properties": props, "required": required, "additionalProperties": s.Open}
}

var typeNames = [...]string{
	doc.Null: "null", doc.Bool: "boolean", doc.Int: "integer", doc.Float: "number", doc.String: "string", doc.Datetime: "string",
	doc.Array: "array", doc.Object: "object",
}

func schemaOf(t doc.Type) map[string]any {
	m := map[string]any{}
	var types []any
	for _, k := range t.Kinds {
		types = append(types, typeNames[k])
		switch {
		case k == doc.String && t.NonEmpty:
			m["minLength"] = 1
		case k == doc.Array:
			if t.Elem != nil {
				m["items"] = schemaOf(*t.Elem)
			}
			if t.NonEmpty {
				m["minItems"] = 1
			}
		case k == doc.Object && t.Fields != nil:
			for key, v := range object(t.Fields) {
				if key != "type" {
					m[key] = v
				}
			}
		case k == doc.Object && t.Elem != nil:
			m["additionalProperties"] = schemaOf(*t.Elem)
		}
	}
	if t.Null {
		types = append(types, "null")
	}
	switch len(types) {
	case 0:
	case 1:
		m["type"] = types[0]
	default:
		m["type"] = types
	}
	if len(t.OneOf) > 0 {
		words := make([]any, 0, len(t.OneOf)+1)
		for _, w := range t.OneOf {
			words = append(words, w)
		}
		if t.Null {
			words = append(words, nil)
		}
		m["enum"] = words
	}
	if t.Min != nil {
		m["minimum"] = *t.Min
	}
	if t.Max != nil {
		m["maximum"] = *t.Max
	}
	return m
}
