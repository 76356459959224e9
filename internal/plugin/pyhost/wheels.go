package pyhost

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// Wheel is a wheel file of one of our own distributions.
type Wheel struct {
	Name, Version string
	Path          string
}

// Wheels writes the wheels of our own distributions into a folder that exists, and answers them in the order in which they are to be
// installed. The same program writes the same bytes. They need nothing from an index.
func Wheels(dir string) ([]Wheel, error) {
	var out []Wheel
	for _, d := range distributions() {
		b, err := d.wheel()
		if err != nil {
			return nil, fmt.Errorf("make the wheel of %s: %w", d.name, err)
		}
		file := filepath.Join(dir, d.stem()+"-py3-none-any.whl")
		if err := atomicfile.WriteBytes(file, 0o644, b); err != nil {
			return nil, err
		}
		out = append(out, Wheel{d.name, d.version, file})
	}
	return out, nil
}

// member is a file of a wheel.
type member struct {
	name string
	data []byte
}

func (d distribution) stem() string { return strings.ReplaceAll(d.name, "-", "_") + "-" + d.version }

// modules are the .py files of a distribution, by name.
func (d distribution) modules() ([]member, error) {
	tree, err := d.files()
	if err != nil {
		return nil, err
	}
	var out []member
	err = fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(name) != ".py" {
			return err
		}
		b, err := fs.ReadFile(tree, name)
		out = append(out, member{name, b})
		return err
	})
	slices.SortFunc(out, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	return out, err
}

func (d distribution) wheel() ([]byte, error) {
	members, err := d.modules()
	if err != nil {
		return nil, err
	}
	info := d.stem() + ".dist-info/"
	members = append(members,
		member{info + "METADATA", d.metadata()},
		member{info + "WHEEL", []byte("Wheel-Version: 1.0\nGenerator: agent-env\nRoot-Is-Purelib: true\nTag: py3-none-any\n")},
	)
	var record bytes.Buffer
	for _, m := range members {
		sum := sha256.Sum256(m.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", m.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(m.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	return pack(append(members, member{info + "RECORD", record.Bytes()}))
}

// pack makes a zip archive with nothing in it that changes from one time to the next.
func pack(members []member) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(0o644)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(m.data)); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (d distribution) metadata() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nRequires-Python: >=%s\n", d.name, d.version, d.summary, MinPython)
	for _, r := range d.requires {
		fmt.Fprintf(&b, "Requires-Dist: %s\n", r)
		if _, extra, ok := strings.Cut(r, "extra == "); ok {
			fmt.Fprintf(&b, "Provides-Extra: %s\n", strings.Trim(extra, `"`))
		}
	}
	b.WriteString("\nMade by agent-env for its plugin environment: a client of the running program, with nothing of its own to run.\n")
	return b.Bytes()
}
