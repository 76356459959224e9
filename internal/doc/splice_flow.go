package doc

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// splicer makes the byte changes of one splice.
type splicer struct {
	oneSplice
	t      *Tree
	src    []byte
	nl     string
	holder *node // what the changed value is in
	cuts   []cut
}

// cut replaces src[from:to].
type cut struct {
	from, to int
	text     string
}

func (s *splicer) cut(from, to int, text string) { s.cuts = append(s.cuts, cut{from, to, text}) }

func (s *splicer) result() []byte {
	slices.SortStableFunc(s.cuts, func(a, b cut) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out []byte
	at := 0
	for _, c := range s.cuts {
		if c.from < at { // within what is gone already
			at = max(at, c.to)
			continue
		}
		out = append(out, s.src[at:c.from]...)
		out = append(out, c.text...)
		at = c.to
	}
	return append(out, s.src[at:]...)
}

// place is where in its holder the value is: the number of kids for a new one at the end.
func (s *splicer) place() int {
	switch p := s.path[len(s.path)-1].(type) {
	case int:
		return p
	case string:
		if i := slices.Index(s.holder.names, p); i >= 0 {
			return i
		}
	}
	return len(s.holder.kids)
}

// name is the last step of the path when it is a member's name.
func (s *splicer) name() (string, bool) {
	name, ok := s.path[len(s.path)-1].(string)
	return name, ok
}

// adds tells whether a kid comes that was not there, rather than one being replaced or removed.
func (s *splicer) adds(i int) bool {
	return s.op == opInsert || s.op == opSet && i == len(s.holder.kids)
}

// start is where a kid of a collection in brackets begins, its name included.
func start(n *node) int {
	if n.keyOff >= 0 {
		return int(n.keyOff)
	}
	return int(n.off)
}

// lineStart is the offset behind the newline before off.
func (s *splicer) lineStart(off int) int { return bytes.LastIndexByte(s.src[:off], '\n') + 1 }

// lineEnd is the offset of the line break at or after off, or the end.
func (s *splicer) lineEnd(off int) int {
	end := lineEnd(s.src, off)
	if end < len(s.src) && end > off && s.src[end-1] == '\r' {
		end--
	}
	return end
}

// nextLine is the offset behind the line break at or after off.
func (s *splicer) nextLine(off int) int { return min(lineEnd(s.src, off)+1, len(s.src)) }

// indent is the blank beginning of the line that off is on.
func (s *splicer) indent(off int) string {
	line := s.src[s.lineStart(off):]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// first tells whether only blanks are before off on its line.
func (s *splicer) first(off int) bool {
	return len(bytes.TrimLeft(s.src[s.lineStart(off):off], " \t")) == 0
}

// flow splices in a collection in brackets: JSON's, TOML's inline ones, YAML's in flow style.
func (s *splicer) flow() bool {
	i := s.place()
	switch {
	case s.op == opRemove:
		s.flowRemove(i)
	case !s.adds(i):
		kid := s.holder.kids[i]
		s.cut(int(kid.off), int(kid.end), s.gap(kid)+s.text(s.indent(start(kid)), s.first(start(kid))))
	case len(s.holder.kids) == 0:
		return s.flowFirst()
	case i == len(s.holder.kids):
		s.flowAppend()
	default:
		at := start(s.holder.kids[i])
		gap := " "
		if s.first(at) {
			gap = s.nl + s.indent(at)
		}
		s.cut(at, at, s.item(s.indent(at), s.first(at))+","+gap)
	}
	return true
}

// gap is the blank that a value needs which stands where none was written.
func (s *splicer) gap(old *node) string {
	if old.off == old.end {
		return " "
	}
	return ""
}

// text spells the new value. lines tells that members have lines of their own here.
func (s *splicer) text(indent string, lines bool) string {
	if s.t.format != jsonSyntax || !lines || len(s.v.kids) == 0 {
		return s.t.format.spell(s.v)
	}
	w := writer{indent: s.unit(), newline: s.nl + indent}
	w.node(s.v, 0)
	return w.String()
}

// item spells the new member or element.
func (s *splicer) item(indent string, lines bool) string {
	text := s.text(indent, lines)
	if name, ok := s.name(); ok {
		return s.t.format.name(name) + s.colon() + text
	}
	return text
}

// colon is what stands between name and value, without a blank where the file has none.
func (s *splicer) colon() string {
	if s.t.format == jsonSyntax && len(s.holder.kids) > 0 {
		if kid := s.holder.kids[0]; s.src[kid.off-1] == ':' {
			return ":"
		}
	}
	return s.t.format.colon
}

// unit is one step of indentation: that of the first member of a JSON document on a line of its own.
func (s *splicer) unit() string {
	if root := s.t.root; s.t.format == jsonSyntax && len(root.kids) > 0 && s.first(start(root.kids[0])) && s.indent(start(root.kids[0])) != "" {
		return s.indent(start(root.kids[0]))
	}
	return "  "
}

// flowFirst fills an empty collection.
func (s *splicer) flowFirst() bool {
	from, to := int(s.holder.off)+1, int(s.holder.end)-1
	if from > to || len(bytes.TrimSpace(s.src[from:to])) > 0 {
		// A comment is in it: below that, when the bracket has a line of its own.
		at := s.lineStart(to)
		s.cut(at, at, s.indent(to)+s.unit()+s.item("", false)+s.nl)
		return s.first(to)
	}
	lines := s.t.format == jsonSyntax && (s.holder == s.t.root || bytes.IndexByte(s.src, '\n') < len(bytes.TrimSpace(s.src)) && bytes.IndexByte(s.src, '\n') >= 0)
	if !lines {
		text := s.item("", false)
		if s.t.format == tomlSyntax && s.holder.kind == Object {
			text = " " + text + " "
		}
		s.cut(from, to, text)
		return true
	}
	outer := s.indent(int(s.holder.off))
	inner := outer + s.unit()
	s.cut(from, to, s.nl+inner+s.item(inner, true)+s.nl+outer)
	return true
}

// flowAppend puts the new one behind the last: on a line of its own, below the last one's comment, where the last one has one.
func (s *splicer) flowAppend() {
	last := s.holder.kids[len(s.holder.kids)-1]
	at, end := start(last), int(last.end)
	if !s.first(at) {
		s.cut(end, end, ", "+s.item("", false))
		return
	}
	item := s.nl + s.indent(at) + s.item(s.indent(at), true)
	comma := s.blanks(end)
	tail := comma
	trailing := comma < len(s.src) && s.src[comma] == ','
	if trailing {
		tail = s.blanks(comma + 1)
	}
	if s.t.format.comments && tail < len(s.src) && s.src[tail] == '#' {
		if trailing {
			item += ","
		} else {
			s.cut(end, end, ",")
		}
		s.cut(s.lineEnd(tail), s.lineEnd(tail), item)
		return
	}
	s.cut(end, end, ","+item)
}

// blanks is the offset of the first character from off on that is neither blank nor tab.
func (s *splicer) blanks(off int) int {
	return len(s.src) - len(bytes.TrimLeft(s.src[off:], " \t"))
}

// flowRemove takes a member or element away with its comma, its line and the comment on it.
func (s *splicer) flowRemove(i int) {
	kids := s.holder.kids
	from, to := start(kids[i]), int(kids[i].end)
	if len(kids) == 1 {
		s.cut(int(s.holder.off)+1, int(s.holder.end)-1, "")
		return
	}
	after := s.blanks(to)
	comma := after < len(s.src) && s.src[after] == ','
	if comma {
		after = s.blanks(after + 1)
	}
	if s.t.format.comments && after < len(s.src) && s.src[after] == '#' {
		after = s.lineEnd(after)
	}
	lines := s.first(from) && (after >= len(s.src) || strings.IndexByte("\r\n", s.src[after]) >= 0)
	last := i == len(kids)-1
	switch {
	case lines && (!last || comma):
		s.cut(s.lineStart(from), s.nextLine(after), "")
	case lines:
		prev := int(kids[i-1].end)
		if at := prev + bytes.IndexByte(s.src[prev:from], ','); at >= prev {
			s.cut(at, at+1, "")
		}
		s.cut(s.lineStart(from), s.nextLine(after), "")
	case last:
		s.cut(int(kids[i-1].end), to, "")
	default:
		s.cut(from, start(kids[i+1]), "")
	}
}
