package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"agentenv.internal/agentenv/internal/ref"
)

// ErrNoFiles: the artifact's type holds no files that can be copied as they are.
var ErrNoFiles = errors.New("holds no files of its own")

// HoldsFiles tells whether artifacts of a type are files that can be copied as they are.
func HoldsFiles(typ string) bool { return typ == File || typ == FileUniverse }

// Files are the files that a stored document of a type names, by path: one for a file artifact, all for a universe. ErrNoFiles for other types.
func Files(typ string, body []byte) ([]Bytes, error) {
	switch typ {
	case File:
		var f struct {
			stored
			Filename string `json:"filename"`
		}
		if err := json.Unmarshal(body, &f); err != nil {
			return nil, fmt.Errorf("read the document: %w", err)
		}
		b, err := f.bytes(f.Filename)
		if err == nil && path.Base(f.Filename) != f.Filename {
			err = fmt.Errorf("the file name %q is a path", f.Filename)
		}
		return []Bytes{b}, err
	case FileUniverse:
		var u struct {
			Refs map[string]stored `json:"file_artifact_refs"`
		}
		if err := json.Unmarshal(body, &u); err != nil {
			return nil, fmt.Errorf("read the document: %w", err)
		}
		out := make([]Bytes, 0, len(u.Refs))
		for _, p := range slices.Sorted(maps.Keys(u.Refs)) {
			b, err := u.Refs[p].bytes(p)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("an artifact of type %s %w", typ, ErrNoFiles)
	}
}

// stored is what documents say of one file's bytes.
type stored struct {
	Digest ref.Digest `json:"digest"`
	Size   int64      `json:"size"`
	Mode   uint32     `json:"mode"`
}

func (s stored) bytes(p string) (Bytes, error) {
	if !localPath(p) || !s.Digest.Valid() || s.Size < 0 {
		return Bytes{}, fmt.Errorf("the document's entry for %q can't be read", p)
	}
	mode := s.Mode & 0o777
	if mode == 0 {
		mode = 0o644
	}
	return Bytes{Path: p, Digest: s.Digest, Size: s.Size, Mode: mode}, nil
}

// localPath tells whether p is relative, clean, and stays where it is put.
func localPath(p string) bool {
	return p != "" && p != "." && p == path.Clean(p) && !path.IsAbs(p) && p != ".." && !hasDotDot(p)
}

func hasDotDot(p string) bool { return len(p) >= 3 && p[:3] == "../" }
