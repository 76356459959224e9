// Package folder knows the folder of a workspace: where it is, which files it has, and how several of them change at once.
//
// A workspace is a folder with .agentenv/ in it. Its files are config.toml, plugins.lock, SOUL.md and secrets.toml (0600). Change holds the
// folder's lock and commits all files that it wrote or none: one file by one rename, several through a journal that the next Settle or Change
// finishes. The package knows nothing of what is in the files.
package folder

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// Names in .agentenv.
const (
	Dir     = ".agentenv"
	Config  = "config.toml"
	Lock    = "plugins.lock"
	Soul    = "SOUL.md"
	Secrets = "secrets.toml"

	lockFile    = ".lock"
	journalFile = ".journal"
)

// ErrNone: there is no workspace here.
var ErrNone = errors.New("there is no workspace here or in a folder above (no .agentenv); make one with agent-env workspace create NAME, or go into one")

// Folder is a workspace's folder.
type Folder struct {
	root string
}

// At is the workspace in root, which need not exist yet.
func At(root string) Folder { return Folder{root} }

// Find is the nearest workspace from dir upward. A folder in which .agentenv is no folder is none. The state of the program below the home
// folder is no workspace.
func Find(dir string) (Folder, error) {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if fi, err := os.Stat(filepath.Join(d, Dir)); err == nil && fi.IsDir() {
			return Folder{d}, nil
		}
		if d == filepath.Dir(d) {
			return Folder{}, ErrNone
		}
	}
}

// Root is the folder that holds .agentenv.
func (f Folder) Root() string { return f.root }

// Path is the place of a file of the workspace, by its name in .agentenv.
func (f Folder) Path(name string) string { return filepath.Join(f.root, Dir, name) }

// Read is a file of the workspace as it is now; nil when there is none.
func (f Folder) Read(name string) ([]byte, error) {
	b, err := os.ReadFile(f.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if b == nil && err == nil {
		b = []byte{}
	}
	return b, err
}

// Tx is a change under way. Files are named by their names in .agentenv; what was written is seen by Read and by nobody else.
type Tx struct {
	f      Folder
	writes []write
}

type write struct {
	Name   string      `json:"name"`
	Mode   fs.FileMode `json:"mode"`
	Data   string      `json:"data"`             // base64
	Before string      `json:"before,omitempty"` // of the file that is replaced; "" for none
	Gone   bool        `json:"gone,omitempty"`   // the file is removed

	data, old []byte
}

// Read is a file as this change leaves it; nil when there is none.
func (t *Tx) Read(name string) ([]byte, error) {
	for _, w := range t.writes {
		if w.Name == name {
			if w.Gone {
				return nil, nil
			}
			return w.data, nil
		}
	}
	return t.f.Read(name)
}

// Write makes data the content of a file when the change commits. Mode is that of a file that doesn't exist yet, and one that is the owner's alone that of any:
// what is written may be secret. A symbolic link is refused.
func (t *Tx) Write(name string, mode fs.FileMode, data []byte) error {
	return t.put(write{Name: name, Mode: mode, data: append([]byte{}, data...)})
}

// Remove removes a file when the change commits; none is no fault.
func (t *Tx) Remove(name string) error { return t.put(write{Name: name, Gone: true}) }

func (t *Tx) put(w write) error {
	if w.Name != filepath.Base(w.Name) || w.Name == "." || w.Name == ".." || w.Name == lockFile || w.Name == journalFile {
		return fmt.Errorf("%q is no file of a workspace", w.Name)
	}
	for i, have := range t.writes {
		if have.Name == w.Name {
			w.old, w.Before = have.old, have.Before
			t.writes[i] = w
			return nil
		}
	}
	if fi, err := os.Lstat(t.f.Path(w.Name)); err == nil && fi.Mode().Type() == fs.ModeSymlink {
		return fmt.Errorf("%s is a symbolic link, and a change would put a file in its place: change what it leads to by hand, or put that file here", t.f.Path(w.Name))
	}
	old, err := t.f.Read(w.Name)
	if err != nil {
		return err
	}
	w.old = old
	if old != nil {
		w.Before = digest(old)
		if fi, err := os.Stat(t.f.Path(w.Name)); err == nil && (w.Mode&0o077 != 0 || w.Gone) {
			w.Mode = fi.Mode().Perm()
		}
	}
	t.writes = append(t.writes, w)
	return nil
}

// Change runs change under the folder's lock, waiting for others until ctx ends, and commits what it wrote: all of it, or, when change or the
// commit fails, nothing. What an earlier change that was killed had committed is finished first. Nothing is written for bytes that stay equal.
func (f Folder) Change(ctx context.Context, change func(*Tx) error) (err error) {
	lock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := f.replay(); err != nil {
		return err
	}
	t := &Tx{f: f}
	if err := change(t); err != nil {
		return err
	}
	return t.commit()
}

// Settle finishes what a change that was killed had committed. Without one it is a look at one name. Readers call it first.
func (f Folder) Settle(ctx context.Context) (err error) {
	if _, err := os.Lstat(f.Path(journalFile)); err != nil {
		return nil //nolint:nilerr // no journal, or a folder that nobody can read: there is nothing to finish
	}
	lock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	return f.replay()
}

func (f Folder) lock(ctx context.Context) (*atomicfile.Lock, error) {
	lock, err := atomicfile.NewLock(ctx, f.Path(lockFile))
	if err != nil {
		return nil, fmt.Errorf("lock the workspace %s: %w", f.root, err)
	}
	return lock, nil
}

// commit writes what the change wrote.
func (t *Tx) commit() error {
	var ws []write
	for _, w := range t.writes {
		if w.Gone && w.old == nil || !w.Gone && w.old != nil && string(w.old) == string(w.data) {
			continue
		}
		w.Data = base64.StdEncoding.EncodeToString(w.data)
		ws = append(ws, w)
	}
	if len(ws) == 0 {
		return nil
	}
	if len(ws) == 1 {
		return t.f.put(ws[0])
	}
	journal, err := json.Marshal(ws)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(t.f.Path(journalFile), 0o600, journal); err != nil {
		return err
	}
	for i, w := range ws {
		if err := t.f.put(w); err != nil {
			return errors.Join(err, t.f.undo(ws[:i+1]))
		}
	}
	return t.f.forget()
}

// undo puts back what was there. When that fails too, the journal stays, and the change is finished later.
func (f Folder) undo(ws []write) error {
	for _, w := range ws {
		back := w
		back.data, back.Gone = w.old, w.old == nil
		if err := f.put(back); err != nil {
			return err
		}
	}
	return f.forget()
}

func (f Folder) put(w write) error {
	if w.Gone {
		if err := os.Remove(f.Path(w.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return atomicfile.SyncDir(filepath.Join(f.root, Dir))
	}
	return atomicfile.WriteBytes(f.Path(w.Name), w.Mode, w.data)
}

func (f Folder) forget() error {
	if err := os.Remove(f.Path(journalFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.SyncDir(filepath.Join(f.root, Dir))
}

// replay finishes a change that is in the journal. A file that somebody edited since is kept beside.
func (f Folder) replay() error {
	src, err := f.Read(journalFile)
	if src == nil || err != nil {
		return err
	}
	var ws []write
	if err := json.Unmarshal(src, &ws); err != nil {
		return fmt.Errorf("%s can't be read: remove it if you don't know what it is", f.Path(journalFile))
	}
	for _, w := range ws {
		if w.Name != filepath.Base(w.Name) || strings.HasPrefix(w.Name, ".") {
			return fmt.Errorf("%s names %q, which is no file of a workspace; remove it", f.Path(journalFile), w.Name)
		}
		if w.data, err = base64.StdEncoding.DecodeString(w.Data); err != nil {
			return fmt.Errorf("%s can't be read: remove it if you don't know what it is", f.Path(journalFile))
		}
		now, err := f.Read(w.Name)
		if err != nil {
			return err
		}
		if now != nil && digest(now) != w.Before && string(now) != string(w.data) {
			kept := w.Name + ".edited-" + time.Now().UTC().Format("20060102T150405.000000")
			if err := atomicfile.WriteBytes(f.Path(kept), 0o600, now); err != nil {
				return err
			}
		}
		if err := f.put(w); err != nil {
			return err
		}
	}
	return f.forget()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
