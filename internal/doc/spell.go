package doc

import (
	"fmt"
	"strings"
	"unicode"
)

// syntax is how one of the formats spells what an edit puts in. All values are in one line but JSON's, which follow the file.
type syntax struct {
	comments bool
	colon    string // between a name and its value
	name     func(string) string
	value    func(*writer, *node)
}

var (
	jsonSyntax = &syntax{colon: ": ", name: quoted, value: func(w *writer, n *node) { w.node(n, 0) }}
	tomlSyntax = &syntax{colon: " = ", comments: true, name: tomlName, value: tomlValue}
	yamlSyntax = &syntax{colon: ": ", comments: true, name: yamlText, value: yamlValue}
)

func (s *syntax) spell(n *node) string {
	var w writer
	s.value(&w, n)
	return w.String()
}

func quoted(s string) string {
	var w writer
	w.string(s)
	return w.String()
}

// bare tells whether s is of the characters that no format gives a meaning within a name.
func bare(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	})
}

func tomlName(s string) string {
	if bare(s) {
		return s
	}
	return quoted(s)
}

// inline spells what a node holds with commas between, each after what head makes of its name; a list has no names, and no head.
func inline(w *writer, n *node, head func(name string) string, value func(*writer, *node)) {
	for i, k := range n.kids {
		if i > 0 {
			w.WriteString(", ")
		}
		if head != nil {
			w.WriteString(head(n.names[i]))
		}
		value(w, k)
	}
}

func tomlValue(w *writer, n *node) {
	switch n.kind {
	case Datetime:
		w.WriteString(n.text)
	case Array:
		w.WriteByte('[')
		inline(w, n, nil, tomlValue)
		w.WriteByte(']')
	case Object:
		if len(n.kids) == 0 {
			w.WriteString("{}")
			return
		}
		w.WriteString("{ ")
		inline(w, n, func(name string) string { return tomlName(name) + " = " }, tomlValue)
		w.WriteString(" }")
	default:
		w.node(n, 0) // JSON's strings and numbers are TOML's too
	}
}

func yamlValue(w *writer, n *node) {
	switch n.kind {
	case String:
		w.WriteString(yamlText(n.text))
	case Datetime:
		w.WriteString(n.text)
	case Array:
		w.WriteByte('[')
		inline(w, n, nil, yamlValue)
		w.WriteByte(']')
	case Object:
		w.WriteByte('{')
		inline(w, n, func(name string) string { return yamlText(name) + ": " }, yamlValue)
		w.WriteByte('}')
	case Float:
		w.WriteString(yamlFloatText(n.text))
	default:
		w.node(n, 0)
	}
}

// yamlFloatText is a float with the point that YAML 1.1 wants before an exponent.
func yamlFloatText(s string) string {
	f := floatText(s)
	if i := strings.IndexByte(f, 'e'); i >= 0 && !strings.Contains(f, ".") {
		return f[:i] + ".0" + f[i:]
	}
	return f
}

// yamlText is a string without quotes where no reader could take it for something else, between double quotes otherwise.
func yamlText(s string) string {
	plain := s != "" && unicode.IsLetter(rune(s[0])) && s[0] < 0x80 && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("_-./@+ ", r))
	}) && s[len(s)-1] != ' '
	if k, _ := resolveYAML(s); plain && k == String && !ambiguousYAML(s) {
		return s
	}
	var b strings.Builder
	for _, r := range quoted(s) {
		switch {
		case r < 0x80 || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
