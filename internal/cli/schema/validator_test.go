package schema

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/doc"
)

// validator is the part of JSON Schema 2020-12 that our schemas use. A keyword that it doesn't know fails the test, so that no schema says what
// isn't checked here.
type validator struct {
	t    testing.TB
	root map[string]any
}

func newValidator(t testing.TB, schema doc.Node) *validator {
	t.Helper()
	root, ok := schema.Any().(map[string]any)
	if !ok || root["$schema"] != "https://json-schema.org/draft/2020-12/schema" || root["title"] == nil {
		t.Fatalf("no schema of its own: %.100s", doc.JSON(schema))
	}
	return &validator{t, root}
}

// valid tells whether v is what the schema describes.
func (v *validator) valid(n doc.Node) bool { return v.check(v.root, n.Any()) }

func (v *validator) check(schema any, value any) bool {
	if ok, is := schema.(bool); is {
		return ok
	}
	s, is := schema.(map[string]any)
	if !is {
		v.t.Fatalf("%v is no schema", schema)
	}
	ok := true
	for keyword, arg := range s {
		ok = v.keyword(s, keyword, arg, value) && ok
	}
	return ok
}

func (v *validator) keyword(s map[string]any, keyword string, arg, value any) bool {
	list, _ := arg.([]any)
	switch keyword {
	case "$schema", "title", "description", "default", "$defs", "then", "properties", "additionalProperties":
		// then goes with if; the two about members are looked at once, below
		if o, is := value.(map[string]any); is && (keyword == "properties" || keyword == "additionalProperties" && s["properties"] == nil) {
			return v.members(s, o)
		}
		return true
	case "$ref":
		name, ok := strings.CutPrefix(arg.(string), "#/$defs/")
		def := v.root["$defs"].(map[string]any)[name]
		if !ok || def == nil {
			v.t.Fatalf("$ref to %v", arg)
		}
		return v.check(def, value)
	case "type":
		if len(list) == 0 {
			list = []any{arg}
		}
		return slices.ContainsFunc(list, func(name any) bool { return isType(name.(string), value) })
	case "enum":
		return slices.ContainsFunc(list, func(e any) bool { return reflect.DeepEqual(e, value) })
	case "const":
		return reflect.DeepEqual(arg, value)
	case "allOf":
		return !slices.ContainsFunc(list, func(e any) bool { return !v.check(e, value) })
	case "anyOf":
		return slices.ContainsFunc(list, func(e any) bool { return v.check(e, value) })
	case "not":
		return !v.check(arg, value)
	case "if":
		return !v.check(arg, value) || v.check(s["then"], value)
	}
	switch value := value.(type) {
	case string:
		return v.text(keyword, arg, value)
	case []any:
		return v.array(keyword, arg, value)
	case map[string]any:
		return v.object(keyword, arg, list, value)
	case int64:
		return v.number(keyword, arg, float64(value))
	case float64:
		return v.number(keyword, arg, value)
	default:
		return v.known(keyword)
	}
}

// known lets a keyword pass that says nothing of a value's kind.
func (v *validator) known(keyword string) bool {
	if !slices.Contains([]string{"pattern", "minLength", "items", "minItems", "maxItems", "uniqueItems", "required", "minProperties", "minimum", "maximum"}, keyword) {
		v.t.Fatalf("the validator of the tests doesn't know the keyword %q", keyword)
	}
	return true
}

func (v *validator) text(keyword string, arg any, s string) bool {
	switch keyword {
	case "pattern":
		return regexp.MustCompile(arg.(string)).MatchString(s)
	case "minLength":
		return int64(utf8.RuneCountInString(s)) >= arg.(int64)
	}
	return v.known(keyword)
}

func (v *validator) array(keyword string, arg any, a []any) bool {
	switch keyword {
	case "items":
		return !slices.ContainsFunc(a, func(e any) bool { return !v.check(arg, e) })
	case "minItems":
		return int64(len(a)) >= arg.(int64)
	case "maxItems":
		return int64(len(a)) <= arg.(int64)
	case "uniqueItems":
		for i := range a {
			if slices.ContainsFunc(a[:i], func(e any) bool { return reflect.DeepEqual(e, a[i]) }) {
				return false
			}
		}
		return true
	}
	return v.known(keyword)
}

func (v *validator) object(keyword string, arg any, list []any, o map[string]any) bool {
	switch keyword {
	case "required":
		return !slices.ContainsFunc(list, func(name any) bool { _, ok := o[name.(string)]; return !ok })
	case "minProperties":
		return int64(len(o)) >= arg.(int64)
	}
	return v.known(keyword)
}

func (v *validator) members(s, o map[string]any) bool {
	props, _ := s["properties"].(map[string]any)
	for name, value := range o {
		if p, ok := props[name]; ok {
			if !v.check(p, value) {
				return false
			}
		} else if more, ok := s["additionalProperties"]; ok && !v.check(more, value) {
			return false
		}
	}
	return true
}

func (v *validator) number(keyword string, arg any, f float64) bool {
	limit := 0.0
	switch arg := arg.(type) {
	case int64:
		limit = float64(arg)
	case float64:
		limit = arg
	}
	switch keyword {
	case "minimum":
		return f >= limit
	case "maximum":
		return f <= limit
	}
	return v.known(keyword)
}

func isType(name string, value any) bool {
	switch value := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case int64:
		return name == "integer" || name == "number"
	case float64:
		return name == "number" || name == "integer" && value == math.Trunc(value)
	case string:
		return name == "string"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	default:
		panic(fmt.Sprintf("%T", value))
	}
}

func TestValidator(t *testing.T) {
	for _, tt := range []struct {
		schema, value string
		want          bool
	}{
		{`{"type":["string","null"]}`, `null`, true},
		{`{"type":["string","null"]}`, `1`, false},
		{`{"type":"integer"}`, `1.5`, false},
		{`{"type":"number","minimum":1,"maximum":2}`, `2`, true},
		{`{"type":"number","minimum":1,"maximum":2}`, `0.5`, false},
		{`{"minLength":1,"pattern":"^a"}`, `"b"`, false},
		{`{"minLength":1,"pattern":"^a"}`, `7`, true},
		{`{"required":["a"],"properties":{"a":{"enum":[1,"x"]}},"additionalProperties":false}`, `{"a":"x"}`, true},
		{`{"required":["a"],"properties":{"a":{"enum":[1,"x"]}},"additionalProperties":false}`, `{"a":"x","b":1}`, false},
		{`{"required":["a"],"properties":{"a":{"enum":[1,"x"]}}}`, `{"b":1}`, false},
		{`{"additionalProperties":{"type":"string"}}`, `{"b":1}`, false},
		{`{"items":{"const":1},"minItems":1,"uniqueItems":true}`, `[1]`, true},
		{`{"items":{"const":1},"minItems":1,"uniqueItems":true}`, `[1,1]`, false},
		{`{"items":{"const":1},"minItems":1}`, `[]`, false},
		{`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, false},
		{`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"c":1}`, true},
		{`{"not":{"type":"string"},"anyOf":[{"const":1},{"const":2}],"allOf":[{"minimum":2}]}`, `2`, true},
		{`{"not":{"type":"string"},"anyOf":[{"const":1},{"const":2}],"allOf":[{"minimum":2}]}`, `1`, false},
		{`{"$ref":"#/$defs/x","$defs":{"x":{"type":"string"}}}`, `"a"`, true},
		{`{"$ref":"#/$defs/x","$defs":{"x":{"type":"string"}}}`, `1`, false},
	} {
		s, l := doc.ParseJSON("s", []byte(`{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"t",`+tt.schema[1:]))
		n, l2 := doc.ParseJSON("v", []byte(tt.value))
		if len(l)+len(l2) > 0 {
			t.Fatal(l, l2)
		}
		if got := newValidator(t, s.Root()).valid(n.Root()); got != tt.want {
			t.Errorf("%s of %s: %v", tt.value, tt.schema, got)
		}
	}
}
