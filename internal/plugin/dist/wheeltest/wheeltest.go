// Package wheeltest makes wheels and plugin environments for tests, without Python and without a network: a wheel is a zip archive. The
// ready-made wheels (Acme, Broken, …) are those of the install tables.
package wheeltest

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/treestore"
)

// Wheel is a distribution to be.
type Wheel struct {
	Name, Version string
	Requires      []string                     // Requires-Dist
	Python        string                       // Requires-Python
	Entries       map[string]map[string]string // entry points: name to value, by group
	Files         map[string]string            // by path below site-packages; those below "@/" stand beside METADATA
	Scripts       map[string][]byte            // executables of bin/
	Record        []string                     // paths that RECORD lists beside those of its files
}

// stem is the name as files spell it.
func (w Wheel) stem() string {
	name := strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToLower(w.Name))
	return name + "-" + strings.ReplaceAll(w.Version, "-", "_")
}

// DistInfo is the name of the folder of metadata.
func (w Wheel) DistInfo() string { return w.stem() + ".dist-info" }

// File is the name of the wheel's file.
func (w Wheel) File() string { return w.stem() + "-py3-none-any.whl" }

// files are everything in the wheel but RECORD, by path.
func (w Wheel) files() map[string][]byte {
	out := map[string][]byte{}
	info := w.DistInfo()
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.Name, w.Version)
	if w.Python != "" {
		meta += "Requires-Python: " + w.Python + "\n"
	}
	for _, r := range w.Requires {
		meta += "Requires-Dist: " + r + "\n"
		if _, rest, ok := strings.Cut(r, "extra == "); ok {
			meta += "Provides-Extra: " + strings.Trim(strings.Fields(rest)[0], `'"`) + "\n"
		}
	}
	out[info+"/METADATA"] = []byte(meta + "\nA package of the tests.\n")
	out[info+"/WHEEL"] = []byte("Wheel-Version: 1.0\nGenerator: wheeltest\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	if len(w.Entries) > 0 {
		var b strings.Builder
		for _, group := range slices.Sorted(maps.Keys(w.Entries)) {
			fmt.Fprintf(&b, "[%s]\n", group)
			for _, name := range slices.Sorted(maps.Keys(w.Entries[group])) {
				fmt.Fprintf(&b, "%s = %s\n", name, w.Entries[group][name])
			}
		}
		out[info+"/entry_points.txt"] = []byte(b.String())
	}
	for name, text := range w.Files {
		if beside, ok := strings.CutPrefix(name, "@/"); ok {
			name = info + "/" + beside
		}
		out[name] = []byte(text)
	}
	for name, b := range w.Scripts {
		out[w.stem()+".data/scripts/"+name] = b
	}
	return out
}

// Bytes is the wheel's file.
func (w Wheel) Bytes() ([]byte, error) {
	var buf, record bytes.Buffer
	z := zip.NewWriter(&buf)
	add := func(name string, b []byte, mode os.FileMode) error {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(mode)
		f, err := z.CreateHeader(h)
		if err == nil {
			_, err = f.Write(b)
		}
		return err
	}
	all := w.files()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mode := os.FileMode(0o644)
		if strings.Contains(name, ".data/scripts/") {
			mode = 0o755
		}
		if err := add(name, all[name], mode); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(all[name])
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(all[name]))
	}
	for _, path := range w.Record {
		fmt.Fprintf(&record, "%s,,\n", path)
	}
	fmt.Fprintf(&record, "%s/RECORD,,\n", w.DistInfo())
	if err := add(w.DistInfo()+"/RECORD", record.Bytes(), 0o644); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Folder writes wheels into a new folder, for --find-links.
func Folder(tb testing.TB, wheels ...Wheel) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, w := range wheels {
		b, err := w.Bytes()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, w.File()), b, 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// Install lays a distribution out in a folder of packages and a folder of executables, as an installer would.
func (w Wheel) Install(site, bin string) error {
	all := w.files()
	var record strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&record, "%s,,\n", name)
	}
	all[w.DistInfo()+"/RECORD"] = []byte(record.String())
	for name, b := range all {
		dest, mode := filepath.Join(site, filepath.FromSlash(name)), os.FileMode(0o644)
		if _, script, ok := strings.Cut(name, ".data/scripts/"); ok {
			dest, mode = filepath.Join(bin, path.Base(script)), 0o755
		}
		if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(dest, b, mode); err != nil {
			return err
		}
	}
	return nil
}

// Environment makes a plugin environment with these distributions in dir (<state root>/plugins) and makes it current. No interpreter is in
// it: what needs one says that there is none.
func Environment(tb testing.TB, dir string, wheels ...Wheel) {
	tb.Helper()
	key := fmt.Sprintf("test-%d", time.Now().UnixNano())
	store := treestore.Open(filepath.Join(dir, "generations"), treestore.Options{Volatile: true})
	err := Generation(tb.Context(), store, key, wheels...)
	if err == nil {
		var b []byte
		if b, err = json.Marshal(map[string]any{"format_version": 1, "generation": key}); err == nil {
			err = os.WriteFile(filepath.Join(dir, "current.json"), b, 0o600)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
}
