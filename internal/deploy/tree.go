package deploy

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// packTree is a tree of files as one file, as artifact tree pack writes it: equal trees are equal bytes.
func packTree(parts []wire.Part) ([]byte, error) {
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
		if !p.File.Inline() {
			return nil, fmt.Errorf("parts[%d]: %s holds no bytes", i, diag.Repr(at))
		}
		b, err := p.File.Content()
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

// unpackTree is a packed tree as the parts of a data plane, in the order of their names. Links, which no data plane takes, are refused.
func unpackTree(b []byte) ([]wire.Part, error) {
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("it is no packed tree: %w", err)
	}
	files := slices.DeleteFunc(slices.Clone(r.File), func(f *zip.File) bool { return f.Mode().IsDir() || strings.HasSuffix(f.Name, "/") })
	if len(files) > maxTreeFiles {
		return nil, fmt.Errorf("it has %d files, and may have %d", len(files), maxTreeFiles)
	}
	slices.SortFunc(files, func(a, b *zip.File) int { return strings.Compare(a.Name, b.Name) })
	left := int64(maxHandedOver)
	var out []wire.Part
	for i, f := range files {
		if !f.Mode().IsRegular() {
			return nil, fmt.Errorf("%s in it is no file, and a computer takes files alone", diag.Repr(f.Name))
		}
		if i > 0 && files[i-1].Name == f.Name {
			return nil, fmt.Errorf("%s is in it twice", diag.Repr(f.Name))
		}
		content, err := readMember(f, left)
		if err != nil {
			return nil, fmt.Errorf("%s in it: %w", diag.Repr(f.Name), err)
		}
		left -= int64(len(content))
		part, err := placedPart(f.Name, "", content)
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
