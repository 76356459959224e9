package requirement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Version is a PEP 440 version. The zero value is not one.
type Version struct {
	epoch   num
	release []num
	pre     string // "a", "b", "rc"; "" for none
	preN    num
	post    bool
	postN   num
	dev     bool
	devN    num
	local   []string // lower case, numbers without leading zeros; nil for none
}

// num is a natural number of any size, in decimal without leading zeros.
type num string

const zero num = "0"

func number(digits string) num {
	if s := strings.TrimLeft(digits, "0"); s != "" {
		return num(s)
	}
	return zero
}

func (n num) compare(m num) int {
	return cmp.Or(cmp.Compare(len(n), len(m)), strings.Compare(string(n), string(m)))
}

// next is n+1.
func (n num) next() num {
	b := []byte(n)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < '9' {
			b[i]++
			return num(b)
		}
		b[i] = '0'
	}
	return num("1" + string(b))
}

// ParseVersion reads a version in any spelling that PEP 440 allows, white space around it included.
func ParseVersion(text string) (Version, error) {
	s := strings.TrimFunc(text, isSpace)
	v, rest := scanVersion(s, false)
	if v.release == nil || rest != "" {
		return Version{}, fmt.Errorf("%q isn't a version", text)
	}
	return v, nil
}

// scanVersion reads as much of a version as s begins with, and answers the rest. Without a number at its start there is no version: no release.
// bare stops behind the release, where a wildcard could follow.
func scanVersion(s string, bare bool) (v Version, rest string) {
	s0 := s
	if s != "" && (s[0] == 'v' || s[0] == 'V') {
		s = s[1:]
	}
	v.epoch = zero
	d := digits(s)
	if d != "" && strings.HasPrefix(s[len(d):], "!") {
		v.epoch = number(d)
		s = s[len(d)+1:]
		d = digits(s)
	}
	if d == "" {
		return Version{}, s0
	}
	for {
		v.release = append(v.release, number(d))
		s = s[len(d):]
		if !strings.HasPrefix(s, ".") {
			break
		}
		if d = digits(s[1:]); d == "" {
			break
		}
		s = s[1:]
	}
	if bare {
		return v, s
	}
	if word, n, more, ok := suffix(s, "alpha", "beta", "preview", "pre", "a", "b", "c", "rc"); ok {
		v.pre, v.preN, s = letter(word), n, more
	}
	if d := digits(strings.TrimPrefix(s, "-")); d != "" && s[0] == '-' {
		v.post, v.postN, s = true, number(d), s[1+len(d):]
	} else if _, n, more, ok := suffix(s, "post", "rev", "r"); ok {
		v.post, v.postN, s = true, n, more
	}
	if _, n, more, ok := suffix(s, "dev"); ok {
		v.dev, v.devN, s = true, n, more
	}
	if local, more, ok := scanLocal(s); ok {
		v.local, s = local, more
	}
	return v, s
}

// suffix reads one of words with a separator before it, and another and a number behind it, all optional but the word.
func suffix(s string, words ...string) (word string, n num, rest string, ok bool) {
	s = separator(s)
	i := slices.IndexFunc(words, func(w string) bool { return len(s) >= len(w) && strings.EqualFold(asciiOnly(s[:len(w)]), w) })
	if i < 0 {
		return "", "", "", false
	}
	s = separator(s[len(words[i]):])
	d := digits(s)
	return words[i], number(d), s[len(d):], true
}

// asciiOnly is s, or nothing where a letter beyond ASCII could fold to one within.
func asciiOnly(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return ""
		}
	}
	return s
}

func separator(s string) string {
	if s != "" && (s[0] == '.' || s[0] == '_' || s[0] == '-') {
		return s[1:]
	}
	return s
}

// letter is how a kind of pre-release is spelled.
func letter(word string) string {
	switch word {
	case "alpha", "a":
		return "a"
	case "beta", "b":
		return "b"
	default:
		return "rc"
	}
}

func digits(s string) string {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i]
}

// scanLocal reads "+" and the parts of a local label.
func scanLocal(s string) (parts []string, rest string, ok bool) {
	if !strings.HasPrefix(s, "+") {
		return nil, s, false
	}
	s = s[1:]
	for {
		i := 0
		for i < len(s) && alnum(s[i]) {
			i++
		}
		if i == 0 {
			return nil, s, false
		}
		part := strings.ToLower(s[:i])
		if len(digits(part)) == len(part) {
			part = string(number(part))
		}
		parts, s = append(parts, part), s[i:]
		if next := separator(s); len(next) < len(s) && next != "" && alnum(next[0]) {
			s = next
			continue
		}
		return parts, s, true
	}
}

// Public is the version without its local label, normalised: 1.2.0+acme.1 is 1.2.0.
func (v Version) Public() string {
	var b strings.Builder
	if v.epoch != zero && v.epoch != "" {
		b.WriteString(string(v.epoch) + "!")
	}
	for i, n := range v.release {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(string(n))
	}
	if v.pre != "" {
		b.WriteString(v.pre + string(v.preN))
	}
	if v.post {
		b.WriteString(".post" + string(v.postN))
	}
	if v.dev {
		b.WriteString(".dev" + string(v.devN))
	}
	return b.String()
}

// String is the version, normalised.
func (v Version) String() string {
	if v.local == nil {
		return v.Public()
	}
	return v.Public() + "+" + strings.Join(v.local, ".")
}

// Compare orders versions as PEP 440 does: -1, 0 or 1.
func (v Version) Compare(w Version) int {
	if c := cmp.Or(v.epoch.compare(w.epoch), compareReleases(v.release, w.release)); c != 0 {
		return c
	}
	pv, nv := v.preKey()
	pw, nw := w.preKey()
	return cmp.Or(
		cmp.Compare(pv, pw), nv.compare(nw),
		compareFlag(v.post, w.post, v.postN, w.postN, 1),
		compareFlag(v.dev, w.dev, v.devN, w.devN, -1),
		compareLocals(v.local, w.local),
	)
}

// preKey orders the pre-releases of a release: a release that is in development comes first, one that is final last.
func (v Version) preKey() (int, num) {
	switch {
	case v.pre == "a":
		return 1, v.preN
	case v.pre == "b":
		return 2, v.preN
	case v.pre == "rc":
		return 3, v.preN
	case v.dev && !v.post:
		return 0, zero
	default:
		return 4, zero
	}
}

// compareFlag compares two optional numbers; with is how one that is there compares to one that isn't.
func compareFlag(a, b bool, n, m num, with int) int {
	switch {
	case a && b:
		return n.compare(m)
	case a:
		return with
	case b:
		return -with
	default:
		return 0
	}
}

// compareReleases takes missing numbers as zeros.
func compareReleases(a, b []num) int {
	for i := range max(len(a), len(b)) {
		if c := at(a, i).compare(at(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

func at(r []num, i int) num {
	if i < len(r) {
		return r[i]
	}
	return zero
}

// compareLocals puts numbers above words, and a label that another one continues below that.
func compareLocals(a, b []string) int {
	return slices.CompareFunc(a, b, func(x, y string) int {
		xn, yn := len(digits(x)) == len(x), len(digits(y)) == len(y)
		switch {
		case xn && yn:
			return num(x).compare(num(y))
		case xn:
			return 1
		case yn:
			return -1
		default:
			return strings.Compare(x, y)
		}
	})
}

func (v Version) withoutLocal() Version { v.local = nil; return v }

// prerelease tells pre-releases and versions in development.
func (v Version) prerelease() bool { return v.pre != "" || v.dev }
