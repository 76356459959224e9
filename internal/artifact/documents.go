package artifact

import (
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/ref"
)

// Versions answers which version a document that belongs to another gets.
type Versions func(id string) Pin

// NewEnvironment is the document of environment data over a stored file.
func NewEnvironment(p Pin, name string, file Pin) Document {
	return Document{Pin: p, Type: Environment, Fields: map[string]any{
		"environment_name": name, "service_name": name, "file_artifact_ref": file.value(),
	}}
}

// NewOwnEnvironment are the documents of environment data over a file that belongs to it: its own first.
func NewOwnEnvironment(p Pin, name string, b Bytes, description string, child Versions) []Document {
	file := child(ref.Derived(p.ID, "file"))
	return []Document{NewEnvironment(p, name, file), NewFile(file, b, description)}
}

// metadata is the folder of a universe whose folders are no environments.
const metadata = "metadata"

// UniverseParts tells the files of a universe's folder apart: "<environment>/<file>" and "metadata/<key>/<file>". Names are in composed form, and each
// part is sorted by them.
func UniverseParts(files []Bytes) (envs, meta []Named) {
	for _, f := range files {
		dir := path.Dir(f.Path)
		if key, ok := strings.CutPrefix(dir, metadata+"/"); ok {
			meta = append(meta, Named{ref.NFC(key), f})
		} else {
			envs = append(envs, Named{ref.NFC(dir), f})
		}
	}
	for _, parts := range [][]Named{envs, meta} {
		slices.SortFunc(parts, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	}
	return envs, meta
}

// Named is a file that a folder of a universe holds.
type Named struct {
	Name string
	Bytes
}

// universeIDs are the ids that a folder of a universe leads to.
func universeIDs(id, name string, meta bool) (env, file string) {
	if meta {
		return "", ref.Derived(ref.Derived(id, metadata), name)
	}
	env = ref.Derived(id, name)
	return env, ref.Derived(env, "file")
}

// NewUniverse are the documents of a universe: its own first, then those of its folders. named are environments of other entries, after its own.
func NewUniverse(p Pin, files []Bytes, named []Pin, child Versions) []Document {
	envs, meta := UniverseParts(files)
	refs := make([]any, 0, len(envs)+len(named))
	metaRefs := make(map[string]any, len(meta))
	docs := make([]Document, 1, 2*len(envs)+len(meta)+1)
	for _, e := range envs {
		envID, fileID := universeIDs(p.ID, e.Name, false)
		env, file := child(envID), child(fileID)
		refs = append(refs, env.value())
		docs = append(docs, NewEnvironment(env, e.Name, file), NewFile(file, e.Bytes, ""))
	}
	for _, m := range meta {
		_, id := universeIDs(p.ID, m.Name, true)
		file := child(id)
		metaRefs[m.Name] = file.value()
		docs = append(docs, NewFile(file, m.Bytes, ""))
	}
	for _, n := range named {
		refs = append(refs, n.value())
	}
	docs[0] = Document{Pin: p, Type: EnvironmentUniverse, Fields: map[string]any{"environment_artifact_refs": refs, "service_artifact_refs": refs}}
	if len(meta) > 0 {
		docs[0].Fields["metadata_refs"] = metaRefs
	}
	return docs
}

// NewSkill are the documents of a skill: its own first, then those of its files.
func NewSkill(p Pin, s SkillFront, files []Bytes, child Versions) []Document {
	universe := child(ref.Derived(p.ID, "files"))
	meta := make(map[string]any, len(s.Metadata))
	for k, v := range s.Metadata {
		meta[k] = v
	}
	self := Document{Pin: p, Type: Skill, Fields: map[string]any{
		"skill_files_id": universe.ID, "skill_files_ref": universe.value(), "agent_skills_spec_version": SkillSpec,
		"skill_name": s.Name, "description": s.Description, "license": optional(s.License), "compatibility": optional(s.Compatibility),
		"allowed_tools": optional(s.AllowedTools), "skill_metadata": meta,
	}}
	return append([]Document{self}, NewFileUniverse(universe, files, child)...)
}

// NewCLI are the documents of a cli: its own first, then those of its files.
func NewCLI(p Pin, command, entrypoint string, files []Bytes, child Versions) []Document {
	universe := child(ref.Derived(p.ID, "files"))
	self := Document{Pin: p, Type: CLI, Fields: map[string]any{
		"cli_files_id": universe.ID, "cli_files_ref": universe.value(), "command_name": command, "entrypoint": entrypoint,
	}}
	return append([]Document{self}, NewFileUniverse(universe, files, child)...)
}

// Children are the ids of the documents that belong to an artifact of a type over files; the artifact itself is not among them.
// Links and empty folders have no documents: their paths are not given.
func Children(typ, id string, paths []string) []string {
	var out []string
	switch typ {
	case FileUniverse:
		for _, p := range paths {
			out = append(out, ref.FileID(id, p))
		}
	case Skill, CLI:
		files := ref.Derived(id, "files")
		out = append([]string{files}, Children(FileUniverse, files, paths)...)
	case Environment:
		if len(paths) > 0 {
			out = append(out, ref.Derived(id, "file"))
		}
	case EnvironmentUniverse:
		files := make([]Bytes, len(paths))
		for i, p := range paths {
			files[i].Path = p
		}
		envs, meta := UniverseParts(files)
		for _, e := range envs {
			env, file := universeIDs(id, e.Name, false)
			out = append(out, env, file)
		}
		for _, m := range meta {
			_, file := universeIDs(id, m.Name, true)
			out = append(out, file)
		}
	}
	return out
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func beside(file, name string) string { return path.Join(path.Dir(file), name) }
