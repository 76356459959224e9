package bundle

import (
	"errors"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/task"
)

// open lists an entry's folder and reads its toml, if it has one. It is false when the entry can't be judged further.
func (p *parser) open(e *Entry) bool {
	items, err := p.b.tree.list(e.path)
	if err != nil {
		p.add(e.Label, "bundle.read", "%s", reason(err, "no such folder"))
		return false
	}
	e.items = items
	name := groups[e.Group].config
	if name == "" {
		return true
	}
	it, ok := p.spelled(e, name)
	if !ok || it == nil {
		return ok
	}
	if it.dir {
		p.add(e.configLabel(), "bundle.file", "not a regular file")
		return false
	}
	n, ok := p.toml(e.configLabel(), it.path)
	if !ok {
		return false
	}
	e.Config = n
	return p.typeAndID(e)
}

// spelled finds the item called name: nil for none, and false when it is there but can't be used, or is spelled in another case.
func (p *parser) spelled(e *Entry, name string) (*item, bool) {
	it, other := find(e.items, name)
	switch {
	case it == nil && other != nil:
		p.add(e.Label+"/"+diag.Clean(other.name), "bundle.case", "rename to %s; names are case-sensitive", name)
		return nil, false
	case other != nil:
		p.clash(e.Label+"/"+name, e.Label+"/"+diag.Clean(other.name))
		return nil, false
	case it != nil && it.err != nil:
		p.add(e.Label+"/"+name, "bundle.link", "%s", it.err)
		return nil, false
	}
	return it, true
}

// skillName is the file that makes a folder a skill.
const skillName = "SKILL.md"

// find is the item called name, and one that is called so in another case.
func find(items []item, name string) (exact, other *item) {
	fold := ref.Fold(name)
	for i := range items {
		switch {
		case items[i].name == name:
			exact = &items[i]
		case ref.Fold(items[i].name) == fold:
			other = &items[i]
		}
	}
	return exact, other
}

// typeAndID reads the two keys that every toml has.
func (p *parser) typeAndID(e *Entry) bool {
	ok := true
	if n := e.Config.Get("type"); n.Exists() {
		s, is := n.Str()
		if !is || s == "" {
			p.at(e.configLabel(), n, "bundle.type", "type must be a non-empty string, not %s", doc.Show(n))
			ok = false
		}
		e.typed, e.Type = true, s
		if alias, is := p.b.options.TypeAliases[s]; is && e.Group == Artifacts {
			e.Type = alias
		}
	}
	return p.id(e) && ok
}

// id reads a declared id.
func (p *parser) id(e *Entry) bool {
	n := e.Config.Get("id")
	if !n.Exists() {
		return true
	}
	if err := declaredID(e, n); err != "" {
		p.at(e.configLabel(), n, "bundle.id", "%s", err)
		return false
	}
	e.ID, _ = n.Str()
	e.ownID = true
	return true
}

func declaredID(e *Entry, n doc.Node) string {
	id, ok := n.Str()
	switch {
	case !ok:
		return "id must be a string, not " + doc.Show(n)
	case !ref.IsLocal(id):
		return "id must start with " + ref.LocalPrefix + ", and " + diag.Repr(id) + " doesn't"
	}
	if err := ref.CheckAuthored(id); err != nil {
		return "id " + err.Error()
	}
	if e.Store() == ref.Artifact && strings.Contains(ref.Last(id), ref.DerivedMark) {
		return `"` + ref.DerivedMark + `" is kept for derived ids, and ` + diag.Repr(id) + " ends with a name that holds it"
	}
	return ""
}

// content is what an artifact folder holds besides its toml and leavings.
func (e *Entry) content() []item {
	var out []item
	for _, it := range e.items {
		if it.name != groups[e.Group].config && !isLeaving(it.name) {
			out = append(out, it)
		}
	}
	return out
}

func (p *parser) artifact(e *Entry) {
	if !p.open(e) {
		return
	}
	if !p.usable(e) {
		return
	}
	content := e.content()
	docker, _ := find(content, dockerfileName)
	if docker != nil || !e.typed { // a lone dockerfile in another case is plain content of a type that is declared
		if _, ok := p.spelled(e, dockerfileName); !ok {
			return
		}
	}
	if !e.typed {
		e.Type = inferred(content, docker != nil)
	}
	skill, other := find(content, skillName)
	if e.Type == artifact.Skill || (skill != nil || other != nil) && e.Type != artifact.DockerImage {
		p.add(e.Label, "bundle.skill", "this looks like a skill, and skills live in skills/<name>/; move it")
		return
	}
	if len(content) == 0 && !e.typed {
		p.add(e.Label, "bundle.empty", "an artifact folder has nothing in it (%s)", leavingsNote)
	}
}

// usable refuses a folder whose first level holds what is neither a file nor a folder, and then tells of all of it that can't be used. A link that
// leads out, and what lies deeper, does no harm where nothing reads it.
func (p *parser) usable(e *Entry) bool {
	if !slices.ContainsFunc(e.content(), func(it item) bool { return it.err != nil && !errors.Is(it.err, errOutside) }) {
		return true
	}
	_, bad := p.b.tree.walk(e.path, func(name string) bool { return name == groups[e.Group].config })
	for _, x := range bad {
		p.add(strings.TrimSuffix(e.Label+"/"+diag.Clean(x.rel), "/"), "bundle.link", "%s", x.err)
	}
	return false
}

// inferred is the type of a folder that declares none.
func inferred(content []item, dockerfile bool) string {
	switch {
	case dockerfile:
		return artifact.DockerImage
	case len(content) == 1 && content[0].err == nil && !content[0].dir:
		return artifact.File
	default:
		return artifact.FileUniverse
	}
}

func (p *parser) skill(e *Entry) {
	e.Type = artifact.Skill
	if !p.open(e) || !p.usable(e) {
		return
	}
	switch it, ok := p.spelled(e, skillName); {
	case !ok:
	case it == nil:
		p.add(e.Label, "bundle.skill", "a skill needs a SKILL.md; write one")
	case it.dir:
		p.add(e.Label+"/"+skillName, "bundle.file", "not a regular file")
	}
}

func (p *parser) env(e *Entry) {
	e.Type = envDefault
	if !p.open(e) {
		return
	}
	p.buildable(e, "an env folder needs a Dockerfile or an env.toml")
}

// buildable checks the Dockerfile of a folder that is built unless its toml says otherwise. Beside a toml, one that is missing is judged by what the
// toml says.
func (p *parser) buildable(e *Entry, without string) {
	if exact, _ := find(e.items, dockerfileName); exact == nil && e.Config.Exists() {
		return
	}
	if docker, ok := p.spelled(e, dockerfileName); ok && docker == nil {
		p.add(e.Label, "bundle.empty", "%s", without)
	}
}

func (p *parser) agent(e *Entry) {
	e.Type = agent.A2A
	if !p.open(e) {
		return
	}
	p.buildable(e, "an agent folder needs a Dockerfile or an agent.toml")
}

func (p *parser) task(e *Entry) {
	e.Type = taskType
	n, ok := p.config(e.Label, e.path, doc.ParseJSON)
	if !ok {
		return
	}
	e.Config = n
	if n.Kind() != doc.Array {
		p.at(e.Label, n, "task.form", "a task file must be a JSON array of step objects, not %s", n.Kind())
		return
	}
	for i, s := range n.Items() {
		if s.Kind() != doc.Object {
			p.at(e.Label, s, "task.form", "a task file must be a JSON array of step objects, and element %d is %s", i, doc.Show(s))
		}
	}
}

func (p *parser) eval(e *Entry) {
	e.Type = evalType
	n, ok := p.toml(e.Label, e.path)
	if !ok {
		return
	}
	e.Config = n
	_, _, l := task.DecodeEval(e.ID, n)
	p.l.Add(slices.DeleteFunc(l, func(f diag.Problem) bool { // Resolve tells of these, with what names mean
		return f.Code == task.CodeEvalTask || f.Code == task.CodeEvalTwice
	})...)
	p.id(e)
}
