package ledger

import (
	"maps"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
)

// belongings are the ids of the artifacts that are written with an entity.
func (x *write) belongings() []string {
	if x.Kind != ref.Artifact {
		return nil
	}
	paths := make([]string, len(x.Files))
	for i, f := range x.Files {
		paths[i] = f.Path
	}
	return artifact.Children(x.Type, x.ID, paths)
}

// documents are what is stored of an entity: its own document first, then those of what belongs to it.
func (w *writer) documents(x *write) []artifact.Document {
	pin := artifact.Pin{ID: x.ID, Version: x.version}
	child := func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: x.children[id] + 1} }
	one := func(fields map[string]any) []artifact.Document {
		return []artifact.Document{{Pin: pin, Type: x.Type, Fields: fields}}
	}
	switch x.Kind {
	case ref.Task:
		return one(map[string]any{"steps": x.Config})
	case ref.Eval:
		tasks := make([]any, len(x.Eval.Tasks))
		for i, id := range x.Eval.Tasks {
			tasks[i] = map[string]any{"task_id": id}
		}
		return one(map[string]any{"tasks": tasks})
	case ref.Agent:
		return one(with(x.Fields, "docker_image_artifact", w.typed(x.Pins[0])))
	case ref.Env:
		if x.Plugin && len(x.Files) > 0 {
			return []artifact.Document{artifact.NewAdded(pin, x.Type, w.env(x), x.bytes())}
		}
		return one(w.env(x))
	case ref.Artifact:
	}
	if x.Plugin {
		d := artifact.NewAdded(pin, x.Type, x.made.Body, x.made.Files)
		return []artifact.Document{d}
	}
	files := x.bytes()
	switch x.Type {
	case artifact.FileUniverse:
		return artifact.NewFileUniverse(pin, files, child)
	case artifact.Environment:
		name := x.field("environment_name")
		if len(files) > 0 {
			return artifact.NewOwnEnvironment(pin, name, files[0], x.field("description"), child)
		}
		return []artifact.Document{artifact.NewEnvironment(pin, name, w.pin(x.Pins[0]))}
	case artifact.EnvironmentUniverse:
		named := make([]artifact.Pin, len(x.Pins))
		for i, p := range x.Pins {
			named[i] = w.pin(p)
		}
		return artifact.NewUniverse(pin, files, named, child)
	case artifact.Skill:
		front, _ := x.Fields["front"].(artifact.SkillFront)
		return artifact.NewSkill(pin, front, files, child)
	case artifact.CLI:
		return artifact.NewCLI(pin, x.field("command_name"), x.field("entrypoint"), files, child)
	case artifact.DockerImage:
		if x.Registry != nil {
			return []artifact.Document{x.registryImage(pin)}
		}
		return []artifact.Document{artifact.NewImage(pin, x.field("dockerfile"), x.field("description"), files)}
	default:
		return []artifact.Document{artifact.NewFile(pin, files[0], x.field("description"))}
	}
}

// env are the fields of an env's document.
func (w *writer) env(x *write) map[string]any {
	if x.Plugin {
		fields := maps.Clone(x.Fields)
		if refs := w.references(x); len(refs) > 0 {
			fields[artifact.References] = refs
		}
		return fields
	}
	fields := with(x.Fields, "metadata", map[string]any{})
	if name, ok := fields["environment_name"]; ok {
		fields["service_name"] = name
	}
	w.composed(x, fields)
	for _, img := range env.Images(x.Type) {
		for _, p := range x.Pins {
			if p.Field == img.Key {
				fields[imageField(img.Key)] = w.typed(p)
			}
		}
	}
	return fields
}

// composed adds the environments that a multi or a computer is composed of, and the files of a computer, an app or a driver.
func (w *writer) composed(x *write, fields map[string]any) {
	for _, p := range x.Pins {
		if p.Field == env.Files {
			fields[env.Files] = w.typed(p)
		}
	}
	for _, r := range env.Refs(x.Type) {
		list := []any{}
		for _, p := range x.Pins {
			if p.Field == r.Key {
				list = append(list, w.typed(p))
			}
		}
		switch {
		case !r.One:
			fields[r.Key] = list
		case len(list) > 0:
			fields[r.Key] = list[0]
		}
	}
}

// references are the pins of an entity whose type is a plugin's, for those that ask what it needs.
func (w *writer) references(x *write) []any {
	var out []any
	for _, p := range x.Pins {
		out = append(out, with(w.typed(p), "kind", string(p.Kind)))
	}
	return out
}

// pin is a reference with the version that it has, or gets in this write.
func (w *writer) pin(p bundle.Pin) artifact.Pin {
	if p.Write != nil {
		return artifact.Pin{ID: p.ID, Version: w.of[p.Write].version}
	}
	return artifact.Pin{ID: p.ID, Version: p.Version}
}

func (w *writer) typed(p bundle.Pin) map[string]any {
	v := w.pin(p)
	return map[string]any{"id": v.ID, "version": v.Version, "type": p.Type}
}

// bytes are the stored files of an entity.
func (x *write) bytes() []artifact.Bytes {
	out := make([]artifact.Bytes, len(x.Files))
	for i, f := range x.Files {
		out[i] = artifact.Bytes{Path: f.Path, Digest: x.digests[i].Digest, Size: x.digests[i].size, Mode: permissions(f.Mode) & 0o777}
	}
	return out
}

func (x *write) field(name string) string {
	s, _ := x.Fields[name].(string)
	return s
}

// with is a copy of fields with one more.
func with(fields map[string]any, name string, v any) map[string]any {
	out := make(map[string]any, len(fields)+2)
	maps.Copy(out, fields)
	out[name] = v
	return out
}

// imageField is the field of an env's document for an image key: "docker_image_artifact", "backend_docker_image_artifact".
func imageField(key string) string { return strings.TrimSuffix(key, "image") + "docker_image_artifact" }
