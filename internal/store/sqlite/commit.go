package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Commit makes the bytes of large objects durable under their names, then writes everything else in one transaction.
func (g *stage) Commit(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return errDone
	}
	g.done = true
	defer g.drop()
	if len(g.objects) == 0 && len(g.changes) == 0 && len(g.require) == 0 {
		return ctx.Err()
	}
	published, err := g.publish(ctx)
	err = g.s.explain("write", err)
	if err == nil && g.bytes() > largeCommit {
		err = g.s.onWriter(ctx, func(c *conn) error { return c.checkpoint(ctx) })
	}
	if err == nil {
		err = g.s.write(ctx, durable, func(c *conn) error {
			for _, f := range g.require {
				if err := f(ctx, inside{c}); err != nil {
					return err
				}
			}
			inner := context.WithoutCancel(ctx)
			if err := g.writeObjects(inner, c); err != nil {
				return err
			}
			return g.writeDocs(inner, c)
		})
	}
	if err != nil && g.s.unpublish(context.WithoutCancel(ctx), published) != nil {
		g.work.abandon() // a later sweep tries again
		g.work = nil
	}
	return err
}

// largeCommit is from how many bytes on the log is emptied before a transaction: should the disk fill up, the log then holds
// nothing but what failed, and can be cut.
const largeCommit = 1 << 20

// bytes is about how much the transaction writes.
func (g *stage) bytes() int64 {
	n := g.held + g.spilled
	for _, ch := range g.changes {
		n += int64(len(ch.Doc.Body))
	}
	return n
}

// publish moves the files of large objects to their names, makes the names durable, and answers what it may have moved. It holds
// no lock of the store: until the transaction names them, nobody sees them.
func (g *stage) publish(ctx context.Context) ([]ref.Digest, error) {
	fresh, err := g.fresh(ctx)
	if err != nil || len(fresh) == 0 {
		return nil, err
	}
	if err := g.work.announce(fresh); err != nil {
		return nil, err
	}
	folders, err := g.s.shards(fresh)
	if err != nil {
		return nil, err
	}
	for _, d := range fresh {
		if err := os.Rename(g.objects[d].file, g.s.objectPath(d)); err != nil {
			return fresh, err
		}
	}
	var group errgroup.Group
	group.SetLimit(8)
	for _, dir := range folders {
		group.Go(func() error { return syncFolder(dir) })
	}
	return fresh, group.Wait()
}

// shards makes the folders that objects go to, and answers all whose names are to be made durable.
func (s *Store) shards(ds []ref.Digest) ([]string, error) {
	root := s.path("objects")
	if err := makeFolder(root); err != nil {
		return nil, err
	}
	folders, made := map[string]bool{}, false
	for _, d := range ds {
		dir := filepath.Dir(s.objectPath(d))
		if folders[dir] {
			continue
		}
		folders[dir] = true
		if err := os.Mkdir(dir, 0o700); err == nil {
			made = true
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	if made {
		folders[root] = true
	}
	return slices.Collect(maps.Keys(folders)), nil
}

// fresh are the large objects that the store lacks. A conflict that shows already is answered here, before anything is moved.
func (g *stage) fresh(ctx context.Context) ([]ref.Digest, error) {
	var large, out []ref.Digest
	for d, o := range g.objects {
		if o.file != "" {
			large = append(large, d)
		}
	}
	if len(large) == 0 {
		return nil, nil
	}
	err := g.s.read(ctx, func(c *conn) error {
		heads, err := g.heads(ctx, c)
		if err != nil {
			return err
		}
		seen := map[docKey]bool{}
		for _, ch := range g.changes {
			k := keyOf(ch.Doc)
			if seen[k] {
				continue
			}
			seen[k] = true
			if err := ch.Check(heads[k].version); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, d := range large {
		if !g.s.intact(ctx, d, g.objects[d].size) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out, nil
}

// writeObjects adds the rows of the stage's objects, in the order of their keys, which is the order of the table.
func (g *stage) writeObjects(ctx context.Context, c *conn) error {
	keys := make([]ref.Digest, 0, len(g.objects))
	for d := range g.objects {
		keys = append(keys, d)
	}
	slices.Sort(keys)
	for _, d := range keys {
		o := g.objects[d]
		data := driver.Value(o.data)
		switch {
		case o.large:
			// Another process may have pruned an object that was there at Put, or swept one that it took for abandoned.
			fi, err := os.Lstat(g.s.objectPath(d))
			if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Size() != o.size {
				return fmt.Errorf("object %s: its file was removed meanwhile: %w", d, store.ErrConflict)
			}
			if err != nil {
				return err
			}
			data = nil
		case o.spilled:
			b := make([]byte, o.size)
			if _, err := g.spill.ReadAt(b, o.at); err != nil {
				return err
			}
			data = b
		}
		if _, err := c.exec(ctx, "INSERT INTO objects VALUES(?,?,?) ON CONFLICT DO NOTHING", sha(d), o.size, data); err != nil {
			return err
		}
	}
	return nil
}

type docKey struct {
	kind store.Kind
	id   string
}

func keyOf(d store.Doc) docKey { return docKey{d.Kind, d.ID} }

// head is the latest version of a document; zero when there is none.
type head struct {
	seq     int64
	version int
}

// heads reads the latest versions of all documents that the stage changes.
func (g *stage) heads(ctx context.Context, c *conn) (map[docKey]head, error) {
	heads := make(map[docKey]head, len(g.changes))
	ids := map[store.Kind][]string{}
	for _, ch := range g.changes {
		k := keyOf(ch.Doc)
		if _, twice := heads[k]; !twice {
			heads[k] = head{}
			ids[k.kind] = append(ids[k.kind], k.id)
		}
	}
	for kind, list := range ids {
		err := c.eachLatest(ctx, "d.id, d.seq, d.version", kind, list, func(r []driver.Value) error {
			heads[docKey{kind, str(r[0])}] = head{num(r[1]), int(num(r[2]))}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return heads, nil
}

// writeDocs makes the changes in the order of their calls.
func (g *stage) writeDocs(ctx context.Context, c *conn) error {
	heads, err := g.heads(ctx, c)
	if err != nil {
		return err
	}
	var seq int64
	if err := c.query(ctx, "SELECT coalesce(max(seq), 0) FROM docs", func(r []driver.Value) error { seq = num(r[0]); return nil }); err != nil {
		return err
	}
	now := g.s.stamp()
	stored := map[ref.Digest]bool{}
	for _, ch := range g.changes {
		k := keyOf(ch.Doc)
		if err := ch.Check(heads[k].version); err != nil {
			return err
		}
		if ch.Delete {
			if heads[k], err = c.deleteDoc(ctx, ch.Doc); err != nil {
				return err
			}
			continue
		}
		if err := g.checkObjects(ctx, c, ch.Doc, stored); err != nil {
			return err
		}
		d := ch.Doc
		if d.Created.IsZero() {
			d.Created = now
		}
		seq++
		if h := heads[k]; h.seq != 0 {
			if _, err := c.exec(ctx, "UPDATE docs SET until=? WHERE seq=?", seq, h.seq); err != nil {
				return err
			}
		}
		if _, err := c.exec(ctx, "INSERT INTO docs VALUES(?,?,?,?,?,?,?,0,?,?)", seq, string(d.Kind), d.ID, int64(d.Version), d.Type,
			d.Owner, d.Created.UnixMicro(), packDigests(d.Objects), string(d.Body)); err != nil {
			return err
		}
		heads[k] = head{seq, d.Version}
	}
	return nil
}

// checkObjects refuses a document that names an object which neither the stage nor the store has.
func (g *stage) checkObjects(ctx context.Context, c *conn, d store.Doc, stored map[ref.Digest]bool) error {
	for _, o := range d.Objects {
		if _, here := g.objects[o]; here || stored[o] {
			continue
		}
		if !o.Valid() {
			return store.Dangling(d, o)
		}
		if err := c.query(ctx, "SELECT 1 FROM objects WHERE sha=?", func([]driver.Value) error { stored[o] = true; return nil }, sha(o)); err != nil {
			return err
		}
		if !stored[o] {
			return store.Dangling(d, o)
		}
	}
	return nil
}

// deleteDoc removes one version or all and answers what is the latest then.
func (c *conn) deleteDoc(ctx context.Context, d store.Doc) (head, error) {
	kind, id := string(d.Kind), d.ID
	if d.Version == 0 {
		_, err := c.exec(ctx, "DELETE FROM docs WHERE kind=? AND id=?", kind, id)
		return head{}, err
	}
	if _, err := c.exec(ctx, "DELETE FROM docs WHERE kind=? AND id=? AND version=?", kind, id, int64(d.Version)); err != nil {
		return head{}, err
	}
	if _, err := c.exec(ctx, `UPDATE docs SET until=coalesce((SELECT n.seq FROM docs n WHERE n.kind=docs.kind AND n.id=docs.id AND n.version>docs.version
		ORDER BY n.version LIMIT 1), 0) WHERE kind=? AND id=?`, kind, id); err != nil {
		return head{}, err
	}
	var h head
	err := c.eachLatest(ctx, "d.id, d.seq, d.version", d.Kind, []string{id}, func(r []driver.Value) error {
		h = head{num(r[1]), int(num(r[2]))}
		return nil
	})
	return h, err
}
