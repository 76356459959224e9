package task

import (
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// JSONSchema is the JSON Schema (draft 2020-12) of a task document, for editors. It holds what the kinds' tables hold, not the rules
// across fields.
func JSONSchema(kinds *catalog.Set[*step.Kind]) doc.Node {
	defs := map[string]any{}
	var names, variants []any
	for _, name := range kinds.Names() {
		e, _ := kinds.Get(name)
		s := e.Value.Schema().JSONSchema()
		delete(s, "$schema")
		s["description"] = e.Value.Doc
		is := map[string]any{"const": name}
		if props, ok := s["properties"].(map[string]any); ok {
			props["type"] = is
		}
		defs[name] = s
		names = append(names, name)
		variants = append(variants, map[string]any{
			"if":   map[string]any{"properties": map[string]any{"type": is}, "required": []any{"type"}},
			"then": map[string]any{"$ref": "#/$defs/" + name},
		})
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
