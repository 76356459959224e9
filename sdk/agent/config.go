package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"agentenv.internal/agentenv/sdk/wire"
)

const (
	configPath     = "/ext/agent-config"
	defaultTimeout = 600.0 // seconds
	hiddenValue    = "***"
)

// configType is what agent-config takes.
type configType struct {
	names  []string // sorted
	fields map[string]configField
	base   any // what is meant where nothing was set; nil: there are only the settings that every agent has
	err    error
}

type configField struct {
	typ       reflect.Type
	schema    *jsonschema.Schema
	writeOnly bool
	enum      []string
}

// everyConfig is the settings that every agent has.
type everyConfig struct {
	Name           string  `json:"name" jsonschema:"The agent's name on its card."`
	Description    string  `json:"description" jsonschema:"What its card says it does."`
	Role           string  `json:"role" jsonschema:"The role that tools are called in."`
	TimeoutSeconds float64 `json:"timeout_seconds" jsonschema:"How long the caller means to wait."`
}

func baseConfig() *configType {
	c := &configType{fields: map[string]configField{}}
	c.add(reflect.TypeFor[everyConfig]())
	return c
}

// WithConfig declares further settings: the fields of the struct C, by their json tags, with base as what is meant where nothing was set. Tags:
// jsonschema describes a field, enum lists the texts that it may be, separated by commas, and writeonly:"true" makes it a secret, which is never
// told again. A turn reads them by Config.
func WithConfig[C any](base C) Option {
	return func(a *Agent) {
		if a.config.base != nil {
			a.problem("WithConfig is there twice")
			return
		}
		a.config.base = base
		a.config.add(reflect.TypeFor[C]())
	}
}

// Config is a turn's settings of the type that WithConfig declared; the zero value when it declared another.
func Config[C any](t *Turn) C {
	base, ok := t.store.agent.config.base.(C)
	if !ok {
		var none C
		return none
	}
	own := map[string]json.RawMessage{}
	known := t.store.agent.config.ownNames(reflect.TypeFor[C]())
	for name, raw := range t.set {
		if slices.Contains(known, name) {
			own[name] = raw
		}
	}
	// Through JSON, so that base's own maps and slices are never written to.
	b, err := json.Marshal(base)
	if err == nil {
		err = json.Unmarshal(b, &base)
	}
	if err == nil {
		b, err = json.Marshal(own)
	}
	if err == nil {
		err = json.Unmarshal(b, &base)
	}
	if err != nil { // every field was read by its own type before
		panic(fmt.Sprintf("settings of %T: %v", base, err))
	}
	return base
}

func (c *configType) ownNames(t reflect.Type) []string {
	var out []string
	for _, f := range reflect.VisibleFields(t) {
		if name, ok := jsonName(f); ok {
			out = append(out, name)
		}
	}
	return out
}

func jsonName(f reflect.StructField) (string, bool) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if f.Anonymous || !f.IsExported() || name == "-" {
		return "", false
	}
	if name == "" {
		name = f.Name
	}
	return name, true
}

func (c *configType) add(t reflect.Type) {
	if t.Kind() != reflect.Struct {
		c.err = fmt.Errorf("the settings of WithConfig must be a struct, not %s", t)
		return
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err != nil {
		c.err = fmt.Errorf("the settings of WithConfig: %w", err)
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		name, ok := jsonName(f)
		if !ok {
			continue
		}
		if _, twice := c.fields[name]; twice {
			c.err = errors.Join(c.err, fmt.Errorf("the setting %s is there twice, or is one that every agent has", name))
			continue
		}
		x := configField{typ: f.Type, schema: schema.Properties[name], writeOnly: f.Tag.Get("writeonly") == "true"}
		if x.schema == nil {
			x.schema = &jsonschema.Schema{}
		}
		if x.schema.Types != nil && slices.Contains(x.schema.Types, "null") && len(x.schema.Types) == 2 {
			x.schema.Type = x.schema.Types[1-slices.Index(x.schema.Types, "null")]
			x.schema.Types = nil
		}
		x.schema.Default, x.schema.WriteOnly = nil, x.writeOnly
		if words := f.Tag.Get("enum"); words != "" {
			x.enum = strings.Split(words, ",")
			for _, w := range x.enum {
				x.schema.Enum = append(x.schema.Enum, w)
			}
		}
		c.fields[name] = x
	}
	c.names = slices.Sorted(maps.Keys(c.fields))
}

func (a *Agent) configExtension() (extension, bool, error) {
	c := a.config
	if c.err != nil {
		return extension{}, false, c.err
	}
	schema := jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	for name, f := range c.fields {
		schema.Properties[name] = f.schema
	}
	request, err := encode(map[string]any{"supported": c.names, "schema": &schema})
	if err != nil {
		return extension{}, false, fmt.Errorf("the settings' schema: %w", err)
	}
	return newExtension(wire.URNAgentConfig, "Sets the agent up, and tells how it is.", configPath,
		operation{name: "set", verb: http.MethodPost, path: configPath, request: string(request), serve: a.setConfig},
		operation{name: "get", verb: http.MethodGet, path: configPath, response: `{"required":["config"]}`, serve: a.getConfig})
}

// decode reads the settings that a request sets; null takes one back.
func (c *configType) decode(body []byte) (map[string]json.RawMessage, error) {
	ms, err := wire.ParseObject(body)
	if err != nil {
		return nil, invalid("the body: %v", err)
	}
	f, err := readFields(body, c.names...)
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	for _, m := range ms {
		x, known := c.fields[m.Name]
		switch {
		case !known:
		case string(m.Value) == "null" && (m.Name == "name" || m.Name == "description"):
			f.fail(m.Name, "want a text")
		case string(m.Value) == "null":
			out[m.Name] = nil
		default:
			if why := x.check(m.Value); why != "" {
				f.fail(m.Name, "%s", why)
			}
			out[m.Name] = m.Value
		}
	}
	for _, name := range []string{"name", "description"} {
		var s string
		if raw, ok := out[name]; ok && json.Unmarshal(raw, &s) == nil && strings.TrimSpace(s) == "" {
			f.fail(name, "it must not be blank")
		}
	}
	return out, f.err()
}

// check says what is wrong with a value, without repeating it.
func (x *configField) check(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	v := reflect.New(x.typ)
	if err := d.Decode(v.Interface()); err != nil {
		if x.schema.Type != "" {
			return "it must be of type " + x.schema.Type
		}
		return "it has the wrong type"
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "it has the wrong type"
	}
	var s string
	if x.enum != nil && (json.Unmarshal(raw, &s) != nil || !slices.Contains(x.enum, s)) {
		return "it must be one of " + strings.Join(x.enum, ", ")
	}
	return ""
}

func (a *Agent) setConfig(_ context.Context, body []byte) (any, error) {
	set, err := a.config.decode(body)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, raw := range set {
		if raw == nil {
			delete(a.settings, name)
		} else {
			a.settings[name] = raw
		}
	}
	return map[string]string{"status": "updated"}, nil
}

func (a *Agent) getConfig(context.Context, []byte) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]any{}
	for name, raw := range a.settings {
		if out[name] = any(raw); a.config.fields[name].writeOnly {
			out[name] = hiddenValue
		}
	}
	return map[string]any{"config": out}, nil
}
