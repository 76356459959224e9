package cli

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

// fits tells why a value is not of a schema; nil also where the schema itself is one that can't be read here.
func fits(schema, value json.RawMessage) error {
	var s jsonschema.Schema
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	return r.Validate(v)
}
