package dist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/requirement"
)

// An index is what Scan found in a generation, written down when the generation was made, so that a command opens one file and not three
// for each distribution. It is only ever an answer that is known already: where it is missing, is of another form, or the folders of packages
// were changed by somebody since, they are scanned.
//
// The file is lines of fields with tabs between them; the first field says what a line is. A line of a distribution or a problem is
// followed by nothing that belongs to another. Backslash, tab and line ends are escaped.
const (
	indexFile   = "distributions.index"
	indexFormat = "agent-env distributions 1"
	maxIndex    = 64 << 20
)

// Words that lines of an index begin with.
const (
	lineSite    = "S" // a folder of packages: path, time of change in nanoseconds
	lineDist    = "D" // name, version, path of the metadata
	lineRequire = "R" // of the distribution above: Requires-Dist
	lineEntry   = "E" // of the distribution above: group, name, value
	lineType    = "T" // of the distribution above: group, name, executable
	lineProblem = "P" // package, code, path, reason
	lineEnd     = "." // how many lines stand above: a file that was cut off has none
)

var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r")
)

// Index scans the folder of a generation that is being made and writes down what it found, for whoever opens it.
func Index(root string) error {
	sites := sitePackages(root)
	before, err := changed(sites)
	if err != nil {
		return err
	}
	all, bad := Scan(sites)
	b := encodeIndex(root, sites, before, all, bad)
	after, err := changed(sites)
	if err != nil || !slices.Equal(before, after) {
		return errors.Join(err, dropIndex(root)) // it is scanned whenever it is used
	}
	return atomicfile.WriteBytes(filepath.Join(root, indexFile), 0o600, b)
}

// dropIndex makes sure that a folder that is about to be changed has none.
func dropIndex(root string) error {
	err := os.Remove(filepath.Join(root, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// changed are the times at which folders were last changed, in nanoseconds.
func changed(dirs []string) ([]int64, error) {
	out := make([]int64, 0, len(dirs))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		out = append(out, info.ModTime().UnixNano())
	}
	return out, nil
}

// readIndex is what the index of a generation says; ok is false where the folder has to be scanned.
func readIndex(root string) (all []Distribution, bad []Problem, ok bool) {
	b, err := readBounded(filepath.Join(root, indexFile), maxIndex)
	if err != nil || b == nil {
		return nil, nil, false
	}
	x, ok := decodeIndex(root, string(b))
	if !ok {
		return nil, nil, false
	}
	now, err := changed(x.sites)
	if err != nil || !slices.Equal(now, x.changed) {
		return nil, nil, false
	}
	return x.all, x.bad, true
}

func encodeIndex(root string, sites []string, times []int64, all []Distribution, bad []Problem) []byte {
	var b strings.Builder
	lines := 0
	line := func(word string, fields ...string) {
		lines++
		b.WriteString(word)
		for _, f := range fields {
			b.WriteString("\t" + escaper.Replace(f))
		}
		b.WriteByte('\n')
	}
	rel := func(path string) string {
		if path == root {
			return "."
		}
		return strings.TrimPrefix(path, root+string(filepath.Separator))
	}
	line(indexFormat)
	for i, s := range sites {
		line(lineSite, rel(s), strconv.FormatInt(times[i], 10))
	}
	for _, d := range all {
		line(lineDist, d.Name, d.Version, rel(d.Dir))
		for _, r := range d.Requires {
			line(lineRequire, r)
		}
		for _, e := range d.Entries {
			line(lineEntry, e.Group, e.Name, e.Value)
		}
		for _, e := range d.Types {
			line(lineType, e.Group, e.Name, e.Value)
		}
	}
	for _, p := range bad {
		line(lineProblem, p.Package, p.Code, rel(p.Path), p.Reason)
	}
	fmt.Fprintf(&b, "%s\t%d\n", lineEnd, lines)
	return []byte(b.String())
}

// index is a decoded one.
type index struct {
	sites   []string
	changed []int64
	all     []Distribution
	bad     []Problem
	last    string // the canonical name of the last of all
}

// decodeIndex reads an index of a folder; false for one that doesn't have the form in every line.
func decodeIndex(root, text string) (index, bool) {
	x := index{}
	last, whole := "", false
	lines := 0
	for text != "" && !whole {
		var l string
		var ended bool
		if l, text, ended = strings.Cut(text, "\n"); !ended {
			return index{}, false
		}
		word, rest, _ := strings.Cut(l, "\t")
		switch {
		case lines == 0:
			if l != indexFormat {
				return index{}, false
			}
		case word == lineEnd:
			n, err := strconv.Atoi(rest)
			whole = err == nil && n == lines
			if !whole {
				return index{}, false
			}
		default:
			if !x.line(root, word, rest) || last == lineProblem && word != lineProblem {
				return index{}, false
			}
			last = word
		}
		lines++
	}
	return x, whole && text == "" && len(x.sites) > 0
}

// line takes one line's fields in.
func (x *index) line(root, word, rest string) bool {
	var d *Distribution
	if len(x.all) > 0 {
		d = &x.all[len(x.all)-1]
	}
	switch word {
	case lineSite:
		f, ok := fields(rest, 2)
		n, err := strconv.ParseInt(f[1], 10, 64)
		if !ok || err != nil || !filepath.IsLocal(f[0]) {
			return false
		}
		x.sites, x.changed = append(x.sites, filepath.Join(root, f[0])), append(x.changed, n)
		return true
	case lineDist:
		f, ok := fields(rest, 3)
		if !ok || !validName(f[0]) || f[1] == "" || !filepath.IsLocal(f[2]) {
			return false
		}
		if name := requirement.Canonical(f[0]); d == nil || x.last < name {
			x.last = name
		} else {
			return false // they are searched by name
		}
		x.all = append(x.all, Distribution{Name: f[0], Version: f[1], Dir: root + string(filepath.Separator) + f[2]})
		return true
	case lineRequire:
		f, ok := fields(rest, 1)
		if !ok || d == nil {
			return false
		}
		d.Requires = append(d.Requires, f[0])
		return true
	case lineEntry, lineType:
		f, ok := fields(rest, 3)
		if !ok || d == nil {
			return false
		}
		e := EntryPoint{f[0], f[1], f[2]}
		if word == lineEntry {
			d.Entries = append(d.Entries, e)
		} else {
			d.Types = append(d.Types, e)
		}
		return true
	case lineProblem:
		f, ok := fields(rest, 4)
		if !ok || !filepath.IsLocal(f[2]) {
			return false
		}
		x.bad = append(x.bad, Problem{f[0], f[1], filepath.Join(root, f[2]), f[3]})
		return true
	default:
		return false
	}
}

// fields are exactly n fields of a line, n at most 4.
func fields(rest string, n int) ([4]string, bool) {
	var out [4]string
	for i := range n {
		f, more, found := strings.Cut(rest, "\t")
		if found != (i < n-1) {
			return out, false
		}
		if strings.Contains(f, `\`) {
			f = unescaper.Replace(f)
		}
		out[i], rest = f, more
	}
	return out, true
}
