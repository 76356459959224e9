package image

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is a folder on a file system of that size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("needs the right to mount a small file system:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A disk that fills while a layer is unpacked, and a floor that is met there, leave nothing of the layer, and what was there works on.
func TestFullDisk(t *testing.T) {
	h := newHub(t)
	var many []entry
	for i := range 400 {
		many = append(many, entry{name: fmt.Sprintf("f%d", i), body: strings.Repeat(fmt.Sprint(i%10), 64<<10)})
	}
	small := h.push(t, "small:1", imageOfLayers(t, nil, layerTar(t, entry{name: "a", body: "1"})))
	large := h.push(t, "large:1", imageOfLayers(t, nil, layerTar(t, many...)))
	for name, c := range map[string]struct {
		floor int64
		want  error
	}{"full": {-1, unix.ENOSPC}, "floor": {4 << 20, ErrSpace}} {
		dir := smallDisk(t, "20m")
		tr := http.DefaultTransport.(*http.Transport).Clone()
		t.Cleanup(tr.CloseIdleConnections)
		s := Open(Options{Dir: filepath.Join(dir, "images"), Floor: c.floor, Transport: tr})
		_, release, err := s.Root(t.Context(), small, nil)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if _, _, err := s.Root(t.Context(), large, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%s: %d images, %v", name, len(all), err)
		}
		var left []string
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
			if strings.Contains(p, "/.tmp/") || strings.HasPrefix(filepath.Base(p), ".spool") {
				left = append(left, p)
			}
			return nil
		})
		if len(left) > 0 {
			t.Errorf("%s: left %d, as %s", name, len(left), left[0])
		}
		_, release, err = s.Root(t.Context(), small, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		release()
	}
}
