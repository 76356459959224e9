package bundle

import (
	"regexp"
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Aliases are the other names that aliases.toml gives to the bundle's agents and envs: kind -> alias -> id.
func (b *Bundle) Aliases() map[ref.Kind]map[string]string {
	out := map[ref.Kind]map[string]string{}
	for k, m := range b.aliases {
		out[k] = map[string]string{}
		for alias, e := range m {
			out[k][alias] = e.ID
		}
	}
	return out
}

// readAliases reads aliases.toml: [agents] and [envs], each `<folder> = ["alias", …]`.
func (p *parser) readAliases() {
	name := p.label("aliases.toml")
	if p.aliasesF == "" {
		return
	}
	n, ok := p.toml(name, p.aliasesF)
	if !ok {
		return
	}
	p.unknown(name, n, "", "aliases.toml takes the tables agents and envs", "agents", "envs")
	shape := regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$`)
	for _, g := range []Group{Agents, Envs} {
		table := n.Get(g.String())
		if table.Exists() && table.Kind() != doc.Object {
			p.at(name, table, "alias.form", "%s must be a table, not %s", g, doc.Show(table))
			continue
		}
		p.b.aliases[g.Kind()] = map[string]*Entry{}
		for folder, list := range table.Members() {
			p.aliasesOf(g, folder, list, shape)
		}
	}
}

func (p *parser) aliasesOf(g Group, folder string, list doc.Node, shape *regexp.Regexp) {
	fault := func(n doc.Node, format string, args ...any) {
		e := Entry{Label: p.label("aliases.toml")}
		p.l.Add(e.problem(n, g.String()+"."+diag.Clean(folder), "alias", format, args...))
	}
	at := slices.IndexFunc(p.b.Entries, func(e *Entry) bool { return e.Group == g && e.Name == ref.NFC(folder) })
	switch {
	case at < 0:
		fault(list, "this bundle has no %s of that name", groups[g].one)
		return
	case p.b.Entries[at].ownID:
		fault(list, "%s declares an id of its own, so it can't have aliases; drop one", p.b.Entries[at].Label)
		return
	case list.Kind() != doc.Array || list.Len() == 0:
		fault(list, "must be a list of names, not %s", doc.Show(list))
		return
	}
	for _, n := range list.Items() {
		alias, ok := n.Str()
		if !ok || !shape.MatchString(alias) {
			fault(n, "%s can't be an alias: write 1 to 64 of a-z, 0-9 and -, with no - at an end", doc.Show(n))
			continue
		}
		if p.b.aliases[g.Kind()][alias] != nil {
			fault(n, "%s is listed twice", diag.Repr(alias))
			continue
		}
		for _, e := range p.b.Entries {
			if e.Group == g && e != p.b.Entries[at] && (e.Name == alias || e.ID == alias) {
				fault(n, "%s is already the name of %s", diag.Repr(alias), e.Label)
			}
		}
		p.b.aliases[g.Kind()][alias] = p.b.Entries[at]
	}
}
