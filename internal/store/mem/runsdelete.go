package mem

import (
	"context"

	"agentenv.internal/agentenv/internal/runlog"
)

// Delete forgets runs that nobody drives.
func (l *log) Delete(ctx context.Context, runs ...string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var last int64
	for _, r := range l.runs {
		last = max(last, r.seq)
	}
	var deleted []string
	for _, id := range runs {
		r := l.runs[id]
		if r == nil || r.seq == last || !r.sum.Status.Ended() && (r.epoch == 0 || r.until.After(l.now())) {
			continue
		}
		delete(l.runs, id)
		r.owner = nil // whoever still holds it is fenced
		close(r.changed)
		r.changed = make(chan struct{})
		deleted = append(deleted, id)
	}
	return deleted, nil
}

var _ runlog.Deleter = (*log)(nil)
