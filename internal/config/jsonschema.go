package config

import (
	"strings"

	"agentenv.internal/agentenv/internal/doc"
)

// JSONSchema is the JSON Schema (draft 2020-12) of config.toml, for editors. It is stricter than reading in one way: a key that nobody knows is a
// fault of it everywhere, where reading mostly warns.
func JSONSchema() doc.Node {
	const state = "$XDG_STATE_HOME/agentenv" // the default, as the reader of a schema would spell it
	m := newSchema(state).JSONSchema()
	m["title"] = "AgentEnv config.toml"
	for path, local := range map[string]*doc.Schema{
		"stores.document": localDocument(state), "stores.object": localObject(state), "stores.image": localImage(), "stores.secret": localSecret(),
		"runner": localRunner(),
	} {
		settings := local.JSONSchema()
		delete(settings, "$schema")
		class := m
		for name := range strings.SplitSeq(path, ".") {
			class = member(member(class, "properties"), name)
		}
		class["additionalProperties"] = false
		class["anyOf"] = []any{map[string]any{"const": Local}, map[string]any{"type": "object"}}
		// A class table without impl is the program's own class, and so are its settings.
		class["if"] = map[string]any{"type": "object", "properties": map[string]any{"impl": map[string]any{"const": Local}}}
		class["then"] = map[string]any{"properties": map[string]any{"config": settings}}
	}
	return doc.Build(m)
}

// member is an object inside an object that is known to have it.
func member(m map[string]any, name string) map[string]any {
	v, _ := m[name].(map[string]any)
	return v
}
