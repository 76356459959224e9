package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// check reports every fault of the settings that count. A key that nobody knows is a warning, so that one file serves several versions of the
// program; where a misspelt one would weaken a sandbox or be lost without a word, it is an error.
func check(s *doc.Schema, root doc.Node, l *diag.List) {
	var found diag.List
	s.Check(root, "", &found)
	for _, p := range found {
		if p.Code == doc.CodeUnknown && !strictAt(p.Where) {
			p.Severity = diag.Warning
		}
		if name := unknownName(p); p.Code == doc.CodeUnknown && p.Where != "" && isSection(name) {
			p.Fix = fmt.Sprintf("%s is a table of its own: begin it with [%s]", diag.Repr(name), name)
		}
		if p.Code == doc.CodeRange { // the value is hidden, its kind says nothing
			p.Summary, _, _ = strings.Cut(p.Summary, ", not ")
		}
		l.Add(p)
	}
	checkReferences(root, nil, l)
}

// strictAt are the tables in which nothing unknown may stand.
func strictAt(where string) bool {
	switch where {
	case "agents", "sandbox.local", "sandbox.docker", "git_plugins", "git_plugins.sources":
		return true
	}
	return strings.HasPrefix(where, "projects[") || strings.HasSuffix(where, ".config")
}

func unknownName(p diag.Problem) string {
	_, name, _ := strings.Cut(p.Summary, "'")
	return strings.TrimSuffix(name, "'")
}

func isSection(name string) bool {
	return name == "stores" || name == "plugins" || slices.ContainsFunc(sections(), func(s section) bool { return len(s.path) == 1 && s.name == name })
}

// classCheck checks a class table: a string can only be the program's own class, and the settings of that class are known.
func classCheck(local *doc.Schema) func(doc.Node, *diag.List) {
	return func(n doc.Node, l *diag.List) {
		if s, ok := n.Str(); ok {
			if s != Local {
				l.Add(diag.Problem{Code: "config.class", Summary: `the only name here is "local"`, Fix: `for another class write a table: { impl = "…", config = { … } }`})
			}
			return
		}
		for name, v := range n.Members() {
			if name == "impl" || name == "config" {
				continue
			}
			p := diag.Problem{Pos: v.KeyPos(), Code: doc.CodeUnknown, Severity: diag.Warning, Summary: "unknown key " + diag.Repr(name), Fix: "settings of the class stand in `config`"}
			if n.Get("config").Get(name).Exists() {
				p.Summary, p.Fix = name+" stands beside `config` and inside it", "remove the one beside: only `config` is read"
			}
			l.Add(p)
		}
		if impl := n.Get("impl"); local != nil && (!impl.Exists() || impl.Text() == Local) && n.Get("config").Exists() {
			var more diag.List
			local.Check(n.Get("config"), "", &more)
			for _, p := range more {
				p.Where = strings.TrimSuffix("config."+p.Where, ".")
				l.Add(p)
			}
		}
	}
}

// checkParams refuses arguments that the program sets itself.
func checkParams(n doc.Node, l *diag.List) {
	reserved := []string{"model", "messages", "api_key", "api_base", "user", "metadata", "timeout", "response_format"}
	for name, v := range n.Members() {
		if slices.Contains(reserved, name) {
			l.Add(diag.Problem{Pos: v.KeyPos(), Code: "config.params", Summary: name + " is set by the program", Fix: "remove it"})
		}
	}
}

var headerName = lazyregexp.New("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func checkHeaders(n doc.Node, l *diag.List) {
	for name, v := range n.Members() {
		if !headerName().MatchString(name) {
			l.Add(diag.Problem{Pos: v.KeyPos(), Code: "config.headers", Summary: diag.Repr(name) + " is no name of an HTTP header", Fix: "use letters, digits and hyphens"})
		}
		if strings.ContainsFunc(v.Text(), func(r rune) bool { return r < ' ' || r > '~' }) {
			l.Add(diag.Problem{Pos: v.Pos(), Code: "config.headers", Summary: "the value of " + diag.Repr(name) + " holds more than visible ASCII", Fix: "remove the other characters"})
		}
	}
}

// checkChain checks a comma list of providers.
func checkChain(n doc.Node, l *diag.List) {
	if _, isRef, _ := parseReference(n.Text()); isRef {
		return
	}
	if _, err := chain(n.Text()); err != nil {
		l.Add(diag.Problem{Code: "config.chain", Summary: err.Error(), Fix: `write it as "local" or "local,docker"`})
	}
}

// chain takes a comma list apart.
func chain(s string) ([]string, error) {
	var out []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("an empty name in a list of sandbox providers")
		case slices.Contains(out, name):
			return nil, fmt.Errorf("a sandbox provider is named twice")
		}
		out = append(out, name)
	}
	return out, nil
}

// checkAliases refuses aliases of aliases: what an old name means must be plain.
func checkAliases(n doc.Node, l *diag.List) {
	for old, v := range n.Members() {
		switch current := v.Text(); {
		case current == old:
			l.Add(diag.Problem{Pos: v.Pos(), Code: "config.alias", Summary: diag.Repr(old) + " is an alias of itself", Fix: "remove it"})
		case n.Get(current).Exists():
			l.Add(diag.Problem{Pos: v.Pos(), Code: "config.alias", Summary: diag.Repr(old) + " is an alias of " + diag.Repr(current) + ", which is an alias too", Fix: "name the current type"})
		}
	}
}

func checkOrigins(n doc.Node, l *diag.List) {
	for _, v := range n.Items() {
		o := v.Text()
		if _, isRef, _ := parseReference(o); isRef {
			continue
		}
		u, err := url.Parse(o)
		if o == "*" || err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.ContainsAny(u.Host, "*") {
			l.Add(diag.Problem{Pos: v.Pos(), Code: "config.origin", Summary: "no origin of a web page", Fix: "name each, as https://host:port; a star would let every page in"})
		}
	}
}

// checkPlugins refuses two spellings of one distribution.
func checkPlugins(n doc.Node, l *diag.List) {
	first := map[string]string{}
	for name, v := range n.Members() {
		c := canonical(name)
		if have, ok := first[c]; ok {
			l.Add(diag.Problem{Pos: v.KeyPos(), Code: "config.plugins", Summary: fmt.Sprintf("%s and %s are one distribution", diag.Repr(have), diag.Repr(name)), Fix: "join the two tables"})
			continue
		}
		first[c] = name
	}
}

var separators = lazyregexp.New(`[-_.]+`)

// canonical is the one spelling of a distribution's name (PEP 503).
func canonical(name string) string { return separators().ReplaceAllString(strings.ToLower(name), "-") }

// checkEnv checks the variables that replace sections.
func (c *Config) checkEnv(l *diag.List) {
	for _, s := range sections() {
		if v, ok := c.set(s.whole); s.whole != "" && ok && v != Local {
			l.Add(diag.Problem{Pos: diag.Pos{File: s.whole}, Code: "config.variable", Summary: `its only value is "local"`, Fix: "unset it, or set up [" + strings.Join(s.path, ".") + "] in " + Name})
		}
	}
}

// key spells a path of names as people write it: model.api_key, plugins."a.b".key, projects[0].path.
func key(path []string) string {
	var b strings.Builder
	for i, name := range path {
		plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && r != '-'
		})
		switch {
		case strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]"):
			b.WriteString(name)
			continue
		case i > 0:
			b.WriteByte('.')
		}
		if plain {
			b.WriteString(name)
		} else {
			b.WriteString(`"` + diag.Clean(name) + `"`)
		}
	}
	return b.String()
}

// split takes a path apart as key spells it.
func split(path string) ([]string, error) {
	var out []string
	for rest := path; ; {
		var name string
		if strings.HasPrefix(rest, `"`) {
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				return nil, fmt.Errorf("a quote is not closed in %s", diag.Repr(path))
			}
			name, rest = rest[1:end+1], rest[end+2:]
			if rest != "" && rest[0] != '.' {
				return nil, fmt.Errorf("a dot is missing after a quote in %s", diag.Repr(path))
			}
		} else {
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			name, rest = rest[:end], rest[end:]
		}
		if name == "" {
			return nil, fmt.Errorf("an empty name in %s", diag.Repr(path))
		}
		out = append(out, name)
		if rest == "" {
			return out, nil
		}
		rest = rest[1:]
	}
}

// below tells whether path is at or below another.
func below(path []string, top ...string) bool {
	return len(path) >= len(top) && slices.Equal(path[:len(top)], top)
}

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
