package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/store"
)

var errDamaged = fmt.Errorf("the file is no intact store: %w", store.ErrCorrupt)

// migrations lead from one schema version to the next; version n is reached by running the first n. None is ever changed or removed.
//
// docs.until is the seq of the version that follows, 0 for the latest: so a page can show what was the latest when its list began.
// docs.objects are the 32 bytes of each digest in a row. objects.data is NULL where a file holds the bytes.
// runs lies in the order of its lists. runs.meta and runs.state are what lists show, packed (runlog.PackMeta); the columns beside them are what queries select by.
var migrations = []string{`
CREATE TABLE docs(
	seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, type TEXT NOT NULL, owner TEXT NOT NULL,
	created INTEGER NOT NULL, until INTEGER NOT NULL, objects BLOB NOT NULL, body TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX docs_id ON docs(kind, id, version);
CREATE INDEX docs_list ON docs(kind, seq, type, until);
CREATE INDEX docs_owner ON docs(owner, kind, seq) WHERE owner <> '';
CREATE TABLE objects(sha BLOB PRIMARY KEY, size INTEGER NOT NULL, data BLOB) STRICT, WITHOUT ROWID;
CREATE INDEX objects_files ON objects(size) WHERE data IS NULL;
CREATE TABLE runs(
	seq INTEGER NOT NULL UNIQUE, id TEXT NOT NULL UNIQUE, task TEXT NOT NULL, grp TEXT NOT NULL, eval TEXT NOT NULL, created INTEGER NOT NULL,
	status TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER NOT NULL, meta BLOB NOT NULL, state BLOB NOT NULL,
	epoch INTEGER NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, pid_started INTEGER NOT NULL, boot TEXT NOT NULL,
	until INTEGER NOT NULL, asked INTEGER NOT NULL, PRIMARY KEY(created, seq)) STRICT, WITHOUT ROWID;
CREATE INDEX runs_open ON runs(created, seq) WHERE status IN ('queued','running');
CREATE INDEX runs_task ON runs(task, created, seq);
CREATE INDEX runs_group ON runs(grp, created, seq) WHERE grp <> '';
CREATE INDEX runs_eval ON runs(eval, created, seq) WHERE eval <> '';
CREATE TABLE events(
	run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, epoch INTEGER NOT NULL, kind TEXT NOT NULL, step TEXT NOT NULL,
	attempt INTEGER NOT NULL, data TEXT, PRIMARY KEY(run, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE requests(
	run INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, step TEXT NOT NULL, data TEXT,
	PRIMARY KEY(run, seq)) STRICT, WITHOUT ROWID;
`}

// known refuses a store that a newer program has written; newest is the last format that this one can read.
func (s *Store) known(version, newest int) error {
	if version > newest {
		return fmt.Errorf("the store %s was written by a newer version of this program (format %d, this one knows %d): update the program, or use another state folder",
			s.root, version, newest)
	}
	return nil
}

// openWriter opens the connection that writes, makes the store where there is none and brings an older one up to date.
func (s *Store) openWriter(ctx context.Context) (*conn, error) {
	if _, err := os.Lstat(s.file()); errors.Is(err, fs.ErrNotExist) {
		if err := s.create(ctx); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	c, err := dial(ctx, dsn(s.file(), "mode", "rw", "_pragma", "journal_mode(wal)", "_pragma", "synchronous(normal)"))
	if err != nil {
		return nil, err
	}
	if err := s.migrate(ctx, c, migrations); err != nil {
		_ = c.close()
		return nil, err
	}
	s.mu.Lock()
	s.there = true
	s.mu.Unlock()
	return c, nil
}

func (s *Store) migrate(ctx context.Context, c *conn, steps []string) error {
	version, err := c.version(ctx)
	if err != nil {
		return err
	}
	if version == len(steps) {
		return nil
	}
	if err := s.known(version, len(steps)); err != nil {
		return err
	}
	return c.transaction(ctx, durable, func(c *conn) error {
		if version, err = c.version(ctx); err != nil { // another process may have been quicker
			return err
		}
		return applySteps(context.WithoutCancel(ctx), c, version, steps, s.stamp())
	})
}

// applySteps runs the migrations above version and notes each in schema_version.
func applySteps(ctx context.Context, c *conn, version int, steps []string, now time.Time) error {
	if err := c.script(ctx, "CREATE TABLE IF NOT EXISTS schema_version(version INTEGER PRIMARY KEY, applied INTEGER NOT NULL) STRICT"); err != nil {
		return err
	}
	for n := version; n < len(steps); n++ {
		if err := c.script(ctx, steps[n]); err != nil {
			return fmt.Errorf("change the store to format %d: %w", n+1, err)
		}
		if err := c.script(ctx, fmt.Sprintf("INSERT INTO schema_version VALUES(%d, %d); PRAGMA user_version=%d", n+1, now.UnixMicro(), n+1)); err != nil {
			return err
		}
	}
	return nil
}

// create builds the file whole in tmp/ and renames it into place under a lock of the folder: nobody ever sees half a store,
// and of several first writers one makes it.
func (s *Store) create(ctx context.Context) error {
	if err := makeFolder(s.root); err != nil {
		return err
	}
	dir, err := os.Open(s.root)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := lockFolder(ctx, dir); err != nil { // released by Close
		return err
	}
	if _, err := os.Lstat(s.file()); err == nil {
		return nil
	}
	w, err := newWorkspace(s.path("tmp"))
	if err != nil {
		return err
	}
	defer w.remove()
	if err := s.build(ctx, w.path("store.db")); err != nil {
		return err
	}
	if err := os.Rename(w.path("store.db"), s.file()); err != nil {
		return err
	}
	return syncFolder(s.root)
}

// build makes a whole store in a private place, where it needs neither journal nor lock, and syncs it once.
func (s *Store) build(ctx context.Context, name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := dial(ctx, dsn(name, "_pragma", "synchronous(off)", "_pragma", "journal_mode(wal)"))
	if err != nil {
		return err
	}
	if err = applySteps(ctx, c, 0, migrations, s.stamp()); err == nil {
		err = c.emptyLog(ctx)
	}
	if cerr := c.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return f.Sync()
}

// emptyLog moves everything from the log into the file. Closing does it too, but says nothing when it fails half-way, and the file without
// its log is then no store.
func (c *conn) emptyLog(ctx context.Context) error {
	busy := int64(0)
	err := c.query(ctx, "PRAGMA wal_checkpoint(TRUNCATE)", func(r []driver.Value) error { busy = num(r[0]); return nil })
	if err == nil && busy != 0 {
		err = errors.New("somebody else uses the file")
	}
	if err != nil {
		return fmt.Errorf("empty the log: %w", err)
	}
	return nil
}

// makeFolder makes path, private to the user, and syncs the folders that it made something in.
func makeFolder(path string) error {
	if fi, err := os.Stat(path); err == nil {
		if !fi.IsDir() {
			return fmt.Errorf("%s is in the way: it is no folder", path)
		}
		return nil
	}
	parent := filepath.Dir(path)
	if err := makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(parent)
}

// syncFolder makes the names in a folder durable. Some file systems can't sync folders, and say EINVAL.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errCantSync) {
		return err
	}
	return nil
}
