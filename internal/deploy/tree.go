package deploy

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/wire"
)

// treeSuffix ends the name of a file that holds a tree of files.
const treeSuffix = artifact.TreeSuffix

func isTree(name string) bool { return strings.HasSuffix(strings.ToLower(name), treeSuffix) }

// maxTreeFiles bounds the files of a tree.
const maxTreeFiles = 100_000

// placedPart is a file for a place in a home.
func placedPart(at, media string, b []byte) (wire.Part, error) {
	if err := wire.CheckPath(at); err != nil {
		return wire.Part{}, fmt.Errorf("%s can't be a place in a home: %w", diag.Repr(at), err)
	}
	if media == "" {
		media = cmpMedia(at)
	}
	p := wire.FilePart(b, media, path.Base(at))
	var err error
	p.Metadata, err = json.Marshal(map[string]any{wire.URNDataObjects: map[string]string{"path": at}})
	return p, err
}

func cmpMedia(name string) string {
	media, _, err := mime.ParseMediaType(artifact.ContentType(name))
	if err != nil {
		return "application/octet-stream"
	}
	return media
}

// placeOf is where a part says that its file is; "" when it says nothing of it.
func placeOf(p *wire.Part) string {
	var meta map[string]json.RawMessage
	var marker struct {
		Path string `json:"path"`
	}
	if p.Metadata == nil || json.Unmarshal(p.Metadata, &meta) != nil || json.Unmarshal(meta[wire.URNDataObjects], &marker) != nil {
		return ""
	}
	return marker.Path
}

// packTree is a tree of files as one file, as artifact tree pack writes it: equal trees are equal bytes. read is what a part holds or names.
func packTree(parts []wire.Part, read func(*wire.Part) ([]byte, error)) ([]byte, error) {
	files := map[string][]byte{}
	var names []string
	for i := range parts {
		p := &parts[i]
		at := placeOf(p)
		if p.Kind != wire.KindFile || p.File == nil || at == "" {
			return nil, fmt.Errorf("parts[%d] is no file with a place, among several parts", i)
		}
		if err := wire.CheckPath(at); err != nil {
			return nil, fmt.Errorf("parts[%d]: its place is %s: %w", i, diag.Repr(at), err)
		}
		b, err := read(p)
		if err != nil {
			return nil, fmt.Errorf("parts[%d]: %s: %w", i, diag.Repr(at), err)
		}
		if _, again := files[at]; again {
			return nil, fmt.Errorf("parts[%d]: %s is there twice", i, diag.Repr(at))
		}
		files[at] = b
		names = append(names, at)
	}
	slices.Sort(names)
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range names {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(0o644)
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// member is a file of a packed tree: its place, and what holds its content, which for a link is the file that it leads to.
type member struct {
	place string
	file  *zip.File
}

// membersOf are the files of a packed tree, in the order of their places. No data plane takes links, so one that leads to a file of the tree is a file of
// that content, as an export answers it, and one that leads anywhere else is refused.
func membersOf(b []byte) ([]member, error) {
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("it is no packed tree: %w", err)
	}
	files := slices.DeleteFunc(slices.Clone(r.File), func(f *zip.File) bool { return f.Mode().IsDir() || strings.HasSuffix(f.Name, "/") })
	if len(files) > maxTreeFiles {
		return nil, fmt.Errorf("it has %d files, and may have %d", len(files), maxTreeFiles)
	}
	slices.SortFunc(files, func(a, b *zip.File) int { return strings.Compare(a.Name, b.Name) })
	named := make(map[string]*zip.File, len(files))
	for _, f := range files {
		if named[f.Name] != nil {
			return nil, fmt.Errorf("%s is in it twice", diag.Repr(f.Name))
		}
		named[f.Name] = f
	}
	out := make([]member, 0, len(files))
	for _, f := range files {
		if err := wire.CheckPath(f.Name); err != nil {
			return nil, fmt.Errorf("%s in it can't be a place in a home: %w", diag.Repr(f.Name), err)
		}
		real, err := followLink(f, named)
		if err != nil {
			return nil, fmt.Errorf("%s in it %w, and a computer takes files alone", diag.Repr(f.Name), err)
		}
		out = append(out, member{f.Name, real})
	}
	return out, nil
}

// Bounds of a link of a tree: as many as a system follows, and as long as one's target may be.
const (
	maxLinks  = 40
	maxTarget = 4096
)

// followLink is the regular file that a member of a tree is or leads to. The error goes on behind the member's name.
func followLink(f *zip.File, named map[string]*zip.File) (*zip.File, error) {
	for range maxLinks {
		if f.Mode().IsRegular() {
			return f, nil
		}
		if f.Mode().Type() != fs.ModeSymlink {
			return nil, errors.New("is no file")
		}
		target, err := readMember(f, maxTarget)
		if err != nil {
			return nil, errors.New("is a link that can't be read")
		}
		to := named[path.Join(path.Dir(f.Name), string(target))]
		if path.IsAbs(string(target)) || to == nil {
			return nil, fmt.Errorf("is a link to %s, which is no file of the tree", diag.Repr(string(target)))
		}
		f = to
	}
	return nil, errors.New("is a link that leads nowhere")
}

// unpackTree is a packed tree as the parts of a data plane, in the order of their places.
func unpackTree(b []byte) ([]wire.Part, error) {
	members, err := membersOf(b)
	if err != nil {
		return nil, err
	}
	left := int64(maxHandedOver)
	var out []wire.Part
	for _, m := range members {
		content, err := readMember(m.file, left)
		if err != nil {
			return nil, fmt.Errorf("%s in it: %w", diag.Repr(m.place), err)
		}
		left -= int64(len(content))
		part, err := placedPart(m.place, "", content)
		if err != nil {
			return nil, err
		}
		out = append(out, part)
	}
	return out, nil
}

func readMember(f *zip.File, limit int64) ([]byte, error) {
	in, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errors.New("the tree is too large for a computer to be given")
	}
	return b, err
}
