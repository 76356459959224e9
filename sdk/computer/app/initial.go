package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"syscall"

	"agentenv.internal/agentenv/sdk/computer/home"
)

// What servers keep in a home. An app's files are <dir>/<name> and a dot, which no name holds.
const (
	appsDir    = home.Private + "/apps"
	initialDir = home.Private + "/initial"
	scratchDir = home.Private + "/tmp"
)

func (s *Server) file(suffix string) string { return path.Join(appsDir, s.app.Name+suffix) }

func (s *Server) copied() string { return path.Join(initialDir, s.app.Name) }

// scratch is where files are made before they are put in their place.
func (s *Server) scratch() string { return path.Join(scratchDir, s.app.Name) }

// keep makes the initial copy, unless there is one of this boot. A copy of an earlier boot is put back first where what the app holds is what a killed
// server left.
func (s *Server) keep(ctx context.Context) error {
	if err := s.root.RemoveAll(s.scratch()); err != nil {
		return err
	}
	if len(s.app.Paths) == 0 {
		return nil
	}
	now := boot()
	kept, err := s.root.ReadFile(s.copied() + ".boot")
	if err == nil && string(kept) == now {
		return nil
	}
	if err == nil {
		if busy, err := s.under(); err == nil && busy != nil && s.app.Reset == nil {
			if err := s.putBack(ctx); err != nil {
				return fmt.Errorf("put back what an earlier server left half done: %w", err)
			}
		}
	}
	fresh := s.copied() + ".new"
	if err := errors.Join(removeAll(s.root, fresh), s.root.RemoveAll(s.copied()+".boot")); err != nil {
		return err
	}
	if err := s.root.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	t := tree{s.root}
	for _, p := range s.app.Paths {
		if err := s.copyPath(ctx, t, p, path.Join(fresh, p)); err != nil {
			return errors.Join(fmt.Errorf("keep %s as it is: %w", p, err), removeAll(s.root, fresh))
		}
	}
	if err := removeAll(s.root, s.copied()); err != nil {
		return err
	}
	if err := s.root.Rename(fresh, s.copied()); err != nil {
		return err
	}
	return s.write(s.copied()+".boot", []byte(now))
}

// copyPath copies what is at one path to another, with the folders that lead there; nothing there is no error.
func (s *Server) copyPath(ctx context.Context, t tree, from, to string) error {
	if _, err := s.root.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := s.root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	return t.copy(ctx, from, to)
}

// putBack is the default reset: it makes the paths as the initial copy has them. What is there goes first, so that it has room on a full disk. Programs
// of the desktop that aren't the app may write at the same time: trees leave and come whole, and what is written in between doesn't stop it.
func (s *Server) putBack(ctx context.Context) error {
	for _, p := range s.app.Paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.clear(p); err != nil {
			return fmt.Errorf("remove %s: %w", p, err)
		}
	}
	for _, p := range s.app.Paths {
		if err := s.putPath(ctx, p); err != nil {
			return fmt.Errorf("put %s back: %w", p, err)
		}
	}
	return removeAll(s.root, s.scratch())
}

// tries is how often a reset does again what others undo while it runs.
const tries = 50

// clear removes what is at a path of the home: it is moved away first, where whoever writes to the path doesn't find it.
func (s *Server) clear(p string) (err error) {
	for range tries {
		away := path.Join(s.scratch(), rand.Text())
		if s.root.MkdirAll(s.scratch(), 0o700) != nil || s.move(p, away) != nil {
			away = p // there is no room for a folder, or nothing to move
		}
		if err = removeAll(s.root, away); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	return err
}

// putPath puts one path of the initial copy back: a copy is made aside, and takes the place.
func (s *Server) putPath(ctx context.Context, p string) error {
	from := path.Join(s.copied(), p)
	if _, err := s.root.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	fresh := path.Join(s.scratch(), rand.Text())
	if err := s.root.MkdirAll(s.scratch(), 0o700); err != nil {
		return err
	}
	if err := (tree{s.root}).copy(ctx, from, fresh); err != nil {
		return errors.Join(err, removeAll(s.root, fresh))
	}
	var err error
	for range tries {
		if err = s.root.MkdirAll(path.Dir(p), 0o755); err != nil {
			break
		}
		if err = s.move(fresh, p); err == nil {
			return nil
		}
		if errors.Is(err, syscall.EXDEV) { // the path is a file system of its own
			err = s.copyPath(ctx, tree{s.root}, from, p)
			break
		}
		if cerr := s.clear(p); cerr != nil { // somebody has made it anew
			err = cerr
			break
		}
	}
	return errors.Join(err, removeAll(s.root, fresh))
}

// move renames what is at a path of the home, a folder too that its owner may not write to.
func (s *Server) move(from, to string) error {
	st, err := s.root.Lstat(from)
	if err != nil {
		return err
	}
	err = s.root.Rename(from, to)
	if !errors.Is(err, fs.ErrPermission) || !st.IsDir() {
		return err
	}
	if err := s.root.Chmod(from, 0o700); err != nil {
		return err
	}
	if err := s.root.Rename(from, to); err != nil {
		return err
	}
	return s.root.Chmod(to, st.Mode()&modeBits)
}

// underway is what a server writes down before it changes data, so that the next one knows where it was killed.
type underway struct {
	Method  string `json:"method"`
	Running bool   `json:"running"` // the app ran, and is to run again
}

func (s *Server) begin(method string, running bool) error {
	b, err := json.Marshal(underway{method, running})
	if err != nil {
		return err
	}
	return s.write(s.file(".busy"), b)
}

func (s *Server) finish() error {
	err := s.root.Remove(s.file(".busy"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// under is what a server that is gone had under way; nil for nothing.
func (s *Server) under() (*underway, error) {
	b, err := s.root.ReadFile(s.file(".busy"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	u := &underway{}
	_ = json.Unmarshal(b, u) // one that can't be read tells of a change all the same
	return u, nil
}

// recover ends what an earlier server had under way when it was killed: the app is stopped, the data are reset, and an app that ran runs again.
func (s *Server) recover(ctx context.Context) error {
	busy, err := s.under()
	if err != nil || busy == nil {
		return err
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	switch {
	case s.resetter() == nil:
		s.log.WarnContext(ctx, "a load was cut off, and the app has nothing that resets it", slog.String("app", s.app.Name))
	default:
		if err := s.undo(ctx); err != nil {
			return fmt.Errorf("%s was cut off: %w", busy.Method, err)
		}
	}
	if err := s.finish(); err != nil {
		return err
	}
	if busy.Running {
		return s.launch(ctx)
	}
	return nil
}

// write writes a small file whole or not at all.
func (s *Server) write(name string, b []byte) error {
	temp := name + ".tmp"
	err := s.root.WriteFile(temp, b, 0o600)
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	if err != nil {
		_ = s.root.Remove(temp) // it may never have been made
	}
	return err
}

// boot names the time since this machine, or sandbox, was started.
func boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // a system without counts as one that was never started again
	start, _ := started(1)
	return fmt.Sprintf("%s%d\n", id, start)
}
