package trigger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

// decode reads JSON with numbers as they were written.
func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

// path is a dotted path with indices: a.b[0].c[*]. An index [*] stands for the list itself.
type path []segment

type segment struct {
	key     string
	indices []int
}

var segmentGrammar = lazyregexp.New(`^(\w+)((?:\[(?:\d{1,9}|\*)\])*)$`)

func parsePath(s string) (path, error) {
	var out path
	for part := range strings.SplitSeq(s, ".") {
		m := segmentGrammar().FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("invalid path segment %q in %q", part, s)
		}
		seg := segment{key: m[1]}
		for idx := range strings.FieldsFuncSeq(m[2], func(r rune) bool { return r == '[' || r == ']' }) {
			if idx == "*" {
				continue
			}
			n, err := strconv.Atoi(idx)
			if err != nil {
				return nil, fmt.Errorf("invalid index %q in %q", idx, s)
			}
			seg.indices = append(seg.indices, n)
		}
		out = append(out, seg)
	}
	return out, nil
}

// get is the value at the path; nil when there is none.
func (p path) get(v any) any {
	for _, seg := range p {
		obj, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		if v, ok = obj[seg.key]; !ok {
			return nil
		}
		for _, i := range seg.indices {
			list, ok := v.([]any)
			if !ok || i >= len(list) {
				return nil
			}
			v = list[i]
		}
	}
	return v
}

// predicate is one question to a value.
type predicate struct {
	regex  *regexp.Regexp
	equals any
	exists *bool
}

func parsePredicate(v any, where string) (*predicate, error) {
	obj, _ := v.(map[string]any)
	n := 0
	for _, k := range []string{"regex", "equals", "exists"} {
		if _, ok := obj[k]; ok {
			n++
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("%s: a predicate has exactly one of regex, equals and exists", where)
	}
	p := &predicate{}
	if r, ok := obj["regex"]; ok {
		text, isText := r.(string)
		re, err := regexp.Compile(text)
		if !isText || err != nil {
			return nil, fmt.Errorf("%s: invalid regex %v (RE2 syntax: no look-around, no back-references)", where, r)
		}
		p.regex = re
		return p, nil
	}
	if e, ok := obj["exists"]; ok {
		b, isBool := e.(bool)
		if !isBool {
			return nil, fmt.Errorf("%s: exists must be true or false", where)
		}
		p.exists = &b
		return p, nil
	}
	p.equals = obj["equals"]
	return p, nil
}

func (p *predicate) holds(v any) bool {
	switch {
	case p.regex != nil:
		return p.regex.MatchString(text(v))
	case p.exists != nil:
		return !empty(v) == *p.exists
	}
	return equal(v, p.equals)
}

// empty is what exists counts as nothing.
func empty(v any) bool {
	list, isList := v.([]any)
	return v == nil || v == "" || isList && len(list) == 0
}

// equal compares JSON values; numbers by what they are, not by how they are written.
func equal(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok {
			return false
		}
		if x == y {
			return true
		}
		if len(x) > 64 || len(y) > 64 { // a hostile exponent would be a number of gigabytes
			return false
		}
		fx, okX := new(big.Float).SetPrec(256).SetString(string(x))
		fy, okY := new(big.Float).SetPrec(256).SetString(string(y))
		return okX && okY && fx.Cmp(fy) == 0
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equal)
	}
	return reflect.DeepEqual(a, b)
}

// text is a value as regular expressions and templates see it: a string itself, else JSON with a space after : and , as Python writes it.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return string(appendText(nil, v))
}

func appendText(b []byte, v any) []byte {
	switch v := v.(type) {
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendText(b, e)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(append(b, strconv.QuoteToASCII(k)...), ": "...)
			b = appendText(b, v[k])
		}
		return append(b, '}')
	}
	out, err := json.Marshal(v)
	if err != nil {
		return append(b, "null"...)
	}
	return append(b, out...)
}

// facts are what a provoking call carries: its arguments and, of a tool call, its result.
type facts struct {
	args    any
	result  any
	request map[string]any // of a website
}

// root splits a name into the fact that it reads and the path below; "" when it reads none.
func root(name string) (fact, rest string) {
	head, rest, _ := strings.Cut(name, ".")
	if head == "args" || head == "result" {
		return head, rest
	}
	return "", ""
}

// field is the value that a name of a where reads: args.<path>, result.<path>, or an argument.
type field struct {
	name string
	fact string
	path path
}

func (f field) value(c facts) any {
	if f.fact == "" {
		args, _ := c.args.(map[string]any)
		return args[f.name]
	}
	if f.fact == "result" {
		return f.path.get(c.result)
	}
	return f.path.get(c.args)
}

var (
	placeholder      = lazyregexp.New(`\$\{([\w.\[\]*]+\??)\}`)
	likePlaceholder  = lazyregexp.New(`\$\{[^{}]*\}?`)
	wholePlaceholder = lazyregexp.New(`^\$\{([\w.\[\]*]+\??)\}$`)
	bareName         = lazyregexp.New(`^\w+$`)
)

// everyText calls f with every string within a value.
func everyText(v any, f func(string) error) error {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		for _, e := range v {
			if err := everyText(e, f); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if err := everyText(v[k], f); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTemplate refuses placeholders that could never be filled: a tool must not be sent their text.
func checkTemplate(v any, where string, facts []string) error {
	return everyText(v, func(s string) error {
		for _, like := range likePlaceholder().FindAllString(s, -1) {
			m := wholePlaceholder().FindStringSubmatch(like)
			if m == nil {
				return fmt.Errorf("%s: %q is no placeholder; they are ${args.<path>}, ${result.<path>} and ${<binding of a check>}", where, like)
			}
			name := strings.TrimSuffix(m[1], "?")
			fact, rest := root(name)
			switch {
			case fact == "" && !bareName().MatchString(name):
				return fmt.Errorf("%s: ${%s} must be the name of a check's binding, or a path below args or result", where, name)
			case fact != "" && len(facts) == 0:
				return fmt.Errorf("%s: ${%s} needs a provoking call, which only action and website triggers have", where, name)
			case fact != "" && !slices.Contains(facts, fact):
				return fmt.Errorf("%s: ${%s} reads a result, and a website's request has arguments alone", where, name)
			case fact != "" && name != fact:
				if _, err := parsePath(rest); err != nil {
					return fmt.Errorf("%s: %w", where, err)
				}
			}
		}
		return nil
	})
}

// dropped stands for the value of an optional placeholder that is missing: its member or element goes.
type dropped struct{}

// fill puts values in the place of placeholders. A required one of args or result that has no value is an error; a binding that is unknown stays as it is.
func fill(v any, bindings map[string]any, c *facts) (any, error) {
	out, err := fillValue(v, bindings, c)
	if _, gone := out.(dropped); gone {
		return v, err
	}
	return out, err
}

func fillValue(v any, bindings map[string]any, c *facts) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			r, err := fillValue(e, bindings, c)
			if err != nil {
				return nil, err
			}
			if _, gone := r.(dropped); !gone {
				out[k] = r
			}
		}
		return out, nil
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			r, err := fillValue(e, bindings, c)
			if err != nil {
				return nil, err
			}
			if _, gone := r.(dropped); !gone {
				out = append(out, r)
			}
		}
		return out, nil
	case string:
		return fillText(v, bindings, c)
	}
	return v, nil
}

func fillText(s string, bindings map[string]any, c *facts) (any, error) {
	if m := wholePlaceholder().FindStringSubmatch(s); m != nil {
		v, found, err := lookUp(m[1], bindings, c)
		if err != nil {
			return nil, err
		}
		if !found {
			if strings.HasSuffix(m[1], "?") {
				return dropped{}, nil
			}
			return s, nil
		}
		if fact, _ := root(strings.TrimSuffix(m[1], "?")); fact == "" {
			return text(v), nil
		}
		return v, nil
	}
	var failed error
	out := placeholder().ReplaceAllStringFunc(s, func(p string) string {
		name := p[2 : len(p)-1]
		v, found, err := lookUp(name, bindings, c)
		if err != nil {
			failed = err
		}
		switch {
		case found:
			return text(v)
		case strings.HasSuffix(name, "?"):
			return ""
		}
		return p
	})
	return out, failed
}

func lookUp(name string, bindings map[string]any, c *facts) (v any, found bool, err error) {
	plain := strings.TrimSuffix(name, "?")
	if v, ok := bindings[plain]; ok {
		return v, true, nil
	}
	fact, rest := root(plain)
	if fact == "" {
		return nil, false, nil
	}
	if c != nil {
		if v = c.args; fact == "result" {
			v = c.result
		}
		if rest != "" {
			p, err := parsePath(rest)
			if err != nil {
				return nil, false, err
			}
			v = p.get(v)
		}
	}
	if v == nil && plain == name {
		return nil, false, fmt.Errorf("placeholder ${%s} has no value in the provoking call", name)
	}
	return v, v != nil, nil
}
