package doc

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Canonical is the JSON that digests are taken of, as Python's json.dumps(sort_keys=True, separators=(",", ":")) spells it: names sorted
// by code point, ASCII alone, numbers as Python's repr, date-times as its isoformat. An absent value is null. It equals for trees that
// differ only in spelling, order of names and format.
func Canonical(n Node) []byte {
	w := writer{ascii: true, sorted: true}
	w.node(n.n, 0)
	return w.Bytes()
}

// JSON is the value in one line with members in source order. Characters beyond ASCII stay as they are.
func JSON(n Node) []byte {
	var w writer
	w.node(n.n, 0)
	return w.Bytes()
}

// JSONIndent is the value with a member or element a line, indented by two blanks, without a newline at the end.
func JSONIndent(n Node) []byte {
	w := writer{indent: "  "}
	w.node(n.n, 0)
	return w.Bytes()
}

type writer struct {
	bytes.Buffer
	ascii, sorted bool
	indent        string // "" for one line
	newline       string // before the indentation; "" for \n alone
	limit         int    // lists and tables stop soon after so many bytes; 0 for none
}

func (w *writer) node(n *node, depth int) {
	if n == nil {
		w.WriteString("null")
		return
	}
	switch n.kind {
	case Bool:
		w.WriteString(n.text)
	case Int:
		w.WriteString(intText(n.text))
	case Float:
		w.WriteString(floatText(n.text))
	case String:
		w.string(n.text)
	case Datetime:
		w.string(isoformat(n.text))
	case Array:
		w.list('[', ']', len(n.kids), depth, func(i int) { w.node(n.kids[i], depth+1) })
	case Object:
		order := make([]int, len(n.kids))
		for i := range order {
			order[i] = i
		}
		if w.sorted { // the order of UTF-8 bytes is that of code points
			slices.SortFunc(order, func(a, b int) int { return strings.Compare(n.names[a], n.names[b]) })
		}
		w.list('{', '}', len(n.kids), depth, func(i int) {
			w.string(n.names[order[i]])
			w.WriteByte(':')
			if w.indent != "" {
				w.WriteByte(' ')
			}
			w.node(n.kids[order[i]], depth+1)
		})
	default:
		w.WriteString("null")
	}
}

func (w *writer) list(open, end byte, n, depth int, each func(int)) {
	w.WriteByte(open)
	for i := range n {
		if w.limit > 0 && w.Len() > w.limit {
			return
		}
		if i > 0 {
			w.WriteByte(',')
		}
		w.line(depth + 1)
		each(i)
	}
	if n > 0 {
		w.line(depth)
	}
	w.WriteByte(end)
}

func (w *writer) line(depth int) {
	if w.indent == "" {
		return
	}
	if w.newline != "" {
		w.WriteString(w.newline)
	} else {
		w.WriteByte('\n')
	}
	for range depth {
		w.WriteString(w.indent)
	}
}

func (w *writer) string(s string) {
	w.WriteByte('"')
	from := 0
	for i := 0; i < len(s); {
		if c := s[i]; c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if !w.ascii && r > 0x7f && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		w.WriteString(s[from:i])
		w.escape(r)
		i += size
		from = i
	}
	w.WriteString(s[from:])
	w.WriteByte('"')
}

func (w *writer) escape(r rune) {
	switch r {
	case '"', '\\':
		w.WriteByte('\\')
		w.WriteByte(byte(r))
	case '\b':
		w.WriteString(`\b`)
	case '\f':
		w.WriteString(`\f`)
	case '\n':
		w.WriteString(`\n`)
	case '\r':
		w.WriteString(`\r`)
	case '\t':
		w.WriteString(`\t`)
	default:
		if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
			fmt.Fprintf(w, `\u%04x\u%04x`, hi, lo)
			return
		}
		fmt.Fprintf(w, `\u%04x`, r)
	}
}

// intText drops a plus, leading zeros and the sign of zero.
func intText(s string) string {
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = "-"
		}
		s = s[1:]
	}
	s = strings.TrimLeft(s, "0")
	if s == "" {
		return "0"
	}
	return sign + s
}

// floatText is Python's repr: the fewest digits that read back, an exponent below 1e-4 and from 1e16 on.
func floatText(s string) string {
	v, _ := strconv.ParseFloat(s, 64) // readers refuse what is not a finite number
	e := strconv.FormatFloat(v, 'e', -1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return e
	}
	f := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.ContainsRune(f, '.') {
		f += ".0"
	}
	return f
}
