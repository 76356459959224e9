package requirement

import (
	"fmt"
	"strings"
)

// Marker says where a requirement counts.
type Marker struct{ or []conjunction }

type conjunction []condition

// condition is a comparison, or a group between parentheses.
type condition struct {
	group       []conjunction
	left, right operand
	op          string
}

type operand struct {
	variable bool
	text     string // the variable's name, or the value
}

// maxNesting is how many parentheses may stand in each other.
const maxNesting = 200

// evaluate answers whether a marker holds. extra is canonical. All of a marker is evaluated, so that an error is one whatever the rest says.
func (m *Marker) evaluate(env Environment, extra string) (bool, error) {
	return anyOf(m.or, env, extra)
}

func anyOf(or []conjunction, env Environment, extra string) (bool, error) {
	holds := false
	for _, and := range or {
		all := true
		for _, c := range and {
			ok, err := c.evaluate(env, extra)
			if err != nil {
				return false, err
			}
			all = all && ok
		}
		holds = holds || all
	}
	return holds, nil
}

// evaluate compares a variable, which may stand on either side, with a value. The left side decides where both are variables, and the right one where
// neither is: then its text is taken for a name.
func (c condition) evaluate(env Environment, extra string) (bool, error) {
	if c.group != nil {
		return anyOf(c.group, env, extra)
	}
	key, left, right := c.left.text, c.left.text, c.right.text
	if !c.left.variable {
		key = c.right.text
	}
	value, known := extra, true
	if key != "extra" {
		value, known = env.variable(key)
	}
	switch {
	case !known:
		return false, fmt.Errorf("a marker must compare with a variable such as python_version, and %q isn't one that has a value here", key)
	case c.left.variable:
		left = value
	default:
		right = value
	}
	return compare(left, c.op, right, key)
}

func compare(left, op, right, key string) (bool, error) {
	if comparesVersions(key) {
		if one, ok := parseSpecifier(op + right); ok {
			return Specifiers{one}.Contains(left), nil
		}
	}
	switch op {
	case "==", "<=", ">=":
		return left == right, nil
	case "!=":
		return left != right, nil
	case "<", ">":
		return false, nil
	case "in":
		return strings.Contains(right, left), nil
	case "not in":
		return !strings.Contains(right, left), nil
	default:
		return false, fmt.Errorf("a marker can't compare %s by %s", key, op)
	}
}

// comparesVersions tells the variables that hold versions; all others are compared as text.
func comparesVersions(name string) bool {
	switch name {
	case "python_version", "python_full_version", "implementation_version", "platform_release":
		return true
	default:
		return false
	}
}

// or reads a marker and the blanks around it.
func (p *parser) or(depth int) ([]conjunction, bool) {
	var out []conjunction
	var and conjunction
	for {
		c, ok := p.condition(depth)
		if !ok {
			return nil, false
		}
		and = append(and, c)
		switch {
		case p.word("and"):
		case p.word("or"):
			out, and = append(out, and), nil
		default:
			return append(out, and), true
		}
	}
}

func (p *parser) condition(depth int) (condition, bool) {
	p.blanks()
	defer p.blanks()
	if p.take("(") {
		if depth >= maxNesting {
			return condition{}, p.fail("its marker has more than %d parentheses in each other", maxNesting)
		}
		g, ok := p.or(depth + 1)
		if ok && !p.take(")") {
			return condition{}, p.fail("a parenthesis of its marker isn't closed")
		}
		return condition{group: g}, ok
	}
	left, ok := p.operand()
	if !ok {
		return condition{}, false
	}
	p.blanks()
	op, ok := p.operator()
	if !ok {
		return condition{}, false
	}
	p.blanks()
	right, ok := p.operand()
	if !ok {
		return condition{}, false
	}
	switch extra := (operand{variable: true, text: "extra"}); {
	case left == extra && !right.variable:
		right.text = Canonical(right.text)
	case right == extra && !left.variable:
		left.text = Canonical(left.text)
	}
	return condition{left: left, op: op, right: right}, true
}

func (p *parser) operator() (string, bool) {
	if p.word("in") {
		return "in", true
	}
	if p.word("not") {
		if !p.blanks() || !p.word("in") {
			return "", p.fail("in must follow not in its marker")
		}
		return "not in", true
	}
	for _, op := range [...]string{"===", "==", "~=", "!=", "<=", ">=", "<", ">"} {
		if p.take(op) {
			return op, true
		}
	}
	return "", p.fail("its marker must compare by <, <=, !=, ==, >=, >, ~=, ===, in or not in")
}

func (p *parser) operand() (operand, bool) {
	for _, v := range variables {
		if p.word(v.spelled) {
			return operand{variable: true, text: v.name}, true
		}
	}
	if p.end() || p.s[p.at] != '\'' && p.s[p.at] != '"' {
		return operand{}, p.fail("its marker must compare a variable such as python_version with a text between quotes")
	}
	n := strings.IndexByte(p.s[p.at+1:], p.s[p.at])
	if n < 0 {
		return operand{}, p.fail("a text of its marker must end in the quote that it begins with")
	}
	raw := p.s[p.at+1 : p.at+1+n]
	text, ok := unescape(raw)
	if !ok {
		return operand{}, p.fail("a text of its marker can't be read; write it without backslashes")
	}
	p.at += n + 2
	return operand{text: text}, true
}
