package requirement

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescape reads what stands between the quotes of a marker's text as Python reads a literal. Characters by name (\N{…}) are not read.
func unescape(raw string) (string, bool) {
	if strings.ContainsAny(raw, "\x00\n\r") && !continued(raw) {
		return "", false
	}
	if !strings.Contains(raw, `\`) {
		return raw, true
	}
	var b strings.Builder
	for raw != "" {
		i := strings.IndexByte(raw, '\\')
		if i < 0 {
			break
		}
		b.WriteString(raw[:i])
		n, ok := escape(&b, raw[i+1:])
		if !ok {
			return "", false
		}
		raw = raw[i+1+n:]
	}
	b.WriteString(raw)
	return b.String(), true
}

// continued says whether every line end has a backslash before it, and no character is one that a literal can't hold.
func continued(raw string) bool {
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
			if strings.HasPrefix(raw[min(i, len(raw)):], "\r\n") {
				i++
			}
			if i < len(raw) && raw[i] == 0 {
				return false
			}
		case '\n', '\r', 0:
			return false
		}
	}
	return true
}

// escape writes the character that s, behind a backslash, begins with, and answers how many bytes it took. An unknown one stands for itself.
func escape(b *strings.Builder, s string) (int, bool) {
	if s == "" {
		return 0, false
	}
	if at := strings.IndexByte(`abfnrtv\'"`, s[0]); at >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v\\'\""[at])
		return 1, true
	}
	switch c := s[0]; {
	case c == '\n':
		return 1, true
	case c == '\r':
		return 1 + len(s[1:]) - len(strings.TrimPrefix(s[1:], "\n")), true
	case c == 'x':
		return hex(b, s, 2)
	case c == 'u':
		return hex(b, s, 4)
	case c == 'U':
		return hex(b, s, 8)
	case c == 'N':
		return 0, false
	case '0' <= c && c <= '7':
		n := 1
		for n < 3 && n < len(s) && '0' <= s[n] && s[n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(s[:n], 8, 32)
		b.WriteRune(rune(v)) //nolint:gosec // at most 0o777
		return n, true
	default:
		b.WriteByte('\\')
		return 0, true
	}
}

// hex writes the character of n hexadecimal digits behind a letter.
func hex(b *strings.Builder, s string, n int) (int, bool) {
	if len(s) < 1+n {
		return 0, false
	}
	for _, c := range []byte(s[1 : 1+n]) {
		if !alnum(c) {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(s[1:1+n], 16, 32)
	if err != nil || v > utf8.MaxRune {
		return 0, false
	}
	if 0xd800 <= v && v <= 0xdfff { // half of a pair, which is compared and never printed
		b.Write([]byte{0xed, 0x80 | byte(v>>6&0x3f), 0x80 | byte(v&0x3f)})
		return 1 + n, true
	}
	b.WriteRune(rune(v))
	return 1 + n, true
}
