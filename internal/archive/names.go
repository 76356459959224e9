package archive

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

const (
	longestName = 255 // bytes of one component, on every file system that matters
	longestPath = 4000
)

// clean checks the name of a member and answers it without "./" and a slash at its end; "" is the folder itself.
func clean(name string, depth int) (cleaned, why string) {
	switch {
	case strings.ContainsRune(name, 0):
		return "", "its name holds a NUL byte"
	case strings.HasPrefix(name, "/"):
		return "", "its name is absolute"
	case len(name) > longestPath:
		return "", "its name is too long"
	}
	var parts []string
	for p := range strings.SplitSeq(name, "/") {
		switch {
		case p == "" || p == ".":
		case p == "..":
			return "", "its name leaves the folder"
		case len(p) > longestName:
			return "", "a part of its name is longer than 255 bytes"
		default:
			parts = append(parts, p)
		}
	}
	if len(parts)-1 > depth {
		return "", "it lies too deep"
	}
	return strings.Join(parts, "/"), ""
}

// linkStays tells whether a link called name, in real folders only, leads to a place inside whatever other such links exist.
// ".." may stand at the beginning alone: after a name that is a link itself it would count from where that link leads.
func linkStays(name, target string) bool {
	if target == "" || len(target) > longestPath || strings.HasPrefix(target, "/") || strings.ContainsRune(target, 0) {
		return false
	}
	up, down := 0, false
	for p := range strings.SplitSeq(target, "/") {
		switch p {
		case "", ".":
		case "..":
			if down {
				return false
			}
			up++
		default:
			down = true
		}
	}
	return up <= strings.Count(name, "/")
}

// Fold is what names have in common that are one on file systems which ignore case and Unicode form.
func Fold(name string) string { return fold(name) }

// fold is what names have in common that are one on file systems which ignore case and Unicode form.
func fold(name string) string {
	ascii := true
	for i := range len(name) {
		if name[i] >= 0x80 {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(name)
	}
	return norm.NFC.String(strings.Map(foldRune, norm.NFD.String(name)))
}

// foldRune is the smallest of the runes that differ only in case.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' { // as strings.ToLower spells names of ASCII alone
		least += 'a' - 'A'
	}
	return least
}

// parents are the folders above a name, outermost first.
func parents(name string) []string {
	var out []string
	for i := range len(name) {
		if name[i] == '/' {
			out = append(out, name[:i])
		}
	}
	return out
}
