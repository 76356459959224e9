package doc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// ParseYAML reads the part of YAML that every reader of it understands alike: mappings, lists and scalars of one document in UTF-8.
// Aliases, anchors, merge keys, tags, a second document, a byte order mark, repeated names and .inf and .nan are refused, all of them at
// once; at a syntax fault there is no tree. Scalars without quotes that YAML 1.1 and 1.2 take differently (on, 0123, 1_000, 1e3, 12:30) are
// text, with a warning. A document without a value is null.
func ParseYAML(name string, src []byte) (*Tree, diag.List) {
	t := &Tree{Name: name, Src: src, read: ParseYAML, format: yamlSyntax}
	r := &yamlReader{state: state{t: t, format: "yaml", title: "YAML"}}
	if len(src) > MaxYAML {
		r.fault(0, "size", fmt.Sprintf("has more than %d MiB, too much for YAML", MaxYAML>>20), "split it, or write it as JSON")
		return r.done(nil)
	}
	if bytes.HasPrefix(src, []byte(bom)) {
		r.fault(0, "bom", "begins with a byte order mark", "save the file as UTF-8 without it")
		return r.done(nil)
	}
	if r.badUTF8() {
		return r.done(nil)
	}
	r.index()
	d := yaml.NewDecoder(bytes.NewReader(src))
	var first, second yaml.Node
	if err := d.Decode(&first); errors.Is(err, io.EOF) {
		n := r.newNode(Null, 0, 0)
		n.text = "null"
		return r.done(n)
	} else if err != nil {
		r.syntax(err)
		return r.done(nil)
	}
	if err := d.Decode(&second); err == nil {
		r.fault(r.offset(second.Line, second.Column), "document", "a second document begins here", "remove it")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return r.done(nil)
	}
	if len(first.Content) != 1 {
		r.broken(0, "no value", "")
		return r.done(nil)
	}
	return r.done(r.value(first.Content[0], 1))
}

type yamlReader struct {
	state
	lines                []int // offsets of line starts, by YAML's idea of lines
	line, col, off, deep int   // where offset last looked; how often depth was reported
}

// index notes where lines begin: YAML ends them at CR, NEL, LS and PS too.
func (r *yamlReader) index() {
	src := r.t.Src
	r.lines = append(r.lines, 0)
	for i := 0; i < len(src); {
		n := lineBreak(src[i:])
		if n == 0 {
			i++
			continue
		}
		i += n
		r.lines = append(r.lines, i)
	}
}

// lineBreak is the length of the line break that b begins with, or 0.
func lineBreak(b []byte) int {
	switch {
	case len(b) == 0:
		return 0
	case b[0] == '\n':
		return 1
	case b[0] == '\r':
		if len(b) > 1 && b[1] == '\n' {
			return 2
		}
		return 1
	case b[0] == 0xc2 && len(b) > 1 && b[1] == 0x85:
		return 2
	case b[0] == 0xe2 && len(b) > 2 && b[1] == 0x80 && (b[2] == 0xa8 || b[2] == 0xa9):
		return 3
	default:
		return 0
	}
}

// offset turns a line and a column, which counts characters, into an offset. Asked in order, it looks at each character once.
func (r *yamlReader) offset(line, col int) int {
	if line != r.line || col < r.col {
		r.line, r.col = line, 1
		r.off = r.lines[min(max(line, 1), len(r.lines))-1]
	}
	for r.col < col && r.off < len(r.t.Src) {
		_, n := utf8.DecodeRune(r.t.Src[r.off:])
		r.off += n
		r.col++
	}
	return r.off
}

func (r *yamlReader) value(y *yaml.Node, depth int) *node {
	off := r.offset(y.Line, y.Column)
	n := r.newNode(Null, off, off)
	n.text = "null"
	if !r.allowed(y, off) {
		return n
	}
	if depth > maxDepth && y.Kind != yaml.ScalarNode {
		if r.deep++; r.deep == 1 {
			r.tooDeep(off)
		}
		return n
	}
	n.form = formBlock
	if y.Style&yaml.FlowStyle != 0 {
		n.form = formFlow
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.kind, n.text = Object, ""
		r.mapping(n, y, depth)
		n.end = int32(r.collectionEnd(n, '{', '}'))
	case yaml.SequenceNode:
		n.kind, n.text = Array, ""
		for _, e := range y.Content {
			n.kids = append(n.kids, r.value(e, depth+1))
		}
		n.end = int32(r.collectionEnd(n, '[', ']'))
	default:
		r.scalar(n, y)
	}
	return n
}

// allowed reports what is refused of any node, and tells whether the node has a value.
func (r *yamlReader) allowed(y *yaml.Node, off int) bool {
	const plainly = "write the value itself"
	switch {
	case y.Kind == yaml.AliasNode:
		r.fault(off, "alias", "an alias (*"+diag.Clean(short(y.Value))+") is not allowed", plainly)
		return false
	case y.Anchor != "":
		r.fault(off, "alias", "an anchor (&"+diag.Clean(short(y.Anchor))+") is not allowed", plainly)
		return false
	case y.Style&yaml.TaggedStyle != 0:
		r.fault(off, "tag", "a tag ("+diag.Clean(short(y.Tag))+") is not allowed", plainly)
		return false
	case off < len(r.t.Src) && r.t.Src[off] == '!':
		r.fault(off, "tag", "a tag (!) is not allowed", plainly)
		return false
	}
	return true
}

func (r *yamlReader) mapping(n *node, y *yaml.Node, depth int) {
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		off := r.offset(k.Line, k.Column)
		ok := r.name(k, off)
		kid := r.value(y.Content[i+1], depth+1)
		kid.keyOff = int32(off)
		if first := n.get(k.Value); ok && first != nil {
			r.duplicate(k.Value, off, int(first.keyOff))
		} else if first == nil {
			n.add(k.Value, kid)
		}
	}
}

// name checks what stands for a member's name, which is taken as it is written.
func (r *yamlReader) name(k *yaml.Node, off int) bool {
	switch {
	case !r.allowed(k, off):
	case k.Kind != yaml.ScalarNode:
		r.fault(off, "name", "a name must be text, not a list or a table", "write it between quotes")
	case k.Style == 0 && k.Value == "":
		r.fault(off, "name", "a name is missing before the colon", "write it")
	case k.Style == 0 && k.Value == "<<":
		r.fault(off, "merge", "a merge key (<<) is not allowed", "write the members themselves")
	default:
		if kind, _ := resolveYAML(k.Value); k.Style == 0 && (kind != String || ambiguousYAML(k.Value)) {
			r.warn(off, "the name "+diag.Clean(short(k.Value)))
		}
		return true
	}
	return false
}

func (r *yamlReader) warn(off int, what string) {
	r.add(&r.l, diag.Problem{Pos: r.t.Pos(off), Code: "yaml.quote", Summary: what + " is read as text", Fix: "put it between quotes", Severity: diag.Warning})
}

func (r *yamlReader) scalar(n *node, y *yaml.Node) {
	off := int(n.off)
	n.kind, n.text, n.form = String, y.Value, formFlow
	switch {
	case y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		n.form = formBlock
		n.end = int32(r.blockEnd(off))
	case y.Style&yaml.DoubleQuotedStyle != 0:
		n.end = int32(r.quotedEnd(off, '"'))
	case y.Style&yaml.SingleQuotedStyle != 0:
		n.end = int32(r.quotedEnd(off, '\''))
	default:
		n.form = formPlain
		n.end = int32(r.plainEnd(off, y.Value))
		n.kind, n.text = resolveYAML(y.Value)
		switch {
		case ambiguousYAML(y.Value):
			r.warn(off, diag.Clean(short(y.Value)))
		case len(n.text) > maxDigits && (n.kind == Int || n.kind == Float):
			r.tooLong(off)
		case n.kind == Float:
			if v, err := strconv.ParseFloat(n.text, 64); err != nil || v-v != 0 {
				r.notFinite(off, diag.Clean(short(y.Value)))
				n.text = "0.0"
			}
		}
	}
}

var yamlLine = lazyregexp.New(`^yaml: (?:line (\d+): )?`)

// syntax reports the library's fault. It counts lines from 0 where its grammar refused, from 1 where its scanner did.
func (r *yamlReader) syntax(err error) {
	msg := err.Error()
	m := yamlLine().FindStringSubmatch(msg)
	line := 1
	if m != nil {
		msg = msg[len(m[0]):]
		if m[1] != "" {
			line, _ = strconv.Atoi(m[1])
			if grammar().MatchString(msg) {
				line++
			}
		}
	}
	line = min(max(line, 1), len(r.lines))
	fix := ""
	switch {
	case strings.Contains(msg, "cannot start any token"):
		fix = "indent with blanks, not tabs; put text that begins with a sign between quotes"
	case strings.Contains(msg, "mapping values are not allowed"):
		fix = "put text that has a colon between quotes, or mend the indentation"
	case strings.Contains(msg, "did not find expected"):
		fix = "look at the indentation and at quotes and brackets from here on"
	}
	r.broken(r.lines[line-1], diag.Clean(strings.ReplaceAll(msg, "\n", " ")), fix)
}

var grammar = lazyregexp.New(fmt.Sprintf("^(?:did not find expected (?:%s)|found (?:incompatible|undefined|duplicate))",
	`key|'-' indicator|node content|',' or|<document start>`))
