package wire

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Params is what most extensions put into params: where and how they are called.
type Params struct {
	Endpoint string   // path; "" when every method has its own
	Methods  []Method // in the order written; none at all means one POST at Endpoint
	Extra    []Member
}

// Method is an operation of an extension.
type Method struct {
	Name     string
	Verb     string          // "" stands for POST
	Endpoint string          // "" stands for the extension's
	Request  json.RawMessage // on environments a JSON Schema, on agents a field list
	Extra    []Member
}

// Call is a method with all defaults filled in.
type Call struct {
	Name, Verb, Path string
	Request          json.RawMessage
}

// Calls is how an extension is called; none for a declaration. name "" is the single unnamed operation of an extension without methods.
func (e *Extension) Calls() ([]Call, error) {
	if e.Params == nil {
		return nil, nil
	}
	p, err := ParseParams(e.Params)
	if err != nil {
		return nil, at(e.URI, err)
	}
	if len(p.Methods) == 0 && p.Endpoint != "" {
		return []Call{{Verb: http.MethodPost, Path: p.Endpoint}}, nil
	}
	var out []Call
	for _, m := range p.Methods {
		c := Call{Name: m.Name, Verb: m.Verb, Path: m.Endpoint, Request: m.Request}
		if c.Verb == "" {
			c.Verb = http.MethodPost
		}
		if c.Path == "" {
			c.Path = p.Endpoint
		}
		if c.Path != "" { // a method without a path can't be called: it is declared for people
			out = append(out, c)
		}
	}
	return out, nil
}

// ParseParams reads params of an extension. Members that it doesn't know are kept, so that a gateway can write other endpoints into them.
func ParseParams(raw json.RawMessage) (Params, error) {
	ms, err := parseObject(raw)
	if err != nil {
		return Params{}, at("params", err)
	}
	var p Params
	for _, m := range ms {
		switch m.name {
		case "endpoint":
			err = readInto(m.value, &p.Endpoint)
		case "methods":
			if !isNull(m.value) {
				p.Methods, err = parseMethods(m.value)
			}
		default:
			p.Extra = append(p.Extra, Member{m.name, m.value})
		}
		if err != nil {
			return Params{}, at("params."+m.name, err)
		}
	}
	return p, nil
}

func parseMethods(raw json.RawMessage) ([]Method, error) {
	ms, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	out := make([]Method, 0, len(ms))
	for _, m := range ms {
		method := Method{Name: m.name}
		fields, err := parseObject(m.value)
		if err != nil {
			return nil, at(m.name, err)
		}
		for _, f := range fields {
			switch f.name {
			case "method":
				err = readInto(f.value, &method.Verb)
				method.Verb = strings.ToUpper(method.Verb)
			case "endpoint":
				err = readInto(f.value, &method.Endpoint)
			case "request":
				if !isNull(f.value) {
					method.Request = f.value
				}
			default:
				method.Extra = append(method.Extra, Member{f.name, f.value})
			}
			if err != nil {
				return nil, at(m.name+"."+f.name, err)
			}
		}
		out = append(out, method)
	}
	return out, nil
}

// MarshalJSON writes params without what is empty.
func (p Params) MarshalJSON() ([]byte, error) {
	var w writer
	w.some("endpoint", p.Endpoint)
	w.extra(p.Extra)
	if p.Methods != nil {
		var methods writer
		for _, m := range p.Methods {
			methods.put(m.Name, m)
		}
		b, err := methods.bytes()
		if err != nil {
			return nil, err
		}
		w.put("methods", json.RawMessage(b))
	}
	return w.bytes()
}

// MarshalJSON writes a method, but for its name, which is its key.
func (m Method) MarshalJSON() ([]byte, error) {
	var w writer
	w.some("method", m.Verb)
	w.some("endpoint", m.Endpoint)
	w.raw("request", m.Request)
	w.extra(m.Extra)
	return w.bytes()
}

// Slug is the path of a URN's extension: without urn:, agentenv: and a trailing version, colons as slashes.
func Slug(urn string) string {
	s := strings.TrimPrefix(strings.TrimPrefix(urn, "urn:"), "agentenv:")
	if i := strings.LastIndex(s, "/v"); i >= 0 && i+2 < len(s) && strings.Trim(s[i+2:], "0123456789") == "" {
		s = s[:i]
	}
	return strings.ReplaceAll(s, ":", "/")
}
