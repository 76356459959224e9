package pack

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/plugin/git"
)

// Transports of MCP servers.
const (
	Stdio      = "stdio"
	HTTP       = "http"
	Streamable = "streamable_http"
	SSE        = "sse"
)

// Transports are all of them.
func Transports() []string { return []string{Stdio, HTTP, Streamable, SSE} }

// Servers reads a list of MCP servers: of entries {template, inputs}, or templates alone. at is where the list is, in words.
func Servers(list doc.Node, at string, l *diag.List) []Server {
	if list.IsNull() {
		return nil
	}
	r := &reader{root: doc.Build(map[string]any{at: list}), l: l}
	var out []Server
	for where, n := range r.objects(at) {
		s, ok := r.server(where, n)
		if !ok {
			continue
		}
		if slices.ContainsFunc(out, func(o Server) bool { return o.Name == s.Name }) {
			r.fault(n, where+".name", diag.Repr(s.Name)+" is there twice", "give each server its name")
			continue
		}
		out = append(out, s)
	}
	return out
}

func (r *reader) server(where string, n doc.Node) (Server, bool) {
	before := len(r.l.Of(diag.Error))
	s := Server{Template: n, Pos: n.Pos()}
	at := where
	if t := n.Get("template"); t.Exists() {
		s.Template, at = t, where+".template"
		r.unknown(n, where+".", "template", "inputs")
		s.Inputs = r.serverInputs(n, where)
	}
	t := s.Template
	if t.Kind() != doc.Object {
		r.fault(n, at, "is no mapping", "write name, transport and what it needs")
		return s, false
	}
	s.Name, s.Transport = r.textOf(t, "name", at+".name"), r.textOf(t, "transport", at+".transport")
	if git.CheckID(s.Name) != nil {
		r.fault(t, at+".name", diag.Repr(s.Name)+" is no name of a server", "write letters, digits, dashes and underscores")
	}
	if s.Transport == "" {
		s.Transport = Stdio
		if t.Get("url").Exists() {
			s.Transport = HTTP
		}
	}
	switch {
	case !slices.Contains(Transports(), s.Transport):
		r.fault(t.Get("transport"), at+".transport", diag.Repr(s.Transport)+" is no transport", "write "+strings.Join(Transports(), ", "))
	case s.Transport == Stdio && r.textOf(t, "command", at+".command") == "":
		r.fault(t, at+".command", "is missing", "write the program that serves on its standard streams")
	case s.Transport != Stdio && r.textOf(t, "url", at+".url") == "":
		r.fault(t, at+".url", "is missing", "write where the server is")
	}
	for i, a := range r.listOf(t, "args", at+".args") {
		if _, ok := scalar(a); !ok {
			r.fault(a, fmt.Sprintf("%s.args[%d]", at, i), fmt.Sprintf("is %s and no text", a.Kind()), "write a text")
		}
	}
	for _, name := range []string{"env", "headers"} {
		v := t.Get(name)
		if !v.IsNull() && v.Kind() != doc.Object {
			r.fault(v, at+"."+name, fmt.Sprintf("is %s and no mapping", v.Kind()), "write NAME: value")
			continue
		}
		for k, e := range v.Members() {
			if _, ok := scalar(e); !ok {
				r.fault(e, at+"."+name+"."+diag.Clean(k), fmt.Sprintf("is %s and no text", e.Kind()), "write a text")
			}
		}
	}
	known := []string{"name", "transport", "command", "args", "env", "url", "headers", "enabled", "description"}
	r.unknown(t, at+".", known...)
	for _, key := range placeholders(t) {
		if !slices.ContainsFunc(s.Inputs, func(i ServerInput) bool { return i.Key == key }) {
			r.fault(t, at, "${"+diag.Clean(key)+"} has no input", "list it in inputs")
		}
	}
	return s, len(r.l.Of(diag.Error)) == before
}

func (r *reader) serverInputs(n doc.Node, where string) []ServerInput {
	var out []ServerInput
	for i, v := range r.listOf(n, "inputs", where+".inputs") {
		at := fmt.Sprintf("%s.inputs[%d]", where, i)
		if v.Kind() != doc.Object {
			r.fault(v, at, fmt.Sprintf("is %s and no mapping", v.Kind()), "write key: …")
			continue
		}
		in := ServerInput{
			Key: v.Get("key").Text(), Label: r.textOf(v, "label", at+".label"), Env: r.textOf(v, "env", at+".env"),
			Required: r.flagOf(v, "required", at+".required"), Secret: r.flagOf(v, "secret", at+".secret"),
		}
		if d := v.Get("default"); !d.IsNull() {
			in.Default, in.HasDefault = scalar(d)
			if b, ok := d.Bool(); ok {
				in.Default, in.HasDefault = fmt.Sprint(b), true
			}
			if !in.HasDefault {
				r.fault(d, at+".default", fmt.Sprintf("is %s and no text", d.Kind()), "write a text")
			}
		}
		switch {
		case !secretKey().MatchString(in.Key):
			r.fault(v, at+".key", diag.Repr(in.Key)+" is no key", "write letters, digits, dashes and underscores")
			continue
		case in.Env != "" && !variable().MatchString(in.Env):
			r.fault(v.Get("env"), at+".env", diag.Repr(in.Env)+" is no name of a variable", "")
			continue
		}
		if in.Label == "" {
			in.Label = in.Key
		}
		r.unknown(v, at+".", "key", "label", "env", "default", "required", "secret", "type", "placeholder", "help")
		out = append(out, in)
	}
	return out
}

var (
	variable    = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	placeholder = lazyregexp.New(`\$\{([^}]*)\}`)
)

// placeholders are the keys that the strings of a template name, each once.
func placeholders(n doc.Node) []string {
	var out []string
	n.MapStrings(func(s doc.Node) (string, bool) {
		for _, m := range placeholder().FindAllStringSubmatch(s.Text(), -1) {
			if !slices.Contains(out, m[1]) {
				out = append(out, m[1])
			}
		}
		return "", false
	})
	return out
}

// Fill puts values in place of ${key} in a text; keys without a value become nothing.
func Fill(text string, values map[string]string) string {
	return placeholder().ReplaceAllStringFunc(text, func(m string) string { return values[m[2:len(m)-1]] })
}

// ServersOf are the MCP servers that a member's own manifest brings.
func (p *Pack) ServersOf(id string) []Server {
	for _, i := range p.Members {
		if i.Manifest != nil && i.ID() == id {
			var l diag.List // told where the plugin is read
			return Servers(i.Manifest.MCP, "mcp", &l)
		}
	}
	return nil
}
