package artifact

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// NewImage is the document of an image that is built from files where it runs: its build context.
func NewImage(p Pin, dockerfile, description string, files []Bytes) Document {
	d := Document{Pin: p, Type: DockerImage}
	context := make(map[string]any, len(files))
	for _, f := range files {
		if !f.plain() {
			continue
		}
		context[f.Path] = map[string]any{"digest": string(f.Digest), "size": f.Size, "mode": int64(f.Mode)}
		d.Objects = append(d.Objects, f.Digest)
	}
	d.Objects = unique(d.Objects)
	sources := SourceDigest(dockerfile, "", files)
	d.Fields = map[string]any{
		"description": description, "dockerfile_path": dockerfile, "build_context": context, "platform": nil, "image_digest": nil,
		"source_digest": string(sources), "image_name": ref.Key(p.ID) + ":" + sources.Hex()[:16],
	}
	others(d.Fields, files)
	return d
}

// NewImageOf is the document of an image that a registry holds: name is "host/repository:tag" or without the tag, digest what it is pinned to.
func NewImageOf(p Pin, name string, digest ref.Digest, description string) Document {
	return Document{Pin: p, Type: DockerImage, Fields: map[string]any{
		"description": description, "image_name": name + "@" + string(digest), "image_digest": string(digest),
		"dockerfile_path": nil, "platform": nil, "source_digest": nil,
	}}
}

// SourceDigest is the digest of a build context: equal for equal sources, so that images built from them can stand for each other.
// It covers the Dockerfile's path, the platform ("" for any), and of every entry its name, mode and content; a file's mode counts as 0755 when its
// owner may execute it and as 0644 otherwise.
func SourceDigest(dockerfile, platform string, files []Bytes) ref.Digest {
	type entry struct {
		mode    uint32
		content any
	}
	entries := map[string]entry{}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			entries[dir] = entry{0o755, nil}
		}
		switch {
		case f.Link != "":
			entries[f.Path] = entry{0o777, "link:" + f.Link}
		case f.Folder:
			entries[f.Path] = entry{0o755, nil}
		case f.Mode&0o100 != 0:
			entries[f.Path] = entry{0o755, f.Digest.Hex()}
		default:
			entries[f.Path] = entry{0o644, f.Digest.Hex()}
		}
	}
	var b strings.Builder
	b.WriteString(`{"scheme":1,"dockerfile":` + quoted(dockerfile) + `,"platform":`)
	if platform == "" {
		b.WriteString("null")
	} else {
		b.WriteString(quoted(platform))
	}
	b.WriteString(`,"entries":[`)
	for i, name := range slices.Sorted(maps.Keys(entries)) {
		if i > 0 {
			b.WriteByte(',')
		}
		e := entries[name]
		content := "null"
		if s, ok := e.content.(string); ok {
			content = quoted(s)
		}
		b.WriteString("[" + quoted(name) + `,"` + strconv.FormatUint(uint64(e.mode), 8) + `",` + content + "]")
	}
	b.WriteString("]}")
	return ref.DigestOf([]byte(b.String()))
}

// quoted spells a string as JSON, with nothing escaped that need not be.
func quoted(s string) string {
	parts := strings.Split(s, "\x7f") // the one character that doc.JSON escapes and the formula doesn't
	for i := range parts {
		j := doc.JSON(doc.Build(parts[i]))
		parts[i] = string(j[1 : len(j)-1])
	}
	return `"` + strings.Join(parts, "\x7f") + `"`
}

// Image is what a stored document says of an image.
type Image struct {
	Name       string // "local/…:…" of a build context, "host/repository:tag@sha256:…" of a registry's image
	Dockerfile string // "" for a registry's image
	Files      []Bytes
}

// ReadImage reads a stored document of type DockerImage.
func ReadImage(body []byte) (Image, error) {
	var d struct {
		Name       string            `json:"image_name"`
		Dockerfile string            `json:"dockerfile_path"`
		Context    map[string]stored `json:"build_context"`
		otherEntries
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return Image{}, fmt.Errorf("read the document: %w", err)
	}
	files, err := d.entries(d.Context)
	return Image{d.Name, d.Dockerfile, files}, err
}
