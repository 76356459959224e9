package artifact

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// SkillSpec is the version of the Agent Skills format that skills are read by.
const SkillSpec = "0.1"

// SkillFront is the front matter of a SKILL.md.
type SkillFront struct {
	Name, Description, License, Compatibility, AllowedTools string
	Metadata                                                map[string]string
}

var skillName = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ReadSkill reads the front matter of a SKILL.md. label names the file in problems; name is what the skill must be called,
// "" for anything that can name one.
func ReadSkill(label string, src []byte, name string) (SkillFront, diag.List) {
	front, first, ok := frontMatter(src)
	if !ok {
		return SkillFront{}, diag.List{{
			Pos: diag.Pos{File: label, Line: 1}, Code: "skill.front", Summary: "must begin with front matter: a line ---, YAML, and a line ---",
		}}
	}
	t, l := doc.ParseYAML(label, front)
	for i := range l {
		if l[i].Pos.Line > 0 {
			l[i].Pos.Line += first
		}
	}
	if t == nil || l.HasErrors() {
		return SkillFront{}, l
	}
	n := t.Root()
	var faults diag.List
	skillSchema().Check(n, "", &faults)
	out := SkillFront{
		Name: n.Get("name").Text(), Description: strings.TrimSpace(n.Get("description").Text()), License: n.Get("license").Text(),
		Compatibility: n.Get("compatibility").Text(), AllowedTools: n.Get("allowed-tools").Text(), Metadata: map[string]string{},
	}
	for k, v := range n.Get("metadata").Members() {
		out.Metadata[k] = v.Text()
	}
	if !faults.HasErrors() && name != "" && out.Name != name {
		fault(&faults, n.Get("name"), "skill.name", "name is %s, and it must be the folder's, %s", diag.Repr(out.Name), diag.Repr(name))
	}
	for _, p := range faults {
		if p.Pos.Line > 0 {
			p.Pos.Line += first
		}
		l.Add(p)
	}
	return out, l
}

// frontMatter cuts the YAML between the first two lines of three hyphens; first is how many lines of the file come before it.
func frontMatter(src []byte) (yaml []byte, first int, ok bool) {
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	line, rest, _ := bytes.Cut(src, []byte("\n"))
	if string(bytes.TrimRight(line, " \t\r")) != "---" {
		return nil, 0, false
	}
	for at := 0; at < len(rest); {
		line, _, more := bytes.Cut(rest[at:], []byte("\n"))
		if string(bytes.TrimRight(line, " \t\r")) == "---" {
			return rest[:at], 1, true
		}
		if !more {
			break
		}
		at += len(line) + 1
	}
	return nil, 0, false
}

func skillSchema() *doc.Schema {
	text := func(most int) doc.Type {
		return doc.Type{Kinds: []doc.Kind{doc.String}, Plain: true, Check: func(n doc.Node, l *diag.List) {
			if c := utf8.RuneCountInString(n.Text()); most > 0 && c > most {
				fault(l, n, "skill.long", "has %d characters; %d is the most", c, most)
			}
		}}
	}
	name := doc.Type{Kinds: []doc.Kind{doc.String}, Plain: true, Check: func(n doc.Node, l *diag.List) {
		if s := n.Text(); len(s) > 64 || !skillName().MatchString(s) {
			fault(l, n, "skill.name", "%s can't name a skill: write 1 to 64 of a-z, 0-9 and single hyphens inside", diag.Repr(s))
		}
	}}
	about := text(1024)
	length := about.Check
	about.Check = func(n doc.Node, l *diag.List) {
		length(n, l)
		if strings.TrimSpace(n.Text()) == "" {
			fault(l, n, "skill.empty", "must not be empty")
		}
	}
	return &doc.Schema{Open: true, Fields: []doc.Field{
		{Name: "name", Type: name, Required: true},
		{Name: "description", Type: about, Required: true},
		{Name: "license", Type: text(0)},
		{Name: "compatibility", Type: text(500)},
		{Name: "allowed-tools", Type: text(0)},
		{Name: "metadata", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &doc.Type{Kinds: []doc.Kind{doc.String}}}},
	}}
}
