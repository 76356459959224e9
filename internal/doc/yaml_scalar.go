package doc

import (
	"bytes"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

var (
	yamlInt   = lazyregexp.New(`^(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)$`)
	yamlFloat = lazyregexp.New(`^(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?$`)
	yamlInf   = lazyregexp.New(`^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)

	// What YAML 1.1 or a common reader of it takes as something else than YAML 1.2's core schema does.
	yamlSwitch   = lazyregexp.New(`^(?i:y|yes|n|no|on|off)$`)
	yamlNumber   = lazyregexp.New(`^[-+]?(?:0[0-9_]+|0o[0-7_]+|0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*|(?:[0-9][0-9_]*)?\.?[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$`)
	yamlDate     = lazyregexp.New(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?$`)
	decimalDigit = "0123456789"
)

// resolveYAML is the kind and text of a scalar without quotes, as YAML 1.1 and 1.2 agree on it; what they don't agree on is a string.
func resolveYAML(s string) (Kind, string) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return Null, "null"
	case "true", "True", "TRUE":
		return Bool, "true"
	case "false", "False", "FALSE":
		return Bool, "false"
	}
	switch {
	case strings.IndexByte("+-."+decimalDigit, s[0]) < 0:
		return String, s
	case yamlInt().MatchString(s):
		if strings.HasPrefix(s, "0x") {
			return hexYAML(s)
		}
		return Int, intText(s)
	case yamlFloat().MatchString(s), yamlInf().MatchString(s):
		return Float, s
	case len(s) >= 10 && validDatetime(s) && s[4] == '-':
		return Datetime, s
	}
	return String, s
}

func hexYAML(s string) (Kind, string) {
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return String, s
	}
	return Int, strconv.FormatUint(v, 10)
}

// ambiguousYAML tells whether a scalar without quotes that is a string here is something else to other readers.
func ambiguousYAML(s string) bool {
	if k, _ := resolveYAML(s); k != String {
		return false
	}
	return yamlSwitch().MatchString(s) || strings.ContainsAny(s, decimalDigit) && yamlNumber().MatchString(s) || yamlDate().MatchString(s)
}

// plainEnd is where a scalar without quotes ends: its text is the source with every run of blanks around a line break folded.
func (r *yamlReader) plainEnd(off int, text string) int {
	src, i, end := r.t.Src, off, off
	for j := 0; j < len(text) && i < len(src); {
		if src[i] == text[j] {
			i++
			j++
			end = i
			continue
		}
		i += len(src[i:]) - len(bytes.TrimLeft(src[i:], " \t\r\n\u0085\u2028\u2029"))
		rest := strings.TrimLeft(text[j:], " \n\u0085\u2028\u2029")
		j = len(text) - len(rest)
		if i < len(src) && j < len(text) && src[i] != text[j] {
			break
		}
	}
	return end
}

// quotedEnd is behind the quote that ends the scalar which begins with one at off.
func (r *yamlReader) quotedEnd(off int, quote byte) int {
	src := r.t.Src
	for i := off + 1; i < len(src); i++ {
		switch {
		case src[i] == '\\' && quote == '"':
			i++
		case src[i] == quote && quote == '\'' && i+1 < len(src) && src[i+1] == quote:
			i++
		case src[i] == quote:
			return i + 1
		}
	}
	return len(src)
}

// blockEnd is behind the last line of a literal or folded scalar whose indicator is at off: its first line with text tells how far
// the others are indented. An explicit indentation, which may be less, is not followed.
func (r *yamlReader) blockEnd(off int) int {
	src := r.t.Src
	header := lineEnd(src, off)
	end, indent := header, -1
	for at := header; at < len(src); {
		at++ // the line break
		stop := lineEnd(src, at)
		line := src[at:stop]
		blanks := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case len(bytes.TrimRight(line, " \r")) == 0:
		case indent < 0:
			indent, end = blanks, stop
		case blanks < indent:
			return end
		default:
			end = stop
		}
		if indent == 0 {
			return header
		}
		at = stop
	}
	return end
}

// lineEnd is the offset of the newline at or after off, or the end.
func lineEnd(src []byte, off int) int {
	if n := bytes.IndexByte(src[off:], '\n'); n >= 0 {
		return off + n
	}
	return len(src)
}

// collectionEnd is behind the bracket that closes a collection in brackets, or where the last part of any other ends.
func (r *yamlReader) collectionEnd(n *node, open, closing byte) int {
	src, end := r.t.Src, int(n.off)
	if len(n.kids) > 0 {
		last := n.kids[len(n.kids)-1]
		end = max(end, int(last.end), int(last.keyOff))
	}
	if n.form != formFlow || int(n.off) >= len(src) || src[n.off] != open {
		return end
	}
	for i := max(end, int(n.off)+1); i < len(src); i++ {
		switch {
		case src[i] == '#' && strings.IndexByte(" \t\n", src[i-1]) >= 0:
			i = lineEnd(src, i)
		case src[i] == closing:
			return i + 1
		}
	}
	return len(src)
}
