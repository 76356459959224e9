package doc

import (
	"bytes"
	"strings"
)

// yaml splices in a YAML document: whole lines in block style; brackets are flow's.
func (s *splicer) yaml() bool {
	if s.holder.form != formBlock {
		return s.flow()
	}
	i := s.place()
	switch {
	case s.op == opRemove && len(s.holder.kids) == 1:
		return s.empty()
	case s.op == opRemove:
		return s.yamlRemove(i)
	case !s.adds(i):
		return s.replace(s.path, yamlSyntax.spell(s.v))
	default:
		return s.yamlAdd(i)
	}
}

// empty writes the holder, which loses its last part, as {} or [].
func (s *splicer) empty() bool {
	text := "{}"
	if s.holder.kind == Array {
		text = "[]"
	}
	if s.holder == s.t.root {
		s.cut(int(s.holder.off), int(s.holder.end), text)
		return true
	}
	return s.replace(s.path[:len(s.path)-1], text)
}

// replace writes text in place of the value at path. What stands on the line of its name or dash moves nowhere.
func (s *splicer) replace(path []any, text string) bool {
	holder := s.t.holder(path)
	n := step(holder, path[len(path)-1])
	if holder.form != formBlock || n.off < n.end && (n.form != formBlock || n.kind == String) {
		s.cut(int(n.off), int(n.end), text)
		return true
	}
	var at int
	if n.keyOff >= 0 {
		at = s.colonEnd(int(n.keyOff), path[len(path)-1])
	} else {
		at = s.dash(holder, path[len(path)-1].(int)) + 1
	}
	if at <= 0 {
		return false
	}
	s.cut(at, max(at, int(n.end)), " "+text)
	return true
}

// colonEnd is behind the colon of the member whose name is at off, or -1.
func (s *splicer) colonEnd(off int, name any) int {
	var end int
	switch r := (&yamlReader{state: state{t: s.t}}); s.src[off] {
	case '"', '\'':
		end = r.quotedEnd(off, s.src[off])
	default:
		end = r.plainEnd(off, name.(string))
	}
	end = s.blanks(end)
	if end < len(s.src) && s.src[end] == ':' {
		return end + 1
	}
	return -1
}

// dash is the offset of the dash of element i, or -1.
func (s *splicer) dash(list *node, i int) int {
	if i == 0 {
		return int(list.off)
	}
	for at := int(list.kids[i-1].end); at < int(list.end); at++ {
		switch c := s.src[at]; {
		case c == '-':
			return at
		case c == '#':
			at = lineEnd(s.src, at)
		case strings.IndexByte(" \t\r\n", c) < 0:
			return -1
		}
	}
	return -1
}

// begin is where kid i of a block collection begins, its name or dash included, or -1.
func (s *splicer) begin(i int) int {
	if s.holder.kind == Array {
		return s.dash(s.holder, i)
	}
	return int(s.holder.kids[i].keyOff)
}

func (s *splicer) yamlRemove(i int) bool {
	from := s.begin(i)
	if from < 0 {
		return false
	}
	if s.first(from) {
		to := s.nextLine(max(from, int(s.holder.kids[i].end)))
		from = s.lineStart(from)
		if to == len(s.src) && from > 0 && !bytes.HasSuffix(s.src, []byte("\n")) {
			from-- // the newline above becomes the one that is missing below
		}
		s.cut(from, to, "")
		return true
	}
	if i+1 == len(s.holder.kids) {
		return false
	}
	next := s.begin(i + 1)
	if next < 0 {
		return false
	}
	s.cut(from, next, "")
	return true
}

func (s *splicer) yamlAdd(i int) bool {
	item := "- "
	if name, ok := s.name(); ok {
		item = yamlText(name) + ": "
	}
	item += yamlSyntax.spell(s.v)
	first := s.begin(0)
	if first < 0 {
		return false
	}
	indent := strings.Repeat(" ", first-s.lineStart(first))
	if i < len(s.holder.kids) {
		at := s.begin(i)
		switch {
		case at < 0:
			return false
		case s.first(at):
			at = s.lineStart(at)
			s.cut(at, at, indent+item+s.nl)
		default:
			s.cut(at, at, item+s.nl+indent)
		}
		return true
	}
	last := s.holder.kids[i-1]
	at := s.lineEnd(max(int(last.end), int(last.keyOff)))
	s.cut(at, at, s.nl+indent+item)
	return true
}
