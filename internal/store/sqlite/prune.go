package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/hex"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
)

// digestKey is a digest as rows have it.
type digestKey [32]byte

// unused is what Prune found.
type unused struct {
	keys  []digestKey
	files []ref.Digest // those that are files
	sum   store.Pruned
}

// Prune removes objects that neither a document nor an event of a run names. Rows go in one transaction; files go after it, and are in a journal before it, so that
// a sweep ends what a killed process began.
func (s *Store) Prune(ctx context.Context, ds []ref.Digest, dry bool) (store.Pruned, error) {
	var found unused
	err := s.read(ctx, func(c *conn) (err error) {
		found, err = c.unused(ctx, ds)
		return err
	})
	if err != nil || dry || found.sum.Objects == 0 {
		return found.sum, err
	}
	w, err := newWorkspace(s.path("tmp"))
	if err != nil {
		return store.Pruned{}, err
	}
	err = s.write(ctx, durable, func(c *conn) (err error) {
		if found, err = c.unused(ctx, ds); err != nil { // others may have written since
			return err
		}
		if err := w.announce(found.files); err != nil {
			return err
		}
		after := context.WithoutCancel(ctx)
		for _, k := range found.keys {
			if _, err := c.exec(after, "DELETE FROM objects WHERE sha=?", k[:]); err != nil {
				return err
			}
		}
		return nil
	})
	if s.unpublish(context.WithoutCancel(ctx), found.files) != nil { // it removes nothing that still has a row
		w.abandon() // a later sweep tries again
	} else {
		w.remove()
	}
	if err != nil {
		return store.Pruned{}, err
	}
	return found.sum, nil
}

// unused lists the objects that neither a document nor an event of a run names, of all or of ds.
func (c *conn) unused(ctx context.Context, ds []ref.Digest) (unused, error) {
	type object struct {
		size   int64
		inFile bool
	}
	have := map[digestKey]object{}
	row := func(r []driver.Value) error {
		if k := blob(r[0]); len(k) == len(digestKey{}) {
			have[digestKey(k)] = object{num(r[1]), num(r[2]) == 1}
		}
		return nil
	}
	const columns = "SELECT sha, size, data IS NULL FROM objects"
	if ds == nil {
		if err := c.query(ctx, columns, row); err != nil {
			return unused{}, err
		}
	}
	for _, d := range ds {
		if err := c.query(ctx, columns+" WHERE sha=?", row, sha(d)); err != nil {
			return unused{}, err
		}
	}
	err := c.query(ctx, "SELECT objects FROM docs WHERE length(objects)>0", func(r []driver.Value) error {
		for b := blob(r[0]); len(b) >= 32; b = b[32:] {
			delete(have, digestKey(b[:32]))
		}
		return nil
	})
	if err == nil && len(have) > 0 {
		err = c.query(ctx, "SELECT data FROM events WHERE instr(data, 'sha256:') > 0", func(r []driver.Value) error {
			for d := range (runlog.Event{Data: []byte(str(r[0]))}).Digests() {
				delete(have, digestKey(sha(d)))
			}
			return nil
		})
	}
	var u unused
	for k, o := range have {
		u.keys = append(u.keys, k)
		u.sum.Objects++
		u.sum.Bytes += o.size
		if o.inFile {
			u.files = append(u.files, ref.Digest("sha256:"+hex.EncodeToString(k[:])))
		}
	}
	return u, err
}
