package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/treestore"
)

// trees are the folders that boxes share read-only: built from the host, once for each state it is in.
type trees struct {
	dir   string
	store *treestore.Store
	boot  string // the machine's boot, since the trees aren't synced

	mu     sync.Mutex
	looked map[string]look
}

// look is what a look at the host said.
type look struct {
	key string
	at  time.Time
}

const (
	// fresh is how long a look at the host counts: many starts at once need one.
	fresh = time.Second
	// keepTrees is how long a tree stays that no box has asked for.
	keepTrees = 3 * 24 * time.Hour
	treeMark  = "local-" // begins the keys of our trees
)

func newTrees(dir string) *trees {
	return &trees{
		dir: dir, store: treestore.Open(dir, treestore.Options{Volatile: true}), boot: readSetting("/proc/sys/kernel/random/boot_id"),
		looked: map[string]look{},
	}
}

// get holds the tree of a kind that is built from the files of list as they are now. owner tells apart trees of different owners.
func (t *trees) get(ctx context.Context, kind, owner string, list func() ([]string, error), build func(dir string) error) (*treestore.Held, error) {
	key, err := t.key(kind, owner, list)
	if err != nil {
		return nil, err
	}
	built := false
	held, err := t.store.Get(ctx, key, func(_ context.Context, dir string) error {
		built = true
		if err := os.Chmod(dir, 0o755); err != nil { // all users of a box pass through it
			return err
		}
		return build(dir)
	})
	if err != nil {
		return nil, fmt.Errorf("make the copy of %s for sandboxes: %w", kind, err)
	}
	if built {
		_, _ = t.store.Prune(ctx, func(e treestore.Entry) bool { // the next one that builds tries again
			return !strings.HasPrefix(e.Key, treeMark) || time.Since(e.LastUsed) < keepTrees
		})
	}
	return held, nil
}

// key stands for the state of the files of list. That list is saved, so that finding out that nothing changed needs no search.
func (t *trees) key(kind, owner string, list func() ([]string, error)) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.looked[kind]; ok && time.Since(l.at) < fresh {
		return l.key + owner, nil
	}
	index := filepath.Join(t.dir, kind+".index")
	from := readStamps(index)
	if !from.hold() {
		names, err := list()
		if err != nil {
			return "", fmt.Errorf("look at the files of %s: %w", kind, err)
		}
		from = stamp(names)
		if err := atomicfile.MkdirAll(t.dir); err != nil {
			return "", err
		}
		if err := atomicfile.WriteBytes(index, 0o600, []byte(from)); err != nil {
			return "", err
		}
	}
	key := treeMark + kind + "-" + from.key(t.boot)
	t.looked[kind] = look{key, time.Now()}
	return key + owner, nil
}
