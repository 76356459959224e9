// Package artifact builds the stored documents of artifacts: what a bundle's write and a put by hand store alike. It is pure: bytes are stored by
// the caller, who hands in their digests.
//
// An artifact that holds files is written with the documents of what belongs to it: each file of a universe is a file artifact of its own, whose id
// is derived from the universe's. Versions follow: a new version of the holder comes with new versions of what belongs to it.
package artifact

import (
	"maps"
	"path"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// Types of artifacts.
const (
	File                = "file"
	FileUniverse        = "file_artifact_universe"
	Environment         = "environment"
	EnvironmentUniverse = "environment_universe"
	Skill               = "skill"
	CLI                 = "cli"
	DockerImage         = "docker_image"
)

// Types are all of them, sorted.
func Types() []string {
	return []string{CLI, DockerImage, Environment, EnvironmentUniverse, File, FileUniverse, Skill}
}

// Known tells whether typ is one of Types.
func Known(typ string) bool { return slices.Contains(Types(), typ) }

// Bytes is a stored file: what its document says of its bytes. A holder of several files can hold links and empty folders too, which have none.
type Bytes struct {
	Path   string // relative to the holder, "/"-separated; a file artifact keeps its last segment
	Digest ref.Digest
	Size   int64
	Mode   uint32 // permission bits
	Link   string // of a symbolic link: where it leads, as written in it
	Folder bool   // an empty folder
}

// plain tells whether b is a file, which has bytes.
func (b Bytes) plain() bool { return b.Link == "" && !b.Folder }

// Pin is one version of a stored entity.
type Pin struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
}

func (p Pin) value() map[string]any { return map[string]any{"id": p.ID, "version": p.Version} }

// Document is one to store. Its version and time are put into the body by Body.
type Document struct {
	Pin
	Type    string
	Objects []ref.Digest // that Fields name
	Fields  map[string]any
}

// TimeFormat is how documents spell times.
const TimeFormat = "2006-01-02T15:04:05.000000+00:00"

// Body is the document's JSON as stored: its fields with id, version, type and the time of its creation.
func (d Document) Body(created time.Time) []byte {
	m := make(map[string]any, len(d.Fields)+4)
	maps.Copy(m, d.Fields)
	m["id"], m["version"], m["type"] = d.ID, d.Version, d.Type
	m["created_at_utc"] = created.UTC().Format(TimeFormat)
	return doc.Canonical(doc.Build(m))
}

// NewFile is the document of a file artifact. An empty description becomes the file's name.
func NewFile(p Pin, b Bytes, description string) Document {
	name := path.Base(b.Path)
	if description == "" {
		description = name
	}
	return Document{Pin: p, Type: File, Objects: []ref.Digest{b.Digest}, Fields: map[string]any{
		"filename": name, "description": description, "content_type": ContentType(name),
		"digest": string(b.Digest), "size": b.Size, "mode": int64(b.Mode),
	}}
}

// NewFileUniverse are the documents of a universe: its own first, then one of each file, in the order of files.
func NewFileUniverse(p Pin, files []Bytes, child Versions) []Document {
	refs := make(map[string]any, len(files))
	ids := make(map[string]any, len(files))
	self := Document{Pin: p, Type: FileUniverse, Fields: map[string]any{"file_artifact_refs": refs, "file_artifact_ids": ids}}
	docs := make([]Document, 1, len(files)+1)
	for _, f := range files {
		if !f.plain() {
			continue
		}
		pin := child(ref.FileID(p.ID, f.Path))
		refs[f.Path] = map[string]any{
			"id": pin.ID, "version": pin.Version, "digest": string(f.Digest), "size": f.Size, "mode": int64(f.Mode),
		}
		ids[f.Path] = pin.ID
		docs = append(docs, NewFile(pin, f, f.Path+" of "+p.ID))
		self.Objects = append(self.Objects, f.Digest)
	}
	self.Objects = unique(self.Objects)
	others(self.Fields, files)
	docs[0] = self
	return docs
}

// others adds the links and empty folders among files to a document's fields.
func others(fields map[string]any, files []Bytes) {
	links, folders := map[string]any{}, []any{}
	for _, f := range files {
		switch {
		case f.Link != "":
			links[f.Path] = f.Link
		case f.Folder:
			folders = append(folders, f.Path)
		}
	}
	if len(links) > 0 {
		fields["links"] = links
	}
	if len(folders) > 0 {
		fields["folders"] = folders
	}
}

// Member is a file of a universe that is an artifact of its own already.
type Member struct {
	Bytes
	Pin Pin
}

// NewFileUniverseOf is the document of a universe of stored files.
func NewFileUniverseOf(p Pin, members []Member) Document {
	refs := make(map[string]any, len(members))
	ids := make(map[string]any, len(members))
	d := Document{Pin: p, Type: FileUniverse, Fields: map[string]any{"file_artifact_refs": refs, "file_artifact_ids": ids}}
	for _, m := range members {
		refs[m.Path] = map[string]any{
			"id": m.Pin.ID, "version": m.Pin.Version, "digest": string(m.Digest), "size": m.Size, "mode": int64(m.Mode),
		}
		ids[m.Path] = m.Pin.ID
		d.Objects = append(d.Objects, m.Digest)
	}
	d.Objects = unique(d.Objects)
	return d
}

func unique(ds []ref.Digest) []ref.Digest {
	slices.Sort(ds)
	return slices.Compact(ds)
}
