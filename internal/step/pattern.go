package step

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Pattern compiles a regular expression that a criterion spells in Python's syntax, so that a search answers as Python's re.search does:
// $ also matches before a last newline, \Z is the end of the text, \d, \w and \s know every script.
// Flags are names of Python's re module: ASCII, DOTALL, IGNORECASE, MULTILINE, UNICODE, or their first letters.
// Look-around, back-references and verbose expressions are refused: matching takes time linear in the text, whatever the expression.
func Pattern(expr string, flags ...string) (*regexp.Regexp, error) {
	t := translator{rest: expr}
	for _, f := range flags {
		switch f {
		case "DOTALL", "S":
			t.flags += "s"
		case "IGNORECASE", "I":
			t.flags += "i"
		case "MULTILINE", "M":
			t.flags += "m"
		case "ASCII", "A":
			t.ascii = true
		case "UNICODE", "U":
		default:
			return nil, fmt.Errorf("flag %s is not supported (ASCII, DOTALL, IGNORECASE, MULTILINE are)", f)
		}
	}
	if err := t.run(); err != nil {
		return nil, err
	}
	whole := t.out.String()
	if t.flags != "" {
		whole = "(?" + t.flags + ")" + whole
	}
	re, err := regexp.Compile(whole)
	if bad, ok := errors.AsType[*syntax.Error](err); ok {
		return nil, errors.New(bad.Code.String()) // its Expr is of the translation, which nobody wrote
	}
	return re, err
}

// translator rewrites one expression from rest to out.
type translator struct {
	rest   string
	out    strings.Builder
	flags  string // of the whole expression: "s", "i", "m"
	ascii  bool
	groups []bool // per open group: whether $ is the end of any line
	class  bool   // inside [...]
}

func (t *translator) run() error {
	t.groups = []bool{strings.Contains(t.flags, "m")}
	for t.rest != "" {
		var err error
		switch c := t.rest[0]; {
		case c == '\\':
			err = t.escape()
		case t.class:
			t.inClass(c)
		default:
			err = t.plain(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take moves n bytes of the input, writing instead in their place.
func (t *translator) take(n int, instead string) {
	t.rest = t.rest[n:]
	t.out.WriteString(instead)
}

func (t *translator) inClass(c byte) {
	switch c {
	case ']':
		t.class = false
		t.take(1, "]")
	case '[': // Go reads [: as the start of a named class
		t.take(1, `\[`)
	default:
		t.take(1, t.rest[:1])
	}
}

func (t *translator) plain(c byte) error {
	switch c {
	case '[':
		t.class = true
		open := "["
		for _, s := range []string{"[^]", "[^", "[]"} { // a ] in first place is a member
			if strings.HasPrefix(t.rest, s) {
				open = s
				break
			}
		}
		t.take(len(open), strings.Replace(open, "]", `\]`, 1))
	case '(':
		return t.group()
	case ')':
		if len(t.groups) > 1 {
			t.groups = t.groups[:len(t.groups)-1]
		}
		t.take(1, ")")
	case '$':
		if t.groups[len(t.groups)-1] {
			t.take(1, "$")
		} else {
			t.take(1, `(?:\n?\z)`)
		}
	case '{':
		if strings.HasPrefix(t.rest, "{,") {
			t.take(2, "{0,")
		} else {
			t.take(1, "{")
		}
	default:
		t.take(1, t.rest[:1])
	}
	return nil
}

// group reads an opening bracket and what says which kind of group it opens.
func (t *translator) group() error {
	multi := t.groups[len(t.groups)-1]
	if !strings.HasPrefix(t.rest, "(?") {
		t.groups = append(t.groups, multi)
		t.take(1, "(")
		return nil
	}
	body := t.rest[2:]
	switch {
	case hasAny(body, "=", "!", "<=", "<!"):
		return errors.New("look-around is not supported")
	case hasAny(body, "P="):
		return errors.New("back-references are not supported")
	case hasAny(body, "("):
		return errors.New("conditional groups are not supported")
	case hasAny(body, "#"):
		end := strings.IndexByte(t.rest, ')')
		if end < 0 {
			return errors.New("comment without an end")
		}
		t.take(end+1, "")
		return nil
	case hasAny(body, "P<"):
		t.groups = append(t.groups, multi)
		t.take(4, "(?P<")
		return nil
	}
	return t.flagGroup(body, multi)
}

// flagGroup reads (?flags) and (?flags:…), (?:…) included.
func (t *translator) flagGroup(body string, multi bool) error {
	end := strings.IndexAny(body, ":)")
	if end < 0 {
		return errors.New("group without an end")
	}
	set, off, minus := strings.Cut(body[:end], "-")
	for _, c := range set {
		switch c {
		case 'i', 's':
		case 'm':
			multi = true
		case 'a':
			t.ascii = true
		case 'u':
		case 'x':
			return errors.New("verbose expressions are not supported")
		default:
			return fmt.Errorf("unknown group (?%s", body[:end+1])
		}
	}
	if strings.Contains(off, "m") {
		multi = false
	}
	set = strings.NewReplacer("a", "", "u", "").Replace(set)
	if minus {
		set += "-" + off
	}
	if body[end] == ')' { // for the whole expression
		t.groups[len(t.groups)-1] = multi
		if set != "" {
			set = "(?" + set + ")"
		}
		t.take(end+3, set)
		return nil
	}
	t.groups = append(t.groups, multi)
	t.take(end+3, "(?"+set+":")
	return nil
}

const (
	pyWord  = `\p{L}\p{N}_`
	pySpace = `\s\v\x1c-\x1f\x{85}\p{Z}`
)

// escape reads a backslash and what follows.
func (t *translator) escape() error {
	if len(t.rest) < 2 {
		return errors.New("trailing backslash")
	}
	r, n := utf8.DecodeRuneInString(t.rest[1:])
	kept := t.rest[:1+n]
	instead := kept
	switch {
	case r >= utf8.RuneSelf:
		instead = kept[1:]
	case r == 'u' || r == 'U':
		return t.codePoint(map[rune]int{'u': 4, 'U': 8}[r])
	case r == 'b' && t.class:
		instead = `\x08`
	case r >= '1' && r <= '9' && !t.class:
		return errors.New("back-references are not supported")
	case r == 'Z' && !t.class:
		instead = `\z`
	case r == 's' && t.ascii:
		instead = t.members(`\s\v`, "")
	case r == 'S' && t.ascii && !t.class:
		instead = `[^\s\v]`
	case t.ascii:
	case r == 'd':
		instead = `\p{Nd}`
	case r == 'D':
		instead = `\P{Nd}`
	case r == 'w':
		instead = t.members(pyWord, "")
	case r == 's':
		instead = t.members(pySpace, "")
	case r == 'W' && !t.class: // in a class, only the ASCII meaning can be said
		instead = t.members(pyWord, "^")
	case r == 'S' && !t.class:
		instead = t.members(pySpace, "^")
	}
	t.take(len(kept), instead)
	return nil
}

// members is a class, or what a class around it takes in.
func (t *translator) members(m, not string) string {
	if t.class {
		return m
	}
	return "[" + not + m + "]"
}

// codePoint reads \u and \U with their hexadecimal digits.
func (t *translator) codePoint(digits int) error {
	if len(t.rest) < 2+digits || strings.Trim(t.rest[2:2+digits], "0123456789abcdefABCDEF") != "" {
		return fmt.Errorf("%s needs %d hexadecimal digits", t.rest[:2], digits)
	}
	t.take(2+digits, `\x{`+t.rest[2:2+digits]+"}")
	return nil
}

func hasAny(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
