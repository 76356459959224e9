package export

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ref"
)

// maxName is the longest name of an entry, in bytes, before a number is added to it: file systems take 255.
const maxName = 200

// names gives the entries of a new bundle their names. Those of one folder are unique, whatever their case; artifacts and skills share theirs. What
// steps write is named under its task: its name is unique there, and no entry's.
type names map[bundle.Group]map[string]string // by folded name: the task whose steps write it, or "" for an entry

func (n names) of(g bundle.Group) map[string]string {
	if g == bundle.Skills {
		g = bundle.Artifacts
	}
	if n[g] == nil {
		n[g] = map[string]string{}
	}
	return n[g]
}

// take reserves a name for an entry, or for what steps of a task write; false when it is taken.
func (n names) take(g bundle.Group, name, task string) bool {
	taken := n.of(g)
	by, ok := taken[ref.Fold(name)]
	if ok && (by == "" || task == "" || by == task) {
		return false
	}
	taken[ref.Fold(name)] = task
	return true
}

func (n names) release(g bundle.Group, name string) { delete(n.of(g), ref.Fold(name)) }

// give makes a name of an id's last segment and reserves it as take does.
func (n names) give(g bundle.Group, id, task string) string {
	base := cleanName(g, ref.Last(id))
	name := base
	for i := 2; !n.take(g, name, task); i++ {
		name = base + "-" + strconv.Itoa(i)
	}
	return name
}

// cleanName is text as the name of an entry: characters that no id holds become hyphens. Where nothing is left it is what the folder holds, as "task".
func cleanName(g bundle.Group, text string) string {
	text = ref.NFC(strings.ToValidUTF8(text, "-"))
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || strings.ContainsRune(" ._-~@()+,&", r) {
			return r
		}
		return '-'
	}, text)
	name = strings.TrimRight(strings.TrimLeft(name, " .@"), " ")
	if g.Kind() == ref.Artifact {
		name = strings.ReplaceAll(name, ref.DerivedMark, "-")
	}
	if name == "__pycache__" { // which bundles never look at
		name = "pycache"
	}
	for len(name) > maxName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = strings.TrimRight(name[:len(name)-size], " ")
	}
	if !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) || ref.CheckSegment(name) != nil {
		return g.One()
	}
	return name
}
