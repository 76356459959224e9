package doc

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/diag"
)

// The most bytes that a document may have.
const (
	MaxConfig = 8 << 20 // configuration files and task documents: callers enforce it before they read
	MaxYAML   = 1 << 20 // YAML, which takes ten times as long: more is refused unread
)

// maxDepth is how many lists and tables may lie within each other.
const maxDepth = 100

// Parse reads src by the suffix of name: .toml, .yaml, .yml, anything else as JSON. The tree is nil when the text broke off; otherwise it
// holds what could be read, even beside problems. The tree keeps src: it must not change.
func Parse(name string, src []byte) (*Tree, diag.List) {
	switch strings.ToLower(path.Ext(name)) {
	case ".toml":
		return ParseTOML(name, src)
	case ".yaml", ".yml":
		return ParseYAML(name, src)
	default:
		return ParseJSON(name, src)
	}
}

// state is what the three readers share: the tree under construction and what is wrong with it.
type state struct {
	t      *Tree
	format string // "json": the first word of codes
	title  string // "JSON": in messages
	l      diag.List
	quota
	slab []node
}

// CodeMore stands for problems that are left out. Codes of what the readers refuse are "json.", "toml." or "yaml." and a word: syntax,
// duplicate, depth, number, utf8; version and date (TOML); alias, tag, merge, name, document, bom and the warning quote (YAML).
const CodeMore = "doc.more"

// maxProblems is how many problems of one severity are told of one document: a hostile one could hold millions.
const maxProblems = 200

// quota fills a list up to that number.
type quota struct{ n [diag.Hint + 1]int }

func (q *quota) add(l *diag.List, p diag.Problem) {
	q.n[p.Severity]++
	switch n := q.n[p.Severity]; {
	case n <= maxProblems:
		l.Add(p)
	case n == maxProblems+1:
		l.Add(diag.Problem{
			Pos: diag.Pos{File: p.Pos.File}, Code: CodeMore, Summary: "there are more problems than are shown", Fix: "mend these first",
			Severity: p.Severity,
		})
	}
}

// newNode takes nodes from blocks: a document has thousands.
func (s *state) newNode(k Kind, off, end int) *node {
	if len(s.slab) == 0 {
		s.slab = make([]node, min(max(8, len(s.t.Src)/64), 256))
	}
	n := &s.slab[0]
	s.slab = s.slab[1:]
	n.kind, n.off, n.end, n.keyOff = k, int32(off), int32(end), -1
	return n
}

// fault records what is wrong at an offset.
func (s *state) fault(off int, code, summary, fix string) {
	s.add(&s.l, diag.Problem{Pos: s.t.Pos(off), Code: s.format + "." + code, Summary: summary, Fix: fix})
}

// broken records the one fault at which reading ends.
func (s *state) broken(off int, summary, fix string) {
	s.fault(off, "syntax", "not valid "+s.title+": "+summary, fix)
}

// duplicate records a second member of a name whose first one is at an offset.
func (s *state) duplicate(name string, off, first int) {
	s.fault(off, "duplicate", fmt.Sprintf("not valid %s: %s is defined twice, first at line %d", s.title, diag.Repr(short(name)), s.t.Pos(first).Line),
		"remove one of them")
}

func (s *state) tooDeep(off int) {
	s.fault(off, "depth", fmt.Sprintf("not valid %s: more than %d levels of lists and tables", s.title, maxDepth), "flatten it")
}

func (s *state) notFinite(off int, text string) {
	s.fault(off, "number", text+" is not a finite number", "write a number, or a string between quotes")
}

func (s *state) tooLong(off int) {
	s.fault(off, "number", fmt.Sprintf("a number of more than %d digits", maxDigits), "write it as a string")
}

// maxDigits bounds numbers, so that no reader of ours or of a peer spends quadratic time on one.
const maxDigits = 4300

// badUTF8 finds the first undecodable byte and tells whether there is one.
func (s *state) badUTF8() bool {
	if utf8.Valid(s.t.Src) {
		return false
	}
	for i := 0; i < len(s.t.Src); {
		r, n := utf8.DecodeRune(s.t.Src[i:])
		if r == utf8.RuneError && n == 1 {
			s.fault(i, "utf8", fmt.Sprintf("not UTF-8: byte 0x%02x", s.t.Src[i]), "save the file as UTF-8")
			return true
		}
		i += n
	}
	return false
}

// done is what a reader answers: no tree when the text broke off.
func (s *state) done(root *node) (*Tree, diag.List) {
	if root == nil {
		return nil, s.l
	}
	s.t.root = root
	return s.t, s.l
}

const bom = "\ufeff"

// short cuts outside text for a message.
func short(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	i := 0
	for range most {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return s[:i] + "…"
}
