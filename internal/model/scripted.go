package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

// ScriptedName is what a scripted model calls itself, and the prefix of a model name that names a script: "scripted:ARTIFACT".
const (
	ScriptedName   = "scripted"
	ScriptedPrefix = ScriptedName + ":"
)

// Script is a written dialogue: for tests, and for examples that run without a model. It holds variants, one an attempt, in turn.
type Script struct {
	Variants []Dialogue `json:"variants"`
}

// Dialogue is what a scripted model says. Its place in Turns is the number of its own messages so far; after them, and in a dialogue
// without, the first of Rules whose pattern is found in the last message answers.
type Dialogue struct {
	Turns []Line `json:"turns,omitempty"`
	Rules []Line `json:"rules,omitempty"`
}

// Line is one message. Texts may hold ${user} (the last thing the user said), ${last.PATH} and ${result.N.PATH}: what a tool answered, as
// JSON, the last or the N-th from 0. PATH is a.b[0].c. An argument that is nothing but one of them becomes its value.
type Line struct {
	When  string     `json:"when,omitempty"` // regular expression; of Rules
	Say   string     `json:"say,omitempty"`
	Calls []LineCall `json:"calls,omitempty"`
	// Fail is a kind of failure that is answered instead.
	Fail string `json:"fail,omitempty"`

	when *regexp.Regexp
}

// LineCall is one call of a Line.
type LineCall struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args,omitempty"`
}

// ParseScript reads the JSON of a Script, strictly.
func ParseScript(b []byte) (*Script, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var s Script
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("the script is not valid: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the script is not valid: something follows it")
	}
	if len(s.Variants) == 0 {
		return nil, errors.New("the script holds no variants")
	}
	for i := range s.Variants {
		v := &s.Variants[i]
		for kind, lines := range map[string][]Line{"turns": v.Turns, "rules": v.Rules} {
			for j := range lines {
				if err := lines[j].check(kind == "rules"); err != nil {
					return nil, fmt.Errorf("the script is not valid: variants[%d].%s[%d]: %w", i, kind, j, err)
				}
			}
		}
	}
	return &s, nil
}

func (l *Line) check(rule bool) (err error) {
	switch {
	case rule && l.When == "":
		return errors.New("a rule needs when")
	case !rule && l.When != "":
		return errors.New("when is for rules; turns are said in order")
	case l.Fail != "" && (l.Say != "" || len(l.Calls) > 0):
		return errors.New("a line that fails says nothing")
	}
	for i, c := range l.Calls {
		var args map[string]any
		if c.Tool == "" || c.Args != nil && json.Unmarshal(c.Args, &args) != nil {
			return fmt.Errorf("calls[%d] needs a tool, and an object as args", i)
		}
	}
	if rule {
		if l.when, err = regexp.Compile("(?s)" + l.When); err != nil {
			return fmt.Errorf("when: %w", err)
		}
	}
	return nil
}

// Scripted plays a Script.
type Scripted struct{ s *Script }

var _ Model = (*Scripted)(nil)

// NewScripted makes a Model of s, which ParseScript answered.
func NewScripted(s *Script) *Scripted { return &Scripted{s} }

// Generate says the next line. It costs nothing and counts no tokens.
func (m *Scripted) Generate(ctx context.Context, r *Request) (*Response, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	d := &m.s.Variants[((r.Variant%len(m.s.Variants))+len(m.s.Variants))%len(m.s.Variants)]
	l, err := d.line(r.Messages)
	if err == nil {
		var res *Response
		if res, err = l.play(r.Messages); err == nil {
			return res, nil
		}
	}
	var e *Error
	if errors.As(err, &e) {
		return nil, err
	}
	return nil, &Error{Kind: Invalid, Message: "the scripted model: " + err.Error(), Tries: 1}
}

func (d *Dialogue) line(ms []Message) (*Line, error) {
	n := 0
	for i := range ms {
		if ms[i].Role == Assistant {
			n++
		}
	}
	if n < len(d.Turns) {
		return &d.Turns[n], nil
	}
	if len(ms) > 0 {
		last := ms[len(ms)-1].Text()
		for i := range d.Rules {
			if d.Rules[i].when.MatchString(last) {
				return &d.Rules[i], nil
			}
		}
	}
	return nil, fmt.Errorf("its dialogue has no line for message %d", n+1)
}

func (l *Line) play(ms []Message) (*Response, error) {
	if l.Fail != "" {
		return nil, &Error{Kind: l.Fail, Message: "as the script says", Tries: 1}
	}
	f := filler{ms}
	say, err := f.text(l.Say)
	if err != nil {
		return nil, err
	}
	res := &Response{Model: ScriptedName, Stop: StopEnd, Tries: 1, Usage: Usage{Priced: true}, Message: Message{Role: Assistant}}
	if say != "" {
		res.Message.Parts = []Part{{Text: say}}
	}
	for i, c := range l.Calls {
		args := any(map[string]any{})
		if c.Args != nil {
			if err := json.Unmarshal(c.Args, &args); err != nil {
				return nil, err
			}
			if args, err = f.value(args); err != nil {
				return nil, err
			}
		}
		b, err := json.Marshal(args)
		if err != nil {
			return nil, err
		}
		res.Message.Calls = append(res.Message.Calls, ToolCall{ID: fmt.Sprintf("call_%d_%d", len(ms), i+1), Name: c.Tool, Args: b})
		res.Stop = StopTools
	}
	return res, nil
}

// filler puts what was said before into texts.
type filler struct{ ms []Message }

var (
	place  = lazyregexp.New(`\$\{([a-z]+(?:[.\[][^}]*)?)\}`)
	whole  = lazyregexp.New(`^\$\{[a-z]+(?:[.\[][^}]*)?\}$`)
	pieces = lazyregexp.New(`\.([^.\[\]]+)|\[([0-9]+)\]`)
)

func (f filler) value(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		if whole().MatchString(v) {
			return f.find(v[2 : len(v)-1])
		}
		return f.text(v)
	case []any:
		for i := range v {
			if v[i], err = f.value(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = f.value(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func (f filler) text(s string) (string, error) {
	var bad error
	out := place().ReplaceAllStringFunc(s, func(p string) string {
		v, err := f.find(p[2 : len(p)-1])
		if err != nil {
			bad = errors.Join(bad, err)
			return p
		}
		if text, ok := v.(string); ok {
			return text
		}
		b, err := json.Marshal(v)
		bad = errors.Join(bad, err)
		return string(b)
	})
	return out, bad
}

// find is the value that an expression names.
func (f filler) find(expr string) (any, error) {
	var results []*Message
	var user string
	for i := range f.ms {
		switch m := &f.ms[i]; m.Role {
		case ToolRole:
			results = append(results, m)
		case User:
			user = m.Text()
		}
	}
	head := expr
	if i := strings.IndexAny(expr, ".["); i >= 0 {
		head = expr[:i]
	}
	rest := expr[len(head):]
	n := len(results) - 1
	switch head {
	case "user":
		return user, nil
	case "last":
	case "result":
		p := pieces().FindStringSubmatch(rest)
		if p == nil {
			return nil, fmt.Errorf("${%s} names no result by number", expr)
		}
		i, err := strconv.Atoi(p[1] + p[2])
		if err != nil {
			return nil, fmt.Errorf("${%s} names no result by number", expr)
		}
		n, rest = i, strings.TrimPrefix(rest, p[0])
	default:
		return nil, fmt.Errorf("${%s} is none of user, last and result", expr)
	}
	if n < 0 || n >= len(results) {
		return nil, fmt.Errorf("${%s}: there is no such tool result yet", expr)
	}
	return dig(results[n].Text(), rest, expr)
}

func dig(text, path, expr string) (any, error) {
	if path == "" {
		return text, nil
	}
	at, ok := valueIn(text, strings.HasPrefix(path, ".result"))
	if !ok {
		return nil, fmt.Errorf("${%s}: the tool's result is no JSON", expr)
	}
	for _, p := range pieces().FindAllStringSubmatch(path, -1) {
		ok := false
		if p[1] != "" {
			var m map[string]any
			if m, ok = at.(map[string]any); ok {
				at, ok = m[p[1]]
			}
		} else if list, isList := at.([]any); isList {
			i, err := strconv.Atoi(p[2])
			if ok = err == nil && i < len(list); ok {
				at = list[i]
			}
		}
		if !ok {
			return nil, fmt.Errorf("${%s}: the tool's result has no %s", expr, strings.TrimPrefix(p[0], "."))
		}
	}
	return at, nil
}

// maxStarts bounds the places of a text where JSON is looked for.
const maxStarts = 32

// valueIn is the JSON of a tool's result as agents show it: some put words around it, and some the whole of a result that has a structured form, which for
// a tool that answers a text is an object with that text as its only member.
func valueIn(text string, whole bool) (any, bool) {
	var at any
	found := json.Unmarshal([]byte(text), &at) == nil
	for i, tries := 0, 0; !found && i < len(text) && tries < maxStarts; i++ {
		if text[i] == '{' || text[i] == '[' {
			tries++
			found = json.NewDecoder(strings.NewReader(text[i:])).Decode(&at) == nil
		}
	}
	if m, ok := at.(map[string]any); ok && !whole && len(m) == 1 {
		if s, ok := m["result"].(string); ok {
			var inner any
			if json.Unmarshal([]byte(s), &inner) == nil {
				return inner, true
			}
		}
	}
	return at, found
}
