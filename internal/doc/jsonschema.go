package doc

import "slices"

// JSONSchema is the schema for editors and other tools, in JSON Schema's draft 2020-12. What Check adds in code is not in it.
func (s *Schema) JSONSchema() map[string]any {
	m := s.jsonSchema()
	m["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	return m
}

func (s *Schema) jsonSchema() map[string]any {
	props := map[string]any{}
	required := []string{}
	for i := range s.Fields {
		f := &s.Fields[i]
		p := f.Type.jsonSchema()
		if f.Doc != "" {
			p["description"] = f.Doc
		}
		if f.Default != nil {
			p["default"] = Build(f.Default).Any()
		}
		props[f.Name] = p
		if f.Required {
			required = append(required, f.Name)
		}
	}
	m := map[string]any{"type": "object", "properties": props, "additionalProperties": s.Open}
	if len(required) > 0 {
		slices.Sort(required)
		m["required"] = required
	}
	return m
}

var jsonTypes = map[Kind]string{
	Null: "null", Bool: "boolean", Int: "integer", Float: "number", String: "string", Datetime: "string", Array: "array", Object: "object",
}

func (t *Type) jsonSchema() map[string]any {
	m := map[string]any{}
	if t.Fields != nil && slices.Contains(t.Kinds, Object) {
		m = t.Fields.jsonSchema()
	} else if t.Elem != nil && slices.Contains(t.Kinds, Object) {
		m["additionalProperties"] = t.Elem.jsonSchema()
	}
	if types := t.jsonTypes(); len(types) == 1 {
		m["type"] = types[0]
	} else if len(types) > 1 {
		m["type"] = types
	}
	if t.Elem != nil && slices.Contains(t.Kinds, Array) {
		m["items"] = t.Elem.jsonSchema()
	}
	if t.Min != nil {
		m["minimum"] = *t.Min
	}
	if t.Max != nil {
		m["maximum"] = *t.Max
	}
	if t.NonEmpty {
		for k, name := range map[Kind]string{String: "minLength", Array: "minItems", Object: "minProperties"} {
			if slices.Contains(t.Kinds, k) {
				m[name] = 1
			}
		}
	}
	if len(t.OneOf) == 0 {
		return m
	}
	if !slices.ContainsFunc(t.Kinds, func(k Kind) bool { return k != String }) {
		enum := make([]any, 0, len(t.OneOf)+1)
		for _, s := range t.OneOf {
			enum = append(enum, s)
		}
		if t.Null {
			enum = append(enum, nil)
		}
		m["enum"] = enum
		return m
	}
	// The choice holds for strings alone.
	m["if"] = map[string]any{"type": "string"}
	m["then"] = map[string]any{"enum": slices.Clone(t.OneOf)}
	return m
}

func (t *Type) jsonTypes() []string {
	var types []string
	for _, k := range t.Kinds {
		if name, ok := jsonTypes[k]; ok && !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	if t.Null && len(types) > 0 && !slices.Contains(types, "null") {
		types = append(types, "null")
	}
	return types
}
