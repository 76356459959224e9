package artifact

import (
	"fmt"
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Schema is the strict schema of an artifact.toml of a type; false for a type that is not known or has none. Elements of references take any value:
// their forms are checked where they are resolved.
func Schema(typ string) (*doc.Schema, bool) {
	text := doc.Type{Kinds: []doc.Kind{doc.String}}
	filled := doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}
	s := &doc.Schema{}
	add := func(name string, t doc.Type, required bool, help string) {
		s.Fields = append(s.Fields, doc.Field{Name: name, Type: t, Required: required, Doc: help})
	}
	switch typ {
	case File:
		add("description", text, false, "what the file is; absent: its name")
	case FileUniverse:
	case Environment:
		add("environment_name", filled, true, "name of the environment that the data is for")
		add("file", doc.Type{}, false, "file artifact that holds the data; absent: the folder's one file")
		add("description", text, false, "what the folder's file is; absent: its name")
	case EnvironmentUniverse:
		add("environment_artifacts", doc.Type{Kinds: []doc.Kind{doc.Array}}, false, "environments besides those of the folders")
	case CLI:
		add("command_name", doc.Type{Kinds: []doc.Kind{doc.String}, Check: isCommand}, true, "the command that starts it")
		add("entrypoint", filled, true, "the file of the folder that the command runs")
	case DockerImage:
		add("description", text, false, "what the image is")
		add("ref", text, false, "image of a registry; absent: the folder's Dockerfile")
	default:
		return nil, false
	}
	add("type", filled, false, "type of the artifact")
	add("id", filled, false, "id; absent: that of its folder")
	return s, true
}

var command = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// IsCommand tells whether a cli may be called so.
func IsCommand(name string) bool { return command().MatchString(name) }

func isCommand(n doc.Node, l *diag.List) {
	if s, _ := n.Str(); !IsCommand(s) {
		fault(l, n, "cli.command", "%s can't be a command: write letters, digits, . _ and -, with no . or - in front", diag.Repr(s))
	}
}

// StoredWords are keys of the stored documents of a type that are easily taken for the toml's, with what to write instead.
func StoredWords(typ string) map[string]string {
	switch typ {
	case Environment:
		return map[string]string{"service_name": "environment_name", "file_artifact_id": "file", "file_artifact_ref": "file"}
	case EnvironmentUniverse:
		const list, folder = "environment_artifacts", "a folder metadata/<key>/ that holds the file"
		return map[string]string{
			"service_artifact_ids": list, "service_artifact_refs": list, "environment_artifact_refs": list,
			"metadata": folder, "metadata_refs": folder,
		}
	default:
		return nil
	}
}

// Check adds what the rules across keys find in an artifact.toml whose keys have the right types.
func Check(typ string, n doc.Node, l *diag.List) {
	if typ == Environment && n.Get("file").Exists() && n.Get("description").Exists() {
		fault(l, n.Get("description"), "environment.description", "description is for a file in the folder, and file names another artifact; drop one")
	}
}

// CheckCLI adds what is wrong with the files of a cli.
func CheckCLI(n doc.Node, files []string, l *diag.List) {
	entry, ok := n.Get("entrypoint").Str()
	if !ok || entry == "" {
		return
	}
	if !slices.Contains(files, entry) {
		what := "%s isn't a file of this folder"
		if near := diag.Nearest(entry, files); near != "" {
			what += "; did you mean " + diag.Repr(near) + "?"
		}
		fault(l, n.Get("entrypoint"), "cli.entrypoint", what, diag.Repr(entry))
	}
	if env := beside(entry, ".env"); slices.Contains(files, env) {
		fault(l, n.Get("entrypoint"), "cli.env", "%s lies beside the entrypoint, where every deployment writes its own; rename it", diag.Repr(env))
	}
}

func fault(l *diag.List, n doc.Node, code, format string, args ...any) {
	l.Add(diag.Problem{Pos: n.KeyPos(), Code: code, Summary: fmt.Sprintf(format, args...)})
}
