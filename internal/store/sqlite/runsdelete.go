package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"

	"agentenv.internal/agentenv/internal/runlog"
)

// deletedAtOnce is how many runs one transaction deletes, so that nobody waits for long.
const deletedAtOnce = 64

// Delete forgets runs that nobody drives.
func (l *log) Delete(ctx context.Context, runs ...string) ([]string, error) {
	var deleted []string
	for some := range slices.Chunk(runs, deletedAtOnce) {
		var done []string
		err := l.s.write(ctx, relaxed, func(c *conn) error {
			done = done[:0]
			inner := context.WithoutCancel(ctx)
			for _, id := range some {
				ok, err := l.delete(inner, c, id)
				if err != nil {
					return err
				}
				if ok {
					done = append(done, id)
				}
			}
			return nil
		})
		if err != nil {
			return deleted, err
		}
		deleted = append(deleted, done...)
	}
	if len(deleted) > 0 {
		l.hub.wake("") // their followers
	}
	return deleted, nil
}

// delete forgets one run unless it must stay. Rows of other tables name a run by its seq alone, which the next run made gets from the highest one: so the
// run with that one stays, and no seq is ever used twice.
func (l *log) delete(ctx context.Context, c *conn, id string) (bool, error) {
	found, stays := false, false
	var seq int64
	err := c.query(ctx, `SELECT seq, status, epoch||'|'||until||'|'||pid||'|'||pid_started||'|'||host||'|'||boot, seq=(SELECT max(seq) FROM runs)
		FROM runs WHERE id=?`, func(r []driver.Value) error {
		found, seq = true, num(r[0])
		was := readClaimed(str(r[2]))
		driven := was.live(l.s.now(), l.me()) || was.epoch == 0 && !was.gone(l.me())
		stays = num(r[3]) == 1 || driven && !runlog.Status(str(r[1])).Ended()
		return nil
	}, id)
	if err != nil || !found || stays {
		return false, err
	}
	l.claims++ // a claim whose owner comes back has ended
	for _, text := range []string{"DELETE FROM requests WHERE run=?", "DELETE FROM events WHERE run=?", "DELETE FROM runs WHERE seq=?"} {
		if _, err := c.exec(ctx, text, seq); err != nil {
			return false, err
		}
	}
	return true, nil
}

var _ runlog.Deleter = (*log)(nil)
