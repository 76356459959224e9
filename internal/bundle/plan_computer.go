package bundle

import (
	"fmt"
	"io/fs"
	"slices"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/sdk/wire"
)

// desktop plans a computer, an app of one or a driver.
func (p *planner) desktop(e *Entry, w *Write) {
	name := e.desktopName()
	w.Fields["environment_name"] = name
	switch e.Type {
	case env.Computer:
		p.computer(e, w, name)
	case env.ComputerApp:
		delete(w.Fields, "env_provider_type")
		p.filesWrite(e, w)
		p.app(e, w, name)
	case env.ComputerDriver:
		delete(w.Fields, "env_provider_type")
		delete(w.Fields, "environment_name")
		p.filesWrite(e, w)
		p.driver(e, w)
	}
}

// desktopName is the environment_name of a computer or an app: that of its toml, or its folder's.
func (e *Entry) desktopName() string {
	if name := e.text("environment_name"); name != "" {
		return name
	}
	return e.Name
}

// filesWrite plans the files of an entry's folder as an artifact of their own, which the entry's document pins.
func (p *planner) filesWrite(e *Entry, w *Write) {
	fw := &Write{
		Bundle: e.bundle.IDRoot, Kind: ref.Artifact, ID: ref.Derived(e.ID, "files"), Type: artifact.FileUniverse, Label: e.Label + " (files)",
		Config: doc.Build(map[string]any{}), Files: p.someFiles(e),
	}
	for i := range fw.Files {
		fw.Files[i].HashMode = true // programs among them
	}
	p.plan.Writes = append(p.plan.Writes, fw)
	w.need(fw)
	w.Pins = append(w.Pins, Pin{Field: env.Files, Kind: ref.Artifact, ID: fw.ID, Type: artifact.FileUniverse, Write: fw})
}

// folder is an entry's folder as a file system of its own.
func (e *Entry) folder() fs.FS {
	sub, err := fs.Sub(e.bundle.FS, e.path)
	if err != nil { // a path that was walked
		return e.bundle.FS
	}
	return sub
}

func (p *planner) computer(e *Entry, w *Write, name string) {
	if len(e.images) > 0 || slices.ContainsFunc(e.Refs, func(x *Reference) bool { return x.Type == artifact.DockerImage }) {
		p.imageWrites(e, w)
	}
	for _, x := range e.Refs {
		if x.Kind == ref.Env {
			w.pin(p, x, x.field())
		}
	}
	if skill := e.text("skill"); skill != "" {
		_, l := appdir.Skill(e.folder(), e.Label, skill, e.Config.Get("skill").Pos())
		p.inFile(e, l)
		p.filesWrite(e, w)
		w.Fields["skill"] = skill
	}
	for _, key := range []string{"data_paths", "display", "settings"} {
		if n := e.Config.Get(key); n.Len() > 0 {
			w.Fields[key] = n
		}
	}
	if !ref.IsDerived(name) && ref.CheckSegment(name) == nil && name != "metadata" {
		p.apart(e, name)
		return
	}
	p.inConfig(e, diag.List{{
		Pos: e.Config.Get("environment_name").Pos(), Where: "environment_name", Code: "computer.name",
		Summary: fmt.Sprintf("%s can't be a computer's name: it names a folder of its snapshots", diag.Repr(name)),
	}})
}

// inFile records problems of files of an entry's folder that know their place.
func (p *planner) inFile(e *Entry, l diag.List) {
	for _, f := range l {
		if f.Pos.File == "" || f.Pos.File == e.configLabel() {
			p.inConfig(e, diag.List{f})
			continue
		}
		f.Prefixed = true
		p.l.Add(f)
	}
}

func (p *planner) app(e *Entry, w *Write, name string) {
	a, l := appdir.Read(e.folder(), e.Label, name)
	if skill := e.text("skill"); skill != "" && fs.ValidPath(skill) && a != nil && !l.HasErrors() {
		l.Add(a.SetSkill(e.folder(), e.Label, e.Config.Get("skill"))...)
		w.Fields["skill"] = skill
	}
	p.inFile(e, l)
	if l.HasErrors() || a == nil {
		return
	}
	src, err := e.bundle.tree.read(join(e.path, appdir.File))
	if err != nil {
		p.l.Add(e.problem(doc.Node{}, appdir.File, "app.read", "%s", err))
		return
	}
	t, _ := doc.ParseTOML(appdir.File, src)
	w.Fields["declaration"] = doc.Build(t.Root()) // it has just been read without errors
}

func (p *planner) driver(e *Entry, w *Write) {
	before := len(p.l)
	defer func() {
		for _, key := range []string{"module", "command", "python"} {
			if n := e.Config.Get(key); n.Exists() && len(p.l) == before {
				w.Fields[key] = n
			}
		}
	}()
	has := func(key, file string) {
		it, err := e.bundle.below(e, file)
		var l diag.List
		if err != nil || it.dir {
			l.Add(diag.Problem{Pos: e.Config.Get(key).Pos(), Where: key, Code: "computer.driver", Summary: "there is no file " + diag.Repr(file) + " in this folder", Fix: "write it, or name another"})
		}
		p.inConfig(e, l)
	}
	if file, _, ok := env.Module(e.text("module")); ok {
		has("module", file)
	}
	if own := appdir.Own(e.Config.Get("command").At(0).Text()); own != "" {
		has("command", own)
	}
	if file := e.text("python"); file != "" {
		has("python", file)
	}
}

// composed is one app of a computer as the checks of its composition see it.
type composed struct {
	name, where string
	paths       []string
}

// apart is the first gate of a computer: no two of its apps keep data in one place or have one name, and none is named like the computer.
func (p *planner) apart(e *Entry, name string) {
	var seen []composed
	fault := func(x *Reference, code, format string, args ...any) {
		p.l.Add(diag.Problem{Pos: x.Pos, Where: x.Where, Code: code, Prefixed: true, Summary: fmt.Sprintf(format, args...)})
	}
	for _, x := range e.Refs {
		if x.Type != env.ComputerApp {
			continue
		}
		a, ok := p.composedApp(x)
		if !ok {
			continue // what it can't be read for is told where it stands
		}
		if a.name == name {
			fault(x, "computer.app.name", "the app %s is named like the computer; give one another environment_name", diag.Repr(a.name))
		}
		for _, other := range seen {
			if other.name == a.name {
				fault(x, "computer.app.twice", "the app %s is named like that of %s; each app needs a name of its own", diag.Repr(a.name), other.where)
				continue
			}
			for _, mine := range a.paths {
				for _, its := range other.paths {
					if wire.Overlap(mine, its) {
						fault(x, "computer.app.paths", "the app %s keeps its data in %s, and %s (%s) in %s; no two apps keep data in one place",
							diag.Repr(a.name), diag.Repr(mine), diag.Repr(other.name), other.where, diag.Repr(its))
					}
				}
			}
		}
		seen = append(seen, a)
	}
}

// composedApp is what is known of an app that a computer names: of this bundle, or of the store.
func (p *planner) composedApp(x *Reference) (composed, bool) {
	out := composed{where: x.Where}
	if e := x.Entry; e != nil {
		out.name = e.desktopName()
		a, l := appdir.Read(e.folder(), e.Label, out.name)
		if a == nil || l.HasErrors() {
			return out, false
		}
		out.paths = a.Paths
		return out, true
	}
	s, ok := p.stored[storedKey{x.Kind, x.ID, x.Version}]
	if !ok || !s.ok {
		return out, false
	}
	t, _ := doc.ParseJSON("", s.Body)
	out.name = storedName(s.Body)
	for _, n := range t.Root().Get("declaration").Get("linux").Get("paths").Items() {
		out.paths = append(out.paths, n.Text())
	}
	return out, out.name != ""
}
