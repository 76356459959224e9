package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// OpenDir makes a source of a folder that is no bundle, whatever its path: it has no id root. The error says why the folder can't be read, without
// its path. The caller closes the source.
func OpenDir(path string) (Source, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return Source{}, errors.New(reason(err, "no such folder"))
	}
	info, err := os.Stat(abs)
	if err != nil {
		return Source{}, errors.New(reason(err, "no such folder"))
	}
	if !info.IsDir() {
		return Source{}, errors.New("this is no folder")
	}
	f, err := openFolder(abs)
	if err != nil {
		return Source{}, errors.New(reason(err, "no such folder"))
	}
	return Source{FS: f, Name: ref.NFC(filepath.Base(abs)), Root: path, Dir: abs, close: f.Close}, nil
}

// Universe is what a folder that is laid out as an environment universe holds: "<environment>/<file>" and "metadata/<key>/<file>".
type Universe struct {
	Environments, Metadata []Part // sorted by name
}

// Part is one folder of a universe with its file, whose path counts from the universe's folder.
type Part struct {
	Name string // of the environment, or the metadata key
	File File
}

// ReadUniverse reads a universe from a folder that is no bundle's, by the rules of a bundle's. label names the folder in problems, id is what the
// universe will be stored as.
func ReadUniverse(src Source, label, id string) (Universe, diag.List) {
	b := &Bundle{Source: src, tree: tree{fs: src.FS, dir: src.Dir}}
	items, err := b.tree.list(".")
	if err != nil {
		return Universe{}, diag.List{{Pos: diag.Pos{File: label}, Code: "universe.read", Summary: reason(err, "no such folder"), Prefixed: true}}
	}
	if !ref.IsLocal(id) { // a bare id counts as long as the local one of the same name
		id = ref.LocalPrefix + id
	}
	l := b.layoutOf(&Entry{Group: Artifacts, ID: id, Label: label, items: items, bundle: b})
	for i := range l.faults { // there is no bundle to speak of
		l.faults[i].Summary = strings.NewReplacer("artifact.toml and folders", "folders", "the bundle", "the folder").Replace(l.faults[i].Summary)
	}
	p := planner{b: b}
	parts := func(cs []child) []Part {
		var out []Part
		for _, c := range cs {
			if f, ok := p.file(&Entry{Label: label, bundle: b}, c.file); ok {
				out = append(out, Part{c.name, f})
			}
		}
		return out
	}
	u := Universe{parts(l.envs), parts(l.metadata)}
	return u, append(l.faults, p.l...)
}

// Leaving tells whether a name is one that file managers and interpreters leave behind: never content.
func Leaving(name string) bool { return isLeaving(name) }
