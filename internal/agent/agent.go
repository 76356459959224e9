// Package agent holds what an agent.toml may say. It is pure; running agents is the work of its children.
package agent

import (
	"agentenv.internal/agentenv/internal/doc"
)

// A2A is the one type of agents: a server of the A2A protocol in an image.
const A2A = "a2a_agent"

// Types are all of them.
func Types() []string { return []string{A2A} }

// ImageKey is the key that says which image the agent is made of; ImageSuffix follows the agent's id in the image's.
const (
	ImageKey    = "image"
	ImageSuffix = "__agent_image"
)

// Schema is the strict schema of an agent.toml. The image key takes any value: its form is checked where it is resolved.
func Schema() *doc.Schema {
	text := doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}
	least := 0.0
	return &doc.Schema{Fields: []doc.Field{
		{Name: "type", Type: doc.Type{Kinds: []doc.Kind{doc.String}, OneOf: Types()}, Doc: "type of agent"},
		{Name: "id", Type: text, Doc: "id; absent: that of its folder"},
		{Name: ImageKey, Doc: "image; absent: the folder's Dockerfile"},
		{
			Name: "default_env_vars", Doc: "environment that every deployment gets",
			Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &doc.Type{Kinds: []doc.Kind{doc.String}}},
		},
		{Name: "metadata", Doc: "what deployments go by", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: &doc.Schema{Fields: []doc.Field{
			{Name: "default_model", Type: text, Doc: "model, where neither run nor config names one"},
			{Name: "min_disk_size_gb", Type: doc.Type{Kinds: []doc.Kind{doc.Float}, Min: &least}, Doc: "least disk in GB"},
			{Name: "takes_credentials", Type: doc.Type{Kinds: []doc.Kind{doc.Bool}}, Doc: "false: it gets no model credentials"},
		}}}},
	}}
}
