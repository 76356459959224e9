package env

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"agentenv.internal/agentenv/sdk/wire"
)

// extension is one method of an extension, as served.
type extension struct {
	uri, name   string
	op          bool // one of several methods
	verb, path  string
	description string
	required    *bool
	params      []wire.Member
	in          *binder
	run         func(ctx context.Context, args map[string]json.RawMessage) (json.RawMessage, error)
}

// ExtensionOption changes an extension's method as it is added.
type ExtensionOption func(*extension)

// Op makes the method one of several of its URN: methods of one URN share an entry of the card, and each is served under the URN's slug.
func Op() ExtensionOption { return func(x *extension) { x.op = true } }

// Verb is the HTTP method, POST unless set. With GET, parameters are those of the query.
func Verb(v string) ExtensionOption { return func(x *extension) { x.verb = strings.ToUpper(v) } }

// Path is where the method is served, in place of its default.
func Path(p string) ExtensionOption { return func(x *extension) { x.path = p } }

// ExtensionDescription is what the card says; the first method of a URN that has one tells it.
func ExtensionDescription(s string) ExtensionOption {
	return func(x *extension) { x.description = s }
}

// ExtensionRequired says on the card whether callers must understand the extension.
func ExtensionRequired(b bool) ExtensionOption { return func(x *extension) { x.required = &b } }

// ExtensionParam puts a member beside the methods on the card.
func ExtensionParam(name string, value any) ExtensionOption {
	return func(x *extension) {
		b, err := encode(value)
		if err != nil {
			b = json.RawMessage("null")
		}
		x.params = append(x.params, wire.Member{Name: name, Value: b})
	}
}

// AddExtension serves a method of an extension: the members of a JSON body, or of a GET's query, become In as AddTool says, and what h returns
// becomes the JSON answer, nil as {}.
func AddExtension[In, Out any](e *Env, uri, name string, h func(ctx context.Context, in In) (Out, error), opts ...ExtensionOption) {
	e.addExtension(uri, name, reflect.TypeFor[In](), func(ctx context.Context, bind func(into any) error) (any, error) {
		var in In
		if err := bind(&in); err != nil {
			return nil, err
		}
		return h(ctx, in)
	}, opts)
}

func (e *Env) addExtension(uri, name string, in reflect.Type, h handler, opts []ExtensionOption) {
	b, err := newBinder(in)
	if err != nil {
		e.problem("extension %s %s: %w", uri, name, err)
		return
	}
	x := &extension{uri: uri, name: name, verb: http.MethodPost, in: b}
	for _, o := range opts {
		o(x)
	}
	if x.path == "" {
		x.path = wire.ExtensionPath + name
		if x.op {
			x.path = wire.ExtensionPath + wire.Slug(uri) + "/" + name
		}
	}
	if !strings.HasPrefix(x.path, "/") || strings.ContainsAny(x.path, "{} ") {
		e.problem("extension %s %s: its path must begin with a slash and hold neither braces nor spaces", uri, name)
		return
	}
	x.run = func(ctx context.Context, args map[string]json.RawMessage) (json.RawMessage, error) {
		out, err := guarded(ctx, e.log, uri+" "+name, func() (any, error) {
			return h(ctx, func(into any) error { return b.bindMembers(args, into) })
		})
		if err != nil {
			return nil, err
		}
		raw, err := encode(out)
		if err == nil && string(raw) == "null" {
			raw = json.RawMessage("{}")
		}
		return raw, err
	}
	e.extensions = append(e.extensions, x)
}

// advertise is the card's entries of what is served: methods of one URN are one entry.
func advertise(xs []*extension) ([]wire.Extension, error) {
	type entry struct {
		x      wire.Extension
		params wire.Params
	}
	var order []*entry
	byURI := map[string]*entry{}
	for _, x := range xs {
		en := byURI[x.uri]
		if en == nil {
			en = &entry{x: wire.Extension{URI: x.uri}}
			byURI[x.uri] = en
			order = append(order, en)
		} else if !x.op {
			return nil, fmt.Errorf("extension %s has several methods: each needs Op", x.uri)
		}
		if en.x.Description == "" {
			en.x.Description = x.description
		}
		if x.required != nil {
			en.x.Required = x.required
		}
		m := wire.Method{Name: x.name, Verb: x.verb, Request: x.in.advertised}
		if x.op {
			m.Endpoint = x.path
		} else {
			en.params.Endpoint = x.path
		}
		en.params.Methods = append(en.params.Methods, m)
		en.params.Extra = append(en.params.Extra, x.params...)
	}
	var out []wire.Extension
	for _, en := range order {
		raw, err := encode(en.params)
		if err != nil {
			return nil, fmt.Errorf("extension %s: %w", en.x.URI, err)
		}
		en.x.Params = raw
		out = append(out, en.x)
	}
	return out, nil
}

func (e *Env) serveExtension(x *extension) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		args, err := e.arguments(w, r, x)
		if err != nil {
			answerFailure(w, err)
			return
		}
		c := callOf(nil, r.Header, r.Header.Get(wire.SessionHeader))
		c.Tool = x.name
		if c.Arguments, err = encode(args); err != nil {
			answerFailure(w, invalid("not valid JSON"))
			return
		}
		out, err := x.run(withCall(r.Context(), c), args)
		if err != nil {
			answerFailure(w, err)
			return
		}
		answer(w, http.StatusOK, out)
	}
}

// arguments are the members of a call's body, or of its query.
func (e *Env) arguments(w http.ResponseWriter, r *http.Request, x *extension) (map[string]json.RawMessage, error) {
	if x.verb == http.MethodGet {
		args := map[string]json.RawMessage{}
		for name, values := range r.URL.Query() {
			b, err := encode(values[len(values)-1])
			if err != nil {
				return nil, invalid("%s: not valid text", name)
			}
			args[name] = b
		}
		return args, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.maxMessage))
	if err != nil {
		return nil, unreadable(err)
	}
	return x.in.members(body)
}

// answerFailure writes an error in the shape that extensions and tool access share.
func answerFailure(w http.ResponseWriter, err error) {
	f, ok := asFailure(err)
	if !ok {
		f = Fail(wire.CodeExtensionFailed, "%v", err).WithApplied(wire.AppliedUnknown).WithStatus(http.StatusInternalServerError)
	}
	answer(w, f.Status, f.Body())
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left needs no answer
}

func (e *Env) serveAccess(disable bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.maxMessage))
		if err != nil {
			answerFailure(w, unreadable(err))
			return
		}
		out, err := changeAccess(e.access, body, !disable)
		if err != nil {
			answerFailure(w, err)
			return
		}
		b, err := encode(out)
		if err != nil {
			answerFailure(w, err)
			return
		}
		answer(w, http.StatusOK, b)
	}
}
