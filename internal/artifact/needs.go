package artifact

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Need is a version of another artifact that a stored document is made of.
type Need struct {
	Pin
	// As is what it is there: "file", "files", "environment", "metadata/<key>", or the path of a universe's file.
	As string
}

// Needs are the artifacts that a stored document of a type pins, in the document's order; of names they are sorted. A type that is not known has none.
func Needs(typ string, body []byte) ([]Need, error) {
	var d struct {
		File         *Pin           `json:"file_artifact_ref"`
		Skill        *Pin           `json:"skill_files_ref"`
		CLI          *Pin           `json:"cli_files_ref"`
		Environments []Pin          `json:"environment_artifact_refs"`
		Services     []Pin          `json:"service_artifact_refs"`
		Metadata     map[string]Pin `json:"metadata_refs"`
		Files        map[string]Pin `json:"file_artifact_refs"`
	}
	switch typ {
	case Environment, EnvironmentUniverse, FileUniverse, Skill, CLI:
	default:
		return nil, nil
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	var out []Need
	one := func(p *Pin, as string) {
		if p != nil {
			out = append(out, Need{*p, as})
		}
	}
	many := func(pins map[string]Pin, prefix string) {
		for _, name := range slices.Sorted(maps.Keys(pins)) {
			out = append(out, Need{pins[name], prefix + name})
		}
	}
	switch typ {
	case Environment:
		one(d.File, "file")
	case Skill:
		one(d.Skill, "files")
	case CLI:
		one(d.CLI, "files")
	case FileUniverse:
		many(d.Files, "")
	case EnvironmentUniverse:
		envs := d.Environments
		if envs == nil {
			envs = d.Services
		}
		for i := range envs {
			one(&envs[i], "environment")
		}
		many(d.Metadata, metadata+"/")
	}
	for _, n := range out {
		if n.ID == "" || n.Version < 1 {
			return nil, fmt.Errorf("the document's reference %q can't be read", n.As)
		}
	}
	return out, nil
}

// EnvironmentName is the environment that a stored document of type Environment is for; "" when it doesn't say.
func EnvironmentName(body []byte) string {
	var d struct {
		Name    string `json:"environment_name"`
		Service string `json:"service_name"`
	}
	if json.Unmarshal(body, &d) != nil {
		return ""
	}
	if d.Name == "" {
		return d.Service
	}
	return d.Name
}
