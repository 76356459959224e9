package schema

import (
	"maps"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// document is one that people write.
type document struct {
	name  string // what the command calls it
	file  string // where it lies
	about string
	make  func() doc.Node
}

// documents are all that have a schema.
func documents() []document {
	return []document{
		{"task", "tasks/<name>.json", "a task: its steps", func() doc.Node { return task.JSONSchema(step.Kinds()) }},
		{"env.toml", "envs/<name>/env.toml", "an environment", envToml},
		{"agent.toml", "agents/<name>/agent.toml", "an agent", agentToml},
		{"artifact.toml", "artifacts/<name>/artifact.toml", "an artifact", artifactToml},
		{"eval.toml", "evals/<name>.toml", "an eval: tasks that are summed up", evalToml},
		{"aliases.toml", "aliases.toml", "other names of a bundle's agents and envs", aliasesToml},
		{"bundle.toml", "bundle.toml", "the plugins that a bundle requires", bundleToml},
		{"config.toml", ".agentenv/config.toml", "the program's configuration", config.JSONSchema},
	}
}

type object = map[string]any

// root makes a schema of its own of an object's schema.
func root(title string, s object) doc.Node {
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "AgentEnv " + title
	return doc.Build(s)
}

// fields is the generated schema of a table, with some properties put in the place of generated ones. Their descriptions stay.
func fields(s *doc.Schema, better object) object {
	out := s.JSONSchema()
	delete(out, "$schema")
	props, _ := out["properties"].(object)
	for name, p := range better {
		have, ok := props[name].(object)
		if !ok {
			continue
		}
		p := maps.Clone(p.(object))
		if text, ok := have["description"]; ok {
			p["description"] = text
		}
		props[name] = p
	}
	return out
}

// localID is an id that a bundle's document declares.
func localID() object { return object{"type": "string", "pattern": "^" + ref.LocalPrefix} }

// reference is a name or an id, or a table that pins a version.
func reference(k ref.Kind) object {
	return object{"anyOf": []any{
		object{"type": "string", "minLength": 1},
		table(string(k), object{string(k): object{"type": "string", "minLength": 1}, "version": object{"type": "integer", "minimum": 1}}),
	}}
}

// table is a closed table with one required member.
func table(required string, props object) object {
	return object{"type": "object", "properties": props, "required": []any{required}, "additionalProperties": false}
}

// imageKey is what the keys of images take.
func imageKey() object {
	text := object{"type": "string"}
	forms, _ := reference(ref.Artifact)["anyOf"].([]any)
	return object{"anyOf": append(forms, table("dockerfile", object{"dockerfile": text}), table("ref", object{"ref": text}))}
}

// byType makes one schema of those of each type; absent is that of a document that names none.
func byType(types []string, of func(string) object, absent object) object {
	names := make([]any, len(types))
	all := []any{object{"if": object{"not": object{"required": []any{"type"}}}, "then": absent}}
	for i, typ := range types {
		names[i] = typ
		all = append(all, object{"if": object{"required": []any{"type"}, "properties": object{"type": object{"const": typ}}}, "then": of(typ)})
	}
	return object{"type": "object", "properties": object{"type": object{"enum": names}}, "allOf": all}
}

func envToml() doc.Node {
	of := func(typ string) object {
		s, _ := env.Schema(typ)
		better := object{"id": localID()}
		for _, img := range env.Images(typ) {
			better[img.Key] = imageKey()
		}
		for _, r := range env.Refs(typ) {
			if better[r.Key] = reference(ref.Env); !r.One {
				better[r.Key] = object{"type": "array", "items": reference(ref.Env)}
			}
		}
		return fields(s, better)
	}
	return root("env.toml", byType(env.Types(), of, of(env.MCPServer)))
}

func agentToml() doc.Node {
	return root("agent.toml", fields(agent.Schema(), object{"id": localID(), agent.ImageKey: imageKey()}))
}

func artifactToml() doc.Node {
	var types []string
	for _, typ := range artifact.Types() {
		if _, ok := artifact.Schema(typ); ok {
			types = append(types, typ)
		}
	}
	of := func(typ string) object {
		s, _ := artifact.Schema(typ)
		return fields(s, object{
			"id": localID(), "file": reference(ref.Artifact),
			"environment_artifacts": object{"type": "array", "items": reference(ref.Artifact)},
		})
	}
	// Without a type it is one of three, by what the folder holds.
	absent := of(artifact.File)
	props, _ := absent["properties"].(object)
	for _, typ := range []string{artifact.DockerImage, artifact.FileUniverse} {
		more, _ := of(typ)["properties"].(object)
		for name, p := range more {
			if _, ok := props[name]; !ok {
				props[name] = p
			}
		}
	}
	return root("artifact.toml", byType(types, of, absent))
}

func evalToml() doc.Node {
	return root("eval.toml", fields(task.EvalSchema(), object{
		"id": localID(), "tasks": object{"type": "array", "minItems": 1, "items": reference(ref.Task)},
	}))
}

func aliasesToml() doc.Node {
	names := object{"type": "object", "additionalProperties": object{
		"type": "array", "minItems": 1, "uniqueItems": true, "items": object{"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$"},
	}}
	named := func(what string) object {
		p := maps.Clone(names)
		p["description"] = what + `: folder = ["other-name"]`
		return p
	}
	return root("aliases.toml", object{
		"type": "object", "properties": object{"agents": named("other names of agents"), "envs": named("other names of envs")}, "additionalProperties": false,
	})
}

func bundleToml() doc.Node {
	return root("bundle.toml", object{
		"type": "object", "additionalProperties": false, "properties": object{"requires": object{
			"type": "array", "items": object{"type": "string", "pattern": `\S`}, "description": "plugins to have, as PEP 508 requirements",
		}},
	})
}
