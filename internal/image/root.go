package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// IsRoot tells whether an archive is a tar of the files of a root, and neither what `docker save` writes nor a layout, which engines load.
func IsRoot(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	plain, packed, err := decompress(f)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	defer plain.Close()
	var r io.Reader = plain
	if !packed { // what a file holds is passed over without reading it
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return false, err
		}
		r = f
	}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return false, fmt.Errorf("read %s: %w", file, err)
		}
		switch path.Clean(strings.TrimLeft(h.Name, "/")) {
		case "manifest.json", "oci-layout":
			return false, nil
		}
	}
}
