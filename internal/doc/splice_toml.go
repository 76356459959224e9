package doc

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// section is what one header begins. It reaches to the next one's start.
type section struct {
	start int   // of the comments right above the header
	table *node // what the header names
}

// toml splices in a TOML document: in lines of key-values and in sections; inline values are flow's.
func (s *splicer) toml() bool {
	if s.holder.form == formFlow {
		return s.flow()
	}
	i := s.place()
	if s.op == opRemove {
		return s.tomlRemove(s.holder.kids[i])
	}
	if s.adds(i) {
		return s.tomlAdd(i)
	}
	kid := s.holder.kids[i]
	if kid.form != formFlow {
		return false // edits take such a value away first
	}
	s.cut(int(kid.off), int(kid.end), tomlSyntax.spell(s.v))
	return true
}

// sections lists the headers in source order. s.cuts don't move them.
func (s *splicer) sections() []section {
	var out []section
	var walk func(n *node)
	walk = func(n *node) {
		if n.kind == Object && n.form == formHeader && n != s.t.root {
			out = append(out, section{s.above(s.lineStart(int(n.off))), n})
		}
		if n.form != formFlow {
			for _, k := range n.kids {
				walk(k)
			}
		}
	}
	walk(s.t.root)
	slices.SortFunc(out, func(a, b section) int { return cmp.Compare(a.table.off, b.table.off) })
	return out
}

// above is the start of the comment lines right above the line that begins at off.
func (s *splicer) above(off int) int {
	for off > 0 {
		prev := s.lineStart(off - 1)
		if !bytes.HasPrefix(bytes.TrimLeft(s.src[prev:off], " \t"), []byte("#")) {
			break
		}
		off = prev
	}
	return off
}

// blankAbove is off without the blank lines above it.
func (s *splicer) blankAbove(off int) int {
	for off > 0 {
		prev := s.lineStart(off - 1)
		if len(bytes.TrimSpace(s.src[prev:off])) > 0 {
			break
		}
		off = prev
	}
	return off
}

// tables is the set of tables that n is or holds outside of inline values.
func (n *node) tables(set map[*node]bool) map[*node]bool {
	set[n] = true
	if n.form != formFlow {
		for _, k := range n.kids {
			k.tables(set)
		}
	}
	return set
}

// tomlRemove takes away what path leads to: its lines and its sections. A holder that would vanish with its last part is written as empty.
func (s *splicer) tomlRemove(n *node) bool {
	if s.holder == s.t.root || len(s.holder.kids) > 1 || s.holder.form == formHeader && s.holder.kind == Object {
		s.lines(n)
		s.cutSections(n)
		return true
	}
	outer := s.path[:len(s.path)-1]
	switch s.holder.form {
	case formDotted:
		if n.form != formFlow {
			return false
		}
		s.cut(int(s.holder.keyOff), int(n.end), tomlName(outer[len(outer)-1].(string))+" = {}")
		return true
	case formSuper:
		at := s.cutSections(n)
		text := "[" + s.headerPath(outer) + "]" + s.nl
		if s.endOf(n) < len(s.src) {
			text += s.nl
		}
		s.cut(at, at, text)
		return true
	default: // the last table of a list
		s.cutSections(n)
		o := *s
		o.cuts, o.path, o.holder, o.v = nil, outer, s.t.holder(outer), &node{kind: Array, off: -1, end: -1, keyOff: -1}
		ok := o.tomlAdd(len(o.holder.kids))
		s.cuts = append(s.cuts, o.cuts...)
		return ok
	}
}

// cutSections cuts the sections of n and of what it holds, and answers where the first one was.
func (s *splicer) cutSections(n *node) int {
	sections, gone, at := s.sections(), n.tables(map[*node]bool{}), -1
	for i, sec := range sections {
		if !gone[sec.table] {
			continue
		}
		end := len(s.src)
		if i+1 < len(sections) {
			end = sections[i+1].start
		}
		s.cut(sec.start, end, "")
		if at < 0 {
			at = sec.start
		}
	}
	return at
}

// lines cuts the key-values of n that stand on lines of their own.
func (s *splicer) lines(n *node) {
	if n.form == formFlow {
		s.cut(s.lineStart(int(n.keyOff)), s.nextLine(int(n.end)), "")
		return
	}
	if n.form == formDotted || n.form == formSuper {
		for _, k := range n.kids {
			s.lines(k)
		}
	}
}

// tomlAdd puts a member or a table of a list where it was not.
func (s *splicer) tomlAdd(i int) bool {
	if s.holder.kind == Array {
		return s.addElement(i)
	}
	name, ok := s.name()
	if !ok {
		return false
	}
	isTable := s.v.kind == Object && len(s.v.kids) > 0 || s.v.kind == Object && s.holder.form == formHeader
	isTables := s.v.kind == Array && len(s.v.kids) > 0 && !slices.ContainsFunc(s.v.kids, func(k *node) bool { return k.kind != Object || len(k.kids) == 0 })
	if (isTable || isTables) && s.holder.form != formDotted {
		s.addSection(s.endOf(s.holder), s.tables(s.headerPath(s.path), s.v))
		return true
	}
	line := tomlName(name) + " = " + tomlSyntax.spell(s.v)
	switch s.holder.form {
	case formSuper:
		at := s.above(s.lineStart(int(s.holder.off)))
		s.cut(at, at, "["+s.headerPath(s.path[:len(s.path)-1])+"]"+s.nl+line+s.nl+s.nl)
	case formDotted:
		s.addLine(s.holder, s.dottedPrefix()+line)
	default:
		if s.holder == s.t.root && s.lastLine(s.holder) == nil {
			s.addTop(line)
			return true
		}
		s.addLine(s.holder, line)
	}
	return true
}

// lastLine is the last of a table's members that stands on a line of its own, or nil.
func (s *splicer) lastLine(table *node) *node {
	var last *node
	for _, k := range table.kids {
		if (k.form == formFlow || k.form == formDotted) && (last == nil || k.end > last.end) {
			last = k
		}
	}
	return last
}

// addLine puts a line below a table's last one, or below its header.
func (s *splicer) addLine(table *node, line string) {
	end, indent := int(table.end), ""
	if table.off >= 0 && table != s.t.root {
		indent = s.indent(int(table.off))
	}
	if last := s.lastLine(table); last != nil {
		end, indent = int(last.end), s.indent(int(last.end))
		if last.form == formFlow {
			indent = s.indent(start(last))
		}
	}
	at := s.lineEnd(end)
	s.cut(at, at, s.nl+indent+line)
}

// addTop puts a line before the first section of a document that has sections alone, or at the end of one that has comments at most.
func (s *splicer) addTop(line string) {
	if sections := s.sections(); len(sections) > 0 {
		s.cut(sections[0].start, sections[0].start, line+s.nl+s.nl)
		return
	}
	s.addSection(len(s.src), line+s.nl)
}

// endOf is where the sections of a table and of what it holds end.
func (s *splicer) endOf(table *node) int {
	sections, ours := s.sections(), table.tables(map[*node]bool{})
	for i, sec := range slices.Backward(sections) {
		if ours[sec.table] {
			if i+1 < len(sections) {
				return sections[i+1].start
			}
			break
		}
	}
	return len(s.src)
}

// addSection puts text at a section's start, with a blank line before it where something is above and behind it where something follows.
func (s *splicer) addSection(at int, text string) {
	above := s.blankAbove(at)
	if at < len(s.src) {
		s.cut(at, at, text+s.nl)
		return
	}
	switch {
	case above == 0:
		text = strings.TrimPrefix(text, s.nl)
	case s.src[above-1] != '\n':
		text = s.nl + s.nl + text
	default:
		text = s.nl + text
	}
	s.cut(above, at, text)
}

// addElement puts a table into a list of them.
func (s *splicer) addElement(i int) bool {
	if s.v.kind != Object {
		return false
	}
	at := s.endOf(s.holder)
	if i < len(s.holder.kids) {
		at = s.above(s.lineStart(int(s.holder.kids[i].off)))
	}
	s.addSection(at, s.tables(s.headerPath(s.path[:len(s.path)-1]), &node{kind: Array, kids: []*node{s.v}}))
	return true
}

// headerPath is the names of a path, as headers spell it: places in lists are told by position.
func (s *splicer) headerPath(path []any) string {
	var names []string
	for _, p := range path {
		if name, ok := p.(string); ok {
			names = append(names, tomlName(name))
		}
	}
	return strings.Join(names, ".")
}

// dottedPrefix is the names between the section's table and the holder, with a dot behind each.
func (s *splicer) dottedPrefix() string {
	prefix := ""
	n := s.t.root
	for _, p := range s.path[:len(s.path)-1] {
		n = step(n, p)
		if name, ok := p.(string); ok && n.form == formDotted {
			prefix += tomlName(name) + "."
		} else {
			prefix = ""
		}
	}
	return prefix
}

// tables spells a table, or a list of them, with headers.
func (s *splicer) tables(path string, v *node) string {
	if v.kind == Array {
		var parts []string
		for _, k := range v.kids {
			parts = append(parts, "[["+path+"]]"+s.nl+s.body(path, k))
		}
		return strings.Join(parts, s.nl)
	}
	if len(v.kids) > 0 && !slices.ContainsFunc(v.kids, func(k *node) bool { return k.kind != Object || len(k.kids) == 0 }) {
		return strings.TrimPrefix(s.body(path, v), s.nl) // the headers below name it
	}
	return "[" + path + "]" + s.nl + s.body(path, v)
}

// body spells the members of a table: lines first, then the sections below it.
func (s *splicer) body(path string, v *node) string {
	var b strings.Builder
	var below []string
	for i, k := range v.kids {
		name := tomlName(v.names[i])
		if k.kind == Object && len(k.kids) > 0 {
			below = append(below, s.tables(path+"."+name, k))
			continue
		}
		b.WriteString(name + " = " + tomlSyntax.spell(k) + s.nl)
	}
	for _, text := range below {
		b.WriteString(s.nl + text)
	}
	return b.String()
}
