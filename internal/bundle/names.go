package bundle

import (
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// index finds the entries of one kind.
type index struct {
	name, id map[string]*Entry
	fold     map[string]*Entry // by folded name and id
}

// makeIndex sorts the entries of a bundle by what references may call them.
func (b *Bundle) makeIndex() {
	b.names = map[ref.Kind]*index{}
	for _, k := range []ref.Kind{ref.Env, ref.Agent, ref.Artifact, ref.Task, ref.Eval} {
		b.names[k] = &index{name: map[string]*Entry{}, id: map[string]*Entry{}, fold: map[string]*Entry{}}
	}
	for _, e := range b.Entries {
		x := b.names[e.Store()]
		x.name[e.Name], x.id[e.ID] = e, e
		x.fold[ref.Fold(e.ID)] = e
		x.fold[ref.Fold(e.Name)] = e
	}
}

// Find is the entry of a kind that text names, by name or id.
func (b *Bundle) Find(k ref.Kind, text string) *Entry {
	x := b.names[k]
	text = ref.NFC(text)
	if e := x.name[text]; e != nil {
		return e
	}
	return x.id[text]
}

// refusal is why text can't name anything of a kind, whatever a store holds; "" when a store may hold it.
func (b *Bundle) refusal(k ref.Kind, text string) string {
	text = ref.NFC(text)
	if near := b.names[k].fold[ref.Fold(text)]; near != nil {
		name := near.Name
		if ref.IsLocal(text) {
			name = near.ID
		}
		return diag.Repr(text) + " isn't in this bundle, but " + diag.Repr(name) + " is; names are case-sensitive"
	}
	for g := range groups {
		if groups[g].store == k && b.loose[Group(g)][text] {
			return diag.Repr(text) + " names " + groups[g].folder + "/" + diag.Clean(text) + ", a loose file that this bundle ignores; put it into a folder of its own"
		}
	}
	if ref.IsLocal(text) {
		if err := ref.CheckLocal(text); err != nil {
			return err.Error()
		}
	} else if strings.HasPrefix(text, "@") {
		return diag.Repr(text) + " is no id: ids that begin with @ begin with " + ref.LocalPrefix
	}
	if !b.Source.Part && strings.HasPrefix(text, b.IDRoot+"/") { // beside an entry alone there may be others
		return diag.Repr(text) + " isn't in this bundle, though its id says so" + b.elsewhere(k, text)
	}
	return ""
}

// elsewhere is a hint that another kind of the bundle has the name: "; envs/x has that name".
func (b *Bundle) elsewhere(k ref.Kind, text string) string {
	for _, e := range b.Entries {
		if e.Store() != k && (e.Name == ref.NFC(text) || e.ID == ref.NFC(text)) {
			return "; " + e.Label + " has that name, but here " + article(string(k)) + " is named"
		}
	}
	return ""
}

// article puts "a" or "an" before a word.
func article(word string) string {
	if word != "" && strings.ContainsRune("aeiouAEIO", rune(word[0])) || strings.HasPrefix(word, "mcp") {
		return "an " + word
	}
	return "a " + word
}
