package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/plugin"
)

// maxDepth is how deep a schema may nest.
const maxDepth = 32

// Kind is a step type of a plugin as the program knows step types. The error says what is wrong with its schema.
func Kind(t plugin.Type) (*step.Kind, error) {
	k := &step.Kind{Name: t.Name, Doc: t.Description, Scores: t.Scores}
	if len(t.Schema) == 0 || string(t.Schema) == "null" {
		k.Fields.Open = true
	} else {
		s, err := parseSchema(t.Schema, 0)
		if err != nil {
			return nil, fmt.Errorf("the schema of %s: %w", t.Name, err)
		}
		k.Fields = *s
	}
	// What every step has is what the protocol says it is, whatever a plugin writes of it.
	k.Fields.Fields = slices.DeleteFunc(k.Fields.Fields, func(f doc.Field) bool {
		return slices.ContainsFunc(step.Base().Fields, func(b doc.Field) bool { return b.Name == f.Name && b.Name != "fail_task_on_error" })
	})
	for _, r := range t.Refs {
		k.Refs = append(k.Refs, step.Ref{Path: r.Path, Kind: kinds[r.Kind], Type: r.Type, Version: r.Version, Out: r.Out})
	}
	return k, nil
}

var kinds = map[string]ref.Kind{"artifact": ref.Artifact, "env": ref.Env, "agent": ref.Agent, "task": ref.Task}

// jsonSchema is what is understood of a JSON Schema. Everything else in it is the plugin's to check.
type jsonSchema struct {
	Type        json.RawMessage            `json:"type"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`
	Additional  json.RawMessage            `json:"additionalProperties"`
	Items       json.RawMessage            `json:"items"`
	Enum        []any                      `json:"enum"`
	Min         *float64                   `json:"minimum"`
	Max         *float64                   `json:"maximum"`
	MinLength   float64                    `json:"minLength"`
	MinItems    float64                    `json:"minItems"`
	MinProps    float64                    `json:"minProperties"`
	Default     any                        `json:"default"`
	Description string                     `json:"description"`
}

// parseSchema reads the schema of an object.
func parseSchema(raw json.RawMessage, depth int) (*doc.Schema, error) {
	var s jsonSchema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("it is not a JSON Schema: %w", err)
	}
	return s.object(depth)
}

func (s *jsonSchema) object(depth int) (*doc.Schema, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	out := &doc.Schema{Open: len(s.Additional) > 0 && string(s.Additional) != "false"}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		t, p, err := parseType(s.Properties[name], depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		f := doc.Field{Name: name, Type: t, Doc: p.Description, Required: slices.Contains(s.Required, name), Default: p.Default}
		if !f.Required {
			f.Type.Null = true // which reads as absent
		}
		if f.Default != nil && !buildable(f.Default) {
			return nil, fmt.Errorf("%s: its default can't be used", name)
		}
		out.Fields = append(out.Fields, f)
	}
	for _, name := range s.Required {
		if _, ok := s.Properties[name]; !ok {
			out.Fields = append(out.Fields, doc.Field{Name: name, Required: true, Type: anyType()})
		}
	}
	return out, nil
}

func anyType() doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.Bool, doc.Int, doc.Float, doc.String, doc.Array, doc.Object}, Null: true}
}

// words of JSON Schema's types.
var words = map[string][]doc.Kind{
	"boolean": {doc.Bool}, "integer": {doc.Int}, "number": {doc.Float}, "string": {doc.String}, "array": {doc.Array}, "object": {doc.Object},
}

func parseType(raw json.RawMessage, depth int) (doc.Type, jsonSchema, error) {
	var s jsonSchema
	if depth > maxDepth {
		return doc.Type{}, s, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	if string(raw) == "true" {
		return anyType(), s, nil
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return doc.Type{}, s, fmt.Errorf("it is not a JSON Schema: %w", err)
	}
	t, err := s.kinds()
	if err != nil {
		return t, s, err
	}
	t.Min, t.Max = s.Min, s.Max
	t.NonEmpty = s.MinLength >= 1 || s.MinItems >= 1 || s.MinProps >= 1
	texts := true
	for _, v := range s.Enum {
		if v == nil {
			t.Null = true
			continue
		}
		text, ok := v.(string)
		texts = texts && ok
		t.OneOf = append(t.OneOf, text)
	}
	if !texts || !slices.Equal(t.Kinds, []doc.Kind{doc.String}) {
		t.OneOf = nil
	}
	if slices.Contains(t.Kinds, doc.Object) && s.Properties != nil {
		if t.Fields, err = s.object(depth); err != nil {
			return t, s, err
		}
	}
	of := s.Items
	if t.Fields == nil && slices.Contains(t.Kinds, doc.Object) && !slices.Contains(t.Kinds, doc.Array) {
		of = nil
		if string(s.Additional) != "false" && string(s.Additional) != "true" {
			of = s.Additional
		}
		if len(of) == 0 {
			t.Fields = &doc.Schema{Open: string(s.Additional) != "false"}
		}
	}
	if len(of) > 0 && string(of) != "true" && (slices.Contains(t.Kinds, doc.Array) != slices.Contains(t.Kinds, doc.Object) || t.Fields != nil) {
		elem, _, err := parseType(of, depth+1)
		if err != nil {
			return t, s, err
		}
		t.Elem = &elem
	}
	return t, s, nil
}

// kinds reads the member type.
func (s *jsonSchema) kinds() (doc.Type, error) {
	if len(s.Type) == 0 {
		return anyType(), nil
	}
	var names []string
	var one string
	if json.Unmarshal(s.Type, &one) == nil {
		names = []string{one}
	} else if err := json.Unmarshal(s.Type, &names); err != nil || len(names) == 0 {
		return doc.Type{}, fmt.Errorf("its type is neither a word nor a list of words")
	}
	var t doc.Type
	for _, n := range names {
		k, ok := words[n]
		switch {
		case n == "null":
			t.Null = true
		case !ok:
			return t, fmt.Errorf("there is no type %q", n)
		default:
			t.Kinds = append(t.Kinds, k...)
		}
	}
	return t, nil
}

// buildable tells whether doc.Build takes a value.
func buildable(v any) bool {
	switch v := v.(type) {
	case nil, bool, float64, string:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !buildable(e) })
	case map[string]any:
		for _, e := range v {
			if !buildable(e) {
				return false
			}
		}
		return true
	default:
		return false
	}
}
