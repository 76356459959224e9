package dist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/requirement"
)

// Distribution is an installed package, as its metadata says.
type Distribution struct {
	Name     string // as it spells itself
	Version  string
	Dir      string       // its *.dist-info or *.egg-info, absolute; "" for one of the program's own that no generation holds
	Requires []string     // Requires-Dist, as written
	Entries  []EntryPoint // by group, name and value
	Types    []EntryPoint // what its executable serves, as agentenv_plugin.json says; Value is the executable
	Own      bool         // one of the program's own distributions
	Git      string       // the address of a git plugin, which is no package; "" for every other
}

// Canonical is the name in the spelling that names are compared in.
func (d Distribution) Canonical() string { return requirement.Canonical(d.Name) }

// EntryPoint is one line of an entry_points.txt.
type EntryPoint struct{ Group, Name, Value string }

// Problem is metadata that can't be read. What it stands in is left out; everything else counts.
type Problem struct {
	Package string // the distribution, or "(unreadable metadata: <folder>)"
	Code    string // CodeMetadata or CodeEntryPoints
	Path    string
	Reason  string
}

// Codes of Problem.
const (
	CodeMetadata    = "metadata-unreadable"
	CodeEntryPoints = "entry-points-unreadable"
)

// Scan finds the distributions in folders of packages, by canonical name. Of one name the first folder's counts, and in one folder the first
// by the name of its metadata. A folder that isn't there is empty. Nothing is ever imported or executed.
func Scan(dirs []string) ([]Distribution, []Problem) {
	var found []candidate
	var bad []Problem
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			bad = append(bad, Problem{unreadable(dir), CodeMetadata, dir, reason(err)})
		}
		for _, e := range entries {
			if isMetadata(e.Name()) {
				found = append(found, candidate{path: filepath.Join(dir, e.Name()), folder: e.IsDir()})
			}
		}
	}
	readAll(found)
	seen := map[string]bool{}
	var all []Distribution
	for _, c := range found {
		switch name := c.d.Canonical(); {
		case c.d.Name == "":
			bad = append(bad, c.bad...)
		case !seen[name]:
			seen[name] = true
			all, bad = append(all, c.d), append(bad, c.bad...)
		}
	}
	slices.SortFunc(all, func(a, b Distribution) int { return strings.Compare(a.Canonical(), b.Canonical()) })
	return all, bad
}

// candidate is one folder (or file) of metadata. The name is empty when it could not be read.
type candidate struct {
	path   string
	folder bool // known to be one, without looking
	d      Distribution
	bad    []Problem
}

// readAll reads several at once: most of the time goes into opening files.
func readAll(found []candidate) {
	workers := min(runtime.GOMAXPROCS(0), 4, len(found)/16+1)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(found); i += workers {
				found[i].read()
			}
		})
	}
	wg.Wait()
}

func (c *candidate) read() {
	meta := c.path
	if !c.folder {
		info, err := os.Stat(c.path)
		c.folder = err == nil && info.IsDir()
	}
	if c.folder {
		meta = filepath.Join(c.path, "METADATA")
		if strings.HasSuffix(c.path, eggInfo) {
			meta = filepath.Join(c.path, "PKG-INFO")
		}
	}
	h, err := readHeader(meta)
	if err == nil && !validName(h.name) {
		err = fmt.Errorf("its name %s is none", diag.Repr(h.name))
	}
	if err == nil && (h.version == "" || diag.Clean(h.version) != h.version) {
		err = errors.New("it names no version")
	}
	if err != nil {
		c.bad = append(c.bad, Problem{unreadable(c.path), CodeMetadata, meta, reason(err)})
		return
	}
	c.d = Distribution{Name: h.name, Version: h.version, Dir: c.path, Requires: h.requires}
	if meta == c.path {
		return // an egg-info that is one file tells no more
	}
	if len(h.requires) == 0 && strings.HasSuffix(c.path, eggInfo) {
		c.d.Requires = readRequiresTxt(filepath.Join(c.path, "requires.txt"))
	}
	points := filepath.Join(c.path, "entry_points.txt")
	if c.d.Entries, err = readEntryPoints(points); err != nil {
		c.bad = append(c.bad, Problem{c.d.Name, CodeEntryPoints, points, reason(err)})
	}
	manifest := filepath.Join(c.path, Manifest)
	if c.d.Types, err = readTypes(manifest, c.d.Entries); err != nil {
		c.bad = append(c.bad, Problem{c.d.Name, CodeManifest, manifest, reason(err)})
	}
}

const (
	distInfo = ".dist-info"
	eggInfo  = ".egg-info"
)

func isMetadata(name string) bool {
	return strings.HasSuffix(name, distInfo) || strings.HasSuffix(name, eggInfo)
}

func unreadable(path string) string {
	return "(unreadable metadata: " + diag.Clean(filepath.Base(path)) + ")"
}

// reason is an error without the path, which stands beside it.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// validName is the grammar of PEP 508.
func validName(name string) bool {
	for i, c := range []byte(name) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		edge := i == 0 || i == len(name)-1
		if !alnum && (edge || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return name != ""
}
