package bundle

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Parse reads a bundle: every entry with its config, and everything that is wrong with the form of any of them. It reads no store.
func Parse(src Source, o Options) (*Bundle, diag.List) {
	b, l := parse(src, o, "")
	b.pulls = &pulls{open: map[string]*Bundle{src.IDRoot: b}}
	return b, l
}

// parse is Parse with a prefix for everything that problems name.
func parse(src Source, o Options, prefix string) (*Bundle, diag.List) {
	p := &parser{
		b: &Bundle{
			Source: src, options: o, tree: tree{fs: src.FS, dir: src.Dir}, prefix: prefix,
			aliases: map[ref.Kind]map[string]*Entry{}, loose: map[Group]map[string]bool{},
		},
	}
	p.root()
	slices.SortStableFunc(p.b.Entries, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	p.clashes()
	p.readAliases()
	slices.Sort(p.b.Ignored)
	return p.b, p.l
}

type parser struct {
	b        *Bundle
	l        diag.List
	aliasesF string // path of aliases.toml
}

// label is how problems call what lies at the bundle's root.
func (p *parser) label(name string) string { return p.b.prefix + diag.Clean(name) }

// add records a problem of a file or folder of the bundle.
func (p *parser) add(label, code, format string, args ...any) {
	p.l.Add(diag.Problem{Pos: diag.Pos{File: label}, Code: code, Summary: fmt.Sprintf(format, args...), Prefixed: true})
}

// at is add with the line of a value.
func (p *parser) at(label string, n doc.Node, code, format string, args ...any) {
	p.l.Add(diag.Problem{Pos: diag.Pos{File: label, Line: line(n)}, Code: code, Summary: fmt.Sprintf(format, args...), Prefixed: true})
}

// prefixed gives problems of a reader the shape of a bundle's.
func prefixed(l diag.List) diag.List {
	out := slices.Clone(l)
	for i := range out {
		out[i].Prefixed = true
	}
	return out
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") || name == "__pycache__" }

func (p *parser) root() {
	items, err := p.b.tree.list(".")
	if err != nil {
		p.add(p.b.Root, "bundle.root", "%s", reason(err, "no such folder"))
		return
	}
	have := map[string]bool{}
	for _, it := range items {
		have[it.name] = true
	}
	kinds := 0
	var readme *item
	for i, it := range items {
		if hidden(it.name) {
			continue
		}
		name, fold := diag.Clean(it.name), ref.Fold(it.name)
		if g, ok := groupOf(fold); ok {
			kinds++
			p.kind(g, it, have)
			continue
		}
		switch fold {
		case "aliases.toml", "bundle.toml":
			p.rootFile(fold, it, have)
		case "readme.md":
			if readme == nil || it.name == "README.md" {
				readme = &items[i]
			}
		default:
			p.b.Ignored = append(p.b.Ignored, name)
		}
	}
	if kinds == 0 {
		p.l.Add(diag.Problem{
			Pos: diag.Pos{File: p.b.Root}, Code: "bundle.none", Prefixed: true,
			Summary: "not a bundle: a bundle has at least one of the folders envs, agents, artifacts, skills, tasks and evals",
		})
	}
	if readme != nil && readme.err == nil && !readme.dir {
		if text, err := p.b.tree.read(readme.path); err == nil {
			p.b.Description = description(text)
		}
	}
}

func groupOf(fold string) (Group, bool) {
	for g := range groups {
		if groups[g].folder == fold {
			return Group(g), true
		}
	}
	return 0, false
}

// kind reads one of the six folders, whose name may be spelled in another way.
func (p *parser) kind(g Group, it item, have map[string]bool) {
	name := g.String()
	switch {
	case it.name != name && have[name]:
		p.clash(p.label(it.name), p.label(name))
	case it.name != name:
		p.add(p.label(it.name), "bundle.case", "rename to %s; names are case-sensitive", name)
	case it.err != nil:
		p.add(p.label(name), "bundle.link", "%s", it.err)
	case !it.dir:
		p.add(p.label(name), "bundle.kind", "must be a folder")
	default:
		p.group(g, it.path)
	}
}

func (p *parser) clash(a, b string) {
	if a > b {
		a, b = b, a
	}
	p.l.Add(diag.Problem{
		Code: "bundle.clash", Prefixed: true,
		Summary: a + " and " + b + " differ only in case or Unicode form; rename one, since some file systems can't hold both",
	})
}

// rootFile reads aliases.toml or bundle.toml.
func (p *parser) rootFile(name string, it item, have map[string]bool) {
	switch {
	case it.name != name && have[name]:
		p.clash(p.label(it.name), p.label(name))
	case it.name != name:
		p.add(p.label(it.name), "bundle.case", "rename to %s; names are case-sensitive", name)
	case it.err != nil:
		p.add(p.label(name), "bundle.link", "%s", it.err)
	case it.dir:
		p.add(p.label(name), "bundle.file", "must be a file, not a folder")
	case name == "aliases.toml":
		p.aliasesF = it.path
	default:
		p.b.HasManifest = true
		p.manifest(it.path)
	}
}

// manifest reads bundle.toml: its one key is requires, a list of strings.
func (p *parser) manifest(file string) {
	name := p.label("bundle.toml")
	n, ok := p.toml(name, file)
	if !ok {
		return
	}
	p.unknown(name, n, "", "bundle.toml takes requires", "requires")
	r := n.Get("requires")
	if !r.Exists() {
		return
	}
	if r.Kind() != doc.Array {
		p.at(name, r, "bundle.requires", "requires must be a list of strings, not %s", doc.Show(r))
		return
	}
	for i, e := range r.Items() {
		s, ok := e.Str()
		if !ok {
			p.at(name, e, "bundle.requires", "requires[%d] must be a requirement between quotes, not %s", i, doc.Show(e))
			continue
		}
		p.require(name, e, s)
	}
}

// unknown reports the keys of n that are not known, together.
func (p *parser) unknown(label string, n doc.Node, where, takes string, known ...string) {
	if s, at := unknownKeys(n, known...); s != "" {
		p.l.Add(diag.Problem{Pos: diag.Pos{File: label, Line: line(at)}, Where: where, Code: "bundle.key", Summary: s, Fix: takes, Prefixed: true})
	}
}

// unknownKeys names the members of n that known lacks, sorted, with the first of them.
func unknownKeys(n doc.Node, known ...string) (summary string, first doc.Node) {
	var bad []string
	for name, v := range n.Members() {
		if slices.Contains(known, name) {
			continue
		}
		if len(bad) == 0 {
			first = v
		}
		bad = append(bad, diag.Repr(name))
	}
	if len(bad) == 0 {
		return "", doc.Node{}
	}
	slices.Sort(bad)
	word := "unknown key "
	if len(bad) > 1 {
		word = "unknown keys "
	}
	return word + strings.Join(bad, ", "), first
}

// toml reads a file that must be a TOML document. Its problems are recorded.
func (p *parser) toml(label, file string) (doc.Node, bool) {
	return p.config(label, file, doc.ParseTOML)
}

func (p *parser) config(label, file string, read func(string, []byte) (*doc.Tree, diag.List)) (doc.Node, bool) {
	b, err := p.b.tree.read(file)
	if err != nil {
		p.add(label, "bundle.read", "%s", err)
		return doc.Node{}, false
	}
	t, l := read(label, b)
	p.l.Add(prefixed(l)...)
	if t == nil || l.HasErrors() {
		return doc.Node{}, false
	}
	return t.Root(), true
}

// group reads the entries of a folder.
func (p *parser) group(g Group, dir string) {
	items, err := p.b.tree.list(dir)
	if err != nil {
		p.add(p.label(g.String()), "bundle.read", "%s", reason(err, "no such folder"))
		return
	}
	have := map[string]bool{}
	for _, it := range items {
		have[it.name] = true
	}
	names := map[string]string{}
	for _, it := range items {
		if hidden(it.name) {
			continue
		}
		label := p.label(g.String() + "/" + ref.NFC(it.name))
		if it.err != nil {
			p.add(label, "bundle.link", "%s", it.err)
			continue
		}
		e := p.entry(g, it, label, have)
		if e == nil {
			continue
		}
		fold := ref.Fold(it.name)
		if other, ok := names[fold]; ok {
			p.clash(other, label)
			continue
		}
		names[fold] = label
		p.b.Entries = append(p.b.Entries, e)
	}
}

// entry reads one item of a kind folder that has these names: nil for what is no entry, or can't be one.
func (p *parser) entry(g Group, it item, label string, have map[string]bool) *Entry {
	name := ref.NFC(it.name)
	file := g == Tasks || g == Evals
	switch suffix := groups[g].config; {
	case !file && !it.dir:
		if p.b.loose[g] == nil {
			p.b.loose[g] = map[string]bool{}
		}
		p.b.loose[g][name] = true
		p.b.Ignored = append(p.b.Ignored, label)
		return nil
	case file && it.dir:
		p.add(label, "bundle.folder", "%s folders are not supported; write %s/<name>%s", groups[g].one, g, suffix)
		return nil
	case file && path.Ext(name) != suffix:
		right := strings.TrimSuffix(it.name, path.Ext(it.name)) + suffix
		switch {
		case !strings.EqualFold(path.Ext(name), suffix):
			p.b.Ignored = append(p.b.Ignored, label)
		case have[right]:
			p.clash(p.label(g.String()+"/"+ref.NFC(right)), label)
		default:
			p.add(label, "bundle.case", "rename to %s%s; names are case-sensitive", diag.Clean(strings.TrimSuffix(name, path.Ext(name))), suffix)
		}
		return nil
	case file:
		name = strings.TrimSuffix(name, suffix)
	}
	e := &Entry{bundle: p.b, Group: g, Name: name, ID: ref.Join(p.b.IDRoot, name), Label: label, path: it.path}
	if e.Store() == ref.Artifact && strings.Contains(name, ref.DerivedMark) {
		p.add(label, "bundle.name", "%q is kept for derived ids in names of artifacts and skills; rename the folder", ref.DerivedMark)
		return nil
	}
	switch g {
	case Envs:
		p.env(e)
	case Agents:
		p.agent(e)
	case Artifacts:
		p.artifact(e)
	case Skills:
		p.skill(e)
	case Tasks:
		p.task(e)
	case Evals:
		p.eval(e)
	}
	if !p.name(e) {
		return nil
	}
	return e
}

// name checks the name of an entry whose id is made of it.
func (p *parser) name(e *Entry) bool {
	if e.ownID {
		return true
	}
	err := ref.CheckSegment(e.Name)
	if err == nil {
		err = ref.CheckAuthored(e.ID)
	}
	if err != nil {
		p.add(e.Label, "bundle.name", "rename it: %s", err)
	}
	return err == nil
}

// clashes finds entries that share an id, or a name where that would be taken for the other.
func (p *parser) clashes() {
	byID := map[ref.Kind]map[string]*Entry{}
	byName := map[string]*Entry{}
	for _, e := range p.b.Entries {
		k := e.Store()
		if byID[k] == nil {
			byID[k] = map[string]*Entry{}
		}
		fold := ref.Fold(e.Name)
		var named *Entry
		if k == ref.Artifact {
			if named = byName[fold]; named == nil {
				byName[fold] = e
			} else {
				p.pair(named, e, "share a name; rename one, since skills are artifacts too")
			}
		}
		switch other := byID[k][e.ID]; other {
		case nil:
			byID[k][e.ID] = e
		case named: // told already
		default:
			p.pair(other, e, "have the same id "+diag.Repr(e.ID)+"; change one")
		}
	}
}

func (p *parser) pair(a, b *Entry, what string) {
	p.l.Add(diag.Problem{Code: "bundle.same", Summary: a.Label + " and " + b.Label + " " + what, Prefixed: true})
}

// description is the first line of text of a README that is neither markup nor a badge.
func description(text []byte) string {
	s := strings.TrimPrefix(string(text), "\ufeff")
	lines := strings.Split(s, "\n")
	if strings.TrimSpace(lines[0]) == "---" {
		if end := slices.IndexFunc(lines[1:], func(l string) bool { return strings.TrimSpace(l) == "---" }); end >= 0 {
			lines = lines[end+2:]
		}
	}
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "<") || strings.HasPrefix(l, "[![") || strings.HasPrefix(l, "![") {
			continue
		}
		if l = strings.TrimSpace(strings.TrimLeft(l, "#")); l != "" {
			return strings.ToValidUTF8(diag.Clean(l), "")
		}
	}
	return ""
}

var _ fs.ReadLinkFS = (*folder)(nil)
