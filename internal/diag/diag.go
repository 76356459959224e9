// Package diag holds what checks find: problems, warnings and hints, each with a position, a cause and a fix.
//
// A check collects everything it finds in a List and returns it; List.Err is nil when nothing in it is an error.
// Nothing here prints: internal/cli renders a List once, sorted, on stderr.
package diag

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a Problem means for the caller: only an Error stops work.
type Severity uint8

const (
	Error Severity = iota
	Warning
	Hint
)

// Pos is a place in a file that a person wrote. Line and Col count from 1; 0 means unknown.
type Pos struct {
	File string
	Line int
	Col  int
}

func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Problem is one fault. Its text is always one line: control characters of outside text must be escaped (Repr, Clean).
type Problem struct {
	Pos      Pos
	Where    string // the place inside the file in words: "step 'box': depends_on[0]"
	Code     string // stable and documented: "bundle.ref.unknown"
	Summary  string // what is wrong
	Fix      string // what to do; empty where Summary says it
	Severity Severity
	// Prefixed renders as `file: where: summary; fix (line N)`, the shape of bundle problems;
	// otherwise `file:line: where: summary; fix`.
	Prefixed bool
	// Exact is a message that is quoted elsewhere word for word: no fix and no line is added.
	Exact bool
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Pos.File != "" {
		if p.Prefixed || p.Exact {
			b.WriteString(p.Pos.File)
		} else {
			b.WriteString(p.Pos.String())
		}
		b.WriteString(": ")
	}
	if p.Where != "" {
		b.WriteString(p.Where)
		b.WriteString(": ")
	}
	b.WriteString(p.Summary)
	if p.Exact {
		return b.String()
	}
	if p.Fix != "" {
		b.WriteString("; ")
		b.WriteString(p.Fix)
	}
	if p.Prefixed && p.Pos.Line > 0 {
		fmt.Fprintf(&b, " (line %d)", p.Pos.Line)
	}
	return b.String()
}

// List is what a check found, in the order it was found.
type List []Problem

// Add appends problems.
func (l *List) Add(ps ...Problem) { *l = append(*l, ps...) }

// Errorf appends an error at pos.
func (l *List) Errorf(pos Pos, code, format string, args ...any) {
	l.Add(Problem{Pos: pos, Code: code, Summary: fmt.Sprintf(format, args...)})
}

// Of returns the problems of one severity, sorted by their text, each text once.
func (l List) Of(s Severity) List {
	var out List
	for _, p := range l {
		if p.Severity == s {
			out = append(out, p)
		}
	}
	texts := make(map[string]bool, len(out))
	slices.SortStableFunc(out, func(a, b Problem) int { return strings.Compare(a.String(), b.String()) })
	return slices.DeleteFunc(out, func(p Problem) bool {
		t := p.String()
		if texts[t] {
			return true
		}
		texts[t] = true
		return false
	})
}

// Prefixed gives every problem of the list the shape of bundle problems and returns the list.
func (l List) Prefixed() List {
	for i := range l {
		l[i].Prefixed = true
	}
	return l
}

// HasErrors tells whether the list stops work.
func (l List) HasErrors() bool {
	return slices.ContainsFunc(l, func(p Problem) bool { return p.Severity == Error })
}

// Err returns nil when the list holds no Error, else an error that carries the whole list.
func (l List) Err() error {
	if !l.HasErrors() {
		return nil
	}
	return &Refusal{List: l}
}

// Refusal is a List travelling as an error. Its text is every error of it, sorted, a line each.
type Refusal struct{ List List }

func (r *Refusal) Error() string {
	var lines []string
	for _, p := range r.List.Of(Error) {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// From takes the List out of an error that carries one, however wrapped.
func From(err error) (List, bool) {
	var r *Refusal
	if errors.As(err, &r) {
		return r.List, true
	}
	return nil, false
}
