package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	// specPath is where a server may say, in OpenAPI, which tools it means to have.
	specPath = "/openapi.yaml"
	maxSpec  = 4 << 20
)

// errNoSpec: a server has no OpenAPI document, which it need not have.
var errNoSpec = errors.New("the server has no " + specPath)

// CheckSpec compares the tools of every server with its OpenAPI document: each operation has a tool of its operationId that takes its parameters. Tools
// beyond it are told of and no fault. A server without a document is not checked.
func CheckSpec(ctx context.Context, v *deploy.Env) ([]step.Row, error) {
	var out []step.Row
	for _, name := range withTools(v) {
		rows, err := checkSpec(ctx, v, name)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errNoSpec):
			out = append(out, skipped(name, "the tools are those of the OpenAPI document", err.Error()))
		case err != nil:
			out = append(out, outcome(name, "the OpenAPI document can be read", err.Error()))
		}
		out = append(out, rows...)
	}
	return out, nil
}

func checkSpec(ctx context.Context, v *deploy.Env, name string) ([]step.Row, error) {
	t, done := target(v, name)
	defer done()
	src, err := readSpec(ctx, t)
	if err != nil {
		return nil, err
	}
	ops, err := operations(src)
	if err != nil {
		return nil, err
	}
	tools, err := conformance.Tools(ctx, t)
	if err != nil {
		return nil, err
	}
	return compare(name, ops, tools), nil
}

func readSpec(ctx context.Context, t conformance.Target) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL+specPath, nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, errNoSpec
	default:
		return nil, fmt.Errorf("%s is answered with status %d", specPath, resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxSpec+1))
	if err == nil && len(b) > maxSpec {
		err = fmt.Errorf("%s has more than %d bytes", specPath, maxSpec)
	}
	return b, err
}

// operation is what an OpenAPI document says of one tool.
type operation struct {
	id                 string
	params, required   []string
	unreadableSchemata bool // a reference that leads out of the document: its parameters are not known
}

// operations are those of a document that have an operationId, in its order.
func operations(src []byte) ([]operation, error) {
	tree, l := doc.ParseYAML("openapi.yaml", src)
	if err := l.Err(); err != nil {
		return nil, err
	}
	root := tree.Root()
	paths := root.Get("paths")
	if paths.Kind() != doc.Object {
		return nil, errors.New("the document has no paths")
	}
	var out []operation
	for _, path := range paths.Members() {
		for verb, op := range path.Members() {
			if id := op.Get("operationId").Text(); id != "" && slices.Contains(verbs, strings.ToUpper(verb)) {
				o := operation{id: id}
				for _, list := range []doc.Node{path.Get("parameters"), op.Get("parameters")} {
					for _, p := range list.Items() {
						o.parameter(root, p)
					}
				}
				o.body(root, op.Get("requestBody"))
				out = append(out, o)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the document has no operation with an operationId")
	}
	return out, nil
}

var verbs = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodPatch, http.MethodHead, http.MethodOptions}

func (o *operation) add(name string, required bool) {
	if name == "" || slices.Contains(o.params, name) {
		return
	}
	o.params = append(o.params, name)
	if required {
		o.required = append(o.required, name)
	}
}

// parameter adds a parameter of the path or the query; those of headers and cookies are no arguments of a tool.
func (o *operation) parameter(root, p doc.Node) {
	p, ok := follow(root, p)
	o.unreadableSchemata = o.unreadableSchemata || !ok
	if in := p.Get("in").Text(); in == "path" || in == "query" {
		required, _ := p.Get("required").Bool()
		o.add(p.Get("name").Text(), required)
	}
}

func (o *operation) body(root, body doc.Node) {
	body, ok := follow(root, body)
	schema, ok2 := follow(root, body.Get("content").Get("application/json").Get("schema"))
	o.unreadableSchemata = o.unreadableSchemata || !ok || !ok2
	var required []string
	for _, r := range schema.Get("required").Items() {
		required = append(required, r.Text())
	}
	for name := range schema.Get("properties").Members() {
		o.add(name, slices.Contains(required, name))
	}
}

// maxRefs bounds references that lead to references.
const maxRefs = 20

// follow is what a node is, where it is a reference within the document; false when it leads elsewhere.
func follow(root, n doc.Node) (doc.Node, bool) {
	for range maxRefs {
		to, isRef := n.Get("$ref").Str()
		if !isRef {
			return n, true
		}
		inside, ok := strings.CutPrefix(to, "#/")
		if !ok {
			return doc.Node{}, false
		}
		n = root
		for part := range strings.SplitSeq(inside, "/") {
			n = n.Get(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
		}
		if !n.Exists() {
			return n, false
		}
	}
	return doc.Node{}, false
}

// compare makes a row for each operation, and one about the tools that no operation names.
func compare(server string, ops []operation, tools []wire.Tool) []step.Row {
	var out []step.Row
	left := map[string]bool{}
	for _, t := range tools {
		left[t.Name] = true
	}
	for _, o := range ops {
		row := outcome(server, "tool of "+o.id, difference(o, tools))
		row["tool_name"] = o.id
		out = append(out, row)
		delete(left, o.id)
	}
	var extra []string
	for _, t := range tools {
		if left[t.Name] {
			extra = append(extra, diag.Repr(t.Name))
		}
	}
	if extra != nil {
		out = append(out, skipped(server, "tools that the document doesn't name", strings.Join(extra, ", ")))
	}
	return out
}

// difference is how the tool of an operation differs from it; "" when it doesn't.
func difference(o operation, tools []wire.Tool) string {
	i := slices.IndexFunc(tools, func(t wire.Tool) bool { return t.Name == o.id })
	if i < 0 {
		return "there is no such tool"
	}
	var schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	if json.Unmarshal(tools[i].InputSchema, &schema) != nil {
		return "its input schema can't be read"
	}
	var out []string
	for _, p := range o.params {
		if _, has := schema.Properties[p]; !has {
			out = append(out, "it takes no "+diag.Repr(p))
		}
	}
	for _, p := range o.required {
		if _, has := schema.Properties[p]; has && !slices.Contains(schema.Required, p) {
			out = append(out, diag.Repr(p)+" is required in the document, and not by the tool")
		}
	}
	for _, p := range schema.Required {
		if !slices.Contains(o.params, p) && !o.unreadableSchemata {
			out = append(out, "it requires "+diag.Repr(p)+", which the document doesn't name")
		}
	}
	return strings.Join(out, "; ")
}
