package act

import (
	"context"
	"errors"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/step"
)

// lastFetch is how long a run that is cancelled waits for what an agent has recorded.
const lastFetch = 5 * time.Second

var errCancelled = errors.New("the run was cancelled")

// changes stores what the agent has recorded of its changes, where it was told to record them. What can't be fetched is no failure of the prompt: the row
// says why it is missing.
func (e *PromptAgent) changes(ctx context.Context, c *step.Call, a *deploy.Agent) error {
	log := a.Changelog()
	if log == nil {
		return nil
	}
	keeping := context.WithoutCancel(ctx) // Keep is bounded by itself
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		keeping, cancel = context.WithTimeoutCause(keeping, lastFetch, errCancelled)
		defer cancel()
	}
	kept, err := log.Keep(keeping, e.store)
	if step.IsInfra(err) {
		return err
	}
	rec := step.AgentChangelog{Agent: a.Name, Step: c.Step, Roots: append([]string{}, log.Roots...), Mode: step.TransferObjects, URL: step.ChangelogURL(log.ID, 0)}
	if err != nil {
		c.Log.Warn("not all of the agent's changes could be kept", "agent", a.Name, "error", err)
		rec.Reason = reason(err)
	}
	if kept == nil && err == nil {
		return nil // nothing was changed
	}
	if kept != nil {
		rec.URL, rec.ID, rec.Version, rec.Increments = step.ChangelogURL(kept.ID, kept.Version), kept.ID, kept.Version, kept.Increments
	}
	return c.Out.Append(step.AgentChangelogPath, rec)
}
