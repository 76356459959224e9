package toolcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/rawjson"
)

// ErrUsage: the arguments can't be meant; the message says what can be written instead.
var ErrUsage = errors.New("usage")

type usageError struct{ text string }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == ErrUsage }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// Call is what a command line asks for.
type Call struct {
	Tool      string          // "": help about the command
	Help      bool            // about the tool
	JSON      bool            // the whole result is wanted
	Arguments json.RawMessage // an object
	rest      []string
}

// Split reads a command line up to the tool's name. What follows is for Arguments.
func Split(args []string) (Call, error) {
	var c Call
	for i, a := range args {
		switch {
		case a == "-h" || a == "--help" || a == "help" && i == 0:
			c.Help = true
		case a == "--json":
			c.JSON = true
		case strings.HasPrefix(a, "-"):
			return c, usage("unknown flag %s; before the tool's name there are --json and --help", a)
		default:
			c.Tool, c.rest = a, args[i+1:]
			return c, nil
		}
	}
	return c, nil
}

// Find is a tool by its name, in which - may stand for _.
func (c Command) Find(name string) (Tool, bool) {
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b },
		func(a, b string) bool { return dashed(a) == dashed(b) },
	} {
		if i := slices.IndexFunc(c.Tools, func(t Tool) bool { return same(t.Name, name) }); i >= 0 {
			return c.Tools[i], true
		}
	}
	return Tool{}, false
}

// Unknown is the error of a name that no tool has.
func (c Command) Unknown(name string) error {
	var names []string
	for _, t := range c.Tools {
		names = append(names, t.Name)
	}
	if near := diag.Nearest(name, names); near != "" {
		return usage("there is no tool %s; did you mean %s?", diag.Repr(name), near)
	}
	return usage("there is no tool %s; %s --help lists them", diag.Repr(name), c.Name)
}

func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// maxInput bounds arguments that are read from a file or from standard input.
const maxInput = 64 << 20

// Read completes a call with the arguments of its tool: flags, one for each parameter, after or before an object that is written as JSON, in a file (@FILE),
// or on standard input (-). Flags win.
func (c Call) Read(command string, t Tool, stdin io.Reader) (Call, error) {
	c.Tool = t.Name
	ps := params(t.Schema)
	out := object{}
	rest := c.rest
	for len(rest) > 0 {
		a := rest[0]
		rest = rest[1:]
		switch {
		case a == "-h" || a == "--help":
			c.Help = true
			return c, nil
		case strings.HasPrefix(a, "--") && len(a) > 2:
			p, text, given, err := flag(command, t.Name, ps, a[2:])
			if err != nil {
				return c, err
			}
			if !given && p.kind != "boolean" {
				if len(rest) == 0 {
					return c, usage("--%s needs a value: %s", p.name, p.words())
				}
				text, rest = rest[0], rest[1:]
			}
			if err := out.add(p, text, given); err != nil {
				return c, err
			}
		default:
			if err := out.base(a, stdin); err != nil {
				return c, err
			}
		}
	}
	var missing []string
	for _, p := range ps {
		if p.required && !out.has(p.name) {
			missing = append(missing, "--"+p.name)
		}
	}
	if missing != nil {
		return c, usage("%s needs %s; see %s %s --help", t.Name, strings.Join(missing, ", "), command, t.Name)
	}
	var err error
	c.Arguments, err = out.json()
	return c, err
}

// flag finds the parameter that a flag sets: --name, --name=value.
func flag(command, tool string, ps []param, text string) (p param, value string, given bool, err error) {
	name, value, given := strings.Cut(text, "=")
	var names []string
	for _, p := range ps {
		if p.name == name || dashed(p.name) == dashed(name) {
			return p, value, given, nil
		}
		names = append(names, p.name)
	}
	if near := diag.Nearest(name, names); near != "" {
		return p, "", false, usage("%s has no parameter %s; did you mean --%s?", tool, diag.Repr(name), near)
	}
	return p, "", false, usage("%s has no parameter %s; see %s %s --help", tool, diag.Repr(name), command, tool)
}

// object is the arguments as they come together: those of a JSON object, and those of flags, which win.
type object struct {
	whole json.RawMessage
	names []string
	flags map[string][]json.RawMessage
	lists map[string]bool
}

func (o *object) base(text string, stdin io.Reader) error {
	if o.whole != nil {
		return usage("arguments are flags and at most one JSON object, and %s is a second one", diag.Repr(text))
	}
	b := []byte(text)
	file, isFile := strings.CutPrefix(text, "@")
	var err error
	switch {
	case text == "-":
		b, err = io.ReadAll(io.LimitReader(stdin, maxInput))
	case isFile:
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return err
	}
	if !json.Valid(b) || rawjson.Kind(b) != '{' {
		return usage("%s is no JSON object; write --name value for each parameter, a JSON object, @FILE, or - for standard input", diag.Repr(text))
	}
	o.whole = b
	return nil
}

func (o *object) add(p param, text string, given bool) error {
	if p.kind == "boolean" && !given {
		text = "true"
	}
	v, list, err := p.values(text)
	if err != nil {
		return err
	}
	if o.flags == nil {
		o.flags, o.lists = map[string][]json.RawMessage{}, map[string]bool{}
	}
	if _, twice := o.flags[p.name]; !twice {
		o.names = append(o.names, p.name)
	} else if !list {
		return usage("--%s is given twice", p.name)
	}
	o.flags[p.name], o.lists[p.name] = append(o.flags[p.name], v...), list
	return nil
}

func (o *object) has(name string) bool {
	return o.flags[name] != nil || o.lists[name] || rawjson.Get(o.whole, name) != nil
}

func (o *object) json() (json.RawMessage, error) {
	if len(o.names) == 0 && o.whole != nil {
		return o.whole, nil // as it was written
	}
	b := []byte{'{'}
	member := func(name string, value []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(rawjson.AppendString(b, name), ':'), value...)
	}
	if o.whole != nil {
		for m := range rawjson.Members(o.whole) {
			if _, set := o.flags[m.Name]; !set {
				member(m.Name, m.Value)
			}
		}
	}
	for _, name := range o.names {
		vs := o.flags[name]
		if !o.lists[name] {
			member(name, vs[0])
			continue
		}
		list, err := json.Marshal(append([]json.RawMessage{}, vs...))
		if err != nil {
			return nil, err
		}
		member(name, list)
	}
	return append(b, '}'), nil
}

// param is one parameter of a tool.
type param struct {
	name, kind, text string // kind is a type of JSON Schema; "" is any
	items            string // the kind of an array's elements
	required         bool
	enum             []string // as JSON
	def              string   // as JSON; "" for none
}

// params are the parameters of a schema, those that are needed first, else in its order.
func params(schema []byte) []param {
	needed := map[string]bool{}
	for e := range rawjson.Elements(rawjson.Get(schema, "required")) {
		if name, ok := rawjson.Text(e); ok {
			needed[name] = true
		}
	}
	var out []param
	for m := range rawjson.Members(rawjson.Get(schema, "properties")) {
		p := param{name: m.Name, kind: kindOf(m.Value), items: kindOf(rawjson.Get(m.Value, "items")), required: needed[m.Name]}
		p.text, _ = rawjson.Text(rawjson.Get(m.Value, "description"))
		for e := range rawjson.Elements(rawjson.Get(m.Value, "enum")) {
			p.enum = append(p.enum, string(e))
		}
		p.def = string(rawjson.Get(m.Value, "default"))
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b param) int {
		switch {
		case a.required == b.required:
			return 0
		case a.required:
			return -1
		}
		return 1
	})
	return out
}

// kindOf is the type that a schema says, null left out; "" when it says several, or none.
func kindOf(schema []byte) string {
	t := rawjson.Get(schema, "type")
	if s, ok := rawjson.Text(t); ok {
		return s
	}
	kinds := map[string]bool{}
	if t == nil {
		for _, any := range []string{"anyOf", "oneOf"} {
			for e := range rawjson.Elements(rawjson.Get(schema, any)) {
				kinds[kindOf(e)] = true
			}
		}
	}
	for e := range rawjson.Elements(t) {
		if s, ok := rawjson.Text(e); ok {
			kinds[s] = true
		}
	}
	delete(kinds, "null")
	if len(kinds) == 1 {
		for k := range kinds {
			return k
		}
	}
	return ""
}

// words says what a flag takes.
func (p param) words() string {
	switch p.kind {
	case "string":
		return "text"
	case "integer":
		return "a whole number"
	case "number":
		return "a number"
	case "boolean":
		return "true or false"
	case "array":
		if scalar(p.items) {
			return param{kind: p.items}.words() + ", repeatable, or a JSON list"
		}
		return "a JSON list"
	case "object":
		return "a JSON object"
	}
	return "JSON, or text"
}

func scalar(kind string) bool {
	return kind == "string" || kind == "integer" || kind == "number" || kind == "boolean"
}

// values reads the text of a flag; list tells that the parameter takes several.
func (p param) values(text string) (out []json.RawMessage, list bool, err error) {
	if p.kind == "array" {
		if t := strings.TrimSpace(text); strings.HasPrefix(t, "[") && json.Valid([]byte(t)) {
			for e := range rawjson.Elements([]byte(t)) {
				out = append(out, e)
			}
			return out, true, nil
		}
		if !scalar(p.items) {
			return nil, true, usage("--%s takes %s, not %s", p.name, p.words(), diag.Repr(text))
		}
		one, _, err := param{name: p.name, kind: p.items}.values(text)
		return one, true, err
	}
	v, ok := p.value(text)
	if !ok {
		return nil, false, usage("--%s takes %s, not %s", p.name, p.words(), diag.Repr(text))
	}
	return []json.RawMessage{v}, false, nil
}

func (p param) value(text string) (json.RawMessage, bool) {
	raw := json.RawMessage(strings.TrimSpace(text))
	valid := json.Valid(raw)
	number := valid && (rawjson.Kind(raw) == '-' || rawjson.Kind(raw) >= '0' && rawjson.Kind(raw) <= '9')
	switch p.kind {
	case "string":
		return rawjson.AppendString(nil, text), true
	case "integer":
		f, err := strconv.ParseFloat(string(raw), 64)
		return raw, number && err == nil && f == float64(int64(f))
	case "number":
		return raw, number
	case "boolean":
		b, err := strconv.ParseBool(string(raw))
		return strconv.AppendBool(nil, b), err == nil
	case "object":
		return raw, valid && rawjson.Kind(raw) == '{'
	}
	if !valid {
		return rawjson.AppendString(nil, text), true
	}
	return raw, true
}
