package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/internal/trajectory/live"
)

// AgentTurn is what an agent did about one message of a step.
type AgentTurn struct {
	Step    string `json:"step"`
	Attempt int    `json:"attempt"`
	Agent   string `json:"agent"`
	Turn    int    `json:"turn"` // of the conversation, from 1
	// User: the agent played the user, and this is how it came to the next message.
	User bool `json:"user,omitempty"`
	// Open: the step has not ended, or was killed before it could. What the agent did is complete to the last thing that happened.
	Open       bool                   `json:"open,omitempty"`
	Trajectory *trajectory.Trajectory `json:"trajectory"`
}

// Turns are what the agents of a run did: of steps that ended as their record has it, of others as it was written while it happened. They are in the
// order of the steps.
func (a *App) Turns(ctx context.Context, log runlog.Log, id string) ([]AgentTurn, error) {
	sum, err := log.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	objects := bundlerun.NewObjects(s)
	var events []runlog.Event
	kept := map[string][]AgentTurn{} // by step, of its last attempt
	for e, err := range log.Events(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
		if e.Kind != runlog.StepEnded {
			continue
		}
		turns, err := keptTurns(ctx, objects, e)
		if err != nil {
			return nil, err
		}
		if len(turns) > 0 {
			kept[e.Step] = turns
		}
	}
	var out []AgentTurn
	for _, st := range runlog.Fold(sum, events).Steps {
		open, err := openTurns(deploy.RecordsOf(a.trajectories(), id), st)
		if err != nil {
			return nil, err
		}
		if k := kept[st.ID]; len(k) > 0 {
			open = before(open, k[0].Attempt)
			open = append(open, k...)
		}
		out = append(out, open...)
	}
	return out, nil
}

// before are the turns of attempts that are not on record.
func before(turns []AgentTurn, attempt int) []AgentTurn {
	var out []AgentTurn
	for _, t := range turns {
		if t.Attempt != attempt {
			out = append(out, t)
		}
	}
	return out
}

// keptTurns are those that the end of a step names.
func keptTurns(ctx context.Context, objects run.Objects, e runlog.Event) ([]AgentTurn, error) {
	ops, err := run.Outputs(ctx, objects, e)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", e.Step, err)
	}
	var out []AgentTurn
	for _, op := range ops {
		var p step.PromptResponse
		if op.Path != step.PromptsPath || json.Unmarshal(op.Value, &p) != nil {
			continue
		}
		for i, t := range p.Turns {
			for _, x := range []struct {
				agent string
				user  bool
				where *step.Trajectory
			}{{p.Agent, false, t.Trajectory}, {cmp.Or(p.UserAgent, "user"), true, t.User}} {
				if x.where == nil {
					continue
				}
				b, err := objects.Read(ctx, runlog.Object(x.where.ATIF))
				if err != nil {
					return nil, fmt.Errorf("the trajectory of step %s: %w", e.Step, err)
				}
				doc, err := trajectory.Parse(b)
				if err != nil {
					return nil, fmt.Errorf("the trajectory of step %s: %w", e.Step, err)
				}
				out = append(out, AgentTurn{Step: e.Step, Attempt: e.Attempt, Agent: x.agent, Turn: i + 1, User: x.user, Trajectory: doc})
			}
		}
	}
	return out, nil
}

// openTurns are those that a step is, or was, recording in a folder.
func openTurns(folder string, st runlog.StepRecord) ([]AgentTurn, error) {
	files, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what agents are doing: %w", err)
	}
	var out []AgentTurn
	began := map[*trajectory.Trajectory]time.Time{}
	for attempt := 1; attempt <= st.Attempt; attempt++ {
		prefix := url.PathEscape(st.ID) + "." + strconv.Itoa(attempt) + "."
		for _, f := range files {
			rest, ok := strings.CutPrefix(f.Name(), prefix)
			if !ok || !strings.HasSuffix(rest, ".jsonl") {
				continue
			}
			events, err := live.Read(filepath.Join(folder, f.Name()))
			if err != nil {
				return nil, fmt.Errorf("read what an agent does in step %s: %w", st.ID, err)
			}
			if len(events) == 0 {
				continue
			}
			agent, turn := turnOf(strings.TrimSuffix(rest, ".jsonl"))
			out = append(out, AgentTurn{
				Step: st.ID, Attempt: attempt, Agent: agent, Turn: turn, Open: true,
				Trajectory: trajectory.Fold(trajectory.AgentInfo{Name: agent, Version: "unknown"}, "", events),
			})
			began[out[len(out)-1].Trajectory] = events[0].At
		}
	}
	slices.SortStableFunc(out, func(a, b AgentTurn) int { return began[a.Trajectory].Compare(began[b.Trajectory]) })
	return out, nil
}

// turnOf is the agent and the turn of the end of a record's name: "NAME" or "NAME.N", where N counts from 1 after the first turn.
func turnOf(text string) (agent string, turn int) {
	turn = 1
	if i := strings.LastIndexByte(text, '.'); i > 0 {
		if n, err := strconv.Atoi(text[i+1:]); err == nil && n > 0 {
			text, turn = text[:i], n+1
		}
	}
	if name, err := url.PathUnescape(text); err == nil {
		text = name
	}
	return text, turn
}
