// Package sqlite keeps documents, objects and runs in one folder: an SQLite file, and files for large objects.
//
//	store.db       documents, small objects, events of runs
//	objects/ab/…   objects above 64 KiB, named by their sha256; a row of store.db says that they are in the store
//	tmp/           a folder for each writer of files, which it keeps locked; what a dead writer left is swept by the next Begin
//
// Open touches nothing. A folder that doesn't exist reads as an empty store, and the first write makes it.
// One connection writes, in the order in which callers come; others read beside it. Processes share the folder through
// SQLite's locks, so it must lie on a local disk.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	lib "modernc.org/sqlite/lib"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
)

// Options of Open; the zero value is right for programs.
type Options struct {
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Poll is how often followers and owners look for what other processes wrote; 0 is 100 ms.
	Poll time.Duration
}

// readers is how many connections read at once.
const readers = 4

// Store is a store.Store on a folder. Its methods may be called from several goroutines.
type Store struct {
	root string
	now  func() time.Time
	runs *log

	writer chan *conn    // holds the one writing connection, or nil before the first write
	slots  chan struct{} // one per connection that reads

	mu     sync.Mutex
	idle   []*conn
	there  bool // store.db was seen with a schema that this program knows
	closed bool
}

var errClosed = errors.New("the store is closed")

// Open answers the store in root, which need not exist.
func Open(root string, o Options) (*Store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Poll <= 0 {
		o.Poll = 100 * time.Millisecond
	}
	s := &Store{root: root, now: o.Now, writer: make(chan *conn, 1), slots: make(chan struct{}, readers)}
	s.writer <- nil
	s.runs = newLog(s, o.Poll)
	return s, nil
}

// Runs is the run log on the same file.
func (s *Store) Runs() runlog.Log { return s.runs }

// Close ends followers, waits for the writer and closes all connections. Reads under way end first.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.runs.close()
	var errs []error
	for range readers {
		s.slots <- struct{}{}
	}
	for _, c := range s.idle {
		errs = append(errs, c.close())
	}
	s.idle = nil
	for range readers { // later reads find the store closed
		<-s.slots
	}
	if w := <-s.writer; w != nil {
		errs = append(errs, w.close())
	}
	s.writer <- nil
	return errors.Join(errs...)
}

func (s *Store) file() string            { return filepath.Join(s.root, "store.db") }
func (s *Store) path(p ...string) string { return filepath.Join(append([]string{s.root}, p...)...) }

func (s *Store) stamp() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// read runs f on a connection that reads; f isn't called when there is no store yet. Within f every query sees the same moment.
func (s *Store) read(ctx context.Context, f func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.slots }()
	c, err := s.reader(ctx)
	if err != nil || c == nil {
		return err
	}
	if err := c.snapshot(ctx, f); err != nil {
		if c.broken(err) {
			_ = c.close()
		} else {
			s.release(c)
		}
		return s.explain("read", err)
	}
	s.release(c)
	return nil
}

func (s *Store) release(c *conn) {
	s.mu.Lock()
	s.idle = append(s.idle, c)
	s.mu.Unlock()
}

// reader answers an idle or a new connection, or nil when there is no store.
func (s *Store) reader(ctx context.Context) (*conn, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return c, nil
	}
	there := s.there
	s.mu.Unlock()
	if !there {
		if _, err := os.Lstat(s.file()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, s.explain("open", err)
		}
	}
	c, err := dialReader(ctx, s.file())
	if err != nil {
		return nil, s.explain("open", err)
	}
	if there {
		return c, nil
	}
	version, err := c.version(ctx)
	if err == nil {
		err = s.known(version, len(migrations))
	}
	if err == nil && version < len(migrations) {
		err = s.write(ctx, relaxed, func(*conn) error { return nil })
	}
	if err != nil {
		_ = c.close()
		return nil, s.explain("open", err)
	}
	s.mu.Lock()
	s.there = true
	s.mu.Unlock()
	return c, nil
}

// durability of a commit.
type durability bool

const (
	durable durability = true  // on the disk when write returns
	relaxed durability = false // safe from a kill; a power cut may take the last moments
)

// write runs f inside one transaction: all or nothing. Only waiting for the turn and for the lock ends with ctx.
func (s *Store) write(ctx context.Context, d durability, f func(*conn) error) error {
	return s.onWriter(ctx, func(c *conn) error {
		err := c.transaction(ctx, d, f)
		if codeOf(err) == lib.SQLITE_FULL {
			c.reclaim(ctx)
		}
		return err
	})
}

// onWriter runs f on the connection that writes, alone.
func (s *Store) onWriter(ctx context.Context, f func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var c *conn
	select {
	case c = <-s.writer:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.writer <- c }()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errClosed
	}
	if c == nil {
		var err error
		if c, err = s.openWriter(ctx); err != nil {
			return s.explain("write", err)
		}
	}
	err := f(c)
	if err != nil && c.broken(err) {
		_ = c.close()
		c = nil
	}
	return s.explain("write", err)
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Pruner = (*Store)(nil)
)
