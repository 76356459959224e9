package world

import (
	"context"
	"errors"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// cliPath is where build_mcp_cli leaves the command that it stored last.
const cliPath = "metadata/cli_artifact"

// BuildMCPCLI stores a command that calls the tools of a deployed environment.
type BuildMCPCLI struct {
	store store.Store
	envs  Environments
}

// NewBuildMCPCLI makes the executor.
func NewBuildMCPCLI(s store.Store, e Environments) *BuildMCPCLI { return &BuildMCPCLI{s, e} }

// builtCLI is what cliPath holds.
type builtCLI struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Type    string `json:"type"`
}

// Run stores the command, unless the latest version of it says the same.
func (e *BuildMCPCLI) Run(ctx context.Context, c *step.Call) error {
	v, err := e.envs.Env(c.Run, c.Doc.Get("env_id").Text(), "")
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	id := c.Doc.Get("cli_artifact_id").Text()
	if id == "" {
		id = ref.Derived(v.ID, "cli")
	}
	p, fresh, err := v.StoreCommand(ctx, e.store, id, c.Doc.Get("command_name").Text(), false)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, deploy.ErrManifest):
		return &step.Error{Type: "ValueError", Err: err}
	default:
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	c.Log.Info("command stored", "artifact", p.ID, "version", p.Version, "new", fresh, "env", v.ID)
	return c.Out.Set(cliPath, builtCLI{p.ID, p.Version, artifact.CLI})
}
