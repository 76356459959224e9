package doc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// ParseTOML reads TOML 1.0, with or without a byte order mark. Names and tables that are defined twice are all reported, and the tree keeps
// the first; so are numbers, dates and forms of TOML 1.1 (an inline table over several lines or with a comma at its end, the escapes
// \e and \x, times without seconds) that it refuses. At the first syntax fault reading ends and there is no tree. inf and nan are refused:
// no JSON could hold them.
func ParseTOML(name string, src []byte) (*Tree, diag.List) {
	t := &Tree{Name: name, Src: bytes.TrimPrefix(src, []byte(bom)), bom: bytes.HasPrefix(src, []byte(bom)), read: ParseTOML, format: tomlSyntax}
	r := &tomlReader{state: state{t: t, format: "toml", title: "TOML"}}
	if r.badUTF8() {
		return r.done(nil)
	}
	t.Src = t.Src[:len(t.Src):len(t.Src)] // positions are told by capacity
	r.p.Reset(t.Src)
	r.root = r.newNode(Object, 0, len(t.Src))
	r.root.form = formHeader
	r.table, r.depth = r.root, 1
	for r.p.NextExpression() {
		e := r.p.Expression()
		switch e.Kind {
		case unstable.Table:
			r.header(e, false)
		case unstable.ArrayTable:
			r.header(e, true)
		default:
			end := r.keyValue(r.table, e, r.depth)
			r.table.end = max(r.table.end, int32(end))
			if r.list != nil {
				r.list.end = r.table.end
			}
		}
	}
	if err := r.p.Error(); err != nil {
		r.syntax(err)
		return r.done(nil)
	}
	return r.done(r.root)
}

type tomlReader struct {
	state
	p     unstable.Parser
	root  *node
	table *node // the table that key-values go to
	list  *node // the list that table is an element of; nil for none
	depth int   // of table
}

// part is one name of a dotted key.
type part struct {
	name     string
	off, end int
}

func (r *tomlReader) key(it unstable.Iterator) []part {
	var ps []part
	for it.Next() {
		k := it.Node()
		off := int(k.Raw.Offset)
		end := off + int(k.Raw.Length)
		r.newEscapes(off, end)
		ps = append(ps, part{string(k.Data), off, end})
	}
	return ps
}

// header begins the table of [a.b] or the next one of [[a.b]]. After a fault its members go nowhere.
func (r *tomlReader) header(e *unstable.Node, list bool) {
	ps := r.key(e.Key())
	off := bytes.LastIndexByte(r.t.Src[:ps[0].off], '[')
	if list {
		off--
	}
	end := ps[len(ps)-1].end
	end += bytes.IndexByte(r.t.Src[end:], ']') + 1
	if list {
		end++
	}
	r.table, r.list, r.depth = r.newNode(Object, off, end), nil, len(ps)+1
	r.table.form = formHeader
	if len(ps) >= maxDepth {
		r.tooDeep(off)
		return
	}
	at := r.root
	for i, p := range ps[:len(ps)-1] {
		next := at.get(p.name)
		switch {
		case next == nil:
			next = r.newNode(Object, off, end)
			next.form, next.keyOff = formSuper, int32(p.off)
			at.add(p.name, next)
		case next.kind == Array && next.form == formHeader:
			next = next.kids[len(next.kids)-1]
		case next.kind != Object || next.form == formFlow:
			r.clash(ps[:i+1], next, "a table")
			return
		}
		at = next
	}
	last := ps[len(ps)-1]
	have := at.get(last.name)
	if list {
		r.element(at, ps, have)
		return
	}
	switch {
	case have == nil:
		r.table.keyOff = int32(last.off)
		at.add(last.name, r.table)
	case have.kind == Object && have.form == formSuper:
		have.form, have.off, have.end, have.keyOff = formHeader, int32(off), int32(end), int32(last.off)
		r.table = have
	case have.kind == Object && have.form != formFlow:
		r.duplicate(dotted(ps), last.off, int(have.keyOff))
	default:
		r.clash(ps, have, "a table")
	}
}

// element appends the table that a [[header]] begins.
func (r *tomlReader) element(at *node, ps []part, have *node) {
	last := ps[len(ps)-1]
	if have == nil {
		have = r.newNode(Array, int(r.table.off), int(r.table.end))
		have.form, have.keyOff = formHeader, int32(last.off)
		at.add(last.name, have)
	}
	if have.kind != Array || have.form != formHeader {
		r.clash(ps, have, "a list of tables")
		return
	}
	have.kids, have.end = append(have.kids, r.table), r.table.end
	r.list = have
}

// clash records a name that is used as something else than it was first.
func (r *tomlReader) clash(ps []part, have *node, as string) {
	last := ps[len(ps)-1]
	r.fault(last.off, "duplicate", fmt.Sprintf("not valid TOML: %s is %s here, but already %s at line %d",
		diag.Repr(short(dotted(ps))), as, what(have), r.t.Pos(int(have.keyOff)).Line), "rename one of them")
}

// what is a taken name in words.
func what(n *node) string {
	switch {
	case n.kind == Array && n.form == formHeader:
		return "a list of tables"
	case n.kind == Object && n.form == formFlow:
		return "an inline table"
	default:
		return n.kind.String()
	}
}

func dotted(ps []part) string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.name
	}
	return strings.Join(names, ".")
}

// keyValue adds a member, by a dotted key maybe, and answers where its value ends.
func (r *tomlReader) keyValue(table *node, e *unstable.Node, depth int) int {
	ps := r.key(e.Key())
	last := ps[len(ps)-1]
	off := r.skip(last.end, "=")
	deep := depth+len(ps) > maxDepth
	if deep {
		r.tooDeep(ps[0].off)
	}
	v, end := r.value(e.Value(), off, depth+len(ps), deep)
	if deep || v == nil {
		return end
	}
	v.keyOff = int32(last.off)
	at := table
	for i, p := range ps[:len(ps)-1] {
		next := at.get(p.name)
		switch {
		case next == nil:
			next = r.newNode(Object, ps[0].off, end)
			next.form, next.keyOff = formDotted, int32(p.off)
			at.add(p.name, next)
		case next.kind == Object && next.form != formDotted && next.form != formFlow:
			r.duplicate(dotted(ps[:i+1]), p.off, int(next.keyOff))
			return end
		case next.kind != Object || next.form == formFlow:
			r.clash(ps[:i+1], next, "a table")
			return end
		}
		next.end = max(next.end, int32(end))
		at = next
	}
	if first := at.get(last.name); first != nil {
		r.duplicate(dotted(ps), last.off, int(first.keyOff))
		return end
	}
	at.add(last.name, v)
	return end
}

// skip is the offset of the next value: behind blanks, newlines, comments and the characters of also.
func (r *tomlReader) skip(off int, also string) int {
	for src := r.t.Src; off < len(src); off++ {
		c := src[off]
		switch {
		case c == '#':
			n := bytes.IndexByte(src[off:], '\n')
			if n < 0 {
				return len(src)
			}
			off += n
		case c != ' ' && c != '\t' && c != '\n' && c != '\r' && strings.IndexByte(also, c) < 0:
			return off
		}
	}
	return off
}

// value makes the value that begins at off and answers where it ends. deep was already reported.
func (r *tomlReader) value(v *unstable.Node, off, depth int, deep bool) (*node, int) {
	if v.Kind != unstable.Array && v.Kind != unstable.InlineTable {
		end := off + int(v.Raw.Length)
		n := r.newNode(Null, off, end)
		r.scalar(n, v)
		return n, end
	}
	if depth > maxDepth && !deep {
		r.tooDeep(off)
		deep = true
	}
	n := r.newNode(Array, off, 0)
	at := off + 1
	if v.Kind == unstable.InlineTable {
		n.kind = Object
		at = r.inlineTable(n, v, depth, at)
	} else {
		for it := v.Children(); it.Next(); {
			var kid *node
			kid, at = r.value(it.Node(), r.skip(at, ","), depth+1, deep)
			n.kids = append(n.kids, kid)
		}
		at = r.skip(at, ",")
	}
	n.end = int32(at + 1)
	return n, at + 1
}

// inlineTable reads members from at on and answers where the closing brace is.
func (r *tomlReader) inlineTable(n *node, v *unstable.Node, depth, at int) int {
	begin, comma := at, false
	lines := false
	gap := func() {
		next := r.skip(at, ",")
		between := r.t.Src[at:next]
		comma = bytes.IndexByte(between, ',') >= 0
		lines = lines || bytes.IndexByte(between, '\n') >= 0
		at = next
	}
	for it := v.Children(); it.Next(); {
		gap()
		at = r.keyValue(n, it.Node(), depth)
	}
	gap()
	switch {
	case lines:
		r.newer(begin-1, "an inline table over several lines", "write it on one line, or as a [table]")
	case comma:
		r.newer(at, "an inline table with a comma at its end", "remove the comma")
	}
	return at
}

// newer records a form that TOML 1.1 brought.
func (r *tomlReader) newer(off int, what, fix string) {
	r.fault(off, "version", "not valid TOML 1.0: "+what, fix)
}

// newEscapes records \e and \x in a string between double quotes.
func (r *tomlReader) newEscapes(off, end int) {
	raw := r.t.Src[off:end]
	if len(raw) == 0 || raw[0] != '"' || bytes.IndexByte(raw, '\\') < 0 {
		return
	}
	for i := 1; i < len(raw)-1; i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] == 'e' || raw[i] == 'x' {
			r.newer(off+i-1, `the escape \`+string(raw[i]), `write \u00 and two digits`)
		}
	}
}

func (r *tomlReader) scalar(n *node, v *unstable.Node) {
	raw := string(r.t.Src[n.off:n.end])
	off := int(n.off)
	n.text = raw
	switch v.Kind {
	case unstable.String:
		n.kind, n.text = String, r.text(v, raw)
		r.newEscapes(off, int(n.end))
	case unstable.Bool:
		n.kind = Bool
	case unstable.Integer:
		n.kind = Int
		i, err := strconv.ParseInt(strings.TrimPrefix(raw, "+"), 0, 64) // base 0 takes the prefixes and underscores as TOML does
		if err != nil {
			r.fault(off, "number", diag.Clean(short(raw))+" doesn't fit in 64 bits", "write it as a string")
		}
		n.text = strconv.FormatInt(i, 10)
	case unstable.Float:
		n.kind, n.text = Float, strings.ReplaceAll(raw, "_", "")
		if f, err := strconv.ParseFloat(n.text, 64); err != nil || f-f != 0 {
			r.notFinite(off, diag.Clean(short(raw)))
			n.text = "0.0"
		}
	default:
		n.kind = Datetime
		r.datetime(off, raw)
	}
}

var withoutSeconds = lazyregexp.New(`(^|[Tt ])\d\d:\d\d($|[^:\d])`)

func (r *tomlReader) datetime(off int, raw string) {
	switch {
	case validDatetime(raw):
	case withoutSeconds().MatchString(raw):
		r.newer(off, "a time without seconds", "write them")
	default:
		r.fault(off, "date", diag.Clean(short(raw))+" is no date or time", "write it as 2006-01-02, 15:04:05 or 2006-01-02T15:04:05Z, or as a string between quotes")
	}
}

// text is a string's value. Newlines of the source are \n whatever the file has, as the format allows and Python does.
func (r *tomlReader) text(v *unstable.Node, raw string) string {
	if !strings.Contains(raw, "\r\n") {
		return string(v.Data)
	}
	var p unstable.Parser
	p.Reset([]byte("a=" + strings.ReplaceAll(raw, "\r\n", "\n")))
	if !p.NextExpression() {
		return string(v.Data)
	}
	return string(p.Expression().Value().Data)
}

var codePoint = lazyregexp.New(`U\+[0-9A-F]{4,6} ('.')`)

func (r *tomlReader) syntax(err error) {
	off, msg := len(r.t.Src), err.Error()
	var pe *unstable.ParserError
	if errors.As(err, &pe) {
		// The highlight is a piece of the source: what lies behind it tells where it begins.
		if at := cap(r.t.Src) - cap(pe.Highlight); at >= 0 && at <= len(r.t.Src) {
			off = at
		}
		msg = pe.Message
	}
	r.broken(off, diag.Clean(codePoint().ReplaceAllString(msg, "$1")), "")
}
