package workspace

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
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// About is what a workspace says of itself, in .agentenv/workspace.json.
const About = "workspace.json"

// Workspace is a workspace that was created.
type Workspace struct {
	ID            string    `json:"id"` // NAME-4 hex digits
	Name          string    `json:"name"`
	Created       time.Time `json:"created_at"`
	Bundle        string    `json:"bundle,omitempty"`         // the id of the plugin bundle that it was made from
	RequiresTools []string  `json:"requires_tools,omitempty"` // tools that its agent is meant to have
	Root          string    `json:"-"`                        // the folder that holds .agentenv
	Problem       string    `json:"-"`                        // why it can't be used; its folder may be gone
}

// about is the file About.
type about struct {
	FormatVersion int `json:"format_version"`
	Workspace
}

func (w Workspace) bytes() ([]byte, error) {
	b, err := json.MarshalIndent(about{1, w}, "", "  ")
	return append(b, '\n'), err
}

// Folder is its folder.
func (w Workspace) Folder() folder.Folder { return folder.At(w.Root) }

// Registry knows where workspaces are, by name, in a folder of the state root.
type Registry struct{ dir string }

// NewRegistry answers the registry in dir, which the first workspace makes.
func NewRegistry(dir string) *Registry { return &Registry{dir} }

// entry is a file of the registry. While a workspace is being made, Staging is where.
type entry struct {
	FormatVersion int    `json:"format_version"`
	Root          string `json:"root"`
	Staging       string `json:"staging,omitempty"`
}

var nameForm = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName says what is wrong with the name of a workspace.
func CheckName(name string) error {
	switch {
	case !nameForm().MatchString(name):
		return fmt.Errorf("%s is no name of a workspace: it has letters, digits, dashes and underscores, 64 at most", diag.Repr(name))
	case strings.HasPrefix(name, "-"):
		return fmt.Errorf("%s is no name of a workspace: it begins with a dash, as options do", diag.Repr(name))
	case strings.EqualFold(name, "host"):
		return fmt.Errorf("the name %s is reserved", name)
	default:
		return nil
	}
}

// Names differ by more than case: the registry's files are named by them.
func (r *Registry) file(name string) string {
	return filepath.Join(r.dir, strings.ToLower(name)+".json")
}

func (r *Registry) lock(name string) string {
	return filepath.Join(r.dir, strings.ToLower(name)+".lock")
}

// serving is the lock that all who serve a workspace's agent share. Its id tells it from one that had its name before.
func (r *Registry) serving(w Workspace) string {
	return filepath.Join(r.dir, strings.ToLower(filepath.Base(w.ID))+".serving")
}

// Serve keeps a workspace from being removed until its agent isn't served any more, and answers what the caller unlocks then.
func (r *Registry) Serve(w Workspace) (*atomicfile.Lock, error) {
	if err := atomicfile.MkdirAll(r.dir); err != nil {
		return nil, fmt.Errorf("note that the workspace is served: %w", err)
	}
	lock, err := atomicfile.TrySharedLock(r.serving(w))
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("the workspace %s is being removed", w.Name)
	}
	if err != nil {
		return nil, err
	}
	if now, err := At(w.Root); err != nil || now.ID != w.ID { // since the caller had it
		return nil, errors.Join(fmt.Errorf("the workspace %s is there no more", w.Name), lock.Unlock())
	}
	return lock, nil
}

func (r *Registry) read(file string) (entry, error) {
	var e entry
	b, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(b, &e); err != nil || e.Root == "" {
		return e, fmt.Errorf("%s can't be read; remove it, and the workspace's folder if you don't want it", file)
	}
	return e, nil
}

func (r *Registry) write(name string, e entry) error {
	e.FormatVersion = 1
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(r.file(name), 0o600, append(b, '\n'))
}

// List are all workspaces, newest first. What a creation that was killed left is removed.
func (r *Registry) List(ctx context.Context) ([]Workspace, error) {
	files, err := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []Workspace
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		e, err := r.read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if e.Staging != "" {
			if gone, err := r.settle(name); err != nil || gone {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		w, err := At(e.Root)
		if err != nil {
			w = Workspace{Name: name, Root: e.Root, Problem: err.Error()}
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Workspace) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

// Get is a workspace by its name.
func (r *Registry) Get(ctx context.Context, name string) (Workspace, error) {
	if err := CheckName(name); err != nil {
		return Workspace{}, err
	}
	all, err := r.List(ctx)
	if err != nil {
		return Workspace{}, err
	}
	var names []string
	for _, w := range all {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	fix := "agent-env workspace list shows those that there are"
	if near := diag.Nearest(name, names); near != "" {
		fix = "did you mean " + near + "?"
	}
	return Workspace{}, fmt.Errorf("there is no workspace %s; %s", diag.Repr(name), fix)
}

// At reads the workspace in a folder.
func At(root string) (Workspace, error) {
	f := folder.At(root)
	b, err := f.Read(About)
	switch {
	case err != nil:
		return Workspace{}, err
	case b == nil:
		if fi, err := os.Stat(f.Path("")); err != nil || !fi.IsDir() {
			return Workspace{}, fmt.Errorf("its folder %s is gone", root)
		}
		return Workspace{Name: filepath.Base(root), ID: filepath.Base(root), Root: root}, nil // a folder somebody made by hand
	}
	var w Workspace
	if err := json.Unmarshal(b, &w); err != nil || w.Name == "" {
		return Workspace{}, fmt.Errorf("%s can't be read", f.Path(About))
	}
	w.Root = root
	return w, nil
}

// settle ends a creation whose process is dead: what it had put in place is a workspace, anything else is removed. gone tells the latter, and
// also a creation that is under way.
func (r *Registry) settle(name string) (gone bool, err error) {
	lock, err := atomicfile.TryLock(r.lock(name))
	if errors.Is(err, atomicfile.ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	e, err := r.read(r.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil || e.Staging == "" {
		return false, err
	}
	if !e.placed() {
		return true, r.undo(name, e)
	}
	return false, r.finish(name, e)
}

// placed tells a creation that came as far as its one rename.
func (e entry) placed() bool {
	_, err := os.Lstat(filepath.Join(e.Staging, folder.Dir))
	return errors.Is(err, fs.ErrNotExist) && stands(e.Root)
}

// finish does what a creation does behind its rename.
func (r *Registry) finish(name string, e entry) error {
	if err := r.write(name, entry{Root: e.Root}); err != nil {
		return err
	}
	return e.clear()
}

// clear removes the folder that a workspace was made in.
func (e entry) clear() error {
	if filepath.Dir(e.Staging) != filepath.Dir(e.Root) || !strings.HasPrefix(filepath.Base(e.Staging), stagingPrefix) {
		return nil
	}
	return os.RemoveAll(e.Staging)
}

// undo removes what a creation made, but for the lock.
func (r *Registry) undo(name string, e entry) error {
	errs := []error{e.clear()}
	if err := os.Remove(r.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Remove takes a workspace away: its .agentenv and its entry, and with all its whole folder. Files of other people's making stay without all;
// the folder goes where nothing is left in it.
func (r *Registry) Remove(ctx context.Context, name string, all bool) (err error) {
	w, err := r.Get(ctx, name)
	if err != nil {
		return err
	}
	if all {
		if err := r.alone(ctx, w); err != nil {
			return err
		}
	}
	lock, err := atomicfile.NewLock(ctx, r.lock(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	served, err := atomicfile.TryLock(r.serving(w))
	if errors.Is(err, atomicfile.ErrLocked) {
		return fmt.Errorf("the agent of %s is served by another process; stop that first (agent-env workspace run, or the console of agent-env up)", name)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.Remove()) }()
	if w.Problem == "" {
		if now, err := At(w.Root); err != nil || now.ID != w.ID {
			return fmt.Errorf("%s is another workspace than %s by now; nothing was removed", w.Root, name)
		}
		dir := filepath.Join(w.Root, folder.Dir)
		if fi, err := os.Lstat(dir); err == nil && !fi.IsDir() {
			return fmt.Errorf("%s is no folder; nothing was removed", dir)
		}
		// Renamed first, so that no half of a workspace is ever found by its name.
		gone := filepath.Join(w.Root, fmt.Sprintf("%s-removed-%d", folder.Dir, os.Getpid()))
		if err := os.Rename(dir, gone); err != nil {
			return err
		}
		if err := os.RemoveAll(gone); err != nil {
			return err
		}
		if all {
			err = os.RemoveAll(w.Root)
		} else if err = os.Remove(w.Root); !empty(w.Root) {
			err = nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(r.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// alone tells of the workspaces in the folder of another, which would go with all that is in it.
func (r *Registry) alone(ctx context.Context, w Workspace) error {
	all, err := r.List(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, o := range all {
		if o.Problem == "" && o.Root != w.Root && Below(o.Root, w.Root) {
			names = append(names, o.Name)
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("the folder of %s holds other workspaces, remove those first: %s", w.Name, strings.Join(names, ", "))
}

// Below tells whether a folder is another one or lies in it, by whatever links they are named.
func Below(dir, above string) bool {
	for _, p := range []*string{&dir, &above} {
		if to, err := filepath.EvalSymlinks(*p); err == nil {
			*p = to
		}
	}
	rel, err := filepath.Rel(above, dir)
	return err == nil && filepath.IsLocal(rel)
}

func empty(dir string) bool {
	es, err := os.ReadDir(dir)
	return err == nil && len(es) == 0
}
