package appdir

import (
	"errors"
	"io/fs"
	"path"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// EnvFile is the file that makes a folder an environment of a bundle; an app's folder may do without.
const EnvFile = "env.toml"

// ReadFolder is Read for a folder that stands alone: what its env.toml says of the name and the skill counts, as far as it is there. base is the folder's
// own name, the app's unless something says otherwise; a name that isn't "" wins over both.
func ReadFolder(folder fs.FS, label, base, name string) (*App, diag.List) {
	src, err := readFile(folder, EnvFile)
	if errors.Is(err, fs.ErrNotExist) {
		if name == "" {
			name = base
		}
		return Read(folder, label, name)
	}
	file := path.Join(label, EnvFile)
	if err != nil {
		return nil, diag.List{{Pos: diag.Pos{File: file}, Code: "app.env", Summary: plain(err).Error()}}
	}
	tree, l := doc.ParseTOML(file, src)
	if l.HasErrors() {
		return nil, l
	}
	n := tree.Root()
	if name == "" {
		name = n.Get("environment_name").Text()
	}
	if name == "" {
		name = base
	}
	a, l := Read(folder, label, name)
	skill := n.Get("skill")
	if l.HasErrors() || !skill.Exists() {
		return a, l
	}
	return a, append(l, a.SetSkill(folder, label, skill)...)
}

// SetSkill sets the skill that an env.toml names beside app.toml.
func (a *App) SetSkill(folder fs.FS, label string, at doc.Node) diag.List {
	dir, ok := at.Str()
	var l diag.List
	if isFolder(at, &l); !ok || l != nil {
		return diag.List{{Pos: at.Pos(), Where: "skill", Code: "app.skill", Summary: "must be a folder of the app's folder, such as skill"}}
	}
	if dir = path.Clean(dir); a.Skill != "" && a.Skill != dir {
		return diag.List{{Pos: at.KeyPos(), Where: "skill", Code: "app.skill", Summary: File + " names another, " + diag.Repr(a.Skill), Fix: "name it in one of the two files"}}
	}
	if a.Server != nil {
		return diag.List{{Pos: at.KeyPos(), Where: "skill", Code: "app.server", Summary: "the app has a server of its own, which does that itself", Fix: "remove it"}}
	}
	front, l := Skill(folder, label, dir, at.Pos())
	a.Skill, a.Front = dir, front
	return l
}
