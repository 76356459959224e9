package world

import (
	"context"

	"agentenv.internal/agentenv/internal/step"
)

// ResetEnv empties a deployed environment. Unless its step says that a failure stops the task, what goes wrong is told and nothing more.
type ResetEnv struct{ envs Environments }

// NewResetEnv makes the executor.
func NewResetEnv(e Environments) *ResetEnv { return &ResetEnv{e} }

// Run resets every server of the environment.
func (e *ResetEnv) Run(ctx context.Context, c *step.Call) error {
	v, err := e.envs.Env(c.Run, c.Doc.Get("env_id").Text(), "")
	if err == nil {
		err = v.Reset(ctx)
	}
	fatal, _ := c.Doc.Get("fail_task_on_error").Bool()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		c.Log.Info("reset", "env", v.ID)
		return nil
	case fatal:
		return &step.Error{Type: "ResetError", Err: err}
	default:
		c.Log.Warn("could not be reset", "env", c.Doc.Get("env_id").Text(), "error", err)
		return nil
	}
}
