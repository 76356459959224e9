package artifact

import (
	"encoding/json"
	"fmt"
	"maps"

	"agentenv.internal/agentenv/internal/ref"
)

// Members that documents of plugins' types have beside those that the plugin says.
const (
	// References is what the document names, with versions: [{"kind", "id", "version", "type"}].
	References = "references"
	// StoredFiles is what it holds, by path: {"data.csv": {"digest", "size", "mode"}}; of environments of plugins' types too.
	StoredFiles = "stored_files"
)

// NewAdded is the document of an artifact whose type is a plugin's: what the plugin says of it, and its files.
func NewAdded(p Pin, typ string, body map[string]any, files []Bytes) Document {
	d := Document{Pin: p, Type: typ, Fields: maps.Clone(body)}
	if d.Fields == nil {
		d.Fields = map[string]any{}
	}
	held := make(map[string]any, len(files))
	for _, f := range files {
		held[f.Path] = map[string]any{"digest": string(f.Digest), "size": f.Size, "mode": int64(f.Mode)}
		d.Objects = append(d.Objects, f.Digest)
	}
	d.Fields[StoredFiles] = held
	d.Objects = unique(d.Objects)
	return d
}

// CheckAdded tells what of the files that a plugin would have stored can't be stored under their paths.
func CheckAdded(paths []string) error {
	held := make(map[string]stored, len(paths))
	none := ref.DigestOf(nil)
	for _, p := range paths {
		if _, twice := held[p]; twice {
			return fmt.Errorf("it holds %q twice", p)
		}
		held[p] = stored{Digest: none}
	}
	_, err := otherEntries{}.entries(held)
	return err
}

// added are the files of an artifact of a plugin's type, by path; ErrNoFiles for a document that has none.
func added(typ string, body []byte) ([]Bytes, error) {
	none := fmt.Errorf("an artifact of type %s %w", typ, ErrNoFiles)
	if Known(typ) {
		return nil, none
	}
	var d struct {
		Files map[string]stored `json:"stored_files"`
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	if d.Files == nil {
		return nil, none
	}
	return otherEntries{}.entries(d.Files)
}
