package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// trees keeps folders that are built once by key and shared by all boxes, read-only from then on.
type trees struct {
	dir string

	mu     sync.Mutex
	looked map[string]look
}

func newTrees(dir string) *trees { return &trees{dir: dir, looked: map[string]look{}} }

// keepTrees is how long a tree that no start has asked for stays. A box that uses one as a layer keeps what it has open.
const keepTrees = 7 * 24 * time.Hour

// fresh is how long a look at the host counts: many starts at once need one.
const fresh = time.Second

// of answers the tree of a kind that is built from the files of list, as they are now. owner tells apart trees of different owners.
func (t *trees) of(ctx context.Context, kind, owner string, list func() ([]string, error), build func(dir string) error) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.looked[kind+owner]; ok && time.Since(l.at) < fresh {
		return l.path, nil
	}
	index := filepath.Join(t.dir, kind+".index")
	from := readStamps(index)
	known := from.hold()
	if !known {
		names, err := list()
		if err != nil {
			return "", fmt.Errorf("look at what the tree %s is made of: %w", kind, err)
		}
		from = stamp(names)
	}
	path, err := t.get(ctx, kind, from.key()+owner, build)
	if err != nil {
		return "", err
	}
	if !known {
		if err := atomicfile.WriteBytes(index, 0o600, []byte(from)); err != nil {
			return "", err
		}
	}
	t.looked[kind+owner] = look{path, time.Now()}
	return path, nil
}

// look is what a look at the host said.
type look struct {
	path string
	at   time.Time
}

// get answers the folder of kind and key, building it when there is none. Older ones of the kind go when a new one is built.
func (t *trees) get(ctx context.Context, kind, key string, build func(dir string) error) (string, error) {
	path := filepath.Join(t.dir, kind+"-"+key)
	if info, err := os.Stat(path); err == nil {
		if time.Since(info.ModTime()) > 24*time.Hour {
			now := time.Now()
			_ = os.Chtimes(path, now, now) // only says that it is in use
		}
		return path, nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(t.dir, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	root := filepath.Join(temp, "tree")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return "", err
	}
	if err := build(root); err != nil {
		return "", fmt.Errorf("build the tree %s: %w", kind, err)
	}
	if err := os.Rename(root, path); err != nil && !errors.Is(err, os.ErrExist) {
		if _, there := os.Stat(path); there != nil {
			return "", err
		}
	}
	t.prune(kind)
	return path, nil
}

// prune takes away what has not been asked for in a long time.
func (t *trees) prune(kind string) {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < keepTrees {
			continue
		}
		if strings.HasPrefix(e.Name(), kind+"-") || strings.HasPrefix(e.Name(), ".new-") {
			_ = os.RemoveAll(filepath.Join(t.dir, e.Name()))
		}
	}
}
