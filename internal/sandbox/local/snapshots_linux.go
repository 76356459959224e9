package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
	"agentenv.internal/agentenv/internal/treestore"
)

// A snapshot is a record below the state root that names layers, trees of a store of their own. A layer is what one box wrote, in the form of an
// overlay's layer. Layers are held by the boxes that begin with them and kept while a record names them.

// layer is one of a snapshot's or a box's.
type layer struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
	Files int    `json:"files"`
	Lost  int    `json:"lost,omitempty"` // owners
	IDs   bool   `json:"ids,omitempty"`  // it has owners other than root
}

// kept is what a snapshot's file holds.
type kept struct {
	sandbox.Snapshot
	Chain []layer `json:"chain"` // topmost first
	Shift int     `json:"shift,omitempty"`

	held []*treestore.Held // of a passing one, which is this process's alone and in no file
}

const (
	// maxLayers is how many layers a box may begin with: each takes descriptors of the boot message, and time of every look-up.
	maxLayers = 16
	// maxSnapshot bounds what an imported snapshot unpacks to.
	maxSnapshot = 64 << 30
)

func (p *Provider) snapshotPath(id string) string {
	return filepath.Join(p.opts.StateRoot, "snapshots", id+".json")
}

// loadSnapshot reads a snapshot's record.
func (p *Provider) loadSnapshot(id string) (*kept, error) {
	if !hostside.ValidID(id) {
		return nil, fmt.Errorf("snapshot %q: %w", id, sandbox.ErrNotFound)
	}
	p.mu.Lock()
	k := p.passing[id]
	p.mu.Unlock()
	if k != nil {
		return k, nil
	}
	b, err := os.ReadFile(p.snapshotPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("snapshot %s: %w", id, sandbox.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	k = &kept{}
	if err := json.Unmarshal(b, k); err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	k.ID, k.Provider = id, Name
	return k, nil
}

// keepSnapshot gives a snapshot its id and keeps its record, in memory alone when it is passing. Its newest layer is held by the caller until then.
func (p *Provider) keepSnapshot(ctx context.Context, k *kept, passing bool) error {
	k.ID, k.Provider = "s"+strings.ToLower(rand.Text()[:9]), Name
	k.Created = time.Now().UTC().Round(time.Millisecond)
	k.Layers = len(k.Chain)
	for _, l := range k.Chain {
		k.Bytes += l.Bytes
		k.Files += l.Files
		k.Owners += l.Lost
		k.Needs.IDs = k.Needs.IDs || l.IDs
	}
	k.Added = k.Chain[0].Bytes
	if passing {
		return p.keepPassing(ctx, k)
	}
	if err := syncFS(p.opts.StateRoot); err != nil {
		return fmt.Errorf("make the snapshot durable: %w", err)
	}
	name := p.snapshotPath(k.ID)
	if err := atomicfile.MkdirAll(filepath.Dir(name)); err != nil {
		return err
	}
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(name, 0o600, append(b, '\n'))
}

// keepPassing holds all layers of a snapshot for this process.
func (p *Provider) keepPassing(ctx context.Context, k *kept) error {
	for _, l := range k.Chain {
		h, err := p.holdLayer(ctx, l.Key)
		if err != nil {
			return errors.Join(err, k.release())
		}
		k.held = append(k.held, h)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.Join(errClosed, k.release())
	}
	p.passing[k.ID] = k
	return nil
}

// release lets go of the layers of a passing snapshot.
func (k *kept) release() error {
	var errs []error
	for _, h := range k.held {
		errs = append(errs, h.Release())
	}
	return errors.Join(errs...)
}

// dropPassing forgets a passing snapshot; false when there is none of the id.
func (p *Provider) dropPassing(id string) (bool, error) {
	p.mu.Lock()
	k := p.passing[id]
	delete(p.passing, id)
	p.mu.Unlock()
	if k == nil {
		return false, nil
	}
	return true, k.release()
}

// syncFS makes all that is on dir's file system durable.
func syncFS(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// snapshots are all records, newest first. One that can't be read never spoils it.
func (p *Provider) snapshots() ([]*kept, error) {
	entries, err := os.ReadDir(filepath.Dir(p.snapshotPath("x")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the snapshots: %w", err)
	}
	var out []*kept
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if k, err := p.loadSnapshot(id); err == nil {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *kept) int { return b.Created.Compare(a.Created) })
	return out, nil
}

// Snapshots tells of every snapshot, newest first.
func (p *Provider) Snapshots(context.Context) ([]sandbox.Snapshot, error) {
	all, err := p.snapshots()
	if err != nil {
		return nil, err
	}
	var out []sandbox.Snapshot
	for _, k := range all {
		out = append(out, k.Snapshot)
	}
	return out, nil
}

// RemoveSnapshot removes a snapshot and the layers that nobody else needs.
func (p *Provider) RemoveSnapshot(ctx context.Context, id string) error {
	if !hostside.ValidID(id) {
		return nil
	}
	if was, err := p.dropPassing(id); err != nil || was {
		return errors.Join(err, p.pruneLayers(ctx))
	}
	err := os.Remove(p.snapshotPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	return p.pruneLayers(ctx)
}

// pruneLayers removes the layers that no record names and nobody holds.
func (p *Provider) pruneLayers(ctx context.Context) error {
	all, err := p.snapshots()
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, k := range all {
		for _, l := range k.Chain {
			named[l.Key] = true
		}
	}
	_, err = p.layers.Prune(ctx, func(e treestore.Entry) bool { return named[e.Key] })
	if err != nil {
		return fmt.Errorf("remove layers of snapshots: %w", err)
	}
	return nil
}

// holdLayer holds a layer that is there.
func (p *Provider) holdLayer(ctx context.Context, key string) (*treestore.Held, error) {
	return p.layers.Get(ctx, key, func(context.Context, string) error {
		return fmt.Errorf("a layer of the snapshot is gone: %w", sandbox.ErrNotFound)
	})
}

// begin holds the layers of the snapshot that the box begins with.
func (m *making) begin(ctx context.Context) error {
	if m.spec.From == "" {
		return nil
	}
	k, err := m.p.loadSnapshot(m.spec.From)
	if err != nil {
		return err
	}
	if k.Shift == idFirst && m.p.host.idmaps() { // this process has not found out yet what the snapshot's taker knew
		m.p.host.cannotMap()
		return fmt.Errorf("snapshot %s: %w", k.ID, errNoIDMap)
	}
	if k.Shift != m.p.host.shift() {
		return fmt.Errorf("snapshot %s was taken when file systems here mapped ids otherwise: %w", k.ID, sandbox.ErrUnsupported)
	}
	if err := meets(m.p.needs(), k); err != nil {
		return err
	}
	for _, l := range k.Chain {
		path, err := m.hold(m.p.holdLayer(ctx, l.Key))
		if err != nil {
			return fmt.Errorf("begin with snapshot %s: %w", k.ID, err)
		}
		m.layout.stack = append(m.layout.stack, path)
	}
	m.layers = k.Chain
	return nil
}

// shift is what owners on the disk have beyond those in the box, where root can't map ids.
func (h *host) shift() int {
	if h.wide && !h.idmaps() {
		return idFirst
	}
	return 0
}

// merge is how many of a box's layers a snapshot takes into its own: none while they are few. The largest stays apart, with all below it, since
// copying it is what would take time.
func merge(layers []layer) int {
	if len(layers) < maxLayers {
		return 0
	}
	largest := 0
	for i, l := range layers {
		if cmp.Compare(l.Bytes, layers[largest].Bytes) >= 0 {
			largest = i
		}
	}
	if largest == 0 {
		return len(layers)
	}
	return largest
}
