package env

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// binder turns the JSON object of a call into a Go value of one type, after its schema.
type binder struct {
	schema     *jsonschema.Schema
	advertised json.RawMessage
	resolve    func() (*jsonschema.Resolved, error)
}

// newBinder derives the schema of In, a struct or a map with text keys. Of a struct's fields, json tags give names and what may be left out
// (omitempty, omitzero, pointers), jsonschema the description, enum the values, separated by commas, and default what is meant when absent.
func newBinder(in reflect.Type) (*binder, error) {
	s, err := schemaOf(in)
	if err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, errors.New("its input must be a struct or a map")
	}
	if s.Properties == nil {
		s.Properties = map[string]*jsonschema.Schema{} // written as {}
	}
	raw, err := encode(s)
	if err != nil {
		return nil, err
	}
	if len(s.Properties) == 0 && !bytes.Contains(raw, []byte(`"properties"`)) {
		raw = json.RawMessage(strings.Replace(string(raw), `"type":"object"`, `"type":"object","properties":{}`, 1))
	}
	return &binder{schema: s, advertised: raw, resolve: sync.OnceValues(func() (*jsonschema.Resolved, error) { return s.Resolve(nil) })}, nil
}

// orNull is the schema with null as the default of what may be left out and has none: of one type, for cards, and as a choice of that type and
// null, for lists.
func (b *binder) orNull() (card, listed json.RawMessage, err error) {
	shown := func(change func(p *jsonschema.Schema) *jsonschema.Schema) (json.RawMessage, error) {
		s := *b.schema
		s.Properties = map[string]*jsonschema.Schema{}
		for name, p := range b.schema.Properties {
			if p.Default == nil && !slices.Contains(b.schema.Required, name) {
				one := *p
				p = change(&one)
				p.Default = json.RawMessage("null")
			}
			s.Properties[name] = p
		}
		return encode(&s)
	}
	if card, err = shown(func(p *jsonschema.Schema) *jsonschema.Schema { return p }); err != nil {
		return nil, nil, err
	}
	listed, err = shown(func(p *jsonschema.Schema) *jsonschema.Schema {
		described := p.Description
		p.Description = ""
		return &jsonschema.Schema{Description: described, AnyOf: []*jsonschema.Schema{p, {Type: "null"}}}
	})
	return card, listed, err
}

func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	anything := &jsonschema.Schema{}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[json.RawMessage](): anything,
		reflect.TypeFor[json.Number]():     {Type: "number"},
	}})
	if err != nil {
		return nil, err
	}
	if err := refine(s, t); err != nil {
		return nil, err
	}
	return s, nil
}

// refine takes null out of the types, since models and peers expect one type, and puts in what tags say.
func refine(s *jsonschema.Schema, t reflect.Type) error {
	if s == nil {
		return nil
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return refine(s.Items, t.Elem())
	case reflect.Map:
		return refine(s.AdditionalProperties, t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		p := s.Properties[name]
		if p == nil || !f.IsExported() {
			continue
		}
		if err := refine(p, f.Type); err != nil {
			return err
		}
		if reflect.ValueOf(*p).IsZero() {
			p.Description = "Any JSON." // else its schema is written as true, which some models' endpoints refuse
		}
		if f.Type.Kind() == reflect.Pointer {
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
		}
		if err := refineTags(s, p, name, f.Tag); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func refineTags(s, p *jsonschema.Schema, name string, tag reflect.StructTag) error {
	if words, ok := tag.Lookup("enum"); ok {
		for w := range strings.SplitSeq(words, ",") {
			raw, err := literal(p.Type, w)
			if err != nil {
				return err
			}
			var v any
			if err := json.Unmarshal(raw, &v); err != nil {
				return err
			}
			p.Enum = append(p.Enum, v)
		}
	}
	if d, ok := tag.Lookup("default"); ok {
		raw, err := literal(p.Type, d)
		if err != nil {
			return err
		}
		p.Default = raw
		s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
	}
	return nil
}

// literal is a tag's word as a JSON value of a type.
func literal(typ, word string) (json.RawMessage, error) {
	if typ == "string" {
		return encode(word)
	}
	if !json.Valid([]byte(word)) {
		return nil, fmt.Errorf("%q in its tag is no %s", word, typ)
	}
	return json.RawMessage(word), nil
}

// bind reads arguments (nil is none) into into, which points to the binder's type. Its errors are a caller's fault.
func (b *binder) bind(raw json.RawMessage, into any) error {
	args, err := b.members(raw)
	if err != nil {
		return err
	}
	return b.bindMembers(args, into)
}

func (b *binder) members(raw json.RawMessage) (map[string]json.RawMessage, error) {
	args := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return args, nil
	}
	if err := json.Unmarshal(raw, &args); err != nil || args == nil {
		if string(bytes.TrimSpace(raw)) == "null" {
			return map[string]json.RawMessage{}, nil
		}
		return nil, invalid("want a JSON object")
	}
	return args, nil
}

func (b *binder) bindMembers(args map[string]json.RawMessage, into any) error {
	var wrong []string
	for name, v := range args {
		p := b.schema.Properties[name]
		switch {
		case p == nil && closedObject(b.schema):
			wrong = append(wrong, fmt.Sprintf("%s: there is no such parameter", name))
		case p == nil:
		case string(v) == "null" && !slices.Contains(b.schema.Required, name):
			delete(args, name)
		default:
			args[name] = coerce(p, v)
		}
	}
	for name, p := range b.schema.Properties {
		if _, ok := args[name]; ok {
			continue
		}
		if p.Default != nil {
			args[name] = p.Default
		} else if slices.Contains(b.schema.Required, name) {
			wrong = append(wrong, fmt.Sprintf("%s: it is missing", name))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return invalid("%s", strings.Join(wrong, "; "))
	}
	return b.decode(args, into)
}

func (b *binder) decode(args map[string]json.RawMessage, into any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return invalid("not valid JSON")
	}
	var instance any
	if err := json.Unmarshal(raw, &instance); err != nil {
		return invalid("not valid JSON")
	}
	r, err := b.resolve()
	if err != nil {
		return fmt.Errorf("the tool's schema: %w", err)
	}
	if err := r.Validate(instance); err != nil {
		return invalid("%s", readable(err))
	}
	if err := json.Unmarshal(raw, into); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return invalid("%s: %s doesn't fit", e.Field, e.Value)
		}
		return invalid("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

var steps = regexp.MustCompile(`validating (root|/properties/([^:\s]+)|[^:\s]+): `)

// readable makes "n: …" of a validator's trace.
func readable(err error) string {
	return steps.ReplaceAllStringFunc(err.Error(), func(s string) string {
		m := steps.FindStringSubmatch(s)
		if m[2] == "" {
			return ""
		}
		return strings.ReplaceAll(m[2], "/properties/", ".") + ": "
	})
}

func closedObject(s *jsonschema.Schema) bool {
	return s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil
}

// coerce makes of a text what the schema asks for, where it can be read as that; query strings have texts alone, and models send them too.
func coerce(p *jsonschema.Schema, v json.RawMessage) json.RawMessage {
	var s string
	if json.Unmarshal(v, &s) != nil || string(v) == "null" {
		return v
	}
	t := strings.TrimSpace(s)
	switch p.Type {
	case "boolean":
		switch strings.ToLower(t) {
		case "true", "1", "yes", "on":
			return json.RawMessage("true")
		case "false", "0", "no", "off":
			return json.RawMessage("false")
		}
	case "integer":
		if n, err := strconv.ParseInt(t, 10, 64); err == nil {
			return json.RawMessage(strconv.FormatInt(n, 10))
		}
	case "number":
		if _, err := strconv.ParseFloat(t, 64); err == nil && json.Valid([]byte(t)) {
			return json.RawMessage(t) // as it came: precision stays
		}
	case "array", "object":
		if t != "" && (t[0] == '[' || t[0] == '{') && json.Valid([]byte(t)) {
			return json.RawMessage(t)
		}
	case "string":
		if p.Format == "date-time" {
			return dateTime(t, v)
		}
	}
	return v
}

// dateTime is a time without zone or of day alone as one in UTC.
func dateTime(t string, v json.RawMessage) json.RawMessage {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", time.DateOnly} {
		if at, err := time.Parse(layout, t); err == nil {
			if b, err := at.MarshalJSON(); err == nil {
				return b
			}
		}
	}
	return v
}
