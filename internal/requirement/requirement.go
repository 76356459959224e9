// Package requirement reads what Python packages require of each other: PEP 440 versions and specifiers, and PEP 508 requirements with extras and
// markers. It decides as Python's packaging 26.4 does, and asks of an installed version only whether it is in range: pre-releases count.
//
// Canonical is a name as indexes compare it, an Environment the eleven marker variables of one interpreter, Unmet a requirement that what is installed
// doesn't meet. The package resolves nothing, reads no files and starts no Python; which version an index would choose is an installer's business.
package requirement

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Requirement is one PEP 508 requirement.
type Requirement struct {
	Text       string // as written
	Name       string // as written, without blanks around it
	Extras     []string
	Specifiers Specifiers
	Marker     *Marker // nil for none
	// URL is where the package is to come from. Parse refuses those; only ParseMetadata answers them.
	URL string
}

// A URLError is a requirement that names where its package is to come from.
type URLError struct{ Text string }

func (e *URLError) Error() string { return "names a URL" }

// An UnprintableError is a requirement that holds a character which can't be printed, so that what people see is not what is installed.
type UnprintableError struct{ Text string }

func (e *UnprintableError) Error() string { return "holds a character that can't be printed" }

// A SyntaxError is a text that is no requirement; Reason says what was expected, and Offset is the byte it was expected at.
type SyntaxError struct {
	Text   string
	Reason string
	Offset int
}

func (e *SyntaxError) Error() string { return "isn't a requirement: " + e.Reason }

// maxText is the longest requirement in bytes that is read.
const maxText = 64 << 10

// Parse reads a requirement that a person declares. The error is an UnprintableError, a SyntaxError or a URLError, in this order; a marker that can't be
// evaluated anywhere is a SyntaxError too.
func Parse(text string) (*Requirement, error) {
	if !Printable(text) {
		return nil, &UnprintableError{Text: text}
	}
	r, err := ParseMetadata(text)
	if err != nil {
		return nil, err
	}
	if r.URL != "" {
		return nil, &URLError{Text: text}
	}
	return r, nil
}

// ParseMetadata reads a requirement of an installed distribution's metadata, which may hold a URL and any character. The error is a SyntaxError.
func ParseMetadata(text string) (*Requirement, error) {
	p := &parser{s: text}
	r, ok := p.requirement()
	if ok && r.Marker != nil {
		if _, err := r.Marker.evaluate(reference(), ""); err != nil {
			p.at, ok = len(text), p.fail("%s", err)
		}
	}
	if !ok {
		return nil, &SyntaxError{Text: text, Reason: p.why, Offset: p.at}
	}
	return r, nil
}

// Printable says whether every character of a text can be printed, as Python's str.isprintable does.
func Printable(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Canonical is a package's name as indexes and environments compare it (PEP 503): lower case, each run of "-", "_" and "." one "-".
func Canonical(name string) string {
	var b strings.Builder
	b.Grow(len(name))
	run := false
	for _, c := range name {
		if c == '-' || c == '_' || c == '.' {
			run = true
			continue
		}
		if run {
			b.WriteByte('-')
			run = false
		}
		b.WriteRune(unicode.ToLower(c))
	}
	if run {
		b.WriteByte('-')
	}
	return b.String()
}

// Applies says whether the requirement counts in an environment with an extra, "" for none. What can't be evaluated there doesn't count.
func (r *Requirement) Applies(env Environment, extra string) bool {
	if r.Marker == nil {
		return true
	}
	ok, err := r.Marker.evaluate(env, Canonical(extra))
	return ok && err == nil
}

// Canonical is the canonical name of the package that is required.
func (r *Requirement) Canonical() string { return Canonical(r.Name) }

// parser reads a text from at; why says what was wrong first.
type parser struct {
	s   string
	at  int
	why string
}

func (p *parser) fail(format string, args ...any) bool {
	if p.why == "" {
		p.why = fmt.Sprintf(format, args...)
	}
	return false
}

func (p *parser) end() bool { return p.at == len(p.s) }

// blanks moves over blanks and tells whether there were any.
func (p *parser) blanks() bool {
	start := p.at
	for p.at < len(p.s) && (p.s[p.at] == ' ' || p.s[p.at] == '\t') {
		p.at++
	}
	return p.at > start
}

// take moves over a text, if it comes next.
func (p *parser) take(text string) bool {
	if strings.HasPrefix(p.s[p.at:], text) {
		p.at += len(text)
		return true
	}
	return false
}

// word moves over a whole word.
func (p *parser) word(text string) bool {
	if strings.HasPrefix(p.s[p.at:], text) && p.boundary(p.at) && p.boundary(p.at+len(text)) {
		p.at += len(text)
		return true
	}
	return false
}

// boundary says whether a word begins or ends at i.
func (p *parser) boundary(i int) bool {
	before, _ := utf8.DecodeLastRuneInString(p.s[:i])
	after, _ := utf8.DecodeRuneInString(p.s[i:])
	return isWord(before) != isWord(after)
}

// isWord tells the letters, digits and underscores of all scripts; not utf8.RuneError, which also stands for either end of a text.
func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

func (p *parser) requirement() (*Requirement, bool) {
	if len(p.s) > maxText {
		return nil, p.fail("it is longer than %d bytes", maxText)
	}
	r := &Requirement{Text: p.s}
	p.blanks()
	if p.end() {
		return nil, p.fail("it is empty")
	}
	if r.Name = p.identifier(); r.Name == "" {
		return nil, p.fail("it must begin with the name of a package")
	}
	p.blanks()
	ok := false
	if r.Extras, ok = p.extras(); !ok {
		return nil, false
	}
	if p.take("@") {
		return r, p.url(r)
	}
	if r.Specifiers, ok = p.specifiers(); !ok {
		return nil, false
	}
	if p.end() {
		return r, true
	}
	return r, p.marker(r)
}

// identifier reads a name; "" for none.
func (p *parser) identifier() string {
	start, e := p.at, p.at
	for e < len(p.s) && (alnum(p.s[e]) || e > start && (p.s[e] == '.' || p.s[e] == '_' || p.s[e] == '-')) {
		e++
	}
	if e == start || !p.boundary(start) {
		return ""
	}
	for e > start && !p.boundary(e) {
		e--
	}
	p.at = e
	return p.s[start:e]
}

func alnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (p *parser) extras() ([]string, bool) {
	if !p.take("[") {
		return nil, true
	}
	var out []string
	p.blanks()
	for first := true; ; first = false {
		e := p.identifier()
		if e == "" && first {
			break
		}
		if e == "" {
			return nil, p.fail("an extra must follow the comma")
		}
		out = append(out, e)
		p.blanks()
		if !p.take(",") {
			break
		}
		p.blanks()
	}
	if !p.take("]") {
		return nil, p.fail("the extras must end in ] and be separated by commas")
	}
	p.blanks()
	return out, true
}

// url reads what follows an @.
func (p *parser) url(r *Requirement) bool {
	p.blanks()
	start := p.at
	for p.at < len(p.s) {
		c, size := utf8.DecodeRuneInString(p.s[p.at:])
		if isSpace(c) {
			break
		}
		p.at += size
	}
	if r.URL = p.s[start:p.at]; r.URL == "" {
		return p.fail("a URL must follow the @")
	}
	if p.end() {
		return true
	}
	if !p.blanks() {
		return p.fail("a blank must follow the URL")
	}
	return p.end() || p.marker(r)
}

// marker reads what follows the versions or the URL, to the end.
func (p *parser) marker(r *Requirement) bool {
	if !p.take(";") {
		return p.fail("%s", p.tail(r))
	}
	m, ok := p.or(0)
	if !ok {
		return false
	}
	if !p.end() {
		return p.fail("a marker must end, or go on with and or or")
	}
	r.Marker = &Marker{or: m}
	return true
}

// tail says what could have stood in place of what does.
func (p *parser) tail(r *Requirement) string {
	switch {
	case p.s[p.at] == ',':
		return "a version must stand between two commas"
	case r.URL != "" || len(r.Specifiers) > 0:
		return "versions are separated by commas, and ; begins a marker"
	default:
		return "versions such as >=1.2 or a marker behind ; may follow the name"
	}
}

// isSpace tells the characters that Python's \s does.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
