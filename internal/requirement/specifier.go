package requirement

import (
	"strings"
	"unicode/utf8"
)

// Specifiers are the conditions on a version that a requirement names: all must hold.
type Specifiers []Specifier

// Specifier is one condition, such as >=1.2.
type Specifier struct {
	Op       string // === == ~= != <= >= < >
	Version  string // as written; with .* at its end under == and !=
	version  Version
	wildcard bool
}

// Contains says whether an installed version is in range. Pre-releases are in range like others. A text that is no version is in no range but that of an
// equal ===, and of no condition at all.
func (s Specifiers) Contains(version string) bool {
	v, err := ParseVersion(version)
	for _, one := range s {
		if one.Op == "===" {
			if !strings.EqualFold(version, one.Version) {
				return false
			}
			continue
		}
		if err != nil || !one.contains(v) {
			return false
		}
	}
	return true
}

// String is the conditions as a requirement spells them.
func (s Specifiers) String() string {
	parts := make([]string, len(s))
	for i, one := range s {
		parts[i] = one.Op + one.Version
	}
	return strings.Join(parts, ",")
}

func (s Specifier) contains(v Version) bool {
	w := s.version
	switch s.Op {
	case "==":
		return s.equal(v)
	case "!=":
		return !s.equal(v)
	case "<=":
		return v.withoutLocal().Compare(w) <= 0
	case ">=":
		return v.Compare(w) >= 0
	case "~=":
		return v.Compare(w) >= 0 && v.Compare(nextOf(w.epoch, w.release[:len(w.release)-1])) < 0
	case "<":
		if !w.prerelease() {
			w.dev, w.devN = true, zero
		}
		return v.Compare(w) < 0
	default:
		return after(v, w)
	}
}

func (s Specifier) equal(v Version) bool {
	w := s.version
	switch {
	case s.wildcard:
		low := Version{epoch: w.epoch, release: w.release, dev: true, devN: zero}
		return v.Compare(low) >= 0 && v.Compare(nextOf(w.epoch, w.release)) < 0
	case w.local != nil:
		return v.Compare(w) == 0
	default:
		return v.withoutLocal().Compare(w) == 0
	}
}

// after is > : neither local versions of w nor, unless w is one itself, its post-releases are above it.
func after(v, w Version) bool {
	switch {
	case w.dev:
		w.devN = w.devN.next()
		return v.Compare(w) >= 0
	case w.post:
		w.postN, w.dev, w.devN = w.postN.next(), true, zero
		return v.Compare(w) >= 0
	}
	base := v
	base.post, base.dev, base.local = false, false, nil
	return v.Compare(w) > 0 && base.Compare(w) != 0
}

// nextOf is the smallest version above all whose release begins with these numbers.
func nextOf(epoch num, release []num) Version {
	up := append([]num(nil), release...)
	up[len(up)-1] = up[len(up)-1].next()
	return Version{epoch: epoch, release: up, dev: true, devN: zero}
}

// scanSpecifier reads one condition at the start of s; ok is false where none is.
func scanSpecifier(s string) (spec Specifier, rest string, ok bool) {
	for _, op := range [...]string{"===", "==", "~=", "!=", "<=", ">=", "<", ">"} {
		if !strings.HasPrefix(s, op) {
			continue
		}
		spec.Op = op
		s = strings.TrimLeftFunc(s[len(op):], isSpace)
		if op == "===" {
			return scanArbitrary(s)
		}
		v, rest := scanVersion(s, false)
		if v.release == nil {
			return Specifier{}, "", false
		}
		if op == "==" || op == "!=" {
			if bare, more := scanVersion(s, true); strings.HasPrefix(more, ".*") {
				v, rest, spec.wildcard = bare, more[2:], true
			}
		} else if v.local != nil {
			rest = s[strings.IndexByte(s, '+'):]
			v.local = nil
		}
		if op == "~=" && len(v.release) < 2 {
			return Specifier{}, "", false
		}
		spec.version, spec.Version = v, s[:len(s)-len(rest)]
		return spec, rest, true
	}
	return Specifier{}, "", false
}

// scanArbitrary reads what follows ===: anything up to a space, a semicolon or a closing parenthesis.
func scanArbitrary(s string) (Specifier, string, bool) {
	i := strings.IndexFunc(s, func(r rune) bool { return isSpace(r) || r == ';' || r == ')' })
	if i < 0 {
		i = len(s)
	}
	return Specifier{Op: "===", Version: s[:i]}, s[i:], i > 0
}

// parseSpecifiers reads conditions that are separated by commas; empty items count for nothing. ok is false where one is none.
func parseSpecifiers(s string) (out Specifiers, ok bool) {
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimFunc(item, isSpace)
		if item == "" {
			continue
		}
		one, ok := parseSpecifier(item)
		if !ok {
			return nil, false
		}
		out = append(out, one)
	}
	return out, true
}

// parseSpecifier reads one condition and white space behind it.
func parseSpecifier(s string) (Specifier, bool) {
	one, rest, ok := scanSpecifier(s)
	return one, ok && strings.TrimLeftFunc(rest, isSpace) == ""
}

// specifiers reads the versions of a requirement, which may stand between parentheses.
func (p *parser) specifiers() (Specifiers, bool) {
	if !p.take("(") {
		return p.versions()
	}
	p.blanks()
	out, ok := p.versions()
	if !ok {
		return nil, false
	}
	if !p.take(")") {
		return nil, p.fail("the versions must end in )")
	}
	p.blanks()
	return out, true
}

// versions reads conditions and the blanks behind them. One comma may follow the last, and none may follow another.
func (p *parser) versions() (Specifiers, bool) {
	if out, ok := p.list(); ok {
		return out, true
	}
	start := p.at
	for {
		one, rest, ok := scanSpecifier(p.s[p.at:])
		if !ok {
			break
		}
		p.at = len(p.s) - len(rest)
		switch {
		case strings.HasPrefix(rest, ".*"):
			return nil, p.fail("%s%s takes no .*", one.Op, one.Version)
		case one.version.local == nil && strings.HasPrefix(rest, "+"):
			if _, _, local := scanLocal(rest); local {
				return nil, p.fail("%s takes no version with a local label", one.Op)
			}
		}
		p.blanks()
		if !p.take(",") {
			break
		}
		p.blanks()
	}
	out, ok := parseSpecifiers(p.s[start:p.at])
	if !ok {
		return nil, p.fail("versions are separated by commas")
	}
	return out, true
}

// list reads conditions up to a semicolon, a parenthesis or the end, if that is what comes next and nothing else. What follows === may hold commas in no
// other way.
func (p *parser) list() (Specifiers, bool) {
	i := p.at
	for i < len(p.s) && p.s[i] != ';' && p.s[i] != ')' {
		if c := p.s[i]; c >= utf8.RuneSelf || c != '\t' && (c < ' ' || c > '~') {
			return nil, false
		}
		i++
	}
	text := p.s[p.at:i]
	out, ok := parseSpecifiers(text)
	if !ok || len(out) == 0 {
		return nil, false
	}
	commas := strings.Count(text, ",")
	if len(out) != commas+1 && (len(out) != commas || !strings.HasSuffix(strings.TrimRight(text, " \t"), ",")) {
		return nil, false
	}
	p.at = i
	return out, true
}
