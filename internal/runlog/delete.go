package runlog

import "context"

// Deleter is a Log that can forget runs.
type Deleter interface {
	// Delete forgets runs, with their events and what was asked of them, and answers those that it forgot. Left alone are runs that somebody drives,
	// runs that may be about to start, and the run that was made last, from which the order of runs is counted on. An id that no run has is none of those.
	// An owner that was stopped and wakes up after it finds itself fenced.
	Delete(ctx context.Context, runs ...string) (deleted []string, err error)
}
