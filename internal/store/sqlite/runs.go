package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// log is a runlog.Log in a store's tables.
type log struct {
	s  *Store
	me func() process
	*hub
	appends
	claims uint64 // counts what this process did to claims; used only within the store's write transactions
}

func newLog(s *Store, poll time.Duration) *log {
	l := &log{s: s, me: sync.OnceValue(self)}
	l.hub = newHub(l, poll)
	return l
}

func (l *log) close() { l.hub.close() }

// claimed is a run's owner as its row says; before the first claim, epoch is 0 and the process is the one that made the run.
type claimed struct {
	epoch uint64
	until time.Time
	process
}

// live tells whether an owner renews the run.
func (c claimed) live(now time.Time, me process) bool {
	return c.epoch > 0 && c.until.After(now) && !c.gone(me)
}

func (c claimed) info() *runlog.OwnerInfo {
	return &runlog.OwnerInfo{Host: c.host, PID: c.pid, Epoch: c.epoch, Until: c.until}
}

// The columns of a list. The owner of an ended run is of no interest.
const runColumns = `seq, meta, state, CASE WHEN status IN ('queued','running') THEN
	epoch||'|'||until||'|'||pid||'|'||pid_started||'|'||host||'|'||boot END`

func readClaimed(s string) (c claimed) {
	f := strings.SplitN(s, "|", 6)
	if len(f) < 6 {
		return c
	}
	n := func(s string) int64 { v, _ := strconv.ParseInt(s, 10, 64); return v }
	return claimed{uint64(n(f[0])), fromMicros(n(f[1])), process{host: f[4], pid: int(n(f[2])), started: n(f[3]), boot: f[5]}}
}

// readRun is what people see of a row of runColumns.
func (l *log) readRun(r []driver.Value, now time.Time) (runlog.Summary, error) {
	s, err := runlog.Unpack(blob(r[1]), blob(r[2]))
	if err != nil {
		return s, fmt.Errorf("%w: %w", err, errDamaged)
	}
	if s.Status.Ended() {
		return s, nil
	}
	c := readClaimed(str(r[3]))
	live := c.live(now, l.me())
	s.Status = s.Status.Seen(live || c.epoch == 0 && !c.gone(l.me()))
	if live {
		s.Owner = c.info()
	}
	return s, nil
}

// Create adds a run.
func (l *log) Create(ctx context.Context, m runlog.Meta) error {
	m, err := runlog.PrepareMeta(m, l.s.now())
	if err != nil {
		return err
	}
	state := runlog.PackState(runlog.Summary{Status: runlog.Queued})
	me := l.me()
	return l.s.write(ctx, relaxed, func(c *conn) error {
		n, err := c.exec(context.WithoutCancel(ctx), `INSERT INTO runs(seq, id, task, grp, eval, created, status, started, ended, meta, state,
			epoch, host, pid, pid_started, boot, until, asked)
			VALUES((SELECT coalesce(max(seq), 0)+1 FROM runs),?,?,?,?,?,?,0,0,?,?,0,?,?,?,?,0,0) ON CONFLICT DO NOTHING`,
			m.ID, m.Task, m.Group, m.Eval, m.Created.UnixMicro(), string(runlog.Queued), runlog.PackMeta(m), state,
			me.host, int64(me.pid), me.started, me.boot)
		if err == nil && n == 0 {
			err = fmt.Errorf("%s: %w", m.ID, runlog.ErrExists)
		}
		return err
	})
}

// Get is one run.
func (l *log) Get(ctx context.Context, id string) (runlog.Summary, error) {
	var s runlog.Summary
	found := false
	err := l.s.read(ctx, func(c *conn) error {
		return c.query(ctx, "SELECT "+runColumns+" FROM runs WHERE id=?", func(r []driver.Value) (err error) {
			found = true
			s, err = l.readRun(r, l.s.now())
			return err
		}, id)
	})
	if err == nil && !found {
		err = runlog.NotFound(id)
	}
	return s, err
}

// List is a page of runs, newest first.
func (l *log) List(ctx context.Context, q runlog.Query) (runlog.Page, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = runlog.DefaultLimit
	}
	at := runlog.Cursor{Created: 1<<63 - 1, Seq: 1<<63 - 1}
	if q.After != "" {
		var err error
		if at, err = runlog.ParseCursor(q.After); err != nil {
			return runlog.Page{}, err
		}
	}
	now := l.s.now()
	text, fixed := runsQuery(q)
	var p runlog.Page
	err := l.s.read(ctx, func(c *conn) error {
		// Who is alive no index knows: rows that turn out to be unwanted are made up for by a further query.
		for {
			rows, full := 0, false
			last := at
			err := c.query(ctx, text, func(r []driver.Value) error {
				rows++
				s, err := l.readRun(r, now)
				if err != nil || full {
					return err
				}
				if q.Wants(s) {
					if len(p.Runs) == limit {
						p.Next, full = at.String(), true
						return nil
					}
					p.Runs = append(grown(p.Runs, limit), s)
					at = runlog.Cursor{Created: s.Created.UnixMicro(), Seq: num(r[0])}
				}
				last = runlog.Cursor{Created: s.Created.UnixMicro(), Seq: num(r[0])}
				return nil
			}, append(slices.Clone(fixed), last.Created, last.Seq, int64(limit+1))...)
			if err != nil || full || rows <= limit {
				return err
			}
			at = last
		}
	})
	if err != nil {
		return runlog.Page{}, err
	}
	return p, nil
}

// grown makes room in steps of four, up to limit: summaries are large, and a page may be of any length.
func grown[T any](s []T, limit int) []T {
	if len(s) == cap(s) {
		return slices.Grow(s, max(1, min(limit-len(s), max(64, 3*len(s)))))
	}
	return s
}

// runsQuery is one of a few texts. Its last parameters are the cursor and the limit.
func runsQuery(q runlog.Query) (string, []driver.Value) {
	text := "SELECT " + runColumns + " FROM runs WHERE "
	var args []driver.Value
	term := func(column, v string) {
		if v != "" {
			text += column + "=? AND "
			args = append(args, v)
		}
	}
	term("task", q.Task)
	term("grp", q.Group)
	term("eval", q.Eval)
	var ended []string
	open := false
	for _, s := range q.Status {
		if s.Ended() {
			ended = append(ended, string(s))
		} else {
			open = true
		}
	}
	switch {
	case open && len(ended) == 0:
		text += "status IN ('queued','running') AND " // as the index runs_open spells it
	case len(ended) > 0:
		if open {
			ended = append(ended, string(runlog.Queued), string(runlog.Running))
		}
		text += "status IN (?" + strings.Repeat(",?", len(ended)-1) + ") AND "
		for _, s := range ended {
			args = append(args, s)
		}
	}
	return text + "(created, seq) < (?, ?) ORDER BY created DESC, seq DESC LIMIT ?", args
}

// Resolve completes what people type of a run id.
func (l *log) Resolve(ctx context.Context, text string) (string, error) {
	var matches []string
	err := l.s.read(ctx, func(c *conn) error {
		return c.query(ctx, "SELECT id FROM runs WHERE instr(id, ?) > 0 ORDER BY created DESC, seq DESC", func(r []driver.Value) error {
			if id := str(r[0]); runlog.Match(id, text) {
				matches = append(matches, id)
			}
			return nil
		}, text)
	})
	if err != nil {
		return "", err
	}
	return runlog.Pick(text, matches)
}

// Ask leaves a request for the owner.
func (l *log) Ask(ctx context.Context, id string, q runlog.Request) error {
	err := l.s.write(ctx, relaxed, func(c *conn) error {
		inner := context.WithoutCancel(ctx)
		var run, asked int64
		status := runlog.Status("")
		if err := c.query(inner, "SELECT seq, status, asked FROM runs WHERE id=?", func(r []driver.Value) error {
			run, status, asked = num(r[0]), runlog.Status(str(r[1])), num(r[2])+1
			return nil
		}, id); err != nil {
			return err
		}
		if run == 0 {
			return runlog.NotFound(id)
		}
		if status.Ended() {
			return fmt.Errorf("%s: %w", id, runlog.ErrEnded)
		}
		if _, err := c.exec(inner, "INSERT INTO requests VALUES(?,?,?,?,?)", run, asked, q.Kind, q.Step, text(q.Data)); err != nil {
			return err
		}
		_, err := c.exec(inner, "UPDATE runs SET asked=? WHERE seq=?", asked, run)
		return err
	})
	if err == nil {
		l.hub.poke()
	}
	return err
}

// text is JSON as a column holds it, NULL for none.
func text(b []byte) driver.Value {
	if len(b) == 0 {
		return nil
	}
	return string(b)
}
