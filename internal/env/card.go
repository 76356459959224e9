package env

import (
	"iter"
	"slices"
	"strings"
	"unicode"
)

// CardNames are the names that a Python source gives its environments: the literal name of each @environment_card decorator of a class, in order, each
// once.
// The source is only looked at, never run; a name that is computed is not found.
func CardNames(src string) []string {
	var names, pending []string // pending are of decorators whose class is yet to come
	for line := range codeLines(src) {
		rest, ok := strings.CutPrefix(line, "@")
		if !ok {
			switch line = strings.TrimSpace(line); {
			case line == "" || line[0] == '#':
				continue
			case strings.HasPrefix(line, "class ") || strings.HasPrefix(line, "class\t"):
				for _, name := range pending {
					if !slices.Contains(names, name) {
						names = append(names, name)
					}
				}
			}
			pending = nil
			continue
		}
		// The decorator may be reached through its module.
		word, args, ok := strings.Cut(rest, "(")
		word = strings.TrimSpace(word)
		if !ok || word[strings.LastIndexByte(word, '.')+1:] != "environment_card" {
			continue
		}
		if name, ok := keyword(args, "name"); ok {
			pending = append(pending, name)
		}
	}
	return names
}

// codeLines yields each logical line of a Python source without its indentation: brackets and strings may run over line ends.
// Comments and what lies inside multi-line strings begin no line.
func codeLines(src string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, depth := 0, 0
		for i := 0; i < len(src); {
			switch c := src[i]; {
			case c == '#':
				i = lineEnd(src, i)
			case c == '"' || c == '\'':
				_, i = literal(src, i)
			case c == '\\':
				i += 2
			case strings.IndexByte("([{", c) >= 0:
				depth++
				i++
			case strings.IndexByte(")]}", c) >= 0:
				depth = max(0, depth-1)
				i++
			case c == '\n' && depth == 0:
				if !yield(strings.TrimLeft(src[start:i], " \t\f")) {
					return
				}
				i++
				start = i
			default:
				i++
			}
		}
		yield(strings.TrimLeft(src[min(start, len(src)):], " \t\f"))
	}
}

func lineEnd(src string, i int) int {
	if n := strings.IndexByte(src[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(src)
}

// literal reads the string literal that begins at i, answering its text and where it ends. A single-quoted one ends with its line.
func literal(src string, i int) (text string, end int) {
	quote := src[i : i+1]
	if strings.HasPrefix(src[i:], quote+quote+quote) {
		quote = src[i : i+3]
	}
	var b strings.Builder
	for i += len(quote); i < len(src); {
		switch {
		case strings.HasPrefix(src[i:], quote):
			return b.String(), i + len(quote)
		case src[i] == '\n' && len(quote) == 1:
			return b.String(), i
		case src[i] == '\\' && i+1 < len(src):
			if c := src[i+1]; c == '\\' || c == '\'' || c == '"' {
				b.WriteByte(c)
			} else {
				b.WriteString(src[i : i+2])
			}
			i += 2
		default:
			b.WriteByte(src[i])
			i++
		}
	}
	return b.String(), len(src)
}

// keyword finds the keyword argument called name with one plain string literal as its value, in the text that follows a call's bracket.
func keyword(args, name string) (string, bool) {
	depth := 0
	fresh := true // at the start of an argument
	for i := 0; i < len(args); {
		switch c := args[i]; {
		case unicode.IsSpace(rune(c)):
			i++
			continue
		case c == '#':
			i = lineEnd(args, i)
			continue
		case c == '"' || c == '\'':
			_, i = literal(args, i)
		case strings.IndexByte("([{", c) >= 0:
			depth++
			i++
		case strings.IndexByte(")]}", c) >= 0:
			if depth == 0 {
				return "", false
			}
			depth--
			i++
		case c == ',' && depth == 0:
			i++
			fresh = true
			continue
		case fresh && depth == 0 && strings.HasPrefix(args[i:], name):
			if v, ok := assigned(args[i+len(name):]); ok {
				return v, true
			}
			i += len(name)
		default:
			i++
		}
		fresh = false
	}
	return "", false
}

// assigned reads `= "literal"` that ends an argument.
func assigned(s string) (string, bool) {
	s, ok := strings.CutPrefix(strings.TrimLeftFunc(s, unicode.IsSpace), "=")
	if !ok || strings.HasPrefix(s, "=") {
		return "", false
	}
	s = strings.TrimLeftFunc(s, unicode.IsSpace)
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return "", false
	}
	text, end := literal(s, 0)
	after := strings.TrimLeftFunc(s[end:], unicode.IsSpace)
	if text == "" || after == "" || after[0] != ',' && after[0] != ')' && after[0] != '#' {
		return "", false
	}
	return text, true
}

func identifier(s string) bool {
	for i, r := range s {
		switch {
		case r == '_', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', r > 127:
		case '0' <= r && r <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}
