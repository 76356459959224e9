package artifact

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// IgnoreFile lies at the top of a build context and says what of the folder is no part of it.
const IgnoreFile = ".dockerignore"

// Ignore is what an IgnoreFile says. The zero value leaves nothing out.
type Ignore struct {
	patterns []pattern
	keep     string // the Dockerfile: it and the IgnoreFile are always part of the context
}

// pattern is one line.
type pattern struct {
	*regexp.Regexp
	except bool // the line begins with "!": what it matches is kept
}

// ParseIgnore reads an IgnoreFile; label names it in problems, dockerfile is the path of the context's Dockerfile.
func ParseIgnore(label string, src []byte, dockerfile string) (Ignore, diag.List) {
	ig := Ignore{keep: dockerfile}
	var l diag.List
	for i, line := range strings.Split(string(bytes.TrimPrefix(src, []byte("\ufeff"))), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, except := strings.CutPrefix(strings.TrimSpace(line), "!")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		text = strings.TrimPrefix(path.Clean(text), "/")
		if text == "." || text == "" {
			continue // the context itself: nothing is named
		}
		re, err := translate(text)
		if err != nil {
			l.Errorf(diag.Pos{File: label, Line: i + 1}, "image.ignore", "%s is no pattern: %s", diag.Repr(strings.TrimSpace(line)), err)
			continue
		}
		ig.patterns = append(ig.patterns, pattern{re, except})
	}
	return ig, l
}

// translate makes a regular expression of a pattern: "*" and "?" stay within a segment, "**" crosses them, "[a-c]" is one character of a set, and
// a backslash takes the character after it as it is.
func translate(p string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '*':
			switch {
			case strings.HasPrefix(p[i:], "**/"):
				b.WriteString(`(.*/)?`)
				i += 2
			case strings.HasPrefix(p[i:], "**"):
				b.WriteString(`.*`)
				i++
			default:
				b.WriteString(`[^/]*`)
			}
		case '?':
			b.WriteString(`[^/]`)
		case '[':
			end := strings.IndexByte(p[i:], ']')
			if end < 2 {
				return nil, fmt.Errorf("its [ has no set and no ]")
			}
			set := p[i+1 : i+end]
			negated := ""
			if set[0] == '^' || set[0] == '!' {
				negated, set = "^", set[1:]
			}
			b.WriteString("[" + negated + strings.NewReplacer(`\`, `\\`, `[`, `\[`, `^`, `\^`).Replace(set) + "]")
			i += end
		case '\\':
			if i++; i == len(p) {
				return nil, fmt.Errorf("it ends with a backslash")
			}
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		default:
			n := i + 1
			for n < len(p) && !strings.ContainsRune(`*?[\`, rune(p[n])) {
				n++
			}
			b.WriteString(regexp.QuoteMeta(p[i:n]))
			i = n - 1
		}
	}
	b.WriteString(`\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, fmt.Errorf("it can't be read")
	}
	return re, nil
}

// Match tells whether a file at a path is left out: the last line that matches it, or a folder above it, decides.
func (ig Ignore) Match(name string) bool {
	if name == ig.keep || name == IgnoreFile {
		return false
	}
	out := false
	for _, p := range ig.patterns {
		if p.except == out && p.matches(name) {
			out = !p.except
		}
	}
	return out
}

func (p pattern) matches(name string) bool {
	for ; name != "." && name != "/"; name = path.Dir(name) {
		if p.MatchString(name) {
			return true
		}
	}
	return false
}
