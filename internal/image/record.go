package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// record is what an image's tree holds.
type record struct {
	Ref      string        `json:"ref"` // with the digest
	Digest   string        `json:"digest"`
	Platform string        `json:"platform"`
	Config   Config        `json:"config"`
	Layers   []layerRecord `json:"layers"` // lowest first
	Pulled   time.Time     `json:"pulled"`
}

// layerRecord is one layer of an image, and, in the layer's own tree, what its unpacking told.
type layerRecord struct {
	Key     string `json:"key"` // in the treestore
	DiffID  string `json:"diff_id"`
	Bytes   int64  `json:"bytes"` // of its files
	Files   int    `json:"files"`
	Devices int    `json:"devices,omitempty"`
	Unowned int    `json:"unowned,omitempty"`
}

// refRecord names the image of a reference.
type refRecord struct {
	Ref    string    `json:"ref"` // as it was asked for
	Stamp  string    `json:"stamp,omitempty"`
	Image  string    `json:"image"` // key in the treestore
	Pulled time.Time `json:"pulled"`
}

const (
	recordFile  = "image.json"
	layerFile   = "layer.json"
	layerDir    = "fs"
	imagePrefix = "image-"
	layerPrefix = "l-"
	refsDir     = "refs"
	// maxRecord bounds what is read of a record; configs of images are a few kilobytes.
	maxRecord = 8 << 20
)

func readRecord(tree string) (*record, error) {
	r := &record{}
	return r, readJSON(filepath.Join(tree, recordFile), r)
}

func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() > maxRecord {
		return fmt.Errorf("%s is too large for what it is", path)
	}
	b := make([]byte, fi.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(path, 0o600, append(b, '\n'))
}

// refPath is where the record of a reference is.
func (s *Store) refPath(key string) string {
	sum := sha256.Sum256([]byte(s.owners.String() + "\n" + key))
	return filepath.Join(s.o.Dir, refsDir, hex.EncodeToString(sum[:])+".json")
}

// readRef answers the record of a reference. A damaged one is none.
func (s *Store) readRef(key string) (refRecord, bool, error) {
	var r refRecord
	err := readJSON(s.refPath(key), &r)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return r, true, nil
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &syntax):
		return r, false, nil
	}
	return r, false, fmt.Errorf("read the reference: %w", err)
}

func (s *Store) writeRef(key string, r refRecord) error {
	if err := atomicfile.MkdirAll(filepath.Join(s.o.Dir, refsDir)); err != nil {
		return err
	}
	return writeJSON(s.refPath(key), r)
}

// refs are all references by the file they are in. One damaged file never spoils the others.
func (s *Store) refs() (map[string]refRecord, error) {
	dir := filepath.Join(s.o.Dir, refsDir)
	es, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the references of images: %w", err)
	}
	out := map[string]refRecord{}
	for _, e := range es {
		var r refRecord
		path := filepath.Join(dir, e.Name())
		if filepath.Ext(path) == ".json" && readJSON(path, &r) == nil {
			out[path] = r
		}
	}
	return out, nil
}
