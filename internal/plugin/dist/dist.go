// Package dist knows the plugin environment: the Python packages (distributions) that plugins come in.
//
// Words: a distribution is an installed package; an entry point is a line by which it offers something to the program, in a group; a
// generation is one immutable virtual environment; the plugin environment is the generation that is current. Distributions are found from
// metadata files alone: nothing here starts a plugin to list it, and one that can't be read hides no other.
//
// Adding and removing build a new generation beside the current one, check it, and swap one small file: what fails, is killed or
// interrupted leaves the current generation as it was, byte for byte. Who uses an environment holds its generation until Close, so that
// nothing prunes it meanwhile.
//
// The package doesn't run plugins (internal/plugin/host does) and asks nobody anything (internal/cli does).
package dist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/treestore"
)

// On disk, below the folder of the environment.
const (
	currentFile    = "current.json" // which generation is current: replacing it is what commits a change
	lockFile       = "lock"         // held while a change is made
	generationsDir = "generations"  // a treestore
	recordFile     = "generation.json"
)

// Current is what current.json says.
type Current struct {
	Version    int    `json:"format_version"`
	Generation string `json:"generation"`
	// Options tells that a distribution has options of the command line (GroupOptions), so that commands know without opening the generation.
	Options bool `json:"root_options,omitempty"`
}

// Record is what a generation says of itself (generation.json): how it came to be.
type Record struct {
	Version   int                     `json:"format_version"`
	Created   time.Time               `json:"created"`
	Installer string                  `json:"installer"` // "uv" or "pip", with its version
	Base      string                  `json:"base"`      // the interpreter that the environment was made of
	Python    string                  `json:"python"`    // its version, as platform.python_version says
	Requested []string                `json:"requested"` // the requirements that people asked for, in order
	Installed []Pinned                `json:"installed"` // by name
	Markers   requirement.Environment `json:"markers"`
}

// Pinned is one distribution of a generation's record.
type Pinned struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Source  string `json:"source,omitempty"` // the URL it came from, when from no index
}

// Own is one of the program's own distributions: every environment has it in this version, whatever else is installed.
type Own struct{ Name, Version string }

// Options are what an Environment is opened with.
type Options struct {
	Dir string                      // <state root>/plugins; it need not exist
	Env func(string) (string, bool) // as os.LookupEnv: where python3 and uv are looked for
	Own []Own
}

// Environment is the plugin environment as it was when it was opened. Its methods may be called from several goroutines.
type Environment struct {
	o       Options
	root    string          // the generation's folder; "" when there is none
	held    *treestore.Held // nil where nothing has to be held
	current string          // the generation's key
	scan    func() ([]Distribution, []Problem)
	record  func() (Record, error)

	mu         sync.Mutex
	markers    *requirement.Environment // of an interpreter that was asked
	markersErr error
}

// Open reads which generation is current, once, and holds it; the caller closes the environment. Where there is none yet the environment is
// empty, and nothing is made.
func Open(ctx context.Context, o Options) (*Environment, error) {
	e := newEnvironment(o)
	for range 100 { // a swap and a prune may come between the two reads
		key, err := readCurrent(o.Dir)
		if err != nil || key == "" {
			return e, err
		}
		held, err := generations(o.Dir).Get(ctx, key, func(context.Context, string) error { return errGone })
		if errors.Is(err, errGone) {
			if again, _ := readCurrent(o.Dir); again == key {
				return e, fmt.Errorf("the plugin environment %s is missing: %s names it; add the plugins again, or remove that file", generations(o.Dir).PathOf(key), filepath.Join(o.Dir, currentFile))
			}
			continue
		}
		if err != nil {
			return e, fmt.Errorf("open the plugin environment: %w", err)
		}
		e.held, e.current, e.root = held, key, held.Path()
		return e, nil
	}
	return e, errors.New("the plugin environment changes all the time; try again")
}

func newEnvironment(o Options) *Environment {
	e := &Environment{o: o}
	e.scan = sync.OnceValues(e.find)
	e.record = sync.OnceValues(e.readRecord)
	return e
}

var errGone = errors.New("the generation is not there")

func generations(dir string) *treestore.Store {
	return treestore.Open(filepath.Join(dir, generationsDir), treestore.Options{})
}

// RootOptions tells whether the current generation of the environment in a folder has options of the command line. It opens one small file; whoever
// opens the environment is told of one that can't be read.
func RootOptions(dir string) bool {
	c, err := currentOf(dir)
	return err == nil && c.Options
}

// readCurrent is the key of the current generation; "" when there is none.
func readCurrent(dir string) (string, error) {
	c, err := currentOf(dir)
	return c.Generation, err
}

func currentOf(dir string) (Current, error) {
	path := filepath.Join(dir, currentFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Current{}, nil
	}
	if err != nil {
		return Current{}, fmt.Errorf("read which plugin environment is current: %w", err)
	}
	var c Current
	if err := json.Unmarshal(b, &c); err != nil || c.Generation == "" {
		return Current{}, fmt.Errorf("%s can't be read: it names no generation; add the plugins again, or remove it", path)
	}
	if c.Version != 1 {
		return Current{}, fmt.Errorf("%s has format %d, and this agent-env knows 1; upgrade agent-env", path, c.Version)
	}
	return c, nil
}

func writeCurrent(dir, key string, options bool) error {
	b, err := json.Marshal(Current{1, key, options})
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(dir, currentFile), 0o600, append(b, '\n'))
}

// Close lets the generation go. It is legal more than once.
func (e *Environment) Close() error {
	if e.held == nil {
		return nil
	}
	return e.held.Release()
}

// Dir is the generation's folder; "" when there is none.
func (e *Environment) Dir() string { return e.root }

// Generation is the generation's key, another for every content; "" when there is none.
func (e *Environment) Generation() string { return e.current }

// Lock is an open file that holds the generation while any copy of it is open, for a process that outlives this one. It stays the
// environment's; nil when there is none.
func (e *Environment) Lock() *os.File {
	if e.held == nil {
		return nil
	}
	return e.held.File()
}

// Python is the interpreter of the generation, to be started with -I; "" when there is none.
func (e *Environment) Python() string {
	if e.root == "" {
		return ""
	}
	return interpreter(e.root)
}

// Script is where an executable that a distribution installed as name stands; "" when there is no generation or no such file.
func (e *Environment) Script(name string) string {
	if e.root == "" || name == "" || name != filepath.Base(name) {
		return ""
	}
	path := filepath.Join(e.root, "bin", name)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return ""
	}
	return path
}

// Record is how the generation came to be; the zero Record when there is no generation, or it tells nothing.
func (e *Environment) Record() (Record, error) { return e.record() }

func (e *Environment) readRecord() (Record, error) {
	var r Record
	if e.root == "" {
		return r, nil
	}
	b, err := os.ReadFile(filepath.Join(e.root, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read how the plugin environment was made: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("read how the plugin environment was made: %s: %w", recordFile, err)
	}
	return r, nil
}

// Distributions are the distributions of the environment by canonical name, the program's own among them, and what could not be read. The
// answer is read once and is not to be changed.
func (e *Environment) Distributions() ([]Distribution, []Problem) { return e.scan() }

func (e *Environment) find() ([]Distribution, []Problem) {
	var all []Distribution
	var bad []Problem
	if e.root != "" {
		var known bool
		if all, bad, known = readIndex(e.root); !known {
			all, bad = Scan(sitePackages(e.root))
		}
	}
	for _, own := range e.o.Own { // the program's version counts, not that of the program that made the generation
		d := Distribution{Name: own.Name, Version: own.Version, Own: true}
		i, found := search(all, d.Canonical())
		if found {
			d.Dir = all[i].Dir
			all[i] = d
			continue
		}
		all = slices.Insert(all, i, d)
	}
	return all, bad
}

// Find is the distribution of a canonical name, for requirements.
func (e *Environment) Find(canonical string) (requirement.Dist, bool) {
	all, _ := e.Distributions()
	i, found := search(all, canonical)
	if !found {
		return requirement.Dist{}, false
	}
	return requirement.Dist{Name: all[i].Name, Version: all[i].Version, Requires: all[i].Requires}, true
}

// search finds a canonical name among distributions that are sorted by it.
func search(all []Distribution, canonical string) (int, bool) {
	return slices.BinarySearchFunc(all, canonical, func(d Distribution, name string) int { return strings.Compare(d.Canonical(), name) })
}

// sitePackages are the folders of a virtual environment that hold packages, in the order of its search path.
func sitePackages(root string) []string {
	var out []string
	for _, lib := range []string{"lib", "lib64"} {
		if info, err := os.Lstat(filepath.Join(root, lib)); err != nil || !info.IsDir() {
			continue // lib64 is mostly a link to lib
		}
		found, _ := filepath.Glob(filepath.Join(root, lib, "python3*", "site-packages"))
		out = append(out, found...)
	}
	return out
}

// Ships finds the distribution whose files hold the module of a class (module:Class), by its RECORD. It opens one file for each distribution.
func (e *Environment) Ships(class string) (Distribution, bool) {
	module, _, _ := strings.Cut(class, ":")
	path := strings.ReplaceAll(strings.TrimSpace(module), ".", "/")
	if path == "" {
		return Distribution{}, false
	}
	all, _ := e.Distributions()
	for _, d := range all {
		if d.Own || d.Dir == "" {
			continue
		}
		if b, err := readBounded(filepath.Join(d.Dir, "RECORD"), maxRecord); err == nil && records(string(b), path) {
			return d, true
		}
		for _, file := range []string{path + ".py", path + "/__init__.py"} { // installed without a RECORD: beside it, and alone there
			if b, err := readBounded(filepath.Join(d.Dir, "top_level.txt"), maxHeader); err == nil && slices.Contains(strings.Fields(string(b)), strings.SplitN(path, "/", 2)[0]) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(d.Dir), file)); err == nil {
					return d, true
				}
			}
		}
	}
	return Distribution{}, false
}

const maxRecord = 64 << 20 // a line for every file of a package

// records tells whether a RECORD lists the module at path.
func records(record, path string) bool {
	for line := range strings.Lines(record) {
		file, _, _ := strings.Cut(strings.Trim(line, `"`), ",")
		if file == path+".py" || file == path+"/__init__.py" || strings.HasPrefix(file, path+".") && strings.HasSuffix(file, ".so") {
			return true
		}
	}
	return false
}
