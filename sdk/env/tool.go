package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/wire"
)

// tool is a tool as served.
type tool struct {
	name        string
	title       string
	description string
	hidden      bool
	annotations *mcp.ToolAnnotations
	meta        map[string]any
	in          *binder
	nullable    bool
	card        json.RawMessage // input schema on the card
	listed      json.RawMessage // input schema in lists
	out         json.RawMessage // output schema; nil is none
	outErr      error
	run         func(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error)
}

// ToolOption changes a tool as it is added.
type ToolOption func(*tool)

// Hidden makes a tool invisible to every role until a rule names it: it is for what tasks drive and the agent under test must not see.
func Hidden() ToolOption { return func(t *tool) { t.hidden = true } }

// Title is the tool's name for people.
func Title(s string) ToolOption { return func(t *tool) { t.title = s } }

// Annotations are hints for clients, such as that the tool only reads.
func Annotations(a mcp.ToolAnnotations) ToolOption {
	return func(t *tool) { t.annotations = &a }
}

// Meta puts a member into the tool's _meta.
func Meta(key string, value any) ToolOption {
	return func(t *tool) { t.meta[key] = value }
}

// Nullable lists parameters that may be left out, and mean nothing then, as values or null that are null by default; the card keeps one type.
func Nullable() ToolOption { return func(t *tool) { t.nullable = true } }

// Returns declares what the structured content of a tool's results is, a struct, for tools that return *mcp.CallToolResult.
func Returns[T any]() ToolOption {
	return func(t *tool) {
		s, err := schemaOf(reflect.TypeFor[T]())
		if err == nil {
			t.out, err = encode(s)
		}
		t.outErr = err
	}
}

// AddTool adds a tool. name may hold {environment_name}. In is a struct or a map with text keys; its schema comes from its fields: json tags give
// names and what may be left out (omitempty, omitzero, pointers), jsonschema the description, enum the values, separated by commas, default
// what is meant when absent. Texts that can be read as what a field asks for are taken as that.
//
// Out becomes the result: a text, number, list or truth value as {"result": …}, a struct or map as it is, struct{} as nothing, a
// *mcp.CallToolResult (images, several parts) untouched.
func AddTool[In, Out any](e *Env, name, description string, h func(ctx context.Context, in In) (Out, error), opts ...ToolOption) {
	e.addTool(name, description, reflect.TypeFor[In](), reflect.TypeFor[Out](), func(ctx context.Context, bind func(into any) error) (any, error) {
		var in In
		if err := bind(&in); err != nil {
			return nil, err
		}
		return h(ctx, in)
	}, opts)
}

// handler is an author's function behind its types: AddTool and AddExtension are a copy for each pair of them, so that all else is below.
type handler func(ctx context.Context, bind func(into any) error) (any, error)

func (e *Env) addTool(name, description string, in, out reflect.Type, h handler, opts []ToolOption) {
	b, err := newBinder(in)
	if err != nil {
		e.problem("tool %s: %w", name, err)
		return
	}
	wrap, schema, err := output(out)
	if err != nil {
		e.problem("tool %s: its result: %w", name, err)
		return
	}
	t := &tool{name: name, description: description, in: b, out: schema, meta: map[string]any{}}
	for _, o := range opts {
		o(t)
	}
	if t.hidden {
		t.meta[wire.HiddenMeta] = true
	}
	if t.outErr != nil {
		e.problem("tool %s: its result: %w", name, t.outErr)
	}
	if t.card, t.listed = b.advertised, b.advertised; t.nullable {
		if t.card, t.listed, err = b.orNull(); err != nil {
			e.problem("tool %s: %w", name, err)
		}
	}
	t.run = func(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
		out, err := guarded(ctx, e.log, t.name, func() (any, error) {
			return h(ctx, func(into any) error { return b.bind(args, into) })
		})
		if err != nil {
			return nil, err
		}
		return wrap(out)
	}
	e.tools = append(e.tools, t)
}

// output says how values of a type become results, and their schema.
func output(typ reflect.Type) (func(any) (*mcp.CallToolResult, error), json.RawMessage, error) {
	if typ == reflect.TypeFor[*mcp.CallToolResult]() {
		return func(v any) (*mcp.CallToolResult, error) {
			r, _ := v.(*mcp.CallToolResult)
			if r == nil {
				r = &mcp.CallToolResult{}
			}
			return r, nil
		}, nil, nil
	}
	bare := typ
	for bare.Kind() == reflect.Pointer {
		bare = bare.Elem()
	}
	switch {
	case bare.Kind() == reflect.Interface || bare.Kind() == reflect.Map || bare == reflect.TypeFor[json.RawMessage]():
		return dynamic, nil, nil
	case bare.Kind() == reflect.Struct && bare.NumField() == 0:
		return func(any) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
		}, nil, nil
	}
	s, err := schemaOf(typ)
	if err != nil {
		return nil, nil, err
	}
	if bare.Kind() == reflect.Struct && s.Type == "object" {
		raw, err := encode(s)
		return dynamic, raw, err
	}
	raw, err := encode(&jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"result": s}, Required: []string{"result"}})
	return func(v any) (*mcp.CallToolResult, error) {
		b, err := encode(v)
		if err != nil {
			return nil, err
		}
		text := string(b)
		if s, ok := v.(string); ok {
			text = s
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: json.RawMessage(`{"result":` + string(b) + `}`)}, nil
	}, raw, err
}

// dynamic shows a value as JSON text and, when it is an object, as structured content too.
func dynamic(v any) (*mcp.CallToolResult, error) {
	b, err := encode(v)
	if err != nil {
		return nil, err
	}
	if string(b) == "null" {
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	}
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(b)}}}
	if b[0] == '{' {
		r.StructuredContent = b
	}
	return r, nil
}

// call answers a tools/call. Whatever goes wrong is a result that says so, never a protocol error.
func (e *Env) call(ctx context.Context, c *Call, name string, args json.RawMessage) *mcp.CallToolResult {
	i := e.find(name)
	if i < 0 {
		return failed("Unknown tool: "+name, nil)
	}
	t := e.tools[i]
	if !e.allowed(c.Role, name, t.hidden) {
		role := c.Role
		if role == "" {
			role = wire.DefaultRole
		}
		return failedBy(Fail(wire.CodePermissionDenied, "Tool '%s' is disabled for role '%s'", name, role))
	}
	c.Tool, c.Arguments = name, args
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	e.calls[c] = cancel
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.calls, c)
		e.mu.Unlock()
	}()
	r, err := t.run(withCall(ctx, c), args)
	if f, ok := asFailure(err); ok {
		return failedBy(f)
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = errors.New("it was cancelled")
		}
		return failed(fmt.Sprintf("Error executing tool %s: %v", name, err), nil)
	}
	return r
}

func (e *Env) find(name string) int {
	for i, t := range e.tools {
		if t.name == name {
			return i
		}
	}
	return -1
}

func failedBy(f *Failure) *mcp.CallToolResult {
	b, err := encode(f.Failure)
	if err != nil {
		b = nil // its text still says it
	}
	return failed(f.Error(), b)
}

func failed(text string, structured json.RawMessage) *mcp.CallToolResult {
	r := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	if structured != nil {
		r.StructuredContent = structured
	}
	return r
}

// list is the tools that a role sees, as tools/list shows them.
func (e *Env) list(role string) (json.RawMessage, error) {
	type listed struct {
		Name         string               `json:"name"`
		Title        string               `json:"title,omitempty"`
		Description  string               `json:"description,omitempty"`
		InputSchema  json.RawMessage      `json:"inputSchema"`
		OutputSchema json.RawMessage      `json:"outputSchema,omitempty"`
		Annotations  *mcp.ToolAnnotations `json:"annotations,omitempty"`
		Meta         map[string]any       `json:"_meta,omitempty"`
	}
	out := struct {
		Tools []listed `json:"tools"`
	}{[]listed{}}
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, t := range e.tools {
		if e.allowed(role, t.name, t.hidden) {
			out.Tools = append(out.Tools, listed{t.name, t.title, t.description, t.listed, t.out, t.annotations, t.meta})
		}
	}
	return encode(out)
}

// Describe changes a tool's description while the environment is served, on the card and in lists.
func (e *Env) Describe(name, description string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.find(name)
	if i < 0 {
		return fmt.Errorf("no tool is named %s", name)
	}
	e.tools[i].description = description
	if i < len(e.card.Capabilities.Tools) {
		tools := append([]wire.Tool(nil), e.card.Capabilities.Tools...)
		tools[i].Description = description
		e.card.Capabilities.Tools = tools
	}
	return nil
}
