package verdicts

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Problems are the lines of a refusal: from the one that begins with "Error: " on, without notes.
func Problems(stderr string) []string {
	var out []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimRight(line, "\r\n")
		rest, first := strings.CutPrefix(line, "Error: ")
		switch {
		case first && len(out) == 0:
			out = append(out, rest)
		case len(out) == 0, line == "", strings.HasPrefix(line, "while "), strings.HasPrefix(line, "hint: "):
		default:
			out = append(out, line)
		}
	}
	return out
}

var (
	// pathPart is what a line begins with when it is about a file or folder.
	pathPart = regexp.MustCompile(`^(?i:envs|agents|artifacts|skills|tasks|evals|aliases\.toml|bundle\.toml|readme\.md)(/|$)|^(\.{0,2}/|\$H)|^--[a-z]+ '.*'$`)
	// innerPart is what may follow: a toml of the folder, a step, a field.
	innerPart = regexp.MustCompile(`^((env|agent|artifact)\.toml|SKILL\.md|step '.*'|[a-z][a-zA-Z0-9_-]*(\[\d+\])*(\.[a-z][A-Za-z0-9_-]*(\[\d+\])*)*)$`)
	// stepFirst is a sentence that begins with the step that it is about.
	stepFirst = regexp.MustCompile(`^Step ('.*?') at position \d`)
	// several are two or more paths that are at odds with each other.
	several = regexp.MustCompile(`^(\S.*? and .*?) (?:differ only in|share a name|have the same id)\b`)
)

// words are what a problem's sentence may begin with that looks like a field.
var words = []string{"id", "reserved"}

// smallEscape is an escaped character that some programs show with two digits and some with four.
var smallEscape = regexp.MustCompile(`\\u00([0-9a-f]{2})`)

// Places are where lines say that problems are, sorted, each once. home is shown as "$H", and names in composed form; a line that names no place
// gives "".
func Places(lines []string, home string) []string {
	out := []string{}
	for _, line := range lines {
		if home != "" {
			line = strings.ReplaceAll(line, home, "$H")
		}
		out = append(out, places(norm.NFC.String(smallEscape.ReplaceAllString(line, `\x$1`)))...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func places(line string) []string {
	if m := several.FindStringSubmatch(line); m != nil {
		return strings.Split(m[1], " and ")
	}
	parts := strings.Split(line, ": ")
	if !pathPart.MatchString(parts[0]) {
		return []string{""}
	}
	if m := stepFirst.FindStringSubmatch(strings.Join(parts[1:], ": ")); m != nil {
		return []string{parts[0] + ": step " + m[1]}
	}
	end := 1
	for end < len(parts)-1 && innerPart.MatchString(parts[end]) && !slices.Contains(words, parts[end]) {
		end++
	}
	return []string{strings.Join(parts[:end], ": ")}
}

// Uncovered compares places: those of theirs that no place of ours is, or says more exactly, and those of ours that are neither one of theirs
// nor inside one.
func Uncovered(theirs, ours []string) (missing, extra []string) {
	within := func(inner, outer string) bool { return inner == outer || strings.HasPrefix(inner, outer+": ") }
	for _, p := range theirs {
		if !slices.ContainsFunc(ours, func(o string) bool { return within(o, p) }) {
			missing = append(missing, p)
		}
	}
	for _, o := range ours {
		if !slices.ContainsFunc(theirs, func(p string) bool { return within(o, p) }) {
			extra = append(extra, o)
		}
	}
	return missing, extra
}
