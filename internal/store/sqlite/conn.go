package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"syscall"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// busyWait is how long, in milliseconds, a connection waits for another process's write.
const busyWait = 30_000

// conn is one connection, used by one goroutine at a time. It speaks to the driver itself, since database/sql's transactions
// cost more than the append of an event does.
type conn struct {
	c       driver.Conn
	stmts   map[string]driver.Stmt
	args    []driver.NamedValue
	durable durability // of a writer: what PRAGMA synchronous says now
}

// dsn spells a path as a URI, so that blanks, '?', '#', '%' and letters of any script in it are only letters.
func dsn(path string, params ...string) string {
	u := url.URL{Scheme: "file", Path: path}
	q := url.Values{"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyWait)}, "_txlock": {"immediate"}}
	for i := 0; i+1 < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	return u.String() + "?" + q.Encode()
}

func dial(ctx context.Context, dsn string) (*conn, error) {
	k, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	c, err := k.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, stmts: map[string]driver.Stmt{}}, nil
}

// dialReader opens an existing file for reading. In a folder that can't be written, and where nobody has the store open,
// the file is read as it lies: SQLite can't make the shared memory that it would need for more.
func dialReader(ctx context.Context, path string) (*conn, error) {
	c, err := dial(ctx, dsn(path, "mode", "rw", "_pragma", "query_only(1)"))
	if err == nil {
		if _, err = c.version(ctx); err == nil {
			return c, nil
		}
		_ = c.close()
	}
	if code := codeOf(err); code != lib.SQLITE_CANTOPEN && code != lib.SQLITE_READONLY {
		return nil, err
	}
	if !settled(path) {
		return nil, err
	}
	return dial(ctx, dsn(path, "mode", "ro", "immutable", "1", "_pragma", "query_only(1)"))
}

func (c *conn) stmt(ctx context.Context, q string) (driver.Stmt, error) {
	if st, ok := c.stmts[q]; ok {
		return st, nil
	}
	st, err := c.c.(driver.ConnPrepareContext).PrepareContext(ctx, q)
	if err != nil {
		return nil, err
	}
	c.stmts[q] = st
	return st, nil
}

func (c *conn) bind(args []driver.Value) []driver.NamedValue {
	c.args = c.args[:0]
	for i, v := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return c.args
}

// exec runs one statement and answers how many rows it changed. The statement is kept, so q must be one of a few texts.
func (c *conn) exec(ctx context.Context, q string, args ...driver.Value) (int64, error) {
	st, err := c.stmt(ctx, q)
	if err != nil {
		return 0, err
	}
	res, err := st.(driver.StmtExecContext).ExecContext(ctx, c.bind(args))
	if err != nil {
		return 0, err
	}
	if res == nil { // BEGIN and COMMIT
		return 0, nil
	}
	return res.RowsAffected()
}

// query calls row for every row; the slice is used again for the next one.
func (c *conn) query(ctx context.Context, q string, row func([]driver.Value) error, args ...driver.Value) (err error) {
	st, err := c.stmt(ctx, q)
	if err != nil {
		return err
	}
	rows, err := st.(driver.StmtQueryContext).QueryContext(ctx, c.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	dest := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(dest); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := row(dest); err != nil {
			return err
		}
	}
}

// script runs statements that aren't kept.
func (c *conn) script(ctx context.Context, q string) error {
	_, err := c.c.(driver.ExecerContext).ExecContext(ctx, q, nil)
	return err
}

func (c *conn) version(ctx context.Context) (int, error) {
	v := 0
	err := c.query(ctx, "PRAGMA user_version", func(r []driver.Value) error { v = int(num(r[0])); return nil })
	return v, err
}

// snapshot runs f inside a read transaction.
func (c *conn) snapshot(ctx context.Context, f func(*conn) error) error {
	if _, err := c.exec(ctx, "BEGIN DEFERRED"); err != nil {
		return err
	}
	err := f(c)
	if _, rerr := c.exec(context.WithoutCancel(ctx), "ROLLBACK"); err == nil {
		err = rerr
	}
	return err
}

// transaction runs f inside a write transaction.
func (c *conn) transaction(ctx context.Context, d durability, f func(*conn) error) error {
	after := context.WithoutCancel(ctx)
	if c.durable != d {
		mode := "PRAGMA synchronous=NORMAL"
		if d == durable {
			mode = "PRAGMA synchronous=FULL"
		}
		if _, err := c.exec(after, mode); err != nil {
			return err
		}
		c.durable = d
	}
	if _, err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f(c)
	if err == nil {
		_, err = c.exec(after, "COMMIT")
	}
	if err != nil {
		_, _ = c.exec(after, "ROLLBACK") // fails only where SQLite has rolled back itself
	}
	return err
}

// checkpoint moves what the log beside store.db holds into the file, as far as nobody reads older moments.
func (c *conn) checkpoint(ctx context.Context) error {
	return c.script(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)")
}

// reclaim gives the disk back what a transaction that filled it has written to the log. The connection is to be closed after.
func (c *conn) reclaim(ctx context.Context) {
	_ = c.script(context.WithoutCancel(ctx), "PRAGMA busy_timeout=200; PRAGMA wal_checkpoint(TRUNCATE)")
}

func (c *conn) close() error {
	for _, st := range c.stmts {
		_ = st.Close()
	}
	return c.c.Close()
}

// broken tells whether the connection shall not be used again after err.
func (c *conn) broken(err error) bool {
	switch codeOf(err) {
	case lib.SQLITE_OK, lib.SQLITE_BUSY, lib.SQLITE_INTERRUPT, lib.SQLITE_CONSTRAINT:
		return false
	}
	return true
}

// codeOf is SQLite's primary result code, SQLITE_OK for errors of other origin.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		if e.Code() == lib.SQLITE_IOERR_SHMSIZE { // the file that its processes share could not grow: this is how a full disk is met first
			return lib.SQLITE_FULL
		}
		return e.Code() & 0xff
	}
	return lib.SQLITE_OK
}

// explain turns SQLite's errors into what people can act on.
func (s *Store) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch codeOf(err) {
	case lib.SQLITE_OK:
		if _, told := errors.AsType[*closedFolder](err); told || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return err
		}
		return &closedFolder{doing: doing, root: s.root, err: err}
	case lib.SQLITE_BUSY:
		return fmt.Errorf("%s the store %s: another process has been writing to it for %d seconds; if one is stopped, continue or end it",
			doing, s.root, busyWait/1000)
	case lib.SQLITE_FULL:
		return fmt.Errorf("%s the store %s: %w; free some space and try again", doing, s.root, syscall.ENOSPC)
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return fmt.Errorf("%s the store %s: its folder or store.db can't be opened as needed; check their owner and mode: %w", doing, s.root, err)
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return fmt.Errorf("%s the store %s: store.db: %w", doing, s.root, errDamaged)
	}
	return fmt.Errorf("%s the store %s: %w", doing, s.root, err)
}

// closedFolder is a failure of the store's folder that its owner or mode, or the way its disk is mounted, explains.
type closedFolder struct {
	doing, root string
	err         error
}

func (e *closedFolder) Error() string {
	return fmt.Sprintf("%s the store %s: its folder can't be used as needed; check its owner and mode, and whether its disk may be written: %v", e.doing, e.root, e.err)
}

func (e *closedFolder) Unwrap() error { return e.err }

func num(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

func str(v driver.Value) string {
	s, _ := v.(string)
	return s
}

func blob(v driver.Value) []byte {
	b, _ := v.([]byte)
	return b
}

// micros is a time as columns hold it: 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
