package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/ref"
)

// ErrNoFiles: the artifact's type holds no files that can be copied as they are.
var ErrNoFiles = errors.New("holds no files of its own")

// HoldsFiles tells whether artifacts of a type are files that can be copied as they are. Those of plugins' types are: what their plugin had stored.
func HoldsFiles(typ string) bool { return typ == File || typ == FileUniverse || !Known(typ) }

// Files are the files that a stored document of a type names, by path: one for a file artifact; all of a universe, with its links and empty
// folders; what was stored of one of a plugin's type. No entry lies below another that is no folder, and no link leads out. ErrNoFiles for other types.
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
			otherEntries
		}
		if err := json.Unmarshal(body, &u); err != nil {
			return nil, fmt.Errorf("read the document: %w", err)
		}
		return u.entries(u.Refs)
	default:
		return added(typ, body)
	}
}

// stored is what documents say of one file's bytes.
type stored struct {
	Digest ref.Digest `json:"digest"`
	Size   int64      `json:"size"`
	Mode   *uint32    `json:"mode"`
}

func (s stored) bytes(p string) (Bytes, error) {
	if !localPath(p) || !s.Digest.Valid() || s.Size < 0 {
		return Bytes{}, unreadable(p)
	}
	mode := uint32(0o644)
	if s.Mode != nil {
		mode = *s.Mode & 0o777
	}
	return Bytes{Path: p, Digest: s.Digest, Size: s.Size, Mode: mode}, nil
}

func unreadable(p string) error { return fmt.Errorf("the document's entry for %q can't be read", p) }

// otherEntries are those of a holder that have no bytes.
type otherEntries struct {
	Links   map[string]string `json:"links"`
	Folders []string          `json:"folders"`
}

// entries are a holder's files, links and empty folders, sorted by path.
func (o otherEntries) entries(files map[string]stored) ([]Bytes, error) {
	out := make([]Bytes, 0, len(files)+len(o.Links)+len(o.Folders))
	for p, f := range files {
		b, err := f.bytes(p)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	for p, target := range o.Links {
		if !localPath(p) || !LinkStays(p, target) {
			return nil, unreadable(p)
		}
		out = append(out, Bytes{Path: p, Link: target})
	}
	for _, p := range o.Folders {
		if !localPath(p) {
			return nil, unreadable(p)
		}
		out = append(out, Bytes{Path: p, Folder: true})
	}
	slices.SortFunc(out, func(a, b Bytes) int { return strings.Compare(a.Path, b.Path) })
	leaves := make(map[string]bool, len(out))
	for _, b := range out {
		if leaves[b.Path] {
			return nil, fmt.Errorf("the document names %q twice", b.Path)
		}
		leaves[b.Path] = true
	}
	for _, b := range out {
		for dir := path.Dir(b.Path); dir != "."; dir = path.Dir(dir) {
			if leaves[dir] {
				return nil, fmt.Errorf("the document names %q, and %q below it", dir, b.Path)
			}
		}
	}
	return out, nil
}

// LinkStays tells whether a link at a path leads to a place in the same holder, whatever other links are there: it is relative, and ".."
// stands at its beginning alone, since after a name that is a link itself it would count from where that link leads.
func LinkStays(at, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") || strings.ContainsRune(target, 0) {
		return false
	}
	up, down := 0, false
	for p := range strings.SplitSeq(target, "/") {
		switch {
		case p == "" || p == ".":
		case p != "..":
			down = true
		case down:
			return false
		default:
			up++
		}
	}
	return up <= strings.Count(at, "/")
}

// localPath tells whether p is relative, clean, and stays where it is put.
func localPath(p string) bool {
	return !strings.ContainsRune(p, 0) && p != "" && p != "." && p == path.Clean(p) && !path.IsAbs(p) && p != ".." && !hasDotDot(p)
}

func hasDotDot(p string) bool { return len(p) >= 3 && p[:3] == "../" }
