package doc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"agentenv.internal/agentenv/internal/diag"
)

// ParseJSON reads strict JSON, with or without a byte order mark. Repeated names are all reported, and the tree keeps the first;
// at any other fault reading ends and there is no tree.
func ParseJSON(name string, src []byte) (*Tree, diag.List) {
	t := &Tree{Name: name, Src: bytes.TrimPrefix(src, []byte(bom)), bom: bytes.HasPrefix(src, []byte(bom)), read: ParseJSON, format: jsonSyntax}
	r := &jsonReader{state: state{t: t, format: "json", title: "JSON"}}
	if r.badUTF8() {
		return r.done(nil)
	}
	// A bytes.Buffer is read in place; everything that a token holds is copied out of it.
	r.d = jsontext.NewDecoder(bytes.NewBuffer(t.Src), jsontext.AllowDuplicateNames(true))
	root := r.value(1)
	if root != nil {
		if off := r.blanks(int(r.d.InputOffset())); off < len(t.Src) {
			r.broken(off, "something follows the end of the document", "remove it")
			root = nil
		}
	}
	return r.done(root)
}

type jsonReader struct {
	state
	d *jsontext.Decoder
}

// next is the offset of the next token: behind the blanks and the comma or colon that the decoder has not taken yet.
func (r *jsonReader) next() int {
	off := int(r.d.InputOffset())
	for off < len(r.t.Src) {
		switch r.t.Src[off] {
		case ' ', '\t', '\n', '\r', ',', ':':
			off++
		default:
			return off
		}
	}
	return off
}

// value reads one value; nil after a fault that ends reading.
func (r *jsonReader) value(depth int) *node {
	off := r.next()
	tok, err := r.d.ReadToken()
	if err != nil {
		return r.fail(err)
	}
	end := int(r.d.InputOffset())
	switch k := tok.Kind(); k {
	case '{', '[':
		if depth > maxDepth {
			r.tooDeep(off)
			return nil
		}
		if k == '{' {
			return r.object(depth, off)
		}
		return r.array(depth, off)
	case '"':
		return r.scalar(String, tok.String(), off, end)
	case '0':
		return r.number(tok.String(), off, end)
	case 'n':
		return r.scalar(Null, "null", off, end)
	case 't':
		return r.scalar(Bool, "true", off, end)
	default:
		return r.scalar(Bool, "false", off, end)
	}
}

func (r *jsonReader) scalar(k Kind, text string, off, end int) *node {
	n := r.newNode(k, off, end)
	n.text = text
	return n
}

func (r *jsonReader) number(text string, off, end int) *node {
	k := Int
	for i := range len(text) {
		if c := text[i]; c == '.' || c == 'e' || c == 'E' {
			k = Float
		}
	}
	switch {
	case len(text) > maxDigits:
		r.tooLong(off)
	case k == Float:
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			r.notFinite(off, diag.Clean(short(text)))
		}
	}
	return r.scalar(k, text, off, end)
}

func (r *jsonReader) array(depth, off int) *node {
	n := r.newNode(Array, off, 0)
	for r.d.PeekKind() != ']' {
		kid := r.value(depth + 1)
		if kid == nil {
			return nil
		}
		n.kids = append(n.kids, kid)
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.fail(err)
	}
	n.end = int32(r.d.InputOffset())
	return n
}

func (r *jsonReader) object(depth, off int) *node {
	n := r.newNode(Object, off, 0)
	for r.d.PeekKind() != '}' {
		keyOff := r.next()
		tok, err := r.d.ReadToken()
		if err != nil {
			return r.fail(err)
		}
		name := tok.String()
		kid := r.value(depth + 1)
		if kid == nil {
			return nil
		}
		kid.keyOff = int32(keyOff)
		if first := n.get(name); first != nil {
			r.duplicate(name, keyOff, int(first.keyOff))
			continue
		}
		n.add(name, kid)
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.fail(err)
	}
	n.end = int32(r.d.InputOffset())
	return n
}

// fail explains a syntax fault in words and ends reading.
func (r *jsonReader) fail(err error) *node {
	src, off := r.t.Src, len(r.t.Src)
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		off = min(int(se.ByteOffset), len(src))
	}
	summary, fix := r.explain(off, err)
	r.broken(off, summary, fix)
	return nil
}

// blanks is the offset of the first character from off on that is no blank.
func (r *jsonReader) blanks(off int) int {
	for off < len(r.t.Src) && bytes.IndexByte([]byte(" \t\r\n"), r.t.Src[off]) >= 0 {
		off++
	}
	return off
}

func (r *jsonReader) explain(off int, err error) (summary, fix string) {
	src := r.t.Src
	if off >= len(src) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		if len(bytes.TrimSpace(src)) == 0 {
			return "the file is empty", "write a value"
		}
		return "the text ends in the middle of a value", "close what is open"
	}
	before := bytes.TrimRight(src[:off], " \t\r\n")
	last := byte(0)
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	rest := src[off:]
	switch {
	case bytes.HasPrefix(rest, []byte("NaN")), bytes.HasPrefix(rest, []byte("Infinity")):
		return "NaN and Infinity are no JSON numbers", "write a number or null"
	case rest[0] == ',' && closes(bytes.TrimLeft(rest[1:], " \t\r\n")):
		return "a comma with no value after it", "remove the comma"
	case rest[0] == '/' || rest[0] == '#':
		return "JSON has no comments", "remove it"
	case rest[0] == '\'':
		return "a string between single quotes", `use "`
	case rest[0] == ',' && last == ',' || rest[0] == ',' && (last == '[' || last == '{'):
		return "a comma with no value before it", "remove the comma"
	case rest[0] < 0x20:
		return fmt.Sprintf("the control character \\u%04x inside a string", rest[0]), "escape it"
	case rest[0] == '\\':
		return "an escape that stands for no character: " + diag.Clean(short(string(rest[:min(6, len(rest))]))), `write \\ for a backslash`
	}
	r1 := diag.Repr(string([]rune(string(rest[:min(4, len(rest))]))[:1]))
	switch msg := err.Error(); {
	case bytes.Contains([]byte(msg), []byte("expecting ',' or '}'")), bytes.Contains([]byte(msg), []byte("expecting ',' or ']'")):
		return "a comma is missing before " + r1, "write it"
	case bytes.Contains([]byte(msg), []byte("expecting ':'")):
		return "a colon is missing before " + r1, "write it"
	case r.wantsName():
		return "a member's name must be a string between double quotes", `use "`
	}
	return "unexpected " + r1, ""
}

// wantsName tells whether a member's name or the end of its object comes next.
func (r *jsonReader) wantsName() bool {
	k, n := r.d.StackIndex(r.d.StackDepth())
	return k == '{' && n%2 == 0
}

func closes(b []byte) bool { return len(b) > 0 && (b[0] == '}' || b[0] == ']') }
