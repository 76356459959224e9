package hostcalls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// maxRuns is how many runs one answer holds, and maxContexts how many with their contexts.
const (
	maxRuns     = 1000
	maxContexts = 100
)

// queryRuns reads runs of the store, newest first. A person's command may read all of them. A step may not: what other runs left is none of its business, and
// a task must not find the answers of an earlier attempt.
func (c *Calls) queryRuns(ctx context.Context, by *host.Caller, in struct {
	Run     string          `json:"run"`
	Task    string          `json:"task"`
	Status  []runlog.Status `json:"status"`
	Context bool            `json:"context"`
	Limit   int             `json:"limit"`
	After   string          `json:"after"`
},
) (any, error) {
	if by.Run != "" {
		return nil, host.Refuse("runs are read by commands alone: a step works for its own run, whose context it has")
	}
	most := maxRuns
	if in.Context {
		most = maxContexts
	}
	if in.Limit < 0 {
		return nil, rpc.Errorf(rpc.CodeParams, "limit can't be negative")
	}
	if in.Limit == 0 {
		in.Limit = 100
	}
	log, err := c.Runs(ctx)
	if err != nil {
		return nil, err
	}
	var page runlog.Page
	if in.Run != "" {
		id, err := log.Resolve(ctx, in.Run)
		if errors.Is(err, runlog.ErrNotFound) {
			return nil, host.Refuse("there is no run %s", diag.Repr(in.Run))
		}
		if err != nil {
			return nil, host.Refuse("%v", err)
		}
		s, err := log.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		page.Runs = []runlog.Summary{s}
	} else if page, err = log.List(ctx, runlog.Query{Task: in.Task, Status: slices.Clone(in.Status), After: in.After, Limit: min(in.Limit, most)}); err != nil {
		return nil, host.Refuse("%v", err)
	}
	out := []ranRun{}
	for _, s := range page.Runs {
		r := ranRun{s.ID, s.Task, s.TaskVersion, s.Label, s.Bundle, s.Eval, s.Trial, s.Status, s.Created, s.Started, s.Ended, s.Error, s.Scores, nil}
		if in.Context {
			if r.Context, err = c.Context(ctx, s.ID); err != nil {
				return nil, fmt.Errorf("read the context of %s: %w", s.ID, err)
			}
		}
		out = append(out, r)
	}
	return map[string]any{"runs": out, "next": page.Next}, nil
}

// ranRun is a run as plugins read it.
type ranRun struct {
	ID          string             `json:"id"`
	Task        string             `json:"task_id"`
	TaskVersion int                `json:"task_version"`
	Label       string             `json:"label"`
	Bundle      string             `json:"bundle,omitempty"`
	Eval        string             `json:"eval,omitempty"`
	Trial       int                `json:"trial,omitempty"`
	Status      runlog.Status      `json:"status"`
	Created     time.Time          `json:"created"`
	Started     time.Time          `json:"started,omitzero"`
	Ended       time.Time          `json:"ended,omitzero"`
	Error       string             `json:"error,omitempty"`
	Scores      map[string]float64 `json:"scores,omitempty"`
	Context     json.RawMessage    `json:"context,omitempty"`
}
