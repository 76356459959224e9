package bundle

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

func (p *planner) artifact(e *Entry, w *Write) {
	w.Config = e.authored()
	if !w.Config.Exists() {
		w.Config = doc.Build(map[string]any{})
	}
	if t, ok := p.b.options.Added(e.Group, e.Type); ok {
		p.addedArtifact(e, w, t)
		return
	}
	if s, ok := artifact.Schema(e.Type); ok {
		p.accept(e, s, artifact.StoredWords(e.Type), func(n doc.Node, l *diag.List) { artifact.Check(e.Type, n, l) })
	}
	switch e.Type {
	case artifact.File:
		w.Files = p.oneFile(e, "leave out its declared type to write the folder as a "+artifact.FileUniverse)
		w.Fields = map[string]any{"description": e.text("description")}
	case artifact.FileUniverse:
		w.Files = p.someFiles(e)
	case artifact.Environment:
		p.environment(e, w)
	case artifact.EnvironmentUniverse:
		p.universe(e, w)
	case artifact.CLI:
		w.Files = p.someFiles(e)
		var l diag.List
		artifact.CheckCLI(e.Config, paths(w.Files), &l)
		p.inConfig(e, l)
		w.Fields = map[string]any{"command_name": e.text("command_name"), "entrypoint": e.text("entrypoint")}
	case artifact.DockerImage:
		p.imageArtifact(e, w)
	}
}

// someFiles are the files of a folder that must hold some.
func (p *planner) someFiles(e *Entry) []File {
	before := len(p.l)
	files := p.files(e, false)
	if len(files) == 0 && len(p.l) == before {
		p.l.Add(e.problem(doc.Node{}, "", "files.none", "there are no files to write (%s)", leavingsNote))
	}
	return files
}

// oneFile is the file of a folder that must hold just one.
func (p *planner) oneFile(e *Entry, whenMore string) []File {
	before := len(p.l)
	files := p.files(e, false)
	if len(files) == 1 || len(files) == 0 && len(p.l) > before {
		return files
	}
	problem := e.problem(doc.Node{}, "", "files.one", "%s artifact holds one file, and this folder has %s", article(e.Type), count(paths(files)))
	problem.Fix = whenMore
	if len(files) == 0 {
		problem.Fix = "put one here"
	}
	p.l.Add(problem)
	return files
}

// environment plans data for one environment: over its folder's one file, or over the file artifact that its toml names.
func (p *planner) environment(e *Entry, w *Write) {
	w.Fields = map[string]any{"environment_name": e.text("environment_name"), "description": e.text("description")}
	named := e.Config.Get("file")
	for word, n := range e.Config.Members() { // a word of stored documents is refused, but tells what is meant
		if artifact.StoredWords(e.Type)[word] == "file" && !named.Exists() {
			named = n
		}
	}
	if !named.Exists() {
		w.Files = p.oneFile(e, "keep one of them")
		if len(w.Files) == 0 && p.l[len(p.l)-1].Code == "files.one" {
			p.l[len(p.l)-1].Fix = `put one here, or name a file artifact with file = "<name>"`
		}
		return
	}
	if stray := p.files(e, false); len(stray) > 0 {
		p.l.Add(e.problem(named, "", "environment.stray",
			"file names the data, so this folder may hold only artifact.toml, and it holds %s; drop one or the other", count(paths(stray))))
	}
	for _, x := range e.Refs {
		w.pin(p, x, "file")
	}
}

// universe plans environments that belong together: those of its folders, and those that its toml names.
func (p *planner) universe(e *Entry, w *Write) {
	l := e.bundle.layoutOf(e)
	p.l.Add(l.faults...)
	listed := e.Config.Get("environment_artifacts")
	if len(l.envs) == 0 && len(l.faults) == 0 && (!listed.Exists() || listed.Kind() == doc.Array && listed.Len() == 0) {
		p.l.Add(e.problem(doc.Node{}, "", "universe.empty",
			"a universe needs an environment: put a folder <environment>/ with its file here, or name one in environment_artifacts"))
	}
	for _, c := range slices.Concat(l.envs, l.metadata) {
		if f, ok := p.file(e, c.file); ok {
			w.Files = append(w.Files, f)
		}
	}
	slices.SortFunc(w.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	names := map[string]string{}
	for _, c := range l.envs {
		names[c.name] = c.label
	}
	for _, x := range e.Refs {
		w.pin(p, x, "environment_artifacts")
		name := p.environmentName(x)
		if name == "" {
			continue
		}
		if other, taken := names[name]; taken {
			p.l.Add(diag.Problem{
				Pos: x.Pos, Where: x.Where, Code: "universe.same", Prefixed: true,
				Summary: fmt.Sprintf("its environment_name %s is also that of %s; a universe has each name once", diag.Repr(name), other),
			})
			continue
		}
		names[name] = x.Where
	}
}

// environmentName is the environment that referenced data is for; "" when it can't be told.
func (p *planner) environmentName(x *Reference) string {
	if x.Entry != nil {
		return x.Entry.text("environment_name")
	}
	return storedName(p.stored[storedKey{x.Kind, x.ID, x.Version}].Body)
}

func (p *planner) skill(e *Entry, w *Write) {
	w.Files = p.someFiles(e)
	it, _ := find(e.items, "SKILL.md")
	if it == nil || it.dir {
		return // Parse has told
	}
	label := e.Label
	src, err := e.bundle.tree.read(it.path)
	if err != nil {
		p.l.Add(e.problem(doc.Node{}, "", "skill.read", "SKILL.md: %s", err))
		return
	}
	front, l := artifact.ReadSkill(label, src, ref.Last(e.ID))
	for _, f := range l {
		f.Where, f.Prefixed = strings.TrimSuffix("SKILL.md: "+f.Where, ": "), true
		p.l.Add(f)
	}
	w.Fields = map[string]any{"front": front}
}

// imageArtifact plans a docker image that is an entry of its own.
func (p *planner) imageArtifact(e *Entry, w *Write) {
	if len(e.images) == 0 {
		return
	}
	p.imageWrite(e, w, e.images[0])
	if d := e.text("description"); d != "" {
		w.Config = w.Config.With("description", d)
		w.Fields["description"] = d
	}
}

// registry is the image of a registry that the toml of e names.
func (e *Entry) registry(img *image) *Registry {
	n, where := e.Config.Get(img.role), img.role
	if img.role == "" { // an artifact that is one
		n, where = e.Config.Get("ref"), groups[e.Group].config+": ref"
	}
	return &Registry{Ref: img.ref, Pos: diag.Pos{File: e.Label, Line: line(n)}, Where: where}
}

// imageWrite describes the write of an image: one of a registry is named, and the build context of one that is built is the whole folder, the toml included.
func (p *planner) imageWrite(e *Entry, w *Write, img *image) {
	w.Type = artifact.DockerImage
	if img.ref != "" {
		name, _, _ := strings.Cut(img.ref, "@")
		w.Label = e.Label + " (" + diag.Clean(name) + " image)"
		w.Config = doc.Build(map[string]any{"ref": img.ref})
		w.Fields = map[string]any{"image_name": img.ref, "description": ""}
		w.Registry = e.registry(img)
		return
	}
	w.Label = e.Label + " (" + img.dockerfile + " image)"
	w.Config = doc.Build(map[string]any{"dockerfile": img.dockerfile})
	w.Files = p.files(e, true)
	for i := range w.Files {
		w.Files[i].HashMode = true
	}
	w.Fields = map[string]any{"description": "built from " + path.Join(e.Label, img.dockerfile), "dockerfile": img.dockerfile}
}
