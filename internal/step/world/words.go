package world

import (
	"errors"
	"strings"
)

// words divides a command line as a shell does, without expanding anything: blanks divide, quotes and backslashes keep together.
func words(text string) ([]string, error) {
	var out []string
	var b strings.Builder
	begun := false
	var quote rune
	escaped := false
	for _, r := range text {
		switch {
		case escaped:
			if quote == '"' && r != '"' && r != '\\' && r != '$' && r != '`' {
				b.WriteByte('\\')
			}
			b.WriteRune(r)
			escaped = false
		case quote == '\'' && r != '\'':
			b.WriteRune(r)
		case r == '\\':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\r\n", r):
			if begun {
				out = append(out, b.String())
				b.Reset()
			}
			begun = false
		default:
			b.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		out = append(out, b.String())
	}
	return out, nil
}
