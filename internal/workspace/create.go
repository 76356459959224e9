package workspace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Order is a workspace to create.
type Order struct {
	Name string
	Root string // its folder, absolute; it is made unless it is there and has no .agentenv
	From string // the root of another workspace, whose configuration, soul and plugins are taken over; "" for none
	Soul string // the text of SOUL.md; "" takes the bundle's, or the one of every new workspace

	Bundle, Ref string // of a plugin bundle; "" for none
	// RequiresTools are tools that its agent is meant to have, beside those that the bundle names.
	RequiresTools []string
	// Permit is asked when the bundle's own repository is here, and before any member's source is asked for anything; nil permits.
	Permit func(ctx context.Context, bundle *git.Item) error
	// Answer is asked once the bundle is known, with what consent covers: it answers with what people say, or refuses.
	Answer func(ctx context.Context, p *pack.Pack, d pack.Disclosure) (Answers, error)
}

// Maker creates workspaces.
type Maker struct {
	Registry *Registry
	// Store opens the store of git plugins for a workspace's folder, under the policy of whoever creates it.
	Store    func(folder.Folder) *git.Store
	Builtins []string // ids of plugins that come with the program
	// Env are variables of the environment that bundles may read; nil: none.
	Env func(string) (string, bool)
	Now func() time.Time
	// Limit is how long a bundle and its members may take to arrive; 0 is FetchLimit.
	Limit time.Duration
}

// FetchLimit is how long a bundle and its members may take to arrive while a workspace is made.
const FetchLimit = 300 * time.Second

// Created is a workspace that stands.
type Created struct {
	Workspace
	Seeded   *Seeded // of its bundle; nil without one
	Plugins  []string
	Warnings []string
}

// Late is the error of a bundle that took too long.
type Late struct {
	Bundle string
	Limit  time.Duration
}

func (e *Late) Error() string {
	return fmt.Sprintf("%s and its members didn't arrive within %s; no workspace was made", e.Bundle, e.Limit)
}

const stagingPrefix = ".agentenv-creating-"

// Config is the configuration of every new workspace.
const Config = `# Settings of this workspace; agent-env config show tells what counts, and where it comes from.

[stores.secret.config]
# Of mode 0600: keep it out of version control.
file_path = ".agentenv/secrets.toml"
`

// Soul is SOUL.md of every new workspace.
const Soul = `You are a careful assistant. Use your tools to do what you are asked, check what you did, and say plainly what you found and what you could not do.
`

const ignored = "secrets.toml\n.lock\n.journal\n"

// Create makes a workspace: whole, or, when anything fails or ctx ends, not at all. Its folder appears by one rename.
func (m *Maker) Create(ctx context.Context, o Order) (_ *Created, err error) {
	if err := CheckName(o.Name); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(o.Root) {
		return nil, fmt.Errorf("%s is no absolute path", o.Root)
	}
	if err := atomicfile.MkdirAll(m.Registry.dir); err != nil {
		return nil, fmt.Errorf("keep a list of workspaces: %w", err)
	}
	lock, err := hold(ctx, m.Registry.lock(o.Name))
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("the workspace %s is being made or removed by another command", o.Name)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	e, err := m.reserve(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Registry.undo(o.Name, e))
		}
	}()
	out, hold, err := m.fill(ctx, o, folder.At(e.Staging))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hold()) }()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	back, err := place(e.Staging, o.Root)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, back())
		}
	}()
	out.Root = o.Root
	// From here on it stands: what is left is bookkeeping, which the next command does where this one is killed.
	if err := m.Registry.finish(o.Name, e); err != nil {
		return nil, err
	}
	if o.Bundle != "" || o.From != "" { // its lock names trees, which are kept from now on
		if err := m.Store(folder.At(o.Root)).Change(context.WithoutCancel(ctx), func(*folder.Tx, *git.Lock) error { return nil }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reserve takes the name and makes the folder that the workspace is made in, beside its place.
func (m *Maker) reserve(o Order) (entry, error) {
	have, err := m.Registry.read(m.Registry.file(o.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return entry{}, err
	case have.Staging != "": // of a dead process: the lock is ours
		if have.placed() {
			return entry{}, errors.Join(taken(o.Name, have.Root), m.Registry.finish(o.Name, have))
		}
		if err := m.Registry.undo(o.Name, have); err != nil {
			return entry{}, err
		}
	default:
		return entry{}, taken(o.Name, have.Root)
	}
	fi, err := os.Stat(o.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return entry{}, err
	case !fi.IsDir():
		return entry{}, fmt.Errorf("%s is there already and is no folder", o.Root)
	}
	if _, err := os.Lstat(filepath.Join(o.Root, folder.Dir)); err == nil {
		return entry{}, fmt.Errorf("%s has a folder %s already: it is a workspace", o.Root, folder.Dir)
	}
	parent := filepath.Dir(o.Root)
	if fi, err := os.Stat(parent); err != nil || !fi.IsDir() {
		return entry{}, fmt.Errorf("%s is no folder, so that no workspace can be made in it", parent)
	}
	e := entry{Root: o.Root, Staging: filepath.Join(parent, stagingPrefix+o.Name+"-"+strings.ToLower(rand.Text()[:8]))}
	if err := m.Registry.write(o.Name, e); err != nil {
		return entry{}, err
	}
	if err := os.MkdirAll(filepath.Join(e.Staging, folder.Dir), 0o755); err != nil {
		return entry{}, errors.Join(err, m.Registry.undo(o.Name, e))
	}
	return e, nil
}

// stands tells whether a folder holds a workspace that was created.
func stands(root string) bool {
	w, err := At(root)
	return err == nil && !w.Created.IsZero()
}

func taken(name, root string) error {
	return fmt.Errorf("there is a workspace %s already, in %s; choose another name, or remove it with agent-env workspace remove %s", name, root, name)
}

// place puts a finished workspace where it belongs, by one rename: of its whole folder, or of .agentenv into one that is there. back takes it
// away again.
func place(staging, root string) (back func() error, err error) {
	from, to, remove := staging, root, os.Remove
	if _, err := os.Lstat(root); err == nil {
		from, to = filepath.Join(staging, folder.Dir), filepath.Join(root, folder.Dir)
		remove = func(string) error { return nil }
	}
	if err := os.Rename(from, to); err != nil {
		return nil, fmt.Errorf("put the workspace in place: %w", err)
	}
	back = func() error { return errors.Join(os.RemoveAll(filepath.Join(root, folder.Dir)), remove(root)) }
	if err := errors.Join(atomicfile.SyncDir(root), atomicfile.SyncDir(filepath.Dir(root))); err != nil {
		return nil, errors.Join(err, back())
	}
	return back, nil
}

// fill writes everything into the folder in which the workspace is made. hold lets go of what has to stay until it is in place.
func (m *Maker) fill(ctx context.Context, o Order, f folder.Folder) (_ *Created, hold func() error, err error) {
	id := make([]byte, 2)
	_, _ = rand.Read(id) // never fails
	out := &Created{Workspace: Workspace{Name: o.Name, ID: o.Name + "-" + hex.EncodeToString(id), Created: m.Now().UTC().Truncate(time.Second), RequiresTools: union(nil, o.RequiresTools)}}
	files := map[string][]byte{folder.Config: []byte(Config), folder.Soul: []byte(Soul), ".gitignore": []byte(ignored)}
	if o.From != "" {
		if err := m.from(ctx, o.From, files, out); err != nil {
			return nil, nil, err
		}
	}
	if o.Soul != "" {
		files[folder.Soul] = []byte(o.Soul)
	}
	if files[About], err = out.Workspace.bytes(); err != nil {
		return nil, nil, err
	}
	for _, name := range sorted(files) {
		if err := atomicfile.CreateBytes(f.Path(name), 0o644, files[name]); err != nil {
			return nil, nil, err
		}
	}
	if o.Bundle == "" {
		return out, func() error { return nil }, nil
	}
	hold, err = m.bundle(ctx, o, f, out)
	return out, hold, err
}

// from takes over another workspace's configuration, soul and lock. Its secrets are its own.
func (m *Maker) from(ctx context.Context, root string, files map[string][]byte, out *Created) error {
	f, err := folder.Find(root)
	if err != nil || f.Root() != filepath.Clean(root) {
		return fmt.Errorf("%s is no workspace", root)
	}
	if err := f.Settle(ctx); err != nil {
		return err
	}
	for _, name := range []string{folder.Config, folder.Soul, folder.Lock} {
		b, err := f.Read(name)
		if err != nil {
			return err
		}
		if b != nil {
			files[name] = b
		}
	}
	if _, err := git.ReadLock(f.Path(folder.Lock), files[folder.Lock]); err != nil {
		return err
	}
	if b, err := f.Read(folder.Secrets); err == nil && len(b) > 0 {
		out.Warnings = append(out.Warnings, "the secrets of "+root+" were not taken over: write what is needed to .agentenv/secrets.toml")
	}
	return nil
}

// bundle installs a plugin bundle into the folder and seeds what it says, in one change of the folder.
func (m *Maker) bundle(ctx context.Context, o Order, f folder.Folder, out *Created) (_ func() error, err error) {
	s := m.Store(f)
	p, hold, err := m.bring(ctx, s, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, hold())
		}
	}()
	plan, err := s.Plan(ctx, p.Members, false)
	if err != nil {
		return nil, err
	}
	a, err := o.Answer(ctx, p, p.Disclose(plan))
	if err != nil {
		return nil, err
	}
	_, err = s.Apply(ctx, plan, func(tx *folder.Tx, l *git.Lock) error {
		out.Seeded, err = Install(tx, l, Seeding{Pack: p.Manifest, Sections: Sections(p), Known: p.Known(m.Builtins), Answers: a, Env: m.Env})
		if err != nil {
			return err
		}
		l.PutBundle(p.Row("workspace", git.Stamp(m.Now()), out.Seeded.Rows))
		return m.tell(tx, o, p, out)
	})
	if err != nil {
		return nil, err
	}
	for _, i := range p.Members {
		if i.Superseded == "" {
			out.Plugins = append(out.Plugins, i.ID())
		}
	}
	out.Warnings = append(out.Warnings, p.Warnings...)
	for _, w := range out.Seeded.Warnings.Of(diag.Warning) {
		out.Warnings = append(out.Warnings, w.String())
	}
	return hold, nil
}

// bring fetches a bundle and its members, within the limit. hold lets go of them.
func (m *Maker) bring(ctx context.Context, s *git.Store, o Order) (_ *pack.Pack, hold func() error, err error) {
	limit := m.Limit
	if limit == 0 {
		limit = FetchLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &Late{o.Bundle, limit})
	defer cancel()
	found, err := s.Fetch(ctx, []git.Want{{URL: o.Bundle, Ref: o.Ref, By: "workspace"}})
	if err != nil {
		return nil, nil, err
	}
	if found[0].Kind == git.Bundle && o.Permit != nil {
		if err := o.Permit(ctx, found[0]); err != nil {
			return nil, nil, errors.Join(err, found.Close())
		}
	}
	p, err := pack.Fetch(ctx, s, found[0], m.Builtins)
	if err != nil {
		return nil, nil, errors.Join(err, found.Close())
	}
	return p, func() error { return errors.Join(p.Close(), found.Close()) }, nil
}

// Install seeds inside of a change of a workspace: what is seeded, what is turned on and the lock are committed together or not at all.
func Install(tx *folder.Tx, l *git.Lock, s Seeding) (*Seeded, error) {
	var files Files
	var err error
	if files.Config, err = tx.Read(folder.Config); err != nil {
		return nil, err
	}
	if files.Secrets, err = tx.Read(folder.Secrets); err != nil {
		return nil, err
	}
	if b := l.Bundle(s.Pack.ID); b != nil {
		s.Earlier = b.Seeded
	}
	out, err := s.Apply(files)
	if err != nil {
		return nil, err
	}
	if s.Check != nil {
		if err := s.Check(out.Files); err != nil {
			return nil, err
		}
	}
	if err := tx.Write(folder.Config, 0o644, out.Config); err != nil {
		return nil, err
	}
	if len(out.Secrets) == 0 {
		return out, nil
	}
	return out, tx.Write(folder.Secrets, 0o600, out.Secrets)
}

// tell writes what the workspace says of itself, and its soul.
func (m *Maker) tell(tx *folder.Tx, o Order, p *pack.Pack, out *Created) error {
	out.Bundle, out.RequiresTools = p.Manifest.ID, union(p.Manifest.Archetype.RequiresTools, o.RequiresTools)
	b, err := out.Workspace.bytes()
	if err != nil {
		return err
	}
	if err := tx.Write(About, 0o644, b); err != nil {
		return err
	}
	a := p.Manifest.Archetype
	switch {
	case o.Soul != "":
	case a.Soul != "":
		return tx.Write(folder.Soul, 0o644, []byte(a.Soul))
	case a.SoulPreset != "":
		out.Warnings = append(out.Warnings, fmt.Sprintf("the soul %s doesn't come with this program; the workspace has the usual one: edit %s/%s", diag.Repr(a.SoulPreset), folder.Dir, folder.Soul))
	}
	return nil
}

// Sections are the sections of a pack's installed members, by id and by the name that each has chosen for its own.
func Sections(p *pack.Pack) map[string]Section {
	out := map[string]Section{}
	for _, i := range p.Members {
		if i.Manifest == nil {
			out[i.Superseded] = Section{ID: i.Superseded}
			continue
		}
		out[i.ID()] = Section{ID: i.ID(), Secrets: i.Manifest.Secrets}
	}
	for _, i := range p.Members {
		if i.Manifest == nil {
			continue
		}
		if _, taken := out[i.Manifest.ConfigSection]; !taken {
			out[i.Manifest.ConfigSection] = Section{ID: i.ID(), Secrets: i.Manifest.Secrets}
		}
	}
	return out
}

// union is a and what b adds to it, in their order, each once.
func union(a, b []string) []string {
	var out []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// whileLooked is longer than a list of workspaces holds a lock to see whose it is.
const whileLooked = 2 * time.Second

// hold takes a workspace's lock; atomicfile.ErrLocked where another command works on it, and not only looks.
func hold(ctx context.Context, path string) (*atomicfile.Lock, error) {
	end := time.Now().Add(whileLooked)
	lock, err := atomicfile.NewLockUnless(ctx, path, func() bool { return time.Now().After(end) })
	if lock == nil && err == nil {
		return nil, atomicfile.ErrLocked
	}
	return lock, err
}
