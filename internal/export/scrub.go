package export

import (
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// scrub is a document without what looks like a secret. Of tables of environment variables the variables that are named like a secret, or hold a
// credential, are dropped; elsewhere credentials within texts are masked. What is done is told to left, by path. Values at paths that fixed names
// stay as they are.
func (m *masker) scrub(n doc.Node, fixed map[string]bool, left func(path, why string)) doc.Node {
	return n.Map(func(path string, v doc.Node) (doc.Node, bool) {
		if _, found := m.mask(path); len(found) > 0 { // what holds it was looked at before: it is in the last name
			left(m.shown(path), "dropped: its name holds "+strings.Join(found, ", "))
			return v, false
		}
		if name, ok := variable(path); ok {
			switch found := m.holds(v.Text()); {
			case secretName(name):
				left(m.shown(path), "dropped: its name looks like a secret")
				return v, false
			case v.Kind() == doc.String && len(found) > 0:
				left(m.shown(path), "dropped: its value holds "+strings.Join(found, ", "))
				return v, false
			}
			return v, true
		}
		text, ok := v.Str()
		if !ok || fixed[path] {
			return v, true
		}
		clean, found := m.mask(text)
		if len(found) == 0 {
			return v, true
		}
		left(m.shown(path), "masked: "+strings.Join(found, ", "))
		return doc.Build(clean), true
	})
}

// shown is a path for people.
func (m *masker) shown(path string) string {
	text, _ := m.mask(path)
	return diag.Clean(text)
}

// variable is the name of the environment variable that a path leads to, if it leads into a table of them. Names may hold dots.
func variable(path string) (string, bool) {
	for rest, more := path, true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, ".")
		if more && (seg == "env_vars" || seg == "default_env_vars") {
			return rest, true
		}
	}
	return "", false
}
