package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/treestore"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

var treeForm = lazyregexp.New(`^[0-9a-f]{64}$`)

// parallel is how many repositories are fetched at once: more gain nothing, since unpacking is work for the processor.
const parallel = 4

// Want is one repository that is asked for.
type Want struct {
	URL, Ref string
	By       string // who asks, as rows say it: "cli", "bundle:ID"
	// Of a bundle's member:
	Parent      Source // the bundle's own; zero for what is asked for directly
	Declared    string // the id that the bundle gives it; another one is refused
	DeclaredRef string // what the bundle pins, where Ref is newer
	// Of a locked one:
	Commit string // the commit that Ref meant
	Tree   string // the digest that its files have to have
}

// Item is a repository that was asked for: its files, held until Close, and what they say.
type Item struct {
	Want       Want
	Fetched    Fetched // Dir is the tree's folder in the store
	Kind       Kind
	File       string    // the manifest's name
	Manifest   *Manifest // of a plugin
	Superseded string    // the builtin that takes its place: nothing was fetched
	Warnings   []string
	Cached     bool // the files were here already
	held       *treestore.Held
}

// ID is the plugin's id; "" for a bundle.
func (i *Item) ID() string {
	if i.Manifest == nil {
		return i.Superseded
	}
	return i.Manifest.ID
}

// Items are what Fetch answers.
type Items []*Item

// Close lets go of the files. It is legal more than once.
func (is Items) Close() error {
	var errs []error
	for _, i := range is {
		if i != nil && i.held != nil {
			errs = append(errs, i.held.Release())
		}
	}
	return errors.Join(errs...)
}

// Fetch brings repositories here, some at a time, and reads what they are. Nothing of a workspace changes. All failures are told at once, and
// then nothing is held. The caller closes the items. A repository that is asked for twice is fetched once, and is one item.
func (s *Store) Fetch(ctx context.Context, wants []Want) (_ Items, err error) {
	work, err := s.stage(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, work.close()) }()
	wants = distinct(wants)
	var mirror *mirror
	if s.o.Policy.Mirror != "" {
		if mirror, err = openMirror(ctx, s.o.Policy.Mirror); err != nil {
			return nil, err
		}
	}
	items, errs := make(Items, len(wants)), make([]error, len(wants))
	each(len(wants), func(i int) {
		items[i], errs[i] = s.fetch(ctx, wants[i], mirror, filepath.Join(work.dir, fmt.Sprint(i)), work.lock.File())
	})
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(context.Cause(ctx), items.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, items.Close())
	}
	return items, nil
}

func distinct(wants []Want) []Want {
	var out []Want
	for _, w := range wants {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// allows decides whether a member may come from a source.
func (s *Store) allows(w Want) func(Source) error {
	return func(src Source) error {
		if w.Parent != (Source{}) {
			return s.o.Policy.AllowsMember(w.Parent, src)
		}
		return s.o.Policy.Allows(src)
	}
}

func (s *Store) fetch(ctx context.Context, w Want, mirror *mirror, dir string, hold *os.File) (*Item, error) {
	src, err := ParseSource(w.URL)
	if err != nil {
		return nil, err
	}
	if err := CheckRef(w.Ref); err != nil {
		return nil, about(src, err)
	}
	if b, ok := s.superseding(src); ok {
		return &Item{Want: w, Fetched: Fetched{Source: src, Ref: w.Ref}, Kind: Plugin, Superseded: b.ID}, nil
	}
	allows := s.allows(w)
	if err := allows(src); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	o := s.o.Fetch
	o.Dir, o.Allows, o.Hold = dir, allows, hold
	f := NewFetcher(o)
	r := Resolved{Ref: w.Ref, Commit: w.Commit}
	if fullSHA().MatchString(w.Ref) && w.Commit == "" {
		r.Commit = w.Ref
	}
	inMirror, tree := false, ""
	if mirror != nil {
		r, tree, inMirror = mirror.find(src, r)
	}
	if r.Commit == "" {
		if r, err = s.resolve(ctx, f, src, w.Ref); err != nil {
			return nil, about(src, err)
		}
		defer r.ahead.close()
	}
	if i, err := s.cached(ctx, w, src, r); i != nil || err != nil {
		return i, err
	}
	dst := filepath.Join(dir, "files")
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return nil, err
	}
	var got Fetched
	if inMirror {
		got, err = mirror.fetch(ctx, f, src, r, tree, dst)
	} else {
		got, err = f.Fetch(ctx, src, r, dst)
	}
	if err != nil {
		return nil, err
	}
	return s.keep(ctx, w, got)
}

// resolve asks what a ref means. Of a source that nothing is here of, what it most likely means is fetched meanwhile.
func (s *Store) resolve(ctx context.Context, f *Fetcher, src Source, ref string) (Resolved, error) {
	var first *ahead
	if !s.knows(src) {
		var err error
		if first, err = f.fetchAhead(ctx, src, ref); err != nil {
			return Resolved{}, err
		}
	}
	r, err := f.Resolve(ctx, src, ref)
	if err != nil {
		first.close()
		return r, err
	}
	r.ahead = first
	return r, nil
}

// keep puts fetched files into the store.
func (s *Store) keep(ctx context.Context, w Want, got Fetched) (*Item, error) {
	if w.Tree != "" && got.Tree != w.Tree {
		return nil, fmt.Errorf("%s: commit %s has other files (%.12s…) than the lock says (%.12s…); nothing was changed", got.Source, got.Commit, got.Tree, w.Tree)
	}
	i := &Item{Want: w, Fetched: got, Warnings: got.Warnings}
	if err := s.read(i, got.Dir); err != nil { // before anything is kept
		return nil, err
	}
	if err := s.Check(ctx, got.Tree); errors.Is(err, ErrModified) {
		if err := s.trees.Remove(got.Tree); err != nil {
			return nil, fmt.Errorf("%s: its files here were changed, and can't be replaced now: %w", got.Source, err)
		}
	}
	held, err := s.trees.Get(ctx, got.Tree, func(_ context.Context, dir string) error { return moveAll(got.Dir, dir) })
	if err != nil {
		return nil, about(got.Source, err)
	}
	i.held, i.Fetched.Dir = held, held.Path()
	if err := s.note(got.Source, got.Commit, known{got.Tree, got.By}); err != nil {
		return nil, errors.Join(err, held.Release())
	}
	return i, nil
}

// moveAll moves what is in one folder into another one.
func moveAll(from, to string) error {
	es, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range es {
		if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// cached answers a commit whose files are here, unchanged; nil when they aren't.
func (s *Store) cached(ctx context.Context, w Want, src Source, r Resolved) (*Item, error) {
	k, ok := s.knownTree(src, r.Commit)
	if !ok || w.Tree != "" && w.Tree != k.Tree {
		if w.Tree == "" {
			return nil, nil
		}
		k = known{w.Tree, ByGit}
	}
	held, err := s.Tree(ctx, k.Tree)
	if errors.Is(err, ErrMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files, err := walk(ctx, os.DirFS(held.Path()))
	if err != nil || treeSum(files) != k.Tree {
		return nil, held.Release() // fetched again
	}
	i := &Item{
		Want: w, Cached: true, held: held,
		Fetched: Fetched{Source: src, Ref: r.Ref, Commit: r.Commit, Tree: k.Tree, By: k.Fetch, Dir: held.Path(), Files: len(files)},
	}
	for _, e := range files {
		i.Fetched.Bytes += e.size
	}
	if err := s.read(i, held.Path()); err != nil {
		return nil, errors.Join(err, held.Release())
	}
	return i, nil
}

// read reads what fetched files are.
func (s *Store) read(i *Item, dir string) error {
	fsys := os.DirFS(dir)
	kind, file, err := Detect(fsys)
	if err != nil {
		return about(i.Fetched.Source, err)
	}
	i.Kind, i.File = kind, file
	member := i.Want.Parent != (Source{})
	if kind == Bundle {
		if member {
			return fmt.Errorf("%s is a bundle, and a bundle may not name bundles", i.Fetched.Source)
		}
		return nil
	}
	m, l := ReadManifest(fsys)
	for n := range l {
		l[n].Pos.File = i.Fetched.Source.Name() + "/" + l[n].Pos.File
	}
	if m == nil {
		return about(i.Fetched.Source, fmt.Errorf("its manifest can't be used:\n%w", l.Err()))
	}
	for _, p := range l.Of(diag.Warning) {
		i.Warnings = append(i.Warnings, p.String())
	}
	if s.builtin(m.ID) {
		return fmt.Errorf("%s: the id %s is a plugin's that comes with agent-env", i.Fetched.Source, m.ID)
	}
	if m.Builtin {
		i.Warnings = append(i.Warnings, "it says that it comes with agent-env, which it doesn't: builtin doesn't count")
		m.Builtin = false
	}
	if d := i.Want.Declared; d != "" && d != m.ID {
		return fmt.Errorf("%s: the bundle calls it %s, and its manifest %s", i.Fetched.Source, diag.Repr(d), diag.Repr(m.ID))
	}
	i.Manifest = m
	if why := s.TooNew(m); why != "" {
		i.Warnings = append(i.Warnings, why)
	}
	return nil
}

// TooNew says why a plugin needs a newer program than this one; "" when it doesn't.
func (s *Store) TooNew(m *Manifest) string {
	have, name := s.o.Version, "agent-env"
	if m.Peer {
		have, name = s.o.Peer, "protoAgent"
	}
	if m.MinVersion == "" || have == "" {
		return ""
	}
	want, err := requirement.ParseVersion(m.MinVersion)
	if err != nil {
		return "" // loads, as there
	}
	is, err := requirement.ParseVersion(have)
	if err != nil || is.Compare(want) >= 0 {
		return ""
	}
	return fmt.Sprintf("it needs %s %s, and this one counts as %s: it can't be enabled", name, m.MinVersion, have)
}

// Outcome is what becomes of an item.
type Outcome string

// Outcomes.
const (
	Added      Outcome = "installed"
	Updated    Outcome = "updated"
	Unchanged  Outcome = "up_to_date"
	Superseded Outcome = "superseded"
)

// Planned is an item with what Apply does to the lock.
type Planned struct {
	*Item
	Outcome Outcome
	Before  *Row // the row that is replaced; nil for none
}

// Plan is what an install would do. Nothing was changed yet.
type Plan struct {
	Items []Planned
	Force bool
}

// Plan compares fetched plugins with the lock. It refuses, all at once, what Apply would refuse: an id of another origin without force, one id
// twice, a bundle.
func (s *Store) Plan(ctx context.Context, items Items, force bool) (*Plan, error) {
	l, err := s.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return plan(l, items, force)
}

// Conflict is the error of an id that something from elsewhere has. An install that is forced takes its place.
type Conflict struct {
	Source   Source // what was to be installed
	What, ID string // what: plugin or plugin bundle
	From     string // where the one that is installed came from
}

func (c *Conflict) Error() string { return c.Text() + "; replace it with --force" }

// Text is the error without what to do.
func (c *Conflict) Text() string {
	return fmt.Sprintf("%s: a %s %s is installed already, from %s", c.Source, c.What, c.ID, c.From)
}

func plan(l *Lock, items Items, force bool) (*Plan, error) {
	p := &Plan{Force: force}
	var errs []error
	by := map[string]*Item{}
	for _, i := range items {
		if i.Superseded != "" {
			p.Items = append(p.Items, Planned{i, Superseded, nil})
			continue
		}
		if i.Kind != Plugin {
			errs = append(errs, fmt.Errorf("%s is a plugin bundle and no plugin", i.Fetched.Source))
			continue
		}
		id := i.ID()
		if other, twice := by[id]; twice {
			errs = append(errs, fmt.Errorf("the id %s is claimed twice: by %s and by %s", id, other.Fetched.Source, i.Fetched.Source))
			continue
		}
		by[id] = i
		out := Planned{i, Added, nil}
		if have := l.Plugin(id); have != nil {
			old := *have
			out.Outcome, out.Before = Updated, &old
			was, err := ParseSource(old.SourceURL)
			origin := err == nil && was.Same(i.Fetched.Source)
			switch {
			case !origin && !force:
				from := "an unknown place"
				if err == nil {
					from = was.String()
				}
				errs = append(errs, &Conflict{i.Fetched.Source, "plugin", id, from})
				continue
			case origin && !force && old.ResolvedSHA == i.Fetched.Commit && (old.TreeSHA256 == "" || old.TreeSHA256 == i.Fetched.Tree):
				out.Outcome = Unchanged
			}
		}
		p.Items = append(p.Items, out)
	}
	return p, errors.Join(errs...)
}

// Disclosure is what consent to one plugin covers.
type Disclosure struct {
	ID       string   `json:"id"`
	Source   string   `json:"source"`
	Ref      string   `json:"ref"`
	Commit   string   `json:"commit"`
	Tree     string   `json:"tree_sha256"`
	Command  []string `json:"command"`
	Env      []string `json:"env"`
	Packages []string `json:"packages"`
	Config   []string `json:"config"`
	Secrets  []string `json:"secrets"`
	Paths    []string `json:"public_paths"`
	MCP      any      `json:"mcp"`
}

// Disclosures are what consent to the plan covers, by id.
func (p *Plan) Disclosures() []Disclosure {
	out := []Disclosure{}
	for _, i := range p.Items {
		m := i.Manifest
		if m == nil {
			continue
		}
		d := Disclosure{
			ID: m.ID, Source: i.Fetched.Source.String(), Ref: i.Fetched.Ref, Commit: i.Fetched.Commit, Tree: i.Fetched.Tree, Command: list(m.Command),
			Env: list(m.RequiresEnv), Packages: []string{}, Config: []string{}, Secrets: list(m.Secrets), Paths: list(m.PublicPaths), MCP: m.MCP.Any(),
		}
		for _, r := range m.Requires {
			d.Packages = append(d.Packages, r.Spec)
		}
		for name := range m.Config.Members() {
			d.Config = append(d.Config, m.ConfigSection+"."+name)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Disclosure) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func list(s []string) []string { return append([]string{}, s...) }

// Digest is what consent is given to: of any value that encodes as JSON, in hex.
func Digest(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Apply commits a plan: all its rows, and what more writes into the workspace (nil: nothing), by one rename. The lock is read again under its
// own lock: where it has changed meanwhile the plan is made again, and refused as Plan would. It answers what was done.
func (s *Store) Apply(ctx context.Context, p *Plan, more func(*folder.Tx, *Lock) error) (*Plan, error) {
	items := make(Items, 0, len(p.Items))
	for _, i := range p.Items {
		items = append(items, i.Item)
	}
	done := p
	err := s.Change(ctx, func(tx *folder.Tx, l *Lock) error {
		again, err := plan(l, items, p.Force)
		if err != nil {
			return err
		}
		done = again
		now := Stamp(s.o.Now())
		for _, i := range again.Items {
			if i.Outcome == Superseded || i.Outcome == Unchanged && (i.Before.TreeSHA256 != "" || i.Manifest == nil) {
				continue
			}
			l.Put(i.row(now))
		}
		if more == nil {
			return nil
		}
		return more(tx, l)
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// row is an item's in the lock.
func (i Planned) row(now string) Row {
	if i.Outcome == Unchanged { // a row of the first format gets what it lacks
		r := *i.Before
		r.TreeSHA256, r.Fetch = i.Fetched.Tree, i.Fetched.By
		return r
	}
	r := Row{
		ID: i.ID(), SourceURL: i.Fetched.Source.String(), RequestedRef: i.Want.Ref, ResolvedSHA: i.Fetched.Commit, TreeSHA256: i.Fetched.Tree, Fetch: i.Fetched.By,
		InstalledAt: now, By: i.Want.By, DeclaredRef: i.Want.DeclaredRef,
	}
	if i.Before != nil {
		r.Deps = i.Before.Deps
	}
	return r
}

// Writable says why the workspace's lock can't be changed, before anything is fetched.
func (s *Store) Writable(ctx context.Context) error {
	if _, err := s.Lock(ctx); err != nil {
		if errors.Is(err, ErrLock) {
			return s.Change(ctx, func(*folder.Tx, *Lock) error { return nil }) // keeps a copy
		}
		return err
	}
	if err := unix.Access(filepath.Dir(s.o.Folder.Path(folder.Lock)), unix.W_OK); err != nil {
		return fmt.Errorf("the workspace %s can't be changed: %w", s.o.Folder.Root(), err)
	}
	if fi, err := os.Stat(s.o.Folder.Path(folder.Lock)); err == nil && fi.Mode()&0o222 == 0 {
		return fmt.Errorf("%s is read-only; make it writable to change what is installed", s.o.Folder.Path(folder.Lock))
	}
	return nil
}
