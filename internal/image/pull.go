package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/treestore"
)

// atOnce is how many layers of an image come in at one time.
const atOnce = 4

// pull brings an image in, names it and holds it.
func (s *Store) pull(ctx context.Context, src Source, p Progress) (_ *Root, err error) {
	// The stamp is of before: what changes meanwhile is looked at again the next time.
	stamp, err := src.stamp(ctx)
	if err != nil {
		return nil, err
	}
	o, err := s.open(ctx, src)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	key := s.imageKey(o.ref)
	root, err := s.held(ctx, key)
	if errors.Is(err, ErrNotFound) {
		root, err = s.fetch(ctx, key, o, p)
	}
	if err != nil {
		return nil, err
	}
	if err := s.writeRef(src.key(), refRecord{Ref: src.key(), Stamp: stamp, Image: key, Pulled: now()}); err != nil {
		root.release()
		return nil, err
	}
	if _, err := s.Prune(ctx, s.o.Cap); err != nil { // the image itself is held
		root.release()
		return nil, fmt.Errorf("make room in the store of images: %w", err)
	}
	return root, nil
}

// imageKey is the key of an image's tree; ref is with the digest.
func (s *Store) imageKey(ref string) string {
	return imagePrefix + s.owners.String() + "-" + hashOf(ref)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// fetch brings the layers in, then writes the image's record. Layers that came in stay for the next attempt when it fails.
func (s *Store) fetch(ctx context.Context, key string, o *opened, p Progress) (*Root, error) {
	m := newMeter(p)
	layers, held, err := s.layers(ctx, o, m)
	defer func() {
		for _, h := range held {
			if h != nil {
				_ = h.Release()
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	r := &record{Ref: o.ref, Digest: o.digest, Platform: platform().String(), Config: configOf(o.config), Layers: layers, Pulled: now()}
	gate, err := s.gate(ctx, true)
	if err != nil {
		return nil, err
	}
	h, err := s.trees.Get(ctx, key, func(_ context.Context, dir string) error { return writeJSON(dir+"/"+recordFile, r) })
	if err = errors.Join(err, gate.Unlock()); err != nil {
		return nil, err
	}
	return s.root(r, h), nil
}

// layers brings all layers in, several at a time, and holds them. What is held is answered in any case.
func (s *Store) layers(ctx context.Context, o *opened, m *meter) ([]layerRecord, []*treestore.Held, error) {
	ids := o.config.RootFS.DiffIDs
	layers, held := make([]layerRecord, len(ids)), make([]*treestore.Held, len(ids))
	ready := make([]chan struct{}, len(ids)) // closed when the layer is there, or when it never will be
	chain := ""
	var missing int64
	for i, id := range ids {
		if chain = chainID(chain, id.Hex); i == 0 {
			chain = id.Hex
		}
		layers[i] = layerRecord{Key: layerPrefix + chain + "-" + s.owners.String(), DiffID: id.String()}
		ready[i] = make(chan struct{})
		if !s.trees.Has(layers[i].Key) {
			missing += o.layers[i].size
		}
	}
	if err := s.room(missing); err != nil {
		return nil, held, err
	}
	m.expect(missing)
	var g *errgroup.Group
	g, ctx = errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range layers { // in order, so that a layer that waits for one below waits for one that has begun
		g.Go(func() error {
			defer close(ready[i])
			u := &unpacking{s: s, blob: o.layers[i], record: &layers[i], meter: m}
			u.below = func() ([]string, error) {
				var dirs []string
				for j := i - 1; j >= 0; j-- {
					<-ready[j]
					if held[j] == nil {
						return nil, context.Cause(ctx)
					}
					dirs = append(dirs, held[j].Path()+"/"+layerDir)
				}
				return dirs, nil
			}
			h, err := s.trees.Get(ctx, layers[i].Key, u.build)
			if err != nil {
				return fmt.Errorf("layer %s: %w", layers[i].DiffID, err)
			}
			held[i] = h
			return readJSON(h.Path()+"/"+layerFile, &layers[i])
		})
	}
	if err := g.Wait(); err != nil {
		return nil, held, err
	}
	return layers, held, nil
}

// chainID is the digest of a layer and all below it.
func chainID(below, diffID string) string {
	sum := sha256.Sum256([]byte("sha256:" + below + " sha256:" + diffID))
	return hex.EncodeToString(sum[:])
}

// meter adds up what comes in.
type meter struct {
	mu          sync.Mutex
	p           Progress
	done, total int64
}

func newMeter(p Progress) *meter { return &meter{p: p} }

func (m *meter) expect(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = total
	if m.p != nil {
		m.p(m.done, m.total)
	}
}

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += int64(n)
	if m.p != nil {
		m.p(m.done, m.total)
	}
}
