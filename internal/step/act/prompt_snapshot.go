package act

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// series takes snapshots of an agent, and of an environment, while it is prompted, as snapshot_config says. Those taken within the prompt may fail; the
// last one may not.
type series struct {
	c            *step.Call
	store        store.Store
	agent        *deploy.Agent
	conversation string
	env          *deploy.Env // nil for none
	every        time.Duration
	atEnd        bool
	perTurn      bool
	limit        time.Duration
	most         int

	stop context.CancelFunc
	wg   sync.WaitGroup

	one   sync.Mutex // held while a snapshot is taken
	taken int        // within the prompt
	full  bool       // that most were taken is on record
}

// snapshots begins the series of a step; nil for a step without one. The caller ends it.
func (e *PromptAgent) snapshots(ctx context.Context, c *step.Call, a *deploy.Agent, conversation string) (*series, error) {
	d := c.Doc.Get("snapshot_config")
	if d.Kind() != doc.Object {
		return nil, nil
	}
	if err := a.Saves(); err != nil {
		return nil, step.Errorf("NotServedError", "snapshot_config: agent %s can't be saved: %w", diag.Repr(a.Name), err)
	}
	s := &series{c: c, store: e.store, agent: a, conversation: conversation, every: seconds(d, "interval_seconds"), limit: seconds(d, "timeout_seconds")}
	s.atEnd, _ = d.Get("at_end").Bool()
	s.perTurn, _ = d.Get("per_turn").Bool()
	most, _ := d.Get("max_snapshots").Int()
	s.most = int(most)
	if id := d.Get("env_id").Text(); id != "" {
		var err error
		if s.env, err = e.envs.Env(c.Run, id, ""); err != nil {
			return nil, &step.Error{Type: "NotFoundError", Err: err}
		}
	}
	ctx, s.stop = context.WithCancel(ctx)
	if s.every > 0 {
		s.wg.Go(func() { s.tick(ctx) })
	}
	return s, nil
}

// tick takes one every so often: the pause is between two, so that they never overtake each other.
func (s *series) tick(ctx context.Context) {
	t := time.NewTimer(s.every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if !s.within(ctx, 0) {
			return
		}
		t.Reset(s.every)
	}
}

// turn takes one between two turns of the conversation, of which number have ended.
func (s *series) turn(ctx context.Context, number int) {
	if s != nil && s.perTurn {
		s.within(ctx, number)
	}
}

// within takes one that doesn't count for the prompt's outcome; false when there were enough.
func (s *series) within(ctx context.Context, turn int) bool {
	s.one.Lock()
	defer s.one.Unlock()
	if s.taken >= s.most {
		if !s.full {
			s.full = true
			s.keep(step.AgentSnapshot{Status: step.SnapshotSkipped, Reason: "limit_reached", Turn: turn})
		}
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	s.taken++
	_ = s.take(ctx, step.AgentSnapshot{Turn: turn}) // why not is on record
	return true
}

// end stops the series, with a last one where the step wants that. s may be nil. The error is that of the last one.
func (s *series) end(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.stop()
	s.wg.Wait()
	if !s.atEnd {
		return nil
	}
	last := step.AgentSnapshot{Final: true}
	if ctx.Err() != nil {
		last.Status, last.Reason = step.SnapshotSkipped, "cancelled"
		s.keep(last)
		return nil
	}
	return s.take(ctx, last)
}

// maxReason bounds why a snapshot failed, on record.
const maxReason = 300

// reason is why something is missing, as a row says it.
func reason(err error) string {
	s := diag.Clean(err.Error())
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}

// take takes one snapshot and records it.
func (s *series) take(ctx context.Context, row step.AgentSnapshot) error {
	limited, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("the snapshot took more than %s", s.limit))
	defer cancel()
	pin, _, err := s.agent.Snapshot(limited, s.store, deploy.AgentSnapshot{
		ID: step.AgentSnapshotID(s.c.Run, s.c.Step, "workspace"), Conversation: s.conversation, Limit: s.limit,
	})
	if err == nil {
		row.ID, row.Version = pin.ID, pin.Version
		if s.env != nil {
			pin, _, err = s.env.Snapshot(limited, s.store, deploy.Snapshot{ID: step.AgentSnapshotID(s.c.Run, s.c.Step, path.Base(s.env.ID)), Limit: s.limit})
			row.Env, row.EnvVersion = pin.ID, pin.Version
		}
	}
	row.Status = step.SnapshotOK
	switch {
	case err != nil && ctx.Err() != nil:
		row.Status, row.Reason = step.SnapshotSkipped, "cancelled"
		if row.ID != "" { // the agent's is stored: the row is one of it
			row.Status = step.SnapshotPartial
		}
		err = nil
	case err != nil:
		row.Status, row.Reason = step.SnapshotFailed, reason(err)
		if row.ID != "" {
			row.Status = step.SnapshotPartial
		}
		s.c.Log.Warn("a snapshot failed", "agent", s.agent.Name, "final", row.Final, "error", err)
	}
	s.keep(row)
	switch {
	case err == nil || step.IsInfra(err):
		return err
	case errors.Is(err, deploy.ErrExport):
		return &step.Error{Type: "SnapshotError", Err: fmt.Errorf("the last snapshot of agent %s: %w", diag.Repr(s.agent.Name), err)}
	default:
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
}

// keep records a row.
func (s *series) keep(row step.AgentSnapshot) {
	row.Agent, row.Context, row.Step = s.agent.Name, s.conversation, s.c.Step
	row.At = time.Now().UTC().Format(time.RFC3339)
	if err := s.c.Out.Append(step.AgentSnapshotsPath, row); err != nil { // of texts and numbers
		s.c.Log.Error("a snapshot can't be recorded", "error", err)
	}
}
