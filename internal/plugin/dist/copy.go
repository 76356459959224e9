package dist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// copyOld copies the current generation into dir, unless there is none or it was made of another interpreter, whose compiled parts the new
// one could not use.
func (w *work) copyOld(base Interpreter, dir string) (bool, error) {
	if w.old.root == "" {
		return false, nil
	}
	r, err := w.old.Record()
	if err != nil || r.Base != base.Path || r.Python != base.Markers.PythonFullVersion {
		return false, nil // made anew by refill
	}
	if err := copyTree(w.old.root, dir); err != nil {
		return true, fmt.Errorf("copy the plugin environment: %w", err)
	}
	return true, dropIndex(dir)
}

// refill installs what the current generation holds into a new one of another interpreter, in the same versions.
func (w *work) refill(ctx context.Context, dir string) error {
	r, err := w.old.Record()
	if err != nil || w.old.root == "" {
		return err
	}
	again := Change{IndexURL: w.change.IndexURL, FindLinks: w.change.FindLinks}
	for _, p := range r.Installed {
		switch own := w.isOwn(p.Name); {
		case own || installers(p.Name):
		case p.Source != "":
			again.Add = append(again.Add, p.Name+" @ "+p.Source)
		default:
			again.Add = append(again.Add, p.Name+"=="+p.Version)
		}
	}
	if len(again.Add) == 0 {
		return nil
	}
	w.say("Python is another one now: every package is installed again")
	if err := w.constrain(dir); err != nil {
		return err
	}
	text, err := w.exec(ctx, dir, installTime, w.tool.addition(dir, again, asked{}))
	if err != nil {
		return failure("what is installed can't be installed again for the Python that is here now", text, err)
	}
	return nil
}

func (w *work) isOwn(name string) bool {
	for _, own := range w.o.Own {
		if strings.EqualFold(own.Name, name) {
			return true
		}
	}
	return false
}

// copyTree copies a folder into one that exists: files with their modes and times (compiled modules name the time of their source), folders,
// links as they are. Anything else is refused. Where the file system can, the copies share their blocks.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dest := filepath.Join(to, rel)
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			return os.Mkdir(dest, info.Mode().Perm()|0o700)
		case e.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, dest)
		case e.Type().IsRegular():
			return copyFile(path, dest, info)
		default:
			return fmt.Errorf("%s is neither a file nor a folder", rel)
		}
	})
}

func copyFile(from, to string, info fs.FileInfo) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if _, err := io.Copy(dst, src); err != nil { // by copy_file_range
		return err
	}
	if err := dst.Chmod(info.Mode().Perm() | 0o200); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// relocate makes the scripts of an environment that was built in dir name the interpreter where it will be. Those of a relocatable one find
// it themselves.
func relocate(dir, final string) error {
	bin := filepath.Join(dir, "bin")
	entries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	was, is := []byte("#!"+dir+"/"), []byte("#!"+final+"/")
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(bin, e.Name())
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		head := make([]byte, len(was))
		_, err = io.ReadFull(f, head)
		f.Close()
		if err != nil || !bytes.Equal(head, was) {
			continue // shorter, or not ours
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, append(is, b[len(was):]...), info.Mode().Perm()); err != nil { //nolint:forbidigo // of a generation that is being made
			return err
		}
	}
	return nil
}
