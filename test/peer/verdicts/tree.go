package verdicts

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Tree is a folder's content by path. A path that ends with "/" is a folder, one that begins with "../" lies beside the folder.
type Tree map[string]string

// What a content says when it isn't text. No text begins with a NUL byte.
const (
	linkMark = "\x00link "
	execMark = "\x00exec "
	fifo     = "\x00fifo"
)

// link is a symbolic link. In its target $B is the bundle's folder and $H the home folder.
func link(target string) string { return linkMark + target }

// script is an executable file.
func script(text string) string { return execMark + text }

// with is t and more; more wins.
func (t Tree) with(more Tree) Tree {
	out := maps.Clone(t)
	maps.Copy(out, more)
	return out
}

// quoted is t with names and contents that JSON can hold without loss.
func (t Tree) quoted() map[string]string {
	out := map[string]string{}
	for k, v := range t {
		out[strconv.Quote(k)] = strconv.Quote(v)
	}
	return out
}

// Write lays the tree out in dir, a folder below home. What stands in the way of a name is an error.
func (t Tree) Write(dir, home string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range t {
		// Not filepath.Join: names may hold what it would clean away.
		at := dir + "/" + name
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(at, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := writeOne(at, text, strings.NewReplacer("$B", dir, "$H", home)); err != nil {
			return err
		}
	}
	return nil
}

func writeOne(at, text string, places *strings.Replacer) error {
	if target, ok := strings.CutPrefix(text, linkMark); ok {
		return os.Symlink(places.Replace(target), at)
	}
	if text == fifo {
		return syscall.Mkfifo(at, 0o644)
	}
	mode := os.FileMode(0o644)
	if body, ok := strings.CutPrefix(text, execMark); ok {
		text, mode = body, 0o755
	}
	return os.WriteFile(at, []byte(text), mode)
}
