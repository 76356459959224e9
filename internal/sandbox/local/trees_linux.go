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
	key   string
	names []string
	at    time.Time
}

// treeKind is one kind of tree.
type treeKind struct {
	name string
	// list finds the files that the tree depends on, and build makes it of them.
	list  func() ([]string, error)
	build func(names []string, dir string) error
	// age is how long what list found counts while no file of it changes; 0: for ever. index is where that is kept; "": with the trees.
	age   time.Duration
	index string
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

// get holds the tree of a kind as the host is now. owner tells apart trees of different owners.
func (t *trees) get(ctx context.Context, kind *treeKind, owner string) (*treestore.Held, error) {
	key, names, err := t.key(kind, owner)
	if err != nil {
		return nil, err
	}
	built := false
	held, err := t.store.Get(ctx, key, func(_ context.Context, dir string) error {
		built = true
		if err := os.Chmod(dir, 0o755); err != nil { // all users of a box pass through it
			return err
		}
		return kind.build(names, dir)
	})
	if err != nil {
		return nil, fmt.Errorf("make the copy of %s for sandboxes: %w", kind.name, err)
	}
	if built {
		_, _ = t.store.Prune(ctx, func(e treestore.Entry) bool { // the next one that builds tries again
			return !strings.HasPrefix(e.Key, treeMark) || time.Since(e.LastUsed) < keepTrees
		})
	}
	return held, nil
}

// key stands for the state of the files that a kind depends on. Their list is saved, so that finding out that nothing changed needs no
// search.
func (t *trees) key(kind *treeKind, owner string) (string, []string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.looked[kind.name]; ok && time.Since(l.at) < fresh {
		return l.key + owner, l.names, nil
	}
	index := filepath.Join(t.dir, kind.name+".index")
	if kind.index != "" && atomicfile.MkdirAll(filepath.Dir(kind.index)) == nil {
		index = kind.index
	}
	from := readStamps(index, kind.age)
	if !from.hold() {
		names, err := kind.list()
		if err != nil {
			return "", nil, fmt.Errorf("look at the files of %s: %w", kind.name, err)
		}
		from = stamp(names)
		if err := atomicfile.MkdirAll(filepath.Dir(index)); err != nil {
			return "", nil, err
		}
		if err := atomicfile.WriteBytes(index, 0o600, []byte(from)); err != nil {
			return "", nil, err
		}
	}
	l := look{treeMark + kind.name + "-" + from.key(t.boot), from.names(), time.Now()}
	t.looked[kind.name] = l
	return l.key + owner, l.names, nil
}
