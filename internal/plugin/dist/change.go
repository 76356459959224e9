package dist

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/treestore"
)

// Manager changes the plugin environment. Its methods may be called from several goroutines and processes: one change is made at a time.
type Manager struct {
	o      Options
	base   func(dir string) ([]string, error)
	report func(e *Environment) ReportOptions
}

// NewManager makes a Manager. base writes the wheels of the program's own distributions into a folder and answers their paths in the order
// of installing; report says how a new generation is looked at before it becomes current.
func NewManager(o Options, base func(dir string) ([]string, error), report func(e *Environment) ReportOptions) *Manager {
	return &Manager{o, base, report}
}

// Change is what is to be done.
type Change struct {
	Add       []string // what to install, as people type it: requirements and files of packages
	Remove    []string // names of distributions
	IndexURL  string   // instead of the installer's index
	FindLinks []string // folders (or pages) with packages, beside the index
	DryRun    bool     // only say what would be done; the environment and the state root stay untouched
	Keep      bool     // make the new generation current in spite of problems
	Plain     bool     // the packages are no plugins: what they offer is neither looked at nor loaded
}

// hides tells whether the places that packages come from hold a name or password. Such places go to the installer by its variables: argv is
// everybody's to read, and is shown.
func (c Change) hides() bool {
	return slices.ContainsFunc(append([]string{c.IndexURL}, c.FindLinks...), func(place string) bool {
		u, err := url.Parse(place)
		return err == nil && u.User != nil || err != nil && strings.Contains(place, "@")
	})
}

// Talk is how a change speaks with people. Every function may be nil; lines are clean and have no line end.
type Talk struct {
	Say     func(line string)                       // what is done and what was found
	Detail  func(line string)                       // what the installer says
	Confirm func(ctx context.Context) (bool, error) // asked when the plan has been told; nil is yes
}

// Outcome is what a change came to.
type Outcome struct {
	Plan     []string       // what the installer would do, by its own words: "+ name==1.0"
	Diff     []Difference   // what differs between the generations, by name
	Plugins  []Contribution // of the distributions that are new or changed
	Problems []string       // what speaks against the new generation
	Changed  bool           // the new generation is current
}

// Difference is one distribution that a change adds (Before is ""), removes (After is "") or replaces.
type Difference struct {
	Name   string `json:"name"`
	Before string `json:"before"` // versions
	After  string `json:"after"`
}

func (d Difference) String() string {
	switch {
	case d.Before == "":
		return "+ " + d.Name + " " + d.After
	case d.After == "":
		return "- " + d.Name + " " + d.Before
	default:
		return "~ " + d.Name + " " + d.Before + " -> " + d.After
	}
}

var (
	// ErrDeclined: the person said no.
	ErrDeclined = errors.New("nothing was changed")
	// ErrProblems: what was installed doesn't work; the outcome tells why.
	ErrProblems = errors.New("the plugin environment has problems")
	// ErrBusy: another process changes the environment.
	ErrBusy = errors.New("another agent-env changes the plugin environment just now; try again when it is done")

	errUnchanged = errors.New("nothing changed") // internal: there is nothing to swap
)

// Apply makes a change, or says why not. Until the one moment in which the new generation becomes current the environment stays as it is,
// whatever fails and whoever is killed. The outcome holds what is known at the end, beside an error too.
func (m *Manager) Apply(ctx context.Context, c Change, t Talk) (Outcome, error) {
	if err := m.refuse(c); err != nil {
		return Outcome{}, err
	}
	old, err := Open(ctx, m.o)
	if err != nil {
		return Outcome{}, err
	}
	w := &work{Manager: m, change: c, talk: t, old: old}
	err = w.run(ctx)
	return w.out, errors.Join(err, old.Close())
}

// work is one change being made.
type work struct {
	*Manager
	change Change
	talk   Talk
	old    *Environment
	tool   installer
	wheels bool // all comes as wheels: nothing is built
	out    Outcome
	after  *Environment // the candidate, once it has been installed
}

func (w *work) say(format string, args ...any) {
	if w.talk.Say != nil {
		w.talk.Say(fmt.Sprintf(format, args...))
	}
}

func (w *work) run(ctx context.Context) error {
	if err := w.removable(ctx); err != nil {
		return err
	}
	if w.change.DryRun {
		scratch, err := atomicfile.NewScratch("agent-env-plugins")
		if err != nil {
			return fmt.Errorf("make a folder to resolve in: %w", err)
		}
		return errors.Join(w.prepare(ctx, scratch.Dir), scratch.Remove())
	}
	if err := atomicfile.MkdirAll(w.o.Dir); err != nil {
		return fmt.Errorf("make the folder of the plugin environment: %w", err)
	}
	lock, err := atomicfile.TryLock(filepath.Join(w.o.Dir, lockFile))
	if errors.Is(err, atomicfile.ErrLocked) {
		return ErrBusy
	}
	if err != nil {
		return fmt.Errorf("lock the plugin environment: %w", err)
	}
	return errors.Join(w.swap(ctx), lock.Unlock())
}

// swap builds the new generation and makes it current. The caller holds the lock.
func (w *work) swap(ctx context.Context) error {
	if now, err := readCurrent(w.o.Dir); err != nil || now != w.old.current {
		return errors.Join(err, ErrBusy) // changed between opening and locking
	}
	store := generations(w.o.Dir)
	prune := func() error { // what killed changes left, and generations that nobody uses any more
		current, err := readCurrent(w.o.Dir)
		if err != nil {
			return err
		}
		_, err = store.Prune(ctx, func(e treestore.Entry) bool { return e.Key == current })
		return err
	}
	if err := prune(); err != nil {
		return fmt.Errorf("remove old plugin environments: %w", err)
	}
	key := time.Now().UTC().Format("20060102T150405Z") + "-" + rand.Text()[:8]
	held, err := store.Get(ctx, key, func(ctx context.Context, dir string) error { return w.build(ctx, dir, store.PathOf(key)) })
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	all, _ := w.after.Distributions()
	options := slices.ContainsFunc(all, func(d Distribution) bool {
		return slices.ContainsFunc(d.Entries, func(e EntryPoint) bool { return e.Group == GroupOptions })
	})
	err = writeCurrent(w.o.Dir, key, options)
	w.out.Changed = err == nil
	if err != nil {
		err = fmt.Errorf("make the new plugin environment current: %w", err)
	}
	if err = errors.Join(err, held.Release()); err != nil {
		return err
	}
	if err := w.old.Close(); err != nil {
		return err
	}
	if err := prune(); err != nil && ctx.Err() == nil {
		w.say("an old plugin environment stays for now: %v", err)
	}
	if len(w.out.Problems) > 0 {
		return ErrProblems
	}
	return nil
}

// build makes the new generation in dir, an empty folder that will be moved to final, and looks at it.
func (w *work) build(ctx context.Context, dir, final string) error {
	if err := w.prepare(ctx, dir); err != nil {
		return err
	}
	if w.talk.Confirm != nil {
		if yes, err := w.talk.Confirm(ctx); err != nil || !yes {
			return errors.Join(err, declined(yes, err))
		}
	}
	if err := w.install(ctx, dir); err != nil {
		return err
	}
	if err := relocate(dir, final); err != nil {
		return fmt.Errorf("let the scripts find their interpreter: %w", err)
	}
	w.after = w.candidate(dir)
	if w.compare(); len(w.out.Diff) == 0 {
		return errUnchanged
	}
	if err := w.contained(); err != nil {
		return err
	}
	if err := w.verify(ctx); err != nil {
		return err
	}
	if len(w.out.Problems) > 0 && !w.change.Keep {
		return ErrProblems
	}
	return w.note(dir)
}

func declined(yes bool, err error) error {
	if err == nil && !yes {
		return ErrDeclined
	}
	return nil
}

// candidate is the environment in a folder that isn't current.
func (w *work) candidate(dir string) *Environment {
	e := newEnvironment(w.o)
	e.root = dir
	return e
}

// prepare makes a copy of the current generation (or an empty one), and tells what will be done to it.
func (w *work) prepare(ctx context.Context, dir string) error {
	base, err := Python3(ctx, w.old.env)
	if err != nil {
		return err
	}
	w.tool = findInstaller(w.o.Env, base)
	if err := w.tool.start(ctx, w, dir); err != nil {
		return err
	}
	if w.base != nil {
		wheels, err := os.MkdirTemp(dir, ".wheels-")
		if err != nil {
			return err
		}
		files, err := w.base(wheels)
		if err == nil {
			err = w.tool.own(ctx, w, dir, files)
		}
		if err = errors.Join(err, os.RemoveAll(wheels)); err != nil {
			return fmt.Errorf("install agent-env's own packages into the plugin environment: %w", err)
		}
	}
	if err := w.constrain(dir); err != nil {
		return err
	}
	w.say("plugin environment at %s, by %s, Python %s", w.o.Dir, w.tool.name(), base.Markers.PythonFullVersion)
	if len(w.change.Add) == 0 {
		w.will(dir, w.tool.removal(dir, w.change.Remove))
		return nil
	}
	if err := w.resolve(ctx, dir); err != nil {
		return err
	}
	w.will(dir, w.tool.addition(dir, w.change, asked{wheels: w.wheels}))
	for _, line := range w.out.Plan {
		w.say("  %s", line)
	}
	for _, spec := range w.sources() {
		w.say("  %s is built from source: its build runs code of its own as you, outside of any sandbox", diag.Clean(spec))
	}
	return nil
}

// will tells a command that is going to be run in dir, a copy of the environment: paths are relative to it.
func (w *work) will(dir string, argv []string) {
	short := make([]string, len(argv))
	for i, a := range argv {
		short[i] = strings.TrimPrefix(a, dir+string(filepath.Separator))
	}
	w.say("Will run in a copy of it: %s", shell(short))
}

// constraintsFile pins the program's own distributions, so that no installer fetches others of their names.
const constraintsFile = ".constraints.txt"

func (w *work) constrain(dir string) error {
	var text strings.Builder
	for _, own := range w.o.Own {
		fmt.Fprintf(&text, "%s==%s\n", own.Name, own.Version)
	}
	return atomicfile.WriteBytes(filepath.Join(dir, constraintsFile), 0o600, []byte(text.String()))
}

func (w *work) install(ctx context.Context, dir string) error {
	argv := w.tool.removal(dir, w.change.Remove)
	if len(w.change.Add) > 0 {
		argv = w.tool.addition(dir, w.change, asked{wheels: w.wheels})
	}
	text, err := w.exec(ctx, dir, installTime, argv)
	if err != nil {
		return failure("the installer failed", text, err)
	}
	return nil
}

// compare fills in what differs.
func (w *work) compare() {
	before, _ := w.old.Distributions()
	after, _ := w.after.Distributions()
	versions := func(all []Distribution) map[string]Distribution {
		out := map[string]Distribution{}
		for _, d := range all {
			if !d.Own {
				out[d.Canonical()] = d
			}
		}
		return out
	}
	was, is := versions(before), versions(after)
	for name, d := range was {
		if n, ok := is[name]; !ok {
			w.out.Diff = append(w.out.Diff, Difference{d.Name, d.Version, ""})
		} else if n.Version != d.Version || source(n) != source(d) {
			w.out.Diff = append(w.out.Diff, Difference{n.Name, d.Version, n.Version})
		}
	}
	for name, d := range is {
		if _, ok := was[name]; !ok && !(w.old.root == "" && installers(name)) {
			w.out.Diff = append(w.out.Diff, Difference{d.Name, "", d.Version})
		}
	}
	slices.SortFunc(w.out.Diff, func(a, b Difference) int {
		return strings.Compare(requirement.Canonical(a.Name), requirement.Canonical(b.Name))
	})
	for _, d := range w.out.Diff {
		w.say("  %s", d)
	}
}

// installers are what a new environment made by pip holds from the start.
func installers(canonical string) bool { return canonical == "pip" || canonical == "setuptools" }

// source is where a distribution came from when from no index: its direct_url.json.
func source(d Distribution) string {
	b, err := readBounded(filepath.Join(d.Dir, "direct_url.json"), maxManifest)
	if err != nil {
		return ""
	}
	return string(b)
}

// note writes down how the generation came to be.
func (w *work) note(dir string) error {
	r := Record{
		Version: 1, Created: time.Now().UTC().Truncate(time.Second), Installer: w.tool.name(), Base: w.tool.base().Path,
		Python: w.tool.base().Markers.PythonFullVersion, Markers: w.tool.base().Markers, Requested: []string{}, Installed: []Pinned{},
	}
	before, err := w.old.Record()
	if err != nil {
		return err
	}
	gone := func(text string) bool { // asked for anew, or removed
		name := specName(text)
		return slices.ContainsFunc(slices.Concat(w.change.Add, w.change.Remove), func(s string) bool { return specName(s) == name })
	}
	for _, text := range before.Requested {
		if !gone(text) {
			r.Requested = append(r.Requested, text)
		}
	}
	r.Requested = append(r.Requested, w.change.Add...)
	all, _ := w.after.Distributions()
	for _, d := range all {
		r.Installed = append(r.Installed, Pinned{d.Name, d.Version, pinnedURL(d)})
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(filepath.Join(dir, recordFile), 0o600, append(b, '\n')); err != nil {
		return err
	}
	if err := Index(dir); err != nil {
		return fmt.Errorf("note what is installed: %w", err)
	}
	return nil
}

func pinnedURL(d Distribution) string {
	var u struct {
		URL string `json:"url"`
	}
	if d.Own || json.Unmarshal([]byte(source(d)), &u) != nil {
		return ""
	}
	return u.URL
}
